// report_markdown.c - sheets as tables of GitHub's Markdown (GFM), with what was run beneath each and the definition of the numbers at
// the end.
#include <string.h>

#include "core/prose.h"
#include "results/report.h"
#include "results/report_parts.h"
#include "results/tally.h"
#include "results/tables/tables.h"

static void put_sheet(struct text *out, const struct sheet *s)
{
    text_puts(out, "**");
    prose_markdown(out, s->title);
    text_puts(out, "**\n\n| drafter |");
    for (int k = 0; k < s->columns; k++) {
        const struct sheet_column *c = &s->column[k];
        text_puts(out, " ");
        if (c->group[0] != '\0' && (k == 0 || strcmp(c[-1].group, c->group) != 0)) {
            prose_markdown(out, c->group);
            text_puts(out, ": ");
        }
        text_printf(out, "%s |", c->head);
    }
    text_puts(out, "\n|---|");
    for (int k = 0; k < s->columns; k++)
        text_puts(out, "--:|");
    for (int i = 0; i < s->rows; i++) {
        text_puts(out, "\n| ");
        prose_markdown_code(out, s->name[i]);
        text_puts(out, s->lossy[i] ? " \\* |" : " |");
        for (int k = 0; k < s->columns; k++) {
            const struct sheet_cell *x = &s->cell[(size_t)i * (size_t)s->columns + (size_t)k];
            const char *bold = x->best ? "**" : "";
            text_printf(out, " %s%s%s |", bold, x->text, bold);
        }
    }
    text_puts(out, "\n\n");
    prose_markdown(out, s->facts);
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
            prose_markdown(out, s.definition);
            text_puts(out, "\n");
        }
        sheet_free(&s);
    }
}
