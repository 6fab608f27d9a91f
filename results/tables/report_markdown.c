// report_markdown.c - sheets as tables of GitHub's Markdown (GFM), with what was run beneath each and the definition of the numbers at
// the end.
#include <string.h>

#include "core/utf8.h"
#include "results/report.h"
#include "results/report_parts.h"
#include "results/tally.h"
#include "results/tables/tables.h"

#define SIGNS "\\`*_<|#~$[" // that may mean something

// With a backslash before the signs. A line that is not UTF-8 would end a table.
static void put_escaped(struct text *out, const char *s, const char *signs)
{
    const char *const end = s + strlen(s);
    for (size_t n; s < end; s += n) {
        n = utf8_character(s, (size_t)(end - s));
        text_puts(out, strchr(signs, *s) != NULL ? "\\" : "");
        if (n == 0)
            text_puts(out, "\xEF\xBF\xBD");
        else
            text_add(out, (unsigned char)*s < ' ' ? " " : s, n);
        n = n > 0 ? n : 1;
    }
}

static void put_text(struct text *out, const char *s)
{
    put_escaped(out, s, SIGNS);
}

// As code. In a table's code a bar is escaped, but a backslash before it cannot be; such a name, or one with a backquote, is plain text.
static void put_name(struct text *out, const char *s)
{
    const bool plain = strchr(s, '`') != NULL || strstr(s, "\\|") != NULL || s[0] == '\0';
    text_puts(out, plain ? "" : "`");
    put_escaped(out, s, plain ? SIGNS : "|");
    text_puts(out, plain ? "" : "`");
}

static void put_sheet(struct text *out, const struct sheet *s)
{
    text_puts(out, "**");
    put_text(out, s->title);
    text_puts(out, "**\n\n| drafter |");
    for (int k = 0; k < s->columns; k++) {
        const struct sheet_column *c = &s->column[k];
        text_puts(out, " ");
        if (c->group[0] != '\0' && (k == 0 || strcmp(c[-1].group, c->group) != 0)) {
            put_text(out, c->group);
            text_puts(out, ": ");
        }
        text_printf(out, "%s |", c->head);
    }
    text_puts(out, "\n|---|");
    for (int k = 0; k < s->columns; k++)
        text_puts(out, "--:|");
    for (int i = 0; i < s->rows; i++) {
        text_puts(out, "\n| ");
        put_name(out, s->name[i]);
        text_puts(out, s->lossy[i] ? " \\* |" : " |");
        for (int k = 0; k < s->columns; k++) {
            const struct sheet_cell *x = &s->cell[(size_t)i * (size_t)s->columns + (size_t)k];
            const char *bold = x->best ? "**" : "";
            text_printf(out, " %s%s%s |", bold, x->text, bold);
        }
    }
    text_puts(out, "\n\n");
    put_text(out, s->facts);
    text_puts(out, "\n");
}

void report_markdown(const struct comparisons *all, const struct report_options *o, struct text *out)
{
    for (int i = 0; i < all->n; i++) {
        struct sheet s;
        (o->by_category ? sheet_by_category : sheet_of_cells)(all, i, o->top, &s);
        text_puts(out, i > 0 ? "\n" : "");
        put_sheet(out, &s);
        if (i == all->n - 1) {
            text_puts(out, "\n");
            put_text(out, s.definition);
            text_puts(out, "\n");
        }
        sheet_free(&s);
    }
}
