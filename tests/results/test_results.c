// test_results.c - the views of the results database compared with plain loops over the same facts (sample_facts.h).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/store.h"
#include "results/query.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"
#include "tests/results/sample_facts.h"

struct scene {
    struct store *s;
    struct sample_facts *m;
};

static int set_up(void **state)
{
    struct scene *c = xcalloc(1, sizeof(*c));
    c->m = sample_facts_create(11, 7, 2, 2);
    c->s = sample_store(c->m);
    *state = c;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *c = *state;
    store_close(c->s);
    sample_facts_free(c->m);
    free(c);
    test_directory_remove();
    return 0;
}

// The value of a query about a run (?1); NAN: NULL or no row.
static double query_run_value(struct scene *c, int run, const char *sql)
{
    struct error err;
    struct query *q = query_open(c->s, sql);
    query_put(q, SQL(c->m->id[run]));
    double x = query_next(q) ? query_real(q, 0) : NAN;
    if (!query_close(q, &err))
        fail_msg("%s: %s", sql, err.text);
    return x;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fmax(1, fabs(b))) && !(isnan(a) && isnan(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

#define EACH_SEQUENCE(q, of) \
    for (const struct sample_sequence *q = c->m->sequence; q < c->m->sequence + c->m->n; q++) \
        if (q->run == (of))

// The sequence of none that the view `paired` pairs with q; NULL: none.
static const struct sample_sequence *partner(const struct scene *c, const struct sample_sequence *q)
{
    EACH_SEQUENCE (n, q->run >= PAIR_NONE ? PAIR_NONE : NONE)
        if (n->row.pair == q->row.pair && n->row.prompt == q->row.prompt && n->row.turn == q->row.turn &&
            n->row.repeat == q->row.repeat)
            return n;
    return NULL;
}

static void steps_and_lengths_are_sums_over_steps(void **state)
{
    struct scene *c = *state;
    for (int run = 0; run < SAMPLE_RUNS; run++) {
        double steps = 0, drafts = 0, drafted = 0, accepted = 0, tokens = 0;
        EACH_SEQUENCE (q, run)
            for (int i = 0; i < q->row.n_steps; i++) {
                steps++;
                drafts += q->step[i].drafted > 0;
                drafted += q->step[i].drafted;
                accepted += q->step[i].accepted;
                tokens += q->step_tokens[i];
            }
        near(query_run_value(c, run, "SELECT steps FROM steps WHERE run = ?"), steps);
        near(query_run_value(c, run, "SELECT tokens_per_step FROM steps WHERE run = ?"), tokens / steps);
        near(query_run_value(c, run, "SELECT tau FROM eagle WHERE run = ?"),
             run == NONE || run == PAIR_NONE ? NAN : tokens / steps);
        if (run == NONE || run == PAIR_NONE)
            continue;
        near(query_run_value(c, run, "SELECT num_drafts FROM vllm_metrics WHERE run = ?"), drafts);
        near(query_run_value(c, run, "SELECT num_draft_tokens FROM vllm_metrics WHERE run = ?"), drafted);
        near(query_run_value(c, run, "SELECT num_accepted_tokens FROM vllm_metrics WHERE run = ?"), accepted);
        near(query_run_value(c, run, "SELECT acceptance_rate FROM vllm_metrics WHERE run = ?"), accepted / drafted);
        near(query_run_value(c, run, "SELECT acceptance_length FROM vllm_metrics WHERE run = ?"),
             1 + accepted / drafts);
        near(query_run_value(c, run, "SELECT acceptance_rate FROM run_summary WHERE run = ?"), accepted / drafted);
    }
}

static void a_run_of_none_has_no_acceptance(void **state)
{
    struct scene *c = *state;
    static const char *const sql[] = {
        "SELECT num_drafts FROM vllm_metrics WHERE run = ?",
        "SELECT num_accepted_tokens FROM vllm_metrics WHERE run = ?",
        "SELECT acceptance_rate FROM vllm_metrics WHERE run = ?",
        "SELECT acceptance_length FROM vllm_metrics WHERE run = ?",
        "SELECT drafts FROM run_summary WHERE run = ?",
        "SELECT acceptance_rate FROM run_summary WHERE run = ?",
        "SELECT speedup FROM run_summary WHERE run = ?",
        "SELECT tau FROM eagle WHERE run = ?",
        "SELECT overhead FROM medusa WHERE run = ?",
        "SELECT rate FROM acceptance WHERE run = ?",
        "SELECT z FROM expected WHERE run = ?",
    };
    for (size_t i = 0; i < sizeof(sql) / sizeof(sql[0]); i++)
        assert_true(isnan(query_run_value(c, NONE, sql[i])));
}

static void acceptance_by_depth_counts_drafts(void **state)
{
    struct scene *c = *state;
    for (int run = 0; run < SAMPLE_RUNS; run++)
        for (int depth = 1; depth <= 6; depth++) {
            double drafts = 0, deep = 0, reached = 0, tried = 0, trees = 0;
            EACH_SEQUENCE (q, run)
                for (int i = 0; i < q->row.n_steps; i++) {
                    const struct step_row *t = &q->step[i];
                    if (t->drafted == 0)
                        continue;
                    bool ended_here = q->step_tokens[i] == t->accepted && t->accepted == depth - 1;
                    drafts++;
                    trees += t->drafted != t->depth;
                    deep += t->depth >= depth;
                    reached += t->accepted >= depth;
                    tried += t->depth >= depth && t->accepted >= depth - 1 && !ended_here;
                }
            char *rate = xformat("SELECT rate FROM acceptance WHERE run = ? AND depth = %d", depth);
            char *given = xformat("SELECT conditional_rate FROM acceptance WHERE run = ? AND depth = %d", depth);
            char *vllm =
                xformat("SELECT num_accepted_tokens FROM vllm_positions WHERE run = ? AND position = %d", depth - 1);
            char *alpha = xformat("SELECT alpha_%d FROM eagle WHERE run = ?", depth - 1);
            if (deep == 0) {
                assert_true(isnan(query_run_value(c, run, rate)));
            } else {
                near(query_run_value(c, run, rate), reached / drafts);
                near(query_run_value(c, run, given), reached / tried);
                near(query_run_value(c, run, vllm), reached);
                if (trees > 0)
                    assert_true(isnan(query_run_value(c, run, alpha)));
                else
                    near(query_run_value(c, run, alpha), reached / tried);
            }
            free(rate);
            free(given);
            free(vllm);
            free(alpha);
        }
}

static void acceptance_by_rank_counts_acceptance_tests(void **state)
{
    struct scene *c = *state;
    for (int depth = 1; depth <= 3; depth++)
        for (int rank = 0; rank <= 1; rank++) {
            double tried = 0, accepted = 0, p = 0, acceptance = 0;
            EACH_SEQUENCE (q, TREE)
                for (int i = 0; i < q->row.n_steps; i++)
                    for (int k = 0; k < q->step[i].n_trials; k++) {
                        const struct trial_row *t = &q->trial[i][k];
                        if (t->depth != depth || t->rank != rank)
                            continue;
                        tried++;
                        accepted += t->accepted;
                        p += t->p;
                        acceptance += t->p < t->q ? t->p / t->q : 1;
                    }
            static const char from[] = "FROM acceptance_by_rank WHERE run = ? AND depth =";
            char *sql[] = { xformat("SELECT rate %s %d AND rank = %d", from, depth, rank),
                            xformat("SELECT mean_p %s %d AND rank = %d", from, depth, rank),
                            xformat("SELECT rejection_rate %s %d AND rank = %d", from, depth, rank) };
            near(query_run_value(c, TREE, sql[0]), accepted / tried);
            near(query_run_value(c, TREE, sql[1]), p / tried);
            near(query_run_value(c, TREE, sql[2]), acceptance / tried);
            for (int i = 0; i < 3; i++)
                free(sql[i]);
        }
}

static void expected_is_compared_with_tokens_accepted_before_the_text_was_cut(void **state)
{
    struct scene *c = *state;
    double expected = 0, accepted = 0, variance = 0;
    EACH_SEQUENCE (q, TREE)
        for (int i = 0; i < q->row.n_steps; i++) {
            expected += q->step[i].expected;
            variance += q->step[i].variance;
            accepted += q->step_accepted[i];
        }
    near(query_run_value(c, TREE, "SELECT accepted_tokens FROM expected WHERE run = ?"), accepted);
    near(query_run_value(c, TREE, "SELECT expected_tokens FROM expected WHERE run = ?"), expected);
    near(query_run_value(c, TREE, "SELECT z FROM expected WHERE run = ?"), (accepted - expected) / sqrt(variance));
    assert_true(isnan(query_run_value(c, LOOKUP, "SELECT z FROM expected WHERE run = ?")));
}

static void the_time_of_a_batch_is_split_over_its_sequences(void **state)
{
    struct scene *c = *state;
    for (int run = 0; run < SAMPLE_RUNS; run++) {
        double propose = 0, verify = 0, advance = 0, decode = 0, prefill = 0, wall = 0, tokens = 0;
        EACH_SEQUENCE (q, run) {
            decode += (double)q->row.decode_ns;
            prefill += (double)q->row.prefill_ns;
            wall += (double)q->row.wall_ns;
            tokens += q->row.new_tokens;
            for (int i = 0; i < q->row.n_steps; i++) {
                propose += (double)q->step[i].propose_ns / q->step[i].batch;
                verify += (double)q->step[i].verify_ns / q->step[i].batch;
                advance += (double)q->step[i].advance_ns / q->step[i].batch;
            }
        }
        near(query_run_value(c, run, "SELECT propose_share FROM timing WHERE run = ?"), propose / decode);
        near(query_run_value(c, run, "SELECT verify_share FROM timing WHERE run = ?"), verify / decode);
        near(query_run_value(c, run, "SELECT advance_share FROM timing WHERE run = ?"), advance / decode);
        near(query_run_value(
                 c, run, "SELECT propose_share + verify_share + advance_share + other_share FROM timing WHERE run = ?"),
             1);
        near(query_run_value(c, run, "SELECT tokens_per_s FROM speed WHERE run = ?"), tokens / decode * 1e9);
        near(query_run_value(c, run, "SELECT end_to_end_tokens_per_s FROM speed WHERE run = ?"),
             tokens / (decode + prefill) * 1e9);
        near(query_run_value(c, run, "SELECT sequence_tokens_per_s FROM speed WHERE run = ?"), tokens / wall * 1e9);
    }
}

static void speedup_is_of_paired_sequences_only(void **state)
{
    struct scene *c = *state;
    for (int run = 0; run < SAMPLE_RUNS; run++) {
        double sum[4] = { 0 }, whole[4] = { 0 }, steps[2] = { 0 }, log_sum = 0, prompts = 0, alone = 0;
        if (run == NONE || run == PAIR_NONE)
            continue;
        for (int64_t prompt = 0; prompt < 7; prompt++) {
            double own[4] = { 0 };
            EACH_SEQUENCE (q, run) {
                const struct sample_sequence *n = partner(c, q);
                if (q->row.prompt != prompt)
                    continue;
                if (n == NULL) {
                    alone++;
                    continue;
                }
                own[0] += q->row.new_tokens;
                own[1] += (double)q->row.decode_ns;
                own[2] += n->row.new_tokens;
                own[3] += (double)n->row.decode_ns;
                steps[0] += q->row.n_steps;
                steps[1] += n->row.n_steps;
                whole[0] += q->row.new_tokens;
                whole[1] += (double)(q->row.decode_ns + q->row.prefill_ns);
                whole[2] += n->row.new_tokens;
                whole[3] += (double)(n->row.decode_ns + n->row.prefill_ns);
            }
            if (own[0] == 0)
                continue;
            prompts++;
            log_sum += log(own[0] / own[1] / (own[2] / own[3]));
            for (int i = 0; i < 4; i++)
                sum[i] += own[i];
        }
        near(query_run_value(c, run, "SELECT speedup FROM speed WHERE run = ?"), sum[0] / sum[1] / (sum[2] / sum[3]));
        near(query_run_value(c, run, "SELECT end_to_end_speedup FROM speed WHERE run = ?"),
             whole[0] / whole[1] / (whole[2] / whole[3]));
        near(query_run_value(c, run, "SELECT acceleration_rate FROM medusa WHERE run = ?"), sum[0] / steps[0]);
        near(query_run_value(c, run, "SELECT overhead FROM medusa WHERE run = ?"),
             sum[1] / steps[0] / (sum[3] / steps[1]));
        near(query_run_value(c, run, "SELECT speedup FROM medusa WHERE run = ?"),
             sum[0] / steps[0] / (sum[1] / steps[0] / (sum[3] / steps[1])));
        near(query_run_value(c, run, "SELECT speedup_geometric FROM speed WHERE run = ?"), exp(log_sum / prompts));
        near(query_run_value(c, run, "SELECT paired_prompts FROM speed WHERE run = ?"), prompts);
        near(query_run_value(c, run, "SELECT unpaired_sequences FROM speed WHERE run = ?"), alone);
        assert_true((alone > 0) == (run == LOSSY));
    }
}

// A second run of none has the rule `typical`: LOSSY is now compared with that one.
static void none_of_the_same_rule_is_preferred(void **state)
{
    struct scene *c = *state;
    struct error err;
    struct run_row r = c->m->run[NONE];
    int64_t id;
    near(query_run_value(c, LOSSY,
                         "SELECT min(n.run) FROM paired AS p JOIN sequence AS n ON n.id = p.none WHERE p.run = ?"),
         (double)c->m->id[NONE]);
    r.cell = "c9";
    r.rule = c->m->run[LOSSY].rule;
    assert_true(store_run(c->s, &r, &id, &err));
    struct query *q =
        query_open(c->s, "INSERT INTO sequence SELECT NULL, ?1, pair, prompt, prompt_id, category, turn, repeat,"
                         " prompt_tokens, new_tokens, 0, 0, prefill_ns, decode_ns * 2, wall_ns, tokens, text_hash,"
                         " text, stop, environment FROM sequence WHERE run = ?2");
    query_put(q, SQL(id), SQL(c->m->id[NONE]));
    while (query_next(q))
        ;
    assert_true(query_close(q, &err));
    near(query_run_value(c, LOSSY,
                         "SELECT min(n.run) FROM paired AS p JOIN sequence AS n ON n.id = p.none WHERE p.run = ?"),
         (double)id);
    near(query_run_value(c, LOOKUP,
                         "SELECT max(n.run) FROM paired AS p JOIN sequence AS n ON n.id = p.none WHERE p.run = ?"),
         (double)c->m->id[NONE]);
    // If both have other rules, the one of `rejection` is taken, though it is the later one.
    q = query_open(c->s,
                   "UPDATE run SET rule = CASE id WHEN ?1 THEN 'rejection' ELSE 'match' END WHERE id IN (?1, ?2)");
    query_put(q, SQL(id), SQL(c->m->id[NONE]));
    while (query_next(q))
        ;
    assert_true(query_close(q, &err));
    near(query_run_value(c, LOSSY,
                         "SELECT min(n.run) FROM paired AS p JOIN sequence AS n ON n.id = p.none WHERE p.run = ?"),
         (double)id);
}

static void first_difference_is_the_first_differing_token(void **state)
{
    struct scene *c = *state;
    for (int run = 0; run < SAMPLE_RUNS; run++) {
        double compared = 0, equal = 0, places = 0;
        if (run == NONE || run == PAIR_NONE)
            continue;
        EACH_SEQUENCE (q, run) {
            const struct sample_sequence *n = partner(c, q);
            if (n == NULL)
                continue;
            int i = 0, shorter = q->row.new_tokens < n->row.new_tokens ? q->row.new_tokens : n->row.new_tokens;
            while (i < shorter && q->token[i] == n->token[i])
                i++;
            bool same = i == q->row.new_tokens && i == n->row.new_tokens;
            compared++;
            equal += same;
            places += same ? 0 : i;
        }
        near(query_run_value(c, run, "SELECT count(*) FROM texts WHERE run = ?"), compared);
        near(query_run_value(c, run, "SELECT sum(equal) FROM texts WHERE run = ?"), equal);
        near(query_run_value(c, run, "SELECT coalesce(sum(first_difference), 0) FROM texts WHERE run = ?"), places);
        near(query_run_value(c, run, "SELECT equal_texts FROM run_summary WHERE run = ?"), equal);
        assert_true((equal < compared) == (run == LOSSY || run == TREE));
    }
}

static void spec_bench_reads_first_choices(void **state)
{
    struct scene *c = *state;
    for (int run = 0; run < SAMPLE_RUNS; run++) {
        double tokens = 0, steps = 0, tokens_per_s = 0, prompts = 0;
        for (int64_t prompt = 0; prompt < 7; prompt++) {
            double own = 0, ns = 0;
            int64_t seen = -1;
            EACH_SEQUENCE (q, run) {
                if (q->row.prompt != prompt || q->row.repeat != 0 || q->row.turn <= seen)
                    continue; // a text that was run twice counts once: the earlier
                seen = q->row.turn;
                own += q->row.new_tokens;
                steps += q->row.n_steps;
                ns += (double)(q->row.prefill_ns + (run >= PAIR_NONE ? q->row.wall_ns : q->row.decode_ns));
            }
            tokens += own;
            tokens_per_s += own / ns * 1e9;
            prompts++;
        }
        near(query_run_value(c, run, "SELECT mean_accepted_tokens FROM spec_bench WHERE run = ?"), tokens / steps);
        near(query_run_value(c, run, "SELECT tokens_per_s FROM spec_bench WHERE run = ?"), tokens_per_s / prompts);
    }
}

static void a_run_is_found_again_and_resumed(void **state)
{
    struct scene *c = *state;
    struct error err;
    struct run_row r = c->m->run[TREE];
    int64_t id, pair;
    struct stored_turn turn;

    assert_true(store_run(c->s, &r, &id, &err));
    assert_int_equal(id, c->m->id[TREE]);
    // Finding a run changes nothing; a decode adds its environment (the first one twice, as when cluster nodes alternate).
    r.revision = "0.2.0-def";
    assert_true(store_run(c->s, &r, &id, &err));
    near(query_run_value(c, TREE, "SELECT revision = '0.1.0-abc' FROM run WHERE id = ?"), 1);
    static const struct environment of[] = {
        { .processor = "AMD EPYC", .arithmetic = "avx2, 2 threads", .revision = "0.1.0-abc" },
        { .processor = "AMD EPYC", .arithmetic = "avx2, 2 threads", .revision = "0.2.0-def" },
        { .processor = "AMD EPYC", .arithmetic = "avx2, 2 threads", .revision = "0.1.0-abc" },
        { .processor = "AMD EPYC", .arithmetic = "avx2, 2 threads", .revision = "0.1.0" }
    };
    static const char *const names[] = { "0.1.0-abc", "0.1.0-abc, 0.2.0-def", "0.1.0-abc, 0.2.0-def",
                                         "0.1.0-abc, 0.2.0-def, 0.1.0" };
    for (int i = 0; i < 4; i++) {
        char *changed, *sql = xformat("SELECT revision = '%s' FROM run WHERE id = ?", names[i]);
        assert_int_equal(store_environment(c->s, id, &of[i], false, &changed, &err), i == 0);
        assert_true(i == 0 || store_environment(c->s, id, &of[i], true, &changed, &err));
        assert_int_equal(changed != NULL, i > 0);
        if (i > 0) {
            char *of_run = xformat("run %lld (%s, %s) ", (long long)id, r.drafter, r.rule);
            assert_true(strncmp(changed, of_run, strlen(of_run)) == 0 && strstr(err.text, of_run) != NULL);
            free(of_run);
        }
        assert_true(store_add_environment(c->s, id, 1, &of[i], &err));
        assert_true(store_add_environment(c->s, id, 1, &of[i], &err)); // unchanged: no second row
        near(query_run_value(c, TREE, "SELECT count(*) FROM environment WHERE run = ?"), i + 1);
        near(query_run_value(c, TREE, sql), 1);
        near(query_run_value(c, TREE, "SELECT machine = 'AMD EPYC, avx2, 2 threads' FROM run WHERE id = ?"), 1);
        free(changed);
        free(sql);
    }
    sample_facts_query(
        c->s, "CREATE TEMP TRIGGER refuse BEFORE INSERT ON environment BEGIN SELECT RAISE(ABORT, 'refused'); END");
    assert_false(store_add_environment(c->s, id, 1, &of[0], &err));
    assert_non_null(strstr(err.text, "refused"));
    sample_facts_query(c->s, "DROP TRIGGER refuse");
    near(query_run_value(c, TREE, "SELECT count(*) FROM run WHERE ?1"), SAMPLE_RUNS);
    r.experiment = "another"; // the same cell in another experiment is another run
    assert_true(store_run(c->s, &r, &id, &err));
    assert_true(id != c->m->id[TREE]);

    assert_true(store_turn(c->s, c->m->id[NONE], 1, 1, 0, &turn, &err));
    assert_true(turn.found);
    const struct sample_sequence *last = NULL;
    EACH_SEQUENCE (q, NONE)
        if (q->row.prompt == 1 && q->row.turn == 1 && q->row.repeat == 0)
            last = q; // run twice
    assert_int_equal(turn.n, last->row.new_tokens);
    assert_memory_equal(turn.token, last->token, (size_t)turn.n * sizeof(int32_t));
    assert_int_equal(turn.pair, last->row.pair + 1);
    free(turn.token);
    assert_true(store_turn(c->s, c->m->id[NONE], 1, 2, 0, &turn, &err));
    assert_false(turn.found);

    // A stored sequence is not stored twice, and a failure leaves nothing.
    struct sequence_row row = c->m->sequence[0].row;
    row.pair += 1;
    assert_false(store_sequence(c->s, c->m->id[NONE], &row, &err));
    assert_true(store_new_pair(c->s, "synthetic", &pair, &err));
    row.pair = pair;
    row.new_tokens++; // a token that belongs to no step
    double before = query_run_value(c, NONE, "SELECT count(*) FROM sequence WHERE run = ?");
    assert_false(store_sequence(c->s, c->m->id[NONE], &row, &err));
    char *lost = xformat("%s: prompt %s: 1 of its %d new tokens belong to no step", store_path(c->s), row.prompt_id,
                         row.new_tokens);
    assert_string_equal(err.text, lost);
    free(lost);
    near(query_run_value(c, NONE, "SELECT count(*) FROM sequence WHERE run = ?"), before);
    row.new_tokens--;
    assert_true(store_sequence(c->s, c->m->id[NONE], &row, &err));
    near(query_run_value(c, NONE, "SELECT count(*) FROM sequence WHERE run = ?"), before + 1);
}

static void other_weights_or_prompts_are_another_run(void **state)
{
    struct scene *c = *state;
    struct error err;
    int64_t id;
    struct run_row r = c->m->run[TREE];
    r.target_hash = "9999";
    assert_false(store_run(c->s, &r, &id, &err));
    assert_non_null(strstr(err.text, "weights of the target"));
    assert_non_null(strstr(err.text, sample_store_path()));
    r = c->m->run[TREE];
    r.drafter_hash = NULL;
    assert_false(store_run(c->s, &r, &id, &err));
    assert_non_null(strstr(err.text, "weights of the drafter"));
    r = c->m->run[TREE];
    r.prompts = "prompts.jsonl ffff";
    assert_false(store_run(c->s, &r, &id, &err));
    assert_non_null(strstr(err.text, "prompts"));
    r = c->m->run[TREE];
    r.settings = "{}";
    assert_false(store_run(c->s, &r, &id, &err));
    assert_non_null(strstr(err.text, "same hash"));
    assert_true(store_run(c->s, &c->m->run[TREE], &id, &err));
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void ns_per_token_is_the_median_of_the_cells_sequences(void **state)
{
    struct scene *c = *state;
    struct error err;
    int64_t ns_per_token[256], n = 0;
    EACH_SEQUENCE (q, TREE)
        ns_per_token[n++] = q->row.decode_ns / q->row.new_tokens;
    qsort(ns_per_token, (size_t)n, sizeof(ns_per_token[0]), by_size);
    assert_int_equal(store_ns_per_token(c->s, "0123", "f32", "f32", c->m->run[TREE].drafter, &err),
                     ns_per_token[n / 2]);
    assert_int_equal(store_ns_per_token(c->s, "0123", "f32", "f32", "unknown drafter", &err), 0);
    assert_int_equal(store_ns_per_token(c->s, "0123", "int8", "f32", c->m->run[TREE].drafter, &err), 0);
    assert_int_equal(store_ns_per_token(c->s, "0123", "f32", "q8_0", c->m->run[TREE].drafter, &err), 0);
}

// A stop string may remove tokens of earlier steps; tokens are attributed to steps from the front.
static void a_text_cut_across_steps_still_adds_up(void **state)
{
    struct scene *c = *state;
    struct error err;
    struct step_row step[3] = {
        { .drafted = 4, .depth = 4, .accepted = 3, .batch = 1, .expected = NAN, .variance = NAN, .accepted_uncut = -1 },
        { .drafted = 2, .depth = 2, .accepted = 2, .batch = 1, .expected = NAN, .variance = NAN, .accepted_uncut = -1 },
        { .drafted = 2, .depth = 2, .accepted = 1, .batch = 1, .expected = NAN, .variance = NAN, .accepted_uncut = -1 }
    };
    int32_t token[5] = { 1, 2, 3, 4, 5 };
    struct sequence_row row = { .prompt = 50,
                                .prompt_id = "x",
                                .pair = 1,
                                .new_tokens = 5,
                                .token = token,
                                .stop = "string",
                                .step = step,
                                .n_steps = 3 };
    assert_true(store_sequence(c->s, c->m->id[TREE], &row, &err));
    static const char sql[] = "SELECT sum(tokens * pow(10, 2 - step)) + sum(accepted * pow(10, 5 - step)) FROM step"
                              " WHERE sequence = (SELECT id FROM sequence WHERE run = ? AND prompt = 50)";
    near(query_run_value(c, TREE, sql), 310410); // accepted 3, 1, 0; tokens 4, 1, 0
}

static void deleting_a_run_deletes_what_belongs_to_it(void **state)
{
    struct scene *c = *state;
    for (int run = 0; run < SAMPLE_RUNS; run++)
        query_run_value(c, run, "DELETE FROM run WHERE id = ?");
    near(query_run_value(c, NONE, "SELECT count(*) + 0 * ?1 FROM sequence"), 0);
    near(query_run_value(c, NONE, "SELECT count(*) + 0 * ?1 FROM step"), 0);
    near(query_run_value(c, NONE, "SELECT count(*) + 0 * ?1 FROM trial"), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(steps_and_lengths_are_sums_over_steps),
        TEST(a_run_of_none_has_no_acceptance),
        TEST(acceptance_by_depth_counts_drafts),
        TEST(acceptance_by_rank_counts_acceptance_tests),
        TEST(expected_is_compared_with_tokens_accepted_before_the_text_was_cut),
        TEST(the_time_of_a_batch_is_split_over_its_sequences),
        TEST(speedup_is_of_paired_sequences_only),
        TEST(none_of_the_same_rule_is_preferred),
        TEST(first_difference_is_the_first_differing_token),
        TEST(spec_bench_reads_first_choices),
        TEST(a_run_is_found_again_and_resumed),
        TEST(other_weights_or_prompts_are_another_run),
        TEST(ns_per_token_is_the_median_of_the_cells_sequences),
        TEST(a_text_cut_across_steps_still_adds_up),
        TEST(deleting_a_run_deletes_what_belongs_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
