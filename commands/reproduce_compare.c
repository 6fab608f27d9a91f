// reproduce_compare.c - a run beside the stored one of the same cell: texts and steps one by one, acceptance and speedup prompt by prompt.
//
// The interval of a stored number says how it depends on the choice of prompts. A run again has the same prompts, so that part cancels between the
// two, and what is left is the noise of clocks, as far as it differs from prompt to prompt. So the change has an interval of its own, and a number is
// outside only if both say so: the whole interval of the new one (the stored value with the change's interval) is outside of the stored one.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/reproduce.h"
#include "core/error.h"
#include "results/query.h"
#include "results/store.h"
#include "statistics/intervals.h"

struct comparing {
    const struct stored_run *r;
    struct store *then, *now;
    int64_t id;            // of the run of `now`
    struct text *report;   // lines
    struct text verdict;   // "texts equal, steps equal"
    bool same, steps_same; // all that decides; all steps
};

static void put_verdict(struct comparing *c, const char *what, const char *is, bool same)
{
    text_printf(&c->verdict, "%s%s %s", c->verdict.n > 0 ? ", " : "", what, is);
    c->same = c->same && same;
}

// ---- where both were decoded

struct place { // the last row of table environment
    char *text[3];
    double probe[3];
};

static bool read_place(struct store *s, int64_t run, struct place *to, struct error *err)
{
    struct query *q = query_open(s, "SELECT revision, processor, arithmetic, read_bytes_per_s / 1e9, round_trip_ns, mhz"
                                    " FROM environment WHERE run = ? ORDER BY id DESC LIMIT 1");
    *to = (struct place){ 0 };
    query_put(q, SQL(run));
    const bool found = query_next(q);
    for (int i = 0; i < 3; i++) {
        to->text[i] = xstrdup(found ? query_text(q, i) : "");
        to->probe[i] = found ? query_real(q, 3 + i) : NAN;
    }
    return query_close(q, err);
}

static bool compare_places(struct comparing *c, struct error *err)
{
    static const char *const name[] = { "revision", "processor", "arithmetic" }, *const probe[] = { "GB/s read",
                                                                                                    "ns round trip",
                                                                                                    "MHz" };
    struct place was = { 0 }, is = { 0 };
    const bool ok = read_place(c->then, c->r->id, &was, err) && read_place(c->now, c->id, &is, err);
    for (int i = 0; ok && i < 3; i++)
        if (strcmp(was.text[i], is.text[i]) != 0)
            text_printf(c->report, "%-10s was %s, is %s\n", name[i], was.text[i], is.text[i]);
    int n = 0;
    for (int i = 0; ok && i < 3; i++)
        if (!isnan(was.probe[i]) && !isnan(is.probe[i]))
            text_printf(c->report, "%s%s was %.*f, is %.*f", n++ == 0 ? "machine    " : "; ", probe[i], i == 0,
                        was.probe[i], i == 0, is.probe[i]);
    if (n > 0)
        text_puts(c->report, "\n");
    for (int i = 0; i < 3; i++) {
        free(was.text[i]);
        free(is.text[i]);
    }
    return ok;
}

// ---- texts and steps

#define TEXT_COLUMNS \
    "tokens, (SELECT count(*) || ' steps, ' || coalesce(sum(drafted), 0) || ' drafted, ' || coalesce(sum(accepted), 0) || ' accepted'" \
    " FROM step WHERE sequence = q.id)"

// The number of tokens that two lists "[1,2,3]" begin with alike.
static int common_tokens(const char *a, const char *b)
{
    int n = 0;
    for (; *a == *b && *a != '\0'; a++, b++)
        n += *a == ',';
    return n;
}

struct equal { // texts that both have
    int64_t texts, tokens, steps;
    char *first_token, *first_step; // where they first differ; NULL: nowhere
};

