// report_markdown.c - sheets as tables of GitHub's Markdown (GFM), with what was run beneath each and the definition of the numbers at
// the end.
#include <string.h>

#include "results/report.h"
#include "results/report_parts.h"
#include "results/tally.h"
#include "results/tables/tables.h"

static void put_escaped(struct text *out, const char *s)
{
    for (; *s != '\0'; s++) {
        if (strchr("\\`*_<|#~$[", *s) != NULL)
            text_puts(out, "\\");
        text_add(out, (unsigned char)*s < ' ' ? " " : s, 1);
    }
}

// As code. In a table's code a bar is escaped, but a backslash before it cannot be; such a name, or one with a backquote, is plain text.
static void put_name(struct text *out, const char *s)
{
    if (strchr(s, '`') != NULL || strstr(s, "\\|") != NULL) {
        put_escaped(out, s);
        return;
    }
    text_puts(out, "`");
    for (; *s != '\0'; s++) {
        text_puts(out, *s == '|' ? "\\" : "");
        text_add(out, (unsigned char)*s < ' ' ? " " : s, 1);
    }
    text_puts(out, "`");
}

static void put_sheet(struct text *out, const struct sheet *s)
{
    text_puts(out, "**");
    put_escaped(out, s->title);
    text_puts(out, "**\n\n| drafter |");
    for (int k = 0; k < s->columns; k++) {
        const struct sheet_column *c = &s->column[k];
        text_puts(out, " ");
        if (c->group[0] != '\0' && (k == 0 || strcmp(c[-1].group, c->group) != 0)) {
            put_escaped(out, c->group);
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
    put_escaped(out, s->facts);
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
            put_escaped(out, s.definition);
            text_puts(out, "\n");
        }
        sheet_free(&s);
    }
}
