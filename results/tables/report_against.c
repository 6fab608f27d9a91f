// report_against.c - compares every other run of the same prompts with one run, prompt by prompt: any two cells,
// including those with other targets, samplings or batches.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/json_lines.h"
#include "core/json.h"
#include "core/prose.h"
#include "results/report.h"
#include "results/tables/tables.h"
#include "results/tally.h"

enum { NAME = 8, TABLE = 97 }; // column of a run's name; columns of the table

struct place { // the place of a run in the comparisons
    const struct comparison *c;
    const struct tally *t;
};

// ---- the choice of the run

// Finds runs whose id is the text, or whose drafter contains it, and lists them in `ids`. *to: the last one.
static int runs_meant(const struct comparisons *all, const char *what, bool by_id, struct place *to, struct text *ids)
{
    int n = 0;
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < all->comparison[i].n; k++) {
            const struct tally *t = &all->comparison[i].run[k];
            char *id = xformat("%lld", (long long)t->run);
            if (by_id ? strcmp(id, what) == 0 : strstr(t->drafter, what) != NULL) {
                text_printf(ids, "%s%s", n++ > 0 ? ", " : "", id);
                *to = (struct place){ &all->comparison[i], t };
            }
            free(id);
        }
    return n;
}

static bool find_run(const struct comparisons *all, const char *what, struct place *to, struct error *err)
{
    struct text ids = { 0 };
    text_puts(&ids, "");
    int n = runs_meant(all, what, true, to, &ids);
    if (n == 0)
        n = runs_meant(all, what, false, to, &ids);
    if (n > 1)
        fail_usage(err, "--against %s: the drafters of runs %s have this in their names: expected a run's number", what,
                   ids.s);
    if (n == 0) {
        runs_meant(all, "", false, to, &ids);
        fail_usage(err, "--against %s: no run has this number, and no drafter this in its name (runs: %s)", what,
                   ids.s);
    }
    free(ids.s);
    return n == 1;
}

// ---- the comparison of one run

static char *name_of(const struct place *x, const struct place *y, bool in_pairs)
{
    struct text s = { 0 };
    text_printf(&s, "%s; %s%s", x->t->drafter, x->t->rule, x->t->lossless ? "" : " - LOSSY");
    text_puts(&s, x->t->inflated ? " - INFLATED TARGET" : "");
    if (strcmp(x->c->target, y->c->target) != 0)
        text_printf(&s, "; target %s", x->c->target);
    if (strcmp(x->c->sampling, y->c->sampling) != 0)
        text_printf(&s, "; %s", x->c->sampling);
    if (x->c->batch != y->c->batch)
        text_printf(&s, "; batch %lld", (long long)x->c->batch);
    if (strcmp(x->c->experiment, y->c->experiment) != 0)
        text_printf(&s, "; experiment %s", x->c->experiment);
    text_puts(&s, in_pairs ? "" : "; by prompt: in no pair with it");
    return s.s;
}

static void put_row(struct text *out, const struct place *x, const struct place *y, const struct against *a, int width)
{
    text_printf(out, "%4lld%s", (long long)x->t->run, x->t->lossless ? " " : "*");
    report_put_value(out, 21, a->speed, 1);
    report_put_value(out, 22, a->acceptance, 100);
    report_put_value(out, 21, a->tokens_per_step, 1);
    report_put_value(out, 21, a->ttft, 1);
    text_printf(out, "%7lld\n", (long long)a->prompts);
    char *name = name_of(x, y, a->in_pairs);
    prose_paragraph(out, NAME, width, "", name);
    free(name);
}

static void put_head(struct text *out, const struct place *y, int width)
{
    char *title = xformat("Compared with run %lld: %s; %s (%s, %s, batch %lld)", (long long)y->t->run, y->t->drafter,
                          y->t->rule, y->c->experiment, y->c->sampling, (long long)y->c->batch);
    prose_paragraph(out, 0, width, "", title);
    free(title);
    for (int i = 0; i < TABLE; i++)
        text_puts(out, "=");
    text_puts(out,
              "\n               tokens/s    acceptance, points           tokens/step                  TTFT\n"
              " run              ratio            difference            difference                 ratio prompts\n");
}

static void put_notes(struct text *out, int width)
{
    text_puts(out, "\n");
    prose_paragraph(
        out, 0, width, "",
        "Each run over the one above, or less it, with 95 % intervals by prompt (docs/results.md). tokens/s: "
        "decode. Pairs: over the texts that both decoded in the same paired runs, so that the machine's "
        "state cancels; by prompt: over all texts of the prompts that both have.");
}

// Writes a row for a machine, or of the table.
static void put(struct text *out, const struct report_options *o, const struct place *x, const struct place *y,
                const struct against *a, bool first, int width)
{
    const bool csv = o->format == REPORT_CSV;
    if (!csv && o->format != REPORT_JSONL) {
        put_row(out, x, y, a, width);
        return;
    }
    struct json *row = json_object_of(JSON("run", x->t->run), JSON("against", y->t->run), JSON("prompts", a->prompts),
                                      JSON("in_pairs", a->in_pairs));
    report_set_interval(row, "speed_ratio", &a->speed, csv);
    report_set_interval(row, "acceptance_difference", &a->acceptance, csv);
    report_set_interval(row, "tokens_per_step_difference", &a->tokens_per_step, csv);
    report_set_interval(row, "ttft_ratio", &a->ttft, csv);
    if (csv)
        report_put_csv(out, row, first);
    else
        json_lines_put(out, row);
}

bool report_against(struct store *s, const struct comparisons *all, const struct report_options *o, struct text *out,
                    struct error *err)
{
    const int width = o->width != 0 ? o->width : TABLE;
    struct againsts list = { 0 };
    struct place y;
    int rows = 0;
    if (!find_run(all, o->against, &y, err) || !against_read(s, y.t->run, &list, err)) {
        free(list.of);
        return false;
    }
    if (o->format == REPORT_TABLE)
        put_head(out, &y, width);
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < all->comparison[i].n; k++) {
            const struct place x = { &all->comparison[i], &all->comparison[i].run[k] };
            const struct against *a = against_find(&list, x.t->run);
            if (a != NULL)
                put(out, o, &x, &y, a, rows++ == 0, width);
        }
    free(list.of);
    if (rows == 0)
        return fail(err, "--against %s: no other run has decoded prompts of run %lld (%s)", o->against,
                    (long long)y.t->run, y.c->prompts);
    if (o->format == REPORT_TABLE)
        put_notes(out, width);
    return true;
}
