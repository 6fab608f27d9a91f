// text_stream.c - keeps the origin of each byte (draft or target) and prints characters once they are final.
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

// Prints the text from a byte on. The colour is reset after each run, so an interrupt leaves it plain.
static void show(struct printer *p, size_t from, bool drafted)
{
    if (p->to == NULL || from == p->text.n)
        return;
    fprintf(p->to, "%s", p->colour && drafted ? DRAFTED : "");
    fwrite(p->text.s + from, 1, p->text.n - from, p->to);
    fprintf(p->to, "%s", p->colour && drafted ? PLAIN : "");
    fflush(p->to);
}

// Decodes the bytes up to `to` and prints them. A character has the origin of its last byte.
static void decode(struct printer *p, size_t to)
{
    while (p->decoded < to) {
        const size_t from = p->decoded, shown = p->text.n;
        while (p->decoded < to && p->from_draft.s[p->decoded] == p->from_draft.s[from])
            p->decoded++;
        tokenizer_decode_bytes(&p->hold, p->raw.s + from, p->decoded - from, &p->text);
        show(p, shown, p->from_draft.s[from] == 'y');
    }
}

void printer_add(struct printer *p, const int32_t *token, int n, int n_accepted)
{
    size_t shown = p->text.n;
    for (int i = 0; i < n; i++, p->tokens++) {
        if (p->stops.tokenizer == NULL)
            text_printf(&p->text, "%s%d", p->tokens == 0 ? "[" : ", ", token[i]);
        else
            stop_strings_add(&p->stops, token[i], &p->raw);
        while (p->from_draft.n < p->raw.n)
            text_puts(&p->from_draft, i < n_accepted ? "y" : "n");
        if (i + 1 == n_accepted || i + 1 == n) {
            show(p, shown, i < n_accepted);
            shown = p->text.n;
        }
    }
    decode(p, stop_strings_cut(&p->stops, p->raw.s, p->raw.n, true));
}

void printer_end(struct printer *p, bool at_stop_string)
{
    decode(p, at_stop_string ? stop_strings_cut(&p->stops, p->raw.s, p->raw.n, false) : p->raw.n);
    const size_t shown = p->text.n;
    tokenizer_decode_end(&p->hold, &p->text);
    text_puts(&p->text, p->stops.tokenizer != NULL ? "" : p->tokens == 0 ? "[]" : "]");
    show(p, shown, false);
    if (p->to != NULL && (p->text.n == 0 || p->text.s[p->text.n - 1] != '\n'))
        fprintf(p->to, "\n");
}

void printer_free(struct printer *p)
{
    free(p->text.s);
    free(p->raw.s);
    free(p->from_draft.s);
}
