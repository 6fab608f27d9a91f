// text_stream.c - each byte is kept with a mark of where it came from, and shown once it is certain.
#include "commands/text_stream.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GUESSED "\033[32m" // green
#define PLAIN "\033[0m"

bool printer_wants_colour(FILE *to)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(to)) && (no == NULL || *no == '\0') && term != NULL && strcmp(term, "dumb") != 0;
}

// Bytes up to `to`, colour changing where guessed and own text meet; always left plain, whatever interrupts us next.
static void show(struct printer *p, size_t to)
{
    while (p->to != NULL && p->shown < to) {
        size_t from = p->shown, end = from + 1;
        while (end < to && p->drafted_right.s[end] == p->drafted_right.s[from])
            end++;
        bool colour = p->colour && p->drafted_right.s[from] == 'y';
        fprintf(p->to, "%s", colour ? GUESSED : "");
        fwrite(p->text.s + from, 1, end - from, p->to);
        fprintf(p->to, "%s", colour ? PLAIN : "");
        p->shown = end;
    }
    if (p->to != NULL)
        fflush(p->to);
}

static void mark(struct printer *p, char how)
{
    while (p->drafted_right.n < p->text.n)
        text_add(&p->drafted_right, &how, 1);
}

void printer_add(struct printer *p, const int32_t *token, int n, int drafted_right)
{
    for (int i = 0; i < n; i++, p->tokens++) {
        if (p->stops.tokenizer == NULL)
            text_printf(&p->text, "%s%d", p->tokens == 0 ? "[" : ", ", token[i]);
        else
            tokenizer_decode(p->stops.tokenizer, &token[i], 1, false, &p->hold, &p->text);
        mark(p, i < drafted_right ? 'y' : 'n');
    }
    show(p, stop_strings_cut(&p->stops, p->text.s, p->text.n, true));
}

void printer_end(struct printer *p)
{
    tokenizer_decode_end(&p->hold, &p->text);
    if (p->stops.tokenizer == NULL)
        text_puts(&p->text, p->tokens == 0 ? "[]" : "]");
    text_puts(&p->text, "");
    mark(p, 'n');
    p->text.n = stop_strings_cut(&p->stops, p->text.s, p->text.n, false);
    p->text.s[p->text.n] = '\0';
    show(p, p->text.n);
    if (p->to != NULL && (p->text.n == 0 || p->text.s[p->text.n - 1] != '\n'))
        fprintf(p->to, "\n");
}

void printer_free(struct printer *p)
{
    free(p->text.s);
    free(p->drafted_right.s);
}
