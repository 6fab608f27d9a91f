// tally.c - reads the numbers of a report from the views. The statistics with intervals are computed from their sums by
// prompt and unit.
#include "results/tally.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/columns.h"
#include "results/query.h"

// ---- structs by their columns

struct field { // a field of a struct, and the column from which it is read
    const char *sql;
    enum { TEXT, NAME, INT, FLAG, REAL } kind; // NAME: a text, or NULL
    size_t at;
};

static char *select_fields(const struct field *f, size_t n, const char *from)
{
    struct text sql = { 0 };
    for (size_t i = 0; i < n; i++)
        text_printf(&sql, "%s%s", i == 0 ? "SELECT " : ", ", f[i].sql);
    text_puts(&sql, from);
    return sql.s;
}

static void read_fields(const struct query *q, const struct field *f, size_t n, void *to)
{
    for (size_t k = 0; k < n; k++) {
        char *at = (char *)to + f[k].at;
        const int i = (int)k;
        if (f[k].kind == INT)
            *(int64_t *)at = query_int(q, i);
        else if (f[k].kind == FLAG)
            *(bool *)at = query_int(q, i) != 0;
        else if (f[k].kind == REAL)
            *(double *)at = query_real(q, i);
        else
            *(char **)at = f[k].kind == NAME && query_is_null(q, i) ? NULL : xstrdup(query_text(q, i));
    }
}

static void free_fields(const struct field *f, size_t n, void *of)
{
    for (size_t k = 0; k < n; k++)
        if (f[k].kind == TEXT || f[k].kind == NAME)
            free(*(char **)((char *)of + f[k].at));
}

#define OF_RUN(kind, member, sql) ((struct field){ sql, kind, offsetof(struct tally, member) })
// clang-format off
static const struct field run_fields[] = {
    OF_RUN(INT, run, "r.run"), OF_RUN(TEXT, drafter, "r.drafter"), OF_RUN(TEXT, drafter_kind, "r.drafter_kind"),
    OF_RUN(TEXT, drafter_options, "run.drafter_options"), OF_RUN(TEXT, rule, "r.rule"), OF_RUN(TEXT, device, "r.device"),
    OF_RUN(TEXT, machine, "r.machine"), OF_RUN(TEXT, revision, "r.revision"), OF_RUN(FLAG, baseline, "r.drafter_kind = 'none'"),
    OF_RUN(FLAG, lossless, "r.lossless"), OF_RUN(FLAG, drafter_invariant, "run.drafter_invariant"),
    OF_RUN(FLAG, inflated, "r.marked_inflated"), OF_RUN(FLAG, finished, "r.finished"), OF_RUN(INT, sequences, "r.sequences"),
    OF_RUN(INT, drafts, "r.drafts"), OF_RUN(INT, drafted, "r.drafted_tokens"), OF_RUN(INT, accepted, "r.accepted_tokens"),
    OF_RUN(INT, max_depth, "r.max_depth"), OF_RUN(INT, trees, "r.trees"), OF_RUN(REAL, end_to_end, "r.end_to_end_tokens_per_s"),
    OF_RUN(REAL, propose, "r.propose_share"), OF_RUN(REAL, verify, "r.verify_share"), OF_RUN(REAL, advance, "r.advance_share"),
    OF_RUN(REAL, other, "r.other_share"), OF_RUN(REAL, geometric, "r.speedup_geometric"), OF_RUN(REAL, disturbed, "r.disturbed_share"),
    OF_RUN(FLAG, all_disturbed, "r.disturbed_share >= 1 OR r.speedup_disturbed > 0"), OF_RUN(INT, unpaired, "r.unpaired_sequences"),
    OF_RUN(INT, speed_prompts, "iif(r.drafter_kind = 'none', r.speed_prompts, r.paired_prompts)"),
    OF_RUN(REAL, expected, "e.expected_tokens"), OF_RUN(REAL, accepted_uncut, "e.accepted_tokens"), OF_RUN(REAL, z, "e.z"),
    OF_RUN(INT, compared, "x.compared"), OF_RUN(INT, equal, "x.equal"), OF_RUN(NAME, first_prompt, "d.prompt_id"),
    OF_RUN(INT, first_turn, "d.turn"), OF_RUN(INT, first_position, "d.first_difference"),
};
// clang-format on
// Sampled texts are compared only with those of none under the same rule: other rules use random numbers in another
// way.
static const char runs_sql[] =
    " FROM run_summary AS r JOIN run ON run.id = r.run LEFT JOIN expected AS e ON e.run = r.run"
    " LEFT JOIN (SELECT run, count(*) AS compared, sum(equal) AS equal FROM texts WHERE ?3 OR same_rule GROUP BY run) AS x ON x.run = r.run"
    " LEFT JOIN (SELECT *, row_number() OVER (PARTITION BY run ORDER BY prompt, turn, repeat, sequence) AS place FROM texts"
    " WHERE (?3 OR same_rule) AND NOT equal) AS d ON d.run = r.run AND d.place = 1"
    " WHERE r.experiment = ?1 AND r.peers = ?2 ORDER BY r.drafter_kind <> 'none', r.run";