// A text of `now`, by its place, compared with the first of several of the stored run. q: prompt, turn, repeat, prompt_id, TEXT_COLUMNS.
static bool compare_text(struct comparing *c, struct query *q, struct equal *e, struct error *err)
{
    struct query *w = query_again(
        c->then, "SELECT " TEXT_COLUMNS " FROM sequence AS q WHERE run = ? AND prompt = ? AND turn = ? AND repeat = ?"
                 " ORDER BY pair LIMIT 1");
    query_put(w, SQL(c->r->id));
    for (int i = 0; i < 3; i++)
        query_put(w, SQL(query_int(q, i)));
    if (query_next(w)) {
        const char *was[] = { query_text(w, 0), query_text(w, 1) }, *is[] = { query_text(q, 4), query_text(q, 5) };
        const bool tokens = strcmp(was[0], is[0]) == 0, steps = strcmp(was[1], is[1]) == 0;
        const long long turn = (long long)query_int(q, 1);
        e->texts++;
        e->tokens += tokens;
        e->steps += steps;
        if (!tokens && e->first_token == NULL)
            e->first_token = xformat("; first difference: prompt %s, turn %lld, token %d", query_text(q, 3), turn,
                                     common_tokens(was[0], is[0]));
        if (!steps && e->first_step == NULL)
            e->first_step = xformat("; first difference: prompt %s, turn %lld: was %s, is %s", query_text(q, 3), turn,
                                    was[1], is[1]);
    }
    return query_close(w, err);
}

static void put_equal(struct comparing *c, const char *what, int64_t equal, int64_t all, const char *first,
                      bool decides)
{
    text_printf(c->report, "%-10s %lld of %lld are equal%s%s\n", what, (long long)equal, (long long)all,
                first != NULL ? first : "",
                decides || equal == all ? "" : " (drafts depend on other texts or clocks: it does not decide)");
    put_verdict(c, what, equal == all ? "equal" : "differ", equal == all || !decides);
}

static bool compare_texts(struct comparing *c, struct error *err)
{
    struct equal e = { 0 };
    struct query *q = query_open(c->now, "SELECT prompt, turn, repeat, prompt_id, " TEXT_COLUMNS
                                         " FROM sequence AS q WHERE run = ? ORDER BY prompt, repeat, turn, pair");
    query_put(q, SQL(c->id));
    struct error why = { "" };
    bool ok = true;
    while (ok && query_next(q))
        ok = compare_text(c, q, &e, &why);
    if (!query_close(q, err))
        ok = false;
    else if (!ok)
        *err = why;
    if (ok && e.texts == 0)
        ok = fail(err, "%s: run %lld has no text of these prompts", store_path(c->then), (long long)c->r->id);
    if (ok) {
        put_equal(c, "texts", e.tokens, e.texts, e.first_token, !c->r->texts_vary);
        put_equal(c, "steps", e.steps, e.texts, e.first_step, !c->r->drafts_vary);
        c->steps_same = e.steps == e.texts;
    }
    free(e.first_token);
    free(e.first_step);
    return ok;
}

// ---- sums by prompt, of speeds by prompt and unit

enum { COLUMNS = 6 }; // a speedup's: tokens, times and steps, and those of none

struct sums {
    size_t n;
    int64_t *prompt, *unit; // (n) prompts ascend
    double *of[COLUMNS];
};

static void add_row(struct sums *to, int64_t prompt, int64_t unit)
{
    to->prompt = xrealloc(to->prompt, (to->n + 1) * sizeof(*to->prompt));
    to->unit = xrealloc(to->unit, (to->n + 1) * sizeof(*to->unit));
    for (int i = 0; i < COLUMNS; i++) {
        to->of[i] = xrealloc(to->of[i], (to->n + 1) * sizeof(*to->of[i]));
        to->of[i][to->n] = 0;
    }
    to->prompt[to->n] = prompt;
    to->unit[to->n++] = unit;
}

static bool read_sums(struct store *s, int64_t run, const char *sql, struct sums *to, struct error *err)
{
    struct query *q = query_open(s, sql);
    *to = (struct sums){ 0 };
    query_put(q, SQL(run));
    while (query_next(q)) {
        add_row(to, query_int(q, 0), query_int(q, 1));
        for (int i = 0; i + 2 < query_columns(q); i++)
            to->of[i][to->n - 1] = query_real(q, i + 2);
    }
    return query_close(q, err);
}

static void free_sums(struct sums *s)
{
    for (int i = 0; i < COLUMNS; i++)
        free(s->of[i]);
    free(s->prompt);
    free(s->unit);
}

