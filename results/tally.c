#include "results/tally.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"

// ---- one run ----

static struct tally *run_of(struct comparison *c, int64_t run)
{
    for (int i = 0; i < c->n; i++)
        if (c->run[i].run == run)
            return &c->run[i];
    return NULL;
}

void comparison_put(struct query *q, const struct comparison *c)
{
    query_put(q, SQL(c->experiment), SQL(c->peers));
}

// The runs of a comparison. One query per view reads all of them, because each evaluation of a view reads every step.
#define OF_COMPARISON " FROM run AS r JOIN "
#define WHERE_COMPARISON " AS v ON v.run = r.id WHERE r.experiment = ?1 AND r.peers = ?2"

static bool read_ranks(struct store *s, struct comparison *c, struct error *err)
{
    for (int k = 0; k < c->n; k++)
        for (int i = 0; i < POSITIONS; i++)
            c->run[k].by_rank[i] = NAN;
    struct query *q = query_again(s, "SELECT v.run, v.rank, v.rate" OF_COMPARISON "acceptance_by_rank" WHERE_COMPARISON
                                     " AND v.depth = 1 AND v.rank BETWEEN 0 AND ?3 - 1");
    comparison_put(q, c);
    query_put(q, SQL(POSITIONS));
    while (query_next(q)) {
        struct tally *t = run_of(c, query_int(q, 0));
        if (t != NULL)
            t->by_rank[query_int(q, 1)] = query_real(q, 2);
    }
    return query_close(q, err);
}

static bool read_expected(struct store *s, struct comparison *c, struct error *err)
{
    for (int i = 0; i < c->n; i++)
        c->run[i].expected = c->run[i].accepted_uncut = c->run[i].z = NAN;
    struct query *q = query_again(s, "SELECT v.run, v.expected_tokens, v.accepted_tokens, v.z" OF_COMPARISON
                                     "expected" WHERE_COMPARISON);
    comparison_put(q, c);
    while (query_next(q)) {
        struct tally *t = run_of(c, query_int(q, 0));
        if (t == NULL)
            continue;
        t->expected = query_real(q, 1);
        t->accepted_uncut = query_real(q, 2);
        t->z = query_real(q, 3);
    }
    return query_close(q, err);
}

// Sampled texts are compared only with those of none under the same rule: other rules use random numbers in another way.
static bool read_texts(struct store *s, bool greedy, struct tally *t, struct error *err)
{
    struct query *q =
        query_again(s, "SELECT count(*), coalesce(sum(equal), 0) FROM texts WHERE run = ?1 AND (?2 OR same_rule)");
    query_put(q, SQL(t->run), SQL(greedy));
    if (query_next(q)) {
        t->compared = query_int(q, 0);
        t->equal = query_int(q, 1);
    }
    if (!query_close(q, err))
        return false;
    q = query_again(
        s, "SELECT prompt_id, turn, first_difference FROM texts WHERE run = ?1 AND (?2 OR same_rule) AND NOT equal"
           " ORDER BY prompt, turn, repeat LIMIT 1");
    query_put(q, SQL(t->run), SQL(greedy));
    if (query_next(q)) {
        t->first_prompt = xstrdup(query_text(q, 0));
        t->first_turn = query_int(q, 1);
        t->first_position = query_int(q, 2);
    }
    return query_close(q, err);
}

static const char summary_sql[] =
    "SELECT r.run, r.drafter, r.rule, r.device, r.machine, r.revision, r.drafter_kind = 'none', r.lossless, r.marked_inflated,"
    " r.finished, r.sequences, r.new_tokens, r.steps, r.drafts, r.drafted_tokens, r.accepted_tokens, r.max_depth, r.trees,"
    " r.end_to_end_tokens_per_s, r.sequence_tokens_per_s,"
    " r.propose_share, r.verify_share, r.advance_share, r.other_share, r.speedup_geometric, r.disturbed_share, r.unpaired_sequences, run.drafter_invariant, r.prompts,"
    " iif(r.drafter_kind = 'none', r.speed_prompts, r.paired_prompts), r.speedup_disturbed"
    " FROM run_summary AS r JOIN run ON run.id = r.run WHERE r.experiment = ? AND r.peers = ? ORDER BY r.drafter_kind <> 'none', r.run";