#define OF_ALL(kind, member, sql) ((struct field){ sql, kind, offsetof(struct comparison, member) })
// clang-format off
static const struct field comparison_fields[] = {
    OF_ALL(TEXT, target, "target"), OF_ALL(TEXT, model_type, "model_type"), OF_ALL(TEXT, activations, "activations"),
    OF_ALL(TEXT, cache, "cache"), OF_ALL(TEXT, sampling, "sampling"), OF_ALL(TEXT, prompts, "run.prompts"),
    OF_ALL(TEXT, limits, "(SELECT group_concat(key || ': ' || (settings -> fullkey), ', ') FROM"
                         " json_each(iif(json_valid(settings), settings, '{}'), '$.limits'))"),
    OF_ALL(INT, batch, "batch"), OF_ALL(INT, seed, "seed"), OF_ALL(INT, n_prompts, "n.prompts"), OF_ALL(INT, turns, "n.turns"),
    OF_ALL(INT, repeats, "n.repeats"),
};
// clang-format on
static const char comparison_sql[] =
    " FROM run JOIN (SELECT count(DISTINCT prompt) AS prompts, coalesce(max(turn) + 1, 0) AS turns, coalesce(max(repeat) + 1, 0) AS repeats"
    " FROM sequence JOIN run ON run.id = run WHERE experiment = ?1 AND peers = ?2) AS n"
    " WHERE experiment = ?1 AND peers = ?2 ORDER BY id LIMIT 1";

#define FIELDS(f) f, sizeof(f) / sizeof((f)[0])

// ---- intervals

// Calls take for each group of the rows of a query: those with equal values in the first two columns, a run and its
// part.
static bool each_group(struct query *q, void (*take)(void *to, const struct columns *x, size_t from, size_t n),
                       void *to, struct error *err)
{
    struct columns x;
    const bool ok = columns_read(&x, q, err);
    for (size_t from = 0, n; ok && from < x.n; from += n) {
        n = columns_alike(&x, from, 2);
        take(to, &x, from, n);
    }
    columns_free(&x);
    return ok;
}

// Returns NULL if the run is not in the comparison. A damaged database may hold any number, so it is not converted back
// to an integer.
static struct tally *run_of(struct comparison *c, const struct columns *x, size_t from)
{
    for (int i = 0; i < c->n; i++)
        if ((double)c->run[i].run == x->x[0][from])
            return &c->run[i];
    return NULL;
}

static int part_of(const struct columns *x, size_t from)
{
    return (int)x->x[1][from];
}

// The sums of a comparison, by prompt and unit. Its groups are each run as a whole (part -1), and the prompts of each
// category. SQLite makes an index for the groups of a query, but not for the rows of json_each.
#define PARTS(columns, from, wanted) \
    "WITH place AS MATERIALIZED (SELECT key, value FROM json_each(?3) GROUP BY value), one AS (SELECT " columns \
    " FROM run AS r JOIN " from " WHERE r.experiment = ?1 AND r.peers = ?2), part AS (SELECT -1 AS part, * FROM one" \
    " UNION ALL SELECT place.key, one.* FROM one JOIN place ON place.value = one.category)" \
    " SELECT run, " wanted ", prompt, unit FROM part ORDER BY run, 2, prompt, unit"

