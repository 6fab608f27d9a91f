// text_stream.c - keeps the origin of each byte (draft or target) and prints bytes once they are final.
#include "commands/text_stream.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAFTED "\033[32m" // green
#define PLAIN "\033[0m"

bool printer_wants_colour(FILE *to)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(to)) && (no_color == NULL || *no_color == '\0') && term != NULL && strcmp(term, "dumb") != 0;
}

// Prints bytes up to `to`, drafted ones in colour. The colour is reset after each run, so an interrupt leaves it plain.
static void show(struct printer *p, size_t to)
{
    while (p->to != NULL && p->shown < to) {
        size_t from = p->shown, end = from + 1;
        while (end < to && p->from_draft.s[end] == p->from_draft.s[from])
            end++;
        bool colour = p->colour && p->from_draft.s[from] == 'y';
        fprintf(p->to, "%s", colour ? DRAFTED : "");
        fwrite(p->text.s + from, 1, end - from, p->to);
        fprintf(p->to, "%s", colour ? PLAIN : "");
        p->shown = end;
    }
    if (p->to != NULL)
        fflush(p->to);
}

// Extends the origins to n bytes.
static void mark(struct text *origins, size_t n, char origin)
{
    while (origins->n < n)
        text_add(origins, &origin, 1);
}

// Decodes the bytes up to `to`. A character has the origin of its last byte.
static void decode(struct printer *p, size_t to)
{
    while (p->decoded < to) {
        const size_t from = p->decoded;
        const char origin = p->raw_from_draft.s[from];
        while (p->decoded < to && p->raw_from_draft.s[p->decoded] == origin)
            p->decoded++;
        tokenizer_decode_bytes(&p->hold, p->raw.s + from, p->decoded - from, &p->text);
        mark(&p->from_draft, p->text.n, origin);
    }
}

void printer_add(struct printer *p, const int32_t *token, int n, int n_accepted)
{
    for (int i = 0; i < n; i++, p->tokens++) {
        const char origin = i < n_accepted ? 'y' : 'n';
        if (p->stops.tokenizer == NULL)
            text_printf(&p->text, "%s%d", p->tokens == 0 ? "[" : ", ", token[i]);
        else
            stop_strings_add(&p->stops, token[i], &p->raw);
        mark(&p->from_draft, p->text.n, origin);
        mark(&p->raw_from_draft, p->raw.n, origin);
    }
    decode(p, stop_strings_cut(&p->stops, p->raw.s, p->raw.n, true));
    show(p, p->text.n);
}

void printer_end(struct printer *p, bool at_stop_string)
{
    decode(p, at_stop_string ? stop_strings_cut(&p->stops, p->raw.s, p->raw.n, false) : p->raw.n);
    tokenizer_decode_end(&p->hold, &p->text);
    if (p->stops.tokenizer == NULL)
        text_puts(&p->text, p->tokens == 0 ? "[]" : "]");
    text_puts(&p->text, "");
    mark(&p->from_draft, p->text.n, 'n');
    show(p, p->text.n);
    if (p->to != NULL && (p->text.n == 0 || p->text.s[p->text.n - 1] != '\n'))
        fprintf(p->to, "\n");
}

void printer_free(struct printer *p)
{
    free(p->text.s);
    free(p->from_draft.s);
    free(p->raw.s);
    free(p->raw_from_draft.s);
}