static struct tally tally_of_row(const struct query *q)
{
    struct tally t = { .run = query_int(q, 0),
                       .baseline = query_int(q, 6),
                       .lossless = query_int(q, 7),
                       .inflated = query_int(q, 8),
                       .finished = query_int(q, 9) };
    char **const text[] = { &t.drafter, &t.rule, &t.device, &t.machine, &t.revision };
    int64_t *const count[] = { &t.sequences, &t.new_tokens, &t.steps,     &t.drafts,
                               &t.drafted,   &t.accepted,   &t.max_depth, &t.trees };
    double *const number[] = {
        &t.end_to_end, &t.sequence_tokens_per_s, &t.propose, &t.verify, &t.advance, &t.other, &t.geometric, &t.disturbed
    };
    for (int i = 0; i < 5; i++)
        *text[i] = xstrdup(query_text(q, 1 + i));
    for (int i = 0; i < 8; i++)
        *count[i] = query_int(q, 10 + i);
    for (int i = 0; i < 8; i++)
        *number[i] = query_real(q, 18 + i);
    t.unpaired = query_int(q, 26);
    t.drafter_invariant = query_int(q, 27);
    t.prompts = query_int(q, 28);
    t.speed_prompts = query_int(q, 29);
    t.all_disturbed = t.disturbed >= 1 || query_int(q, 30) > 0;
    return t;
}

static bool read_runs(struct store *s, struct comparison *c, struct error *err)
{
    struct query *q = query_again(s, summary_sql);
    comparison_put(q, c);
    for (; query_next(q); c->n++) {
        c->run = xrealloc(c->run, ((size_t)c->n + 1) * sizeof(*c->run));
        c->run[c->n] = tally_of_row(q);
    }
    bool ok = query_close(q, err) && read_ranks(s, c, err) && read_expected(s, c, err) && intervals_read(s, c, err);
    for (int i = 0; i < c->n && ok; i++)
        ok = read_texts(s, c->greedy, &c->run[i], err);
    return ok;
}

bool texts_comparable(const struct comparison *c, const struct tally *t)
{
    return c->greedy || t->drafter_invariant;
}

// ---- a comparison ----

// "temperature=0, top_p=0.95", "{temperature: 0}", "temperature 0.0" or "greedy".
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
    struct query *q = query_again(s, "SELECT category, count(DISTINCT prompt) FROM sequence JOIN run ON run.id = run"
                                     " WHERE experiment = ? AND peers = ? AND category IS NOT NULL"
                                     " GROUP BY category ORDER BY min(prompt)");
    comparison_put(q, c);
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
    struct query *q = query_again(
        s,
        "SELECT target, model_type, activations, cache, sampling, prompts, (SELECT group_concat(key || ': ' || (settings -> fullkey), ', ')"
        " FROM json_each(iif(json_valid(settings), settings, '{}'), '$.limits')), batch, seed"
        " FROM run WHERE experiment = ? AND peers = ? ORDER BY id LIMIT 1");
    comparison_put(q, c);
    const bool found = query_next(q);
    if (found) {
        char **const text[] = { &c->target, &c->model_type, &c->activations, &c->cache, &c->sampling, &c->prompts };
        for (int i = 0; i < 6; i++)
            *text[i] = xstrdup(query_text(q, i));
        c->limits = xstrdup(query_text(q, 6));
        c->batch = query_int(q, 7);
        c->seed = (uint64_t)query_int(q, 8);
        c->greedy = is_greedy(c->sampling);
    }
    if (!query_close(q, err))
        return false;
    if (!found) // a NUL within a name, or an index that disagrees with its table
        return fail(err, "%s: the database is damaged: a run cannot be found by its experiment and peers",
                    store_path(s));
    q = query_again(s, "SELECT count(DISTINCT prompt), coalesce(max(turn) + 1, 0), coalesce(max(repeat) + 1, 0)"
                       " FROM sequence JOIN run ON run.id = run WHERE experiment = ? AND peers = ?");
    comparison_put(q, c);
    if (query_next(q)) {
        c->n_prompts = query_int(q, 0);
        c->turns = query_int(q, 1);
        c->repeats = query_int(q, 2);
    }
    return query_close(q, err) && read_categories(s, c, err) && read_runs(s, c, err);
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

static const struct kept_view views[] = { { .name = "text_rounds" },
                                          { .name = "sums_by_slice" },
                                          { .name = "paired" },
                                          { .name = "speed_by_slice" },
                                          { .name = "speed_by_prompt" },
                                          { .name = "speed" },
                                          { .name = "steps" },
                                          { .name = "timing" },
                                          { .name = "texts" },
                                          { .name = "run_summary" },
                                          { .name = "sums_by_text" },
                                          { .name = "sums_by_prompt" },
                                          { .name = "against_by_slice", .open = true },
                                          { .name = "against_by_prompt", .open = true },
                                          { .name = "acceptance_by_prompt", .where = "depth <= 16" },
                                          { .name = "acceptance_by_rank" },
                                          { .name = "expected" } };
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
    char *const text[] = { c->experiment, c->peers,    c->target,  c->model_type, c->activations,
                           c->cache,      c->sampling, c->prompts, c->limits };
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++)
        free(text[i]);
    for (int i = 0; i < c->n; i++) {
        struct tally *t = &c->run[i];
        char *const of_run[] = { t->drafter, t->rule, t->device, t->machine, t->revision, t->first_prompt };
        for (size_t k = 0; k < sizeof(of_run) / sizeof(of_run[0]); k++)
            free(of_run[k]);
        free(t->by_category);
    }
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