static void take_sums(void *comparison, const struct columns *x, size_t from, size_t n)
{
    enum { ACCEPTED = 2, DRAFTED, EXPECTED, EXPECTED_DRAFTED, TOKENS, STEPS, TTFT, FIRSTS };
    struct tally *t = run_of(comparison, x, from);
    if (t == NULL)
        return;
    const struct interval tokens_per_step = columns_interval(STATISTIC_RATIO, x, from, n, TOKENS, STEPS, 0, 0);
    if (part_of(x, from) >= 0) {
        t->by_category[part_of(x, from)].tokens_per_step = tokens_per_step;
        return;
    }
    if (!t->baseline) {
        t->acceptance_rate = columns_interval(STATISTIC_RATE, x, from, n, ACCEPTED, DRAFTED, 0, 0);
        t->expected_rate = columns_interval(STATISTIC_RATE, x, from, n, EXPECTED, EXPECTED_DRAFTED, 0, 0);
    }
    t->tokens_per_step = tokens_per_step;
    t->ttft = columns_interval(STATISTIC_RATIO, x, from, n, TTFT, FIRSTS, 0, 0);
}

static void take_slices(void *comparison, const struct columns *x, size_t from, size_t n)
{
    struct tally *t = run_of(comparison, x, from);
    if (t == NULL)
        return;
    const struct interval speed = columns_speed(x, from, n, 2, 0);
    t->tokens_per_s = (struct interval){ speed.value * 1e9, speed.low * 1e9, speed.high * 1e9, speed.prompts };
}

static void take_depths(void *comparison, const struct columns *x, size_t from, size_t n)
{
    enum { ACCEPTED = 2, DRAFTS, TRIED, DEEP };
    struct tally *t = run_of(comparison, x, from);
    double deep = 0;
    for (size_t i = 0; i < n; i++)
        deep += x->x[DEEP][from + i];
    if (t == NULL || deep < 1)
        return;
    t->rate[part_of(x, from) - 1] = columns_interval(STATISTIC_RATE, x, from, n, ACCEPTED, DRAFTS, 0, 0);
    t->conditional[part_of(x, from) - 1] = columns_interval(STATISTIC_RATE, x, from, n, ACCEPTED, TRIED, 0, 0);
}

static void take_pairs(void *comparison, const struct columns *x, size_t from, size_t n)
{
    enum { DECODE = 2, NONE_DECODE = DECODE + 3, ALL = NONE_DECODE + 3, NONE_ALL = ALL + 3 };
    struct tally *t = run_of(comparison, x, from);
    if (t == NULL)
        return;
    const struct interval speedup = columns_speed(x, from, n, DECODE, NONE_DECODE);
    if (part_of(x, from) < 0) {
        t->end_to_end_speedup = columns_speed(x, from, n, ALL, NONE_ALL);
        t->speedup = speedup;
        return;
    }
    struct by_category *of = &t->by_category[part_of(x, from)];
    of->speedup = speedup;
    of->speedup_prompts = columns_prompts(x, from, n);
}