// Drops the prompts that `other` lacks.
static void keep_common(struct sums *s, const struct sums *other)
{
    size_t n = 0;
    for (size_t i = 0, k = 0; i < s->n; i++) {
        while (k < other->n && other->prompt[k] < s->prompt[i])
            k++;
        if (k == other->n || other->prompt[k] != s->prompt[i])
            continue;
        s->prompt[n] = s->prompt[i];
        s->unit[n] = s->unit[i];
        for (int v = 0; v < COLUMNS; v++)
            s->of[v][n] = s->of[v][i];
        n++;
    }
    s->n = n;
}

static size_t prompts_of(const struct sums *s)
{
    size_t prompts = 0;
    for (size_t i = 0; i < s->n; i++)
        prompts += i == 0 || s->prompt[i] != s->prompt[i - 1];
    return prompts;
}

// The sums of the prompts that both runs have.
static bool read_both(struct comparing *c, const char *sql, struct sums *was, struct sums *is, struct error *err)
{
    *is = (struct sums){ 0 };
    if (!read_sums(c->then, c->r->id, sql, was, err) || !read_sums(c->now, c->id, sql, is, err))
        return false;
    keep_common(was, is);
    keep_common(is, was);
    return true;
}

// A ratio of speeds in one of the two runs: `of` STATISTIC_RATIO or STATISTIC_RATIO_OF_RATIOS.
static struct interval speed_of(enum statistic of, const struct sums *s)
{
    const bool two = of == STATISTIC_RATIO_OF_RATIOS;
    const double *const sums[] = { s->of[0], s->of[1], two ? s->of[3] : NULL, two ? s->of[4] : NULL },
                        *const steps[] = { s->of[2], two ? s->of[5] : NULL };
    return interval_of_units(of, sums, steps, s->prompt, s->unit, s->n);
}

// The new run's speed or speedup is taken over the old one's. The units of the two are different times.
static struct interval change_of(bool speedup, const struct sums *was, const struct sums *is)
{
    const int columns = speedup ? COLUMNS : COLUMNS / 2;
    struct sums of[2] = { { 0 } }; // the new run's columns, and the old one's
    for (int k = 0; k < 2; k++) {
        const struct sums *from = k == 0 ? is : was;
        for (size_t i = 0; i < from->n; i++) {
            add_row(&of[0], from->prompt[i], k == 0 ? from->unit[i] : -1 - from->unit[i]);
            add_row(&of[1], from->prompt[i], from->unit[i]);
            for (int v = 0; v < columns; v++)
                of[k].of[v][of[k].n - 1] = from->of[v][i];
        }
    }
    const double *x[8] = { 0 }, *steps[4] = { 0 };
    for (int k = 0, at = 0; k < 2; k++)
        for (int v = 0; v < columns; v += 3, at++) {
            x[2 * at] = of[k].of[v];
            x[2 * at + 1] = of[k].of[v + 1];
            steps[at] = of[k].of[v + 2];
        }
    const struct interval change = interval_of_units(speedup ? STATISTIC_CHANGE : STATISTIC_RATIO_OF_RATIOS, x, steps,
                                                     of[0].prompt, of[0].unit, of[0].n);
    free_sums(&of[0]);
    free_sums(&of[1]);
    return change;
}

static void put_interval(struct text *to, const char *before, struct interval i, double unit)
{
    text_printf(to, "%s%.3f", before, unit * i.value);
    if (!isnan(i.low))
        text_printf(to, " [%.3f, %.3f]", unit * i.low, unit * i.high);
}

// low, high: of the new number, given the stored one and the interval of the change.
static void put_place(struct comparing *c, const char *what, struct interval was, double low, double high,
                      size_t prompts)
{
    const double rounding = 1e-9 * was.value;
    const bool known = !isnan(was.low) && !isnan(low),
               inside = known && low <= was.high + rounding && high >= was.low - rounding;
    text_printf(c->report, ": %s\n",
                known && inside ? "inside"
                : known         ? "outside"
                : prompts > 1   ? "one slice of time has no interval"
                                : "one prompt has no interval");
    put_verdict(c, what, !known ? "not known" : inside ? "inside" : "outside", inside || !known);
}

