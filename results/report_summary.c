// report_summary.c - the table that a report opens with: one line per run, with the numbers of the tables that follow.
#include <stdio.h>
#include <stdlib.h>

#include "results/report_parts.h"
#include "results/tally.h"

enum { CELL = 46 }; // column of the cell's name

static void put_equal(struct text *out, int width, const struct comparison *c, const struct tally *t)
{
    char s[48] = "";
    if (!t->baseline && texts_comparable(c, t) && t->compared > 0)
        snprintf(s, sizeof(s), "%lld of %lld", (long long)t->equal, (long long)t->compared);
    else if (!t->baseline && !texts_comparable(c, t))
        snprintf(s, sizeof(s), "sampled");
    text_printf(out, "%*s", width, s);
}

static void put_run(struct text *out, const struct comparison *c, int i, int width)
{
    const struct tally *t = &c->run[i];
    struct text numbers = { 0 };
    report_put_number(&numbers, c, i);
    if (t->baseline) {
        text_printf(&numbers, "%8s%16s", "1", "");
    } else {
        report_put_figure(&numbers, 8, tally_speedup(c, t)->value);
        report_put_interval(&numbers, 16, tally_speedup(c, t));
    }
    report_put_figure(&numbers, 7, t->tokens_per_step.value);
    put_equal(&numbers, 9, c, t);
    char *cell = xformat("%s; %s", t->drafter, t->rule);
    text_puts(&numbers, "  ");
    report_paragraph(out, CELL, width, numbers.s, cell);
    free(cell);
    free(numbers.s);
}

void report_summary(const struct comparisons *all, int width, struct text *out)
{
    text_puts(out, "Summary speedup over none     tokens    texts\n"
                   "run     sums   95 % interval   /step    equal  drafter; rule\n");
    for (int i = 0; i < all->n; i++) {
        const struct comparison *c = &all->comparison[i];
        char *what = xformat("%s, %s, batch %lld%s", c->experiment, c->sampling, (long long)c->batch,
                             c->batch > 1 ? ", steady state" : "");
        report_paragraph(out, 0, width, "", what);
        free(what);
        for (int k = 0; k < c->n; k++)
            put_run(out, c, k, width);
    }
}