static bool read_intervals(struct store *s, struct comparison *c, struct error *err)
{
    static const struct {
        void (*take)(void *comparison, const struct columns *x, size_t from, size_t n);
        const char *sql;
    } of[] = {
        { take_sums,
          PARTS(
              "v.*, 0 AS unit", "sums_by_prompt AS v ON v.run = r.id",
              "part, accepted_tokens, drafted_tokens, expected_tokens, expected_drafted, step_tokens, steps, ttft_ns, first_tokens") },
        { take_slices,
          PARTS("v.*, NULL AS category", "sums_by_slice AS v ON v.run = r.id", "part, new_tokens, decode_ns, steps") },
        { take_depths,
          PARTS("v.*, 0 AS unit, NULL AS category", "acceptance_by_prompt AS v ON v.run = r.id AND v.depth <= 8",
                "depth, accepted, drafts, tried, drafts_this_deep") },
        { take_pairs,
          PARTS(
              "u.*, v.category",
              "speed_by_slice AS u ON u.run = r.id JOIN speed_by_prompt AS v ON v.run = u.run AND v.prompt = u.prompt",
              "part, new_tokens, decode_ns, steps, none_new_tokens, none_decode_ns, none_steps, new_tokens, decode_ns + prefill_ns, steps,"
              " none_new_tokens, none_decode_ns + none_prefill_ns, none_steps") },
    };
    static_assert(POSITIONS == 8, "the depths above");
    struct json *names = json_new_array();
    for (int i = 0; i < c->n_categories; i++)
        json_push(names, json_new_text(c->category[i]));
    char *categories = json_write(names);
    bool ok = true;
    for (int i = 0; i < 4 && ok; i++)
        ok = each_group(query_with(s, of[i].sql, SQL(c->experiment), SQL(c->peers), SQL(categories)), of[i].take, c,
                        err);
    free(categories);
    json_free(names);
    return ok;
}

// ---- against another run

// Takes the first part of a run, which is the pairs if there are any.
static void take_against(void *againsts, const struct columns *x, size_t from, size_t n)
{
    enum { RUN, PAIRED, ACCEPTED, DRAFTED, STEP_TOKENS, STEPS, TTFT, FIRSTS, Y }; // the other run's columns begin at Y
    struct againsts *to = againsts;
    const double run = x->x[RUN][from];
    if (to->n > 0 && to->of[to->n - 1].run == run)
        return;
    struct against a = { .run = run, .prompts = (int64_t)n, .in_pairs = x->x[PAIRED][from] > 0, .speed = no_interval };
    a.acceptance = columns_interval(STATISTIC_DIFFERENCE, x, from, n, ACCEPTED, DRAFTED, Y, Y + 1);
    a.acceptance.low = a.acceptance.low < -1 ? -1 : a.acceptance.low;
    a.acceptance.high = a.acceptance.high > 1 ? 1 : a.acceptance.high;
    a.tokens_per_step = columns_interval(STATISTIC_DIFFERENCE, x, from, n, STEP_TOKENS, STEPS, Y + 2, Y + 3);
    a.ttft = columns_interval(STATISTIC_RATIO_OF_RATIOS, x, from, n, TTFT, FIRSTS, Y + 4, Y + 5);
    to->of = xrealloc(to->of, ((size_t)to->n + 1) * sizeof(*to->of));
    to->of[to->n++] = a;
}

static void take_speed_against(void *againsts, const struct columns *x, size_t from, size_t n)
{
    enum { RUN, PAIRED, MINE, OTHER = MINE + 3 };
    struct againsts *to = againsts;
    for (int k = 0; k < to->n; k++)
        if (to->of[k].run == x->x[RUN][from] && to->of[k].in_pairs == (x->x[PAIRED][from] > 0))
            to->of[k].speed = columns_speed(x, from, n, MINE, OTHER);
}

bool against_read(struct store *s, int64_t other, struct againsts *to, struct error *err)
{
    static const char by_prompt[] =
        "SELECT run, in_pairs, accepted_tokens, drafted_tokens, step_tokens, steps, ttft_ns, first_tokens,"
        " against_accepted_tokens, against_drafted_tokens, against_step_tokens, against_steps, against_ttft_ns,"
        " against_first_tokens, prompt, 0 FROM against_by_prompt WHERE against = ?1 ORDER BY run, in_pairs DESC, prompt";
    static const char by_slice[] =
        "SELECT run, in_pairs, sum(new_tokens), sum(decode_ns), sum(steps), sum(against_new_tokens), sum(against_decode_ns),"
        " sum(against_steps), prompt, unit FROM against_by_slice WHERE against = ?1"
        " GROUP BY run, in_pairs, prompt, unit ORDER BY run, in_pairs DESC, prompt, unit";
    *to = (struct againsts){ 0 };
    return each_group(query_with(s, by_prompt, SQL(other)), take_against, to, err) &&
           each_group(query_with(s, by_slice, SQL(other)), take_speed_against, to, err);
}