static void put_acceptance(struct comparing *c, const struct sums *was, const struct sums *is)
{
    const struct interval a = interval_of(STATISTIC_RATE, was->of[0], was->of[1], NULL, NULL, was->n),
                          b = interval_of(STATISTIC_RATE, is->of[0], is->of[1], NULL, NULL, is->n),
                          change =
                              interval_of(STATISTIC_DIFFERENCE, is->of[0], is->of[1], was->of[0], was->of[1], was->n);
    if (isnan(a.value) || isnan(b.value)) // nothing was drafted
        return;
    text_printf(c->report, "acceptance on %zu prompts: ", was->n);
    put_interval(c->report, "was ", a, 1);
    text_printf(c->report, ", is %.3f", b.value);
    if (c->steps_same) {
        text_puts(c->report, ": equal\n");
        put_verdict(c, "acceptance", "equal", true);
        return;
    }
    put_interval(c->report, ", difference ", change, 1);
    put_place(c, "acceptance", a, a.value + change.low, a.value + change.high, was->n);
}

static void put_speed(struct comparing *c, const struct sums *was, const struct sums *is)
{
    const struct interval ratio = change_of(false, was, is);
    if (isnan(ratio.value))
        return;
    text_printf(c->report, "tokens/s   was %.1f, is %.1f", 1e9 * speed_of(STATISTIC_RATIO, was).value,
                1e9 * speed_of(STATISTIC_RATIO, is).value);
    put_interval(c->report, ": ratio ", ratio, 1);
    text_puts(c->report, "\n");
}

static void put_speedup(struct comparing *c, const struct sums *was, const struct sums *is)
{
    const struct interval a = speed_of(STATISTIC_RATIO_OF_RATIOS, was), b = speed_of(STATISTIC_RATIO_OF_RATIOS, is),
                          change = change_of(true, was, is);
    if (isnan(a.value) && isnan(b.value)) // `none` has no speedup
        return;
    text_printf(c->report, "speedup    on %zu prompts: ", prompts_of(was));
    put_interval(c->report, "was ", a, 1);
    text_printf(c->report, ", is %.3f", b.value);
    if (isnan(change.value)) {
        text_puts(c->report, ": no change can be told, as the two have no prompt in common that was not disturbed\n");
        put_verdict(c, "speedup", "not known", true);
        return;
    }
    put_interval(c->report, ", ratio ", change, 1);
    put_place(c, "speedup", a, a.value * change.low, a.value * change.high, prompts_of(was));
}

static bool compare_sums(struct comparing *c, struct error *err)
{
    static const char drafts[] = "SELECT prompt, 0, accepted_tokens, drafted_tokens FROM sums_by_prompt WHERE run = ?1"
                                 " ORDER BY prompt",
                      own[] = "SELECT prompt, unit, new_tokens, decode_ns, steps FROM sums_by_slice WHERE run = ?1"
                              " ORDER BY prompt, unit",
                      paired[] = "SELECT prompt, unit, new_tokens, decode_ns, steps, none_new_tokens, none_decode_ns,"
                                 " none_steps FROM speed_by_slice WHERE run = ?1 ORDER BY prompt, unit";
    struct sums was[3] = { { 0 } }, is[3] = { { 0 } };
    const bool ok = read_both(c, drafts, &was[0], &is[0], err) && read_both(c, own, &was[1], &is[1], err) &&
                    (c->r->none || read_both(c, paired, &was[2], &is[2], err));
    if (ok) {
        put_acceptance(c, &was[0], &is[0]);
        put_speedup(c, &was[2], &is[2]);
        put_speed(c, &was[1], &is[1]);
    }
    for (int i = 0; i < 3; i++) {
        free_sums(&was[i]);
        free_sums(&is[i]);
    }
    return ok;
}

bool stored_run_compare(const struct stored_run *r, struct store *then, struct store *now, struct text *report,
                        bool *same, struct error *err)
{
    struct comparing c = { .r = r, .then = then, .now = now, .report = report, .same = true };
    struct query *q = query_open(now, "SELECT id FROM run WHERE experiment = ? AND cell = ?");
    query_put(q, SQL(r->experiment), SQL(r->cell));
    c.id = query_next(q) ? query_int(q, 0) : 0;
    const bool ok = query_close(q, err) && compare_places(&c, err) && compare_texts(&c, err) && compare_sums(&c, err);
    if (ok)
        text_printf(report, "%s: %s\n", c.same ? "reproduced" : "not reproduced", c.verdict.s);
    *same = c.same;
    free(c.verdict.s);
    return ok;
}
