// sheet.c - a comparison as a table of texts: a row for each cell of the experiment, with their definition. The figures are those of the
// terminal's tables.
#include <math.h>
#include <stdlib.h>

#include "results/tally.h"
#include "results/tables/tables.h"

// ---- words

static char *definition_of(const char *more)
{
    return xformat(
        "Speedup: decode tokens/s over those of none, as a ratio of sums over texts of the same paired runs; with a batch above 1 in "
        "steady state, as are tokens/s. Tokens/step: new tokens / steps of the target, its own token included. In brackets: 95 %% "
        "intervals, with prompts as the sample. Bold: the best of the lossless. %s",
        more);
}

static void put_fact(struct text *out, const char *label, char *words)
{
    if (words[0] != '\0')
        text_printf(out, "%s%s: %s.", out->n > 0 ? " " : "", label, words);
    free(words);
}

static char *facts_of(const struct comparison *c, const char *common, const char *left_out)
{
    struct text t = { 0 };
    bool lossy = false;
    for (int i = 0; i < c->n; i++)
        lossy |= !c->run[i].lossless;
    put_fact(&t, "Target", report_target(c));
    put_fact(&t, "Sampling", xstrdup(c->sampling));
    put_fact(&t, "Prompts", report_prompts(c));
    put_fact(&t, "Limits", xstrdup(c->limits));
    put_fact(&t, "Decoding", report_decoding(c));
    put_fact(&t, "All cells", xstrdup(common));
    put_fact(&t, "Device", report_values(c, offsetof(struct tally, device), false));
    put_fact(&t, "Machine", report_values(c, offsetof(struct tally, machine), false));
    put_fact(&t, "Revision of speclab", report_values(c, offsetof(struct tally, revision), false));
    if (lossy)
        text_puts(&t, " *: lossy; the rule changes the output distribution, so its speedup is not for the same task.");
    if (c->n > 0 && c->run[0].inflated)
        text_puts(&t, " The target was made slower on purpose: these speedups hold for no real model.");
    if (left_out[0] != '\0')
        text_printf(&t, " Left out: %s.", left_out);
    return t.s;
}

// ---- rows and columns

static void add_column(struct sheet *s, char *group, const char *head)
{
    s->column = xrealloc(s->column, ((size_t)s->columns + 1) * sizeof(*s->column));
    s->column[s->columns++] = (struct sheet_column){ group, xstrdup(head) };
}

static struct sheet_cell *cell_at(struct sheet *s, int row, int column)
{
    return &s->cell[(size_t)row * (size_t)s->columns + (size_t)column];
}

// The columns are known. Rows are in report_order, of which *order is the caller's to free.
static void begin(const struct comparisons *all, int which, int top, const char *numbers, struct sheet *s, int **order)
{
    const struct comparison *c = &all->comparison[which];
    struct cell_names names;
    int lossy;
    cell_names_make(c, &names);
    *order = report_order(c);
    s->rows = report_shown(c, *order, top, &lossy);
    s->name = xcalloc((size_t)s->rows + 1, sizeof(*s->name));
    s->lossy = xcalloc((size_t)s->rows + 1, sizeof(*s->lossy));
    s->cell = xcalloc((size_t)s->rows * (size_t)s->columns + 1, sizeof(*s->cell));
    for (int i = 0; i < s->rows; i++) {
        s->name[i] = xstrdup(names.name[(*order)[i]]);
        s->lossy[i] = !c->run[(*order)[i]].lossless;
    }
    char *left_out = report_left_out(c, *order, s->rows, lossy), *title = report_title(all, which);
    s->title = xformat("%s: %s, %s, batch %lld", title, c->target, c->sampling, (long long)c->batch);
    s->definition = definition_of(numbers);
    s->facts = facts_of(c, names.common, left_out);
    free(left_out);
    free(title);
    cell_names_free(&names);
}

static char *figure_of(double x)
{
    char s[FIGURE];
    return xstrdup(report_figure(s, x));
}