const struct against *against_find(const struct againsts *a, int64_t run)
{
    for (int i = 0; i < a->n; i++)
        if (a->of[i].run == (double)run)
            return &a->of[i];
    return NULL;
}

// ---- a comparison

static bool read_ranks(struct store *s, struct comparison *c, struct error *err)
{
    static const char sql[] =
        "SELECT v.run, v.rank, v.rate FROM run AS r JOIN acceptance_by_rank AS v ON v.run = r.id"
        " WHERE r.experiment = ?1 AND r.peers = ?2 AND v.depth = 1 AND v.rank BETWEEN 0 AND ?3 - 1";
    struct query *q = query_with(s, sql, SQL(c->experiment), SQL(c->peers), SQL((int)POSITIONS));
    while (query_next(q))
        for (int i = 0; i < c->n; i++)
            if (c->run[i].run == query_int(q, 0))
                c->run[i].by_rank[query_int(q, 1)] = query_real(q, 2);
    return query_close(q, err);
}

static void add_run(struct comparison *c, const struct query *q)
{
    struct tally t = { 0 };
    read_fields(q, FIELDS(run_fields), &t);
    t.acceptance_rate = t.expected_rate = t.tokens_per_step = t.ttft = t.tokens_per_s = no_interval;
    t.speedup = t.end_to_end_speedup = no_interval;
    for (int k = 0; k < POSITIONS; k++) {
        t.rate[k] = t.conditional[k] = no_interval;
        t.by_rank[k] = NAN;
    }
    t.by_category = xmalloc(((size_t)c->n_categories + 1) * sizeof(*t.by_category));
    for (int k = 0; k < c->n_categories; k++)
        t.by_category[k] = (struct by_category){ no_interval, no_interval, 0 };
    c->run = xrealloc(c->run, ((size_t)c->n + 1) * sizeof(*c->run));
    c->run[c->n++] = t;
}

static bool read_runs(struct store *s, struct comparison *c, struct error *err)
{
    char *sql = select_fields(FIELDS(run_fields), runs_sql);
    struct query *q = query_open(s, sql);
    query_put(q, SQL(c->experiment), SQL(c->peers), SQL(c->greedy));
    while (query_next(q))
        add_run(c, q);
    free(sql);
    return query_close(q, err) && read_ranks(s, c, err) && read_intervals(s, c, err);
}

bool texts_comparable(const struct comparison *c, const struct tally *t)
{
    return c->greedy || t->drafter_invariant;
}

// Recognizes "temperature=0, top_p=0.95", "{temperature: 0}", "temperature 0.0" and "greedy".
static bool is_greedy(const char *sampling)
{
    const char *at = strstr(sampling, "temperature");
    if (at == NULL)
        return strstr(sampling, "greedy") != NULL;
    at += strlen("temperature");
    at += strspn(at, " =:");
    char *end;
    return strtod(at, &end) == 0 && end != at;
}

static bool read_categories(struct store *s, struct comparison *c, struct error *err)
{
    struct query *q = query_with(s,
                                 "SELECT category, count(DISTINCT prompt) FROM sequence JOIN run ON run.id = run"
                                 " WHERE experiment = ? AND peers = ? AND category IS NOT NULL"
                                 " GROUP BY category ORDER BY min(prompt)",
                                 SQL(c->experiment), SQL(c->peers));
    for (; query_next(q); c->n_categories++) {
        size_t n = (size_t)c->n_categories + 1;
        c->category = xrealloc(c->category, n * sizeof(*c->category));
        c->category_prompts = xrealloc(c->category_prompts, n * sizeof(*c->category_prompts));
        c->category[n - 1] = xstrdup(query_text(q, 0));
        c->category_prompts[n - 1] = query_int(q, 1);
    }
    return query_close(q, err);
}

