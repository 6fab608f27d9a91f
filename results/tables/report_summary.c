// report_summary.c - the table that a report opens with: one line per cell, of all experiments, the fastest of each comparison first.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/prose.h"
#include "results/report_parts.h"
#include "results/tally.h"
#include "results/tables/tables.h"

enum { CELL = 59 }; // column of the cell's name

static void put_speedup(struct text *out, const struct tally *t)
{
    const struct interval *x = &t->speedup;
    char value[FIGURE], low[FIGURE], high[FIGURE], s[2 * FIGURE + 8] = "";
    if (!t->baseline && !isnan(x->low))
        snprintf(s, sizeof(s), "[%s, %s]", report_short_figure(low, x->low), report_short_figure(high, x->high));
    text_printf(out, "%6s%13s", t->baseline ? "1" : report_short_figure(value, x->value), s);
}

static void put_cell(struct text *out, const struct comparison *c, int i, int width, const char *name)
{
    const struct tally *t = &c->run[i];
    struct text numbers = { 0 };
    char *equal = report_equal(c, t), length[FIGURE];
    text_printf(&numbers, "%4lld%s", (long long)t->run, t->lossless ? " " : "*");
    report_put_figure(&numbers, 8, t->tokens_per_s.value);
    put_speedup(&numbers, t);
    text_printf(&numbers, "%6s", report_short_figure(length, t->tokens_per_step.value));
    report_put_percent(&numbers, 4, t->acceptance_rate.value);
    text_printf(&numbers, "%10s%5lld  ", equal, (long long)t->speed_prompts);
    prose_paragraph(out, CELL, width, numbers.s, name);
    free(equal);
    free(numbers.s);
}

static void put_comparison(struct text *out, const struct comparisons *all, int which, int top, int width)
{
    const struct comparison *c = &all->comparison[which];
    struct cell_names names;
    struct text head = { 0 };
    int *order = report_order(c), lossy;
    const int shown = report_shown(c, order, top, &lossy);
    char *title = report_title(all, which), *target = report_target(c);
    char *left_out = report_left_out(c, order, shown, lossy);
    cell_names_make(c, &names);
    text_printf(&head, "%s: %s, %s, batch %lld", title, target, c->sampling, (long long)c->batch);
    text_printf(&head, names.common[0] != '\0' ? "; all: %s" : "", names.common);
    text_puts(out, "\n");
    prose_paragraph(out, 0, width, "", head.s);
    for (int k = 0; k < shown; k++)
        put_cell(out, c, order[k], width, names.name[order[k]]);
    if (left_out[0] != '\0')
        prose_paragraph(out, 6, width, "", left_out);
    cell_names_free(&names);
    free(left_out);
    free(target);
    free(title);
    free(head.s);
    free(order);
}

void report_summary(const struct comparisons *all, int top, int width, struct text *out)
{
    char *disturbed = report_disturbed(all);
    if (disturbed[0] != '\0') {
        prose_paragraph(out, 0, width, "", disturbed);
        text_puts(out, "\n");
    }
    free(disturbed);
    text_puts(out, "Summary         speedup over none  tokens   %     texts\n"
                   " run tokens/s  sums  95 % interval  /step acc.    equal   n  drafter; rule\n");
    for (int i = 0; i < all->n; i++)
        put_comparison(out, all, i, top, width);
}