// A category with an interval only if it has enough prompts; category n_categories: all prompts.
static struct interval number_of(const struct comparison *c, const struct tally *t, int category, bool speedup)
{
    if (category == c->n_categories)
        return speedup ? *tally_speedup(c, t) : t->tokens_per_step;
    struct interval x = speedup ? t->by_category[category].speedup : t->by_category[category].tokens_per_step;
    if (c->category_prompts[category] < MIN_INTERVAL_PROMPTS)
        x.low = x.high = NAN;
    return x;
}

static double lossless_number(const struct comparison *c, const struct tally *t, int category, bool speedup)
{
    return t->baseline || !t->lossless ? NAN : number_of(c, t, category, speedup).value;
}

// The best of all cells, shown or not, in a column with the numbers of a category.
static void mark_best(const struct comparison *c, struct sheet *s, const int *order, int column, int category,
                      bool speedup)
{
    double best = NAN;
    for (int i = 0; i < c->n; i++)
        best = fmax(best, lossless_number(c, &c->run[i], category, speedup));
    for (int i = 0; i < s->rows; i++)
        cell_at(s, i, column)->best = lossless_number(c, &c->run[order[i]], category, speedup) == best;
}

void sheet_of_cells(const struct comparisons *all, int which, int top, struct sheet *to)
{
    static const char *const head[] = { "tokens/s", "speedup", "tokens/step", "accepted, %", "equal texts", "prompts" };
    const struct comparison *c = &all->comparison[which];
    int *order;
    *to = (struct sheet){ 0 };
    for (size_t i = 0; i < sizeof(head) / sizeof(head[0]); i++)
        add_column(to, xstrdup(""), head[i]);
    begin(
        all, which, top,
        "Accepted: of the draft tokens. Equal texts: equal to those of none / compared; sampled: other samples, which are not compared.",
        to, &order);
    for (int i = 0; i < to->rows; i++) {
        const struct tally *t = &c->run[order[i]];
        cell_at(to, i, 0)->text = figure_of(tally_speed(c, t)->value);
        cell_at(to, i, 1)->text = t->baseline ? xstrdup("1") : report_value(*tally_speedup(c, t), 1);
        cell_at(to, i, 2)->text = report_value(t->tokens_per_step, 1);
        cell_at(to, i, 3)->text = t->baseline ? xstrdup("") : report_value(t->acceptance_rate, 100);
        cell_at(to, i, 4)->text = report_equal(c, t);
        cell_at(to, i, 5)->text = xformat("%lld", (long long)t->prompts);
    }
    mark_best(c, to, order, 1, c->n_categories, true);
    mark_best(c, to, order, 2, c->n_categories, false);
    free(order);
}

void sheet_by_category(const struct comparisons *all, int which, int top, struct sheet *to)
{
    const struct comparison *c = &all->comparison[which];
    int *order;
    *to = (struct sheet){ 0 };
    for (int k = 0; k <= c->n_categories; k++)
        for (int i = 0; i < 2; i++)
            add_column(to,
                       k < c->n_categories ? xformat("%s (%lld)", c->category[k], (long long)c->category_prompts[k])
                                           : xformat("all (%lld)", (long long)c->n_prompts),
                       i == 0 ? "speedup" : "tokens/step");
    begin(all, which, top, "By category, with its number of prompts in parentheses; intervals from 3 prompts on.", to,
          &order);
    for (int k = 0; k < to->columns; k++) {
        for (int i = 0; i < to->rows; i++) {
            const struct tally *t = &c->run[order[i]];
            const bool speedup = k % 2 == 0;
            cell_at(to, i, k)->text =
                speedup && t->baseline ? xstrdup("1") : report_value(number_of(c, t, k / 2, speedup), 1);
        }
        mark_best(c, to, order, k, k / 2, k % 2 == 0);
    }
    free(order);
}

void sheet_free(struct sheet *s)
{
    for (int i = 0; i < s->columns; i++) {
        free(s->column[i].group);
        free(s->column[i].head);
    }
    for (int i = 0; i < s->rows; i++)
        free(s->name[i]);
    for (int i = 0; i < s->rows * s->columns; i++)
        free(s->cell[i].text);
    free(s->title);
    free(s->definition);
    free(s->facts);
    free(s->column);
    free(s->name);
    free(s->lossy);
    free(s->cell);
}