static bool read_comparison(struct store *s, struct comparison *c, struct error *err)
{
    char *sql = select_fields(FIELDS(comparison_fields), comparison_sql);
    struct query *q = query_open(s, sql);
    query_put(q, SQL(c->experiment), SQL(c->peers));
    const bool found = query_next(q);
    if (found) {
        read_fields(q, FIELDS(comparison_fields), c);
        c->greedy = is_greedy(c->sampling);
    }
    free(sql);
    if (!query_close(q, err))
        return false;
    if (!found) // a NUL within a name, or an index that disagrees with its table
        return fail(err, "%s: the database is damaged: a run cannot be found by its experiment and peers",
                    store_path(s));
    return read_categories(s, c, err) && read_runs(s, c, err);
}

static bool fail_unknown_experiment(struct store *s, const char *experiment, struct error *err)
{
    struct text known = { 0 };
    text_puts(&known, "");
    struct query *q = query_open(s, "SELECT experiment FROM run GROUP BY experiment ORDER BY min(id)");
    while (query_next(q))
        text_printf(&known, "%s%s", known.n > 0 ? ", " : "", query_text(q, 0));
    if (!query_close(q, err))
        ;
    else if (known.n == 0)
        fail(err, "%s: no experiment has been run into it yet", store_path(s));
    else
        fail_usage(err, "%s: no experiment \"%s\" in it (%s)", store_path(s), experiment, known.s);
    free(known.s);
    return false;
}

// clang-format off
static const struct kept_view views[] = {
    { "text_rounds", NULL, false }, { "sums_by_slice", NULL, false }, { "paired", NULL, false }, { "speed_by_slice", NULL, false },
    { "speed_by_prompt", NULL, false }, { "speed", NULL, false }, { "steps", NULL, false }, { "timing", NULL, false },
    { "texts", NULL, false }, { "run_summary", NULL, false }, { "sums_by_text", NULL, false }, { "sums_by_prompt", NULL, false },
    { "against_by_slice", NULL, true }, { "against_by_prompt", NULL, true }, { "acceptance_by_prompt", "depth <= 16", false },
    { "acceptance_by_rank", NULL, false }, { "expected", NULL, false },
};
// clang-format on
enum { VIEWS = sizeof(views) / sizeof(views[0]) };
static_assert(POSITIONS <= 16, "the condition above is that of a figure, acceptance_by_depth.sql");

static bool read_comparisons(struct store *s, struct comparisons *to, struct error *err)
{
    to->kept = s;
    bool ok = views_keep(s, views, VIEWS, err);
    for (int i = 0; i < to->n && ok; i++)
        ok = read_comparison(s, &to->comparison[i], err);
    return ok;
}

bool comparisons_read(struct store *s, const char *experiment, struct comparisons *to, struct error *err)
{
    *to = (struct comparisons){ 0 };
    struct query *q = query_again(s, "SELECT experiment, peers FROM run WHERE ?1 IS NULL OR experiment = ?1"
                                     " GROUP BY experiment, peers ORDER BY min(id)");
    query_put(q, SQL(experiment));
    for (; query_next(q); to->n++) {
        to->comparison = xrealloc(to->comparison, ((size_t)to->n + 1) * sizeof(*to->comparison));
        to->comparison[to->n] =
            (struct comparison){ .experiment = xstrdup(query_text(q, 0)), .peers = xstrdup(query_text(q, 1)) };
    }
    if (!query_close(q, err) || (to->n == 0 && !fail_unknown_experiment(s, experiment, err)) ||
        !read_comparisons(s, to, err)) {
        comparisons_free(to);
        *to = (struct comparisons){ 0 };
        return false;
    }
    return true;
}

static void free_comparison(struct comparison *c)
{
    for (int i = 0; i < c->n; i++) {
        free_fields(FIELDS(run_fields), &c->run[i]);
        free(c->run[i].by_category);
    }
    free_fields(FIELDS(comparison_fields), c);
    free(c->experiment);
    free(c->peers);
    for (int i = 0; i < c->n_categories; i++)
        free(c->category[i]);
    free(c->run);
    free(c->category);
    free(c->category_prompts);
}

void comparisons_free(struct comparisons *c)
{
    for (int i = 0; i < c->n; i++)
        free_comparison(&c->comparison[i]);
    free(c->comparison);
    if (c->kept != NULL)
        views_forget(c->kept, views, VIEWS);
}
