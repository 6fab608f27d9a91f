// test_results.c - runs and sequences are found again as they were stored, and what is not theirs is refused. The views: test_view_twin.c.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/results/sample_facts.h"
#include "tests/support/tests.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

static struct store *store;
static struct sample_facts *facts;
static struct error err;

static int set_up(void **state)
{
    facts = sample_facts_create(11, 7, 2, 2);
    store = sample_store(facts);
    return 0;
}

static int tear_down(void **state)
{
    store_close(store);
    sample_facts_free(facts);
    test_directory_remove();
    return 0;
}

// Fails the test unless the query about a run (%lld) has this value.
static void expect(int run, const char *query, int64_t value)
{
    char *sql = xformat("SELECT (%s) = %lld", query, (long long)value), *with = xformat(sql, (long long)facts->id[run]);
    sample_facts_hold(store, with);
    free(with);
    free(sql);
}

TEST(a_run_gets_each_environment_once)
{
    static const struct {
        struct environment of;
        const char *names; // all revisions so far
    } rows[] = {
        // the first one twice, as when the nodes of a cluster alternate
        { { .processor = "AMD EPYC", .arithmetic = "avx2, 2 threads", .revision = "0.1.0-abc" }, "0.1.0-abc" },
        { { .processor = "AMD EPYC", .arithmetic = "avx2, 2 threads", .revision = "0.2.0-def" },
          "0.1.0-abc, 0.2.0-def" },
        { { .processor = "AMD EPYC", .arithmetic = "avx2, 2 threads", .revision = "0.1.0-abc" },
          "0.1.0-abc, 0.2.0-def" },
        { { .processor = "AMD EPYC", .arithmetic = "avx2, 2 threads", .revision = "0.1.0" },
          "0.1.0-abc, 0.2.0-def, 0.1.0" },
    };
    struct run_row r = facts->run[TREE];
    int64_t id;
    r.revision = "0.2.0-def"; // finding a run changes nothing
    assert_true(store_run(store, &r, &id, &err));
    assert_int_equal(id, facts->id[TREE]);
    expect(TREE, "SELECT revision = '0.1.0-abc' FROM run WHERE id = %lld", 1);
    for (int i = 0; i < 4; i++) {
        char *changed, *of_run = xformat("run %lld (%s, %s) ", (long long)id, r.drafter, r.rule);
        assert_int_equal(store_environment(store, id, &rows[i].of, false, &changed, &err), i == 0);
        assert_true(i == 0 || store_environment(store, id, &rows[i].of, true, &changed, &err));
        assert_int_equal(changed != NULL, i > 0);
        if (i > 0) {
            expect_contains(changed, of_run);
            expect_contains(err.text, of_run);
        }
        for (int again = 0; again < 2; again++) // unchanged: no second row
            assert_true(store_add_environment(store, id, 1, &rows[i].of, &err));
        expect(TREE, "SELECT count(*) FROM environment WHERE run = %lld", i + 1);
        char *sql =
            xformat("SELECT revision = '%s' AND machine = 'AMD EPYC, avx2, 2 threads' FROM run WHERE id = %%lld",
                    rows[i].names);
        expect(TREE, sql, 1);
        free(sql);
        free(changed);
        free(of_run);
    }
    sample_facts_query(
        store, "CREATE TEMP TRIGGER refuse BEFORE INSERT ON environment BEGIN SELECT RAISE(ABORT, 'refused'); END");
    assert_false(store_add_environment(store, id, 1, &rows[0].of, &err));
    expect_contains(err.text, "refused");
    r.experiment = "another"; // a cell of another experiment is another run
    assert_true(store_run(store, &r, &id, &err));
    assert_true(id != facts->id[TREE]);
    expect(TREE, "SELECT count(*) FROM run WHERE %lld", SAMPLE_RUNS + 1);
}

TEST(other_weights_prompts_or_settings_are_refused)
{
    struct run_row r[4] = { facts->run[TREE], facts->run[TREE], facts->run[TREE], facts->run[TREE] };
    static const char *const differs[] = { "weights of the target", "weights of the drafter", "prompts", "same hash" };
    int64_t id;
    r[0].target_hash = "9999";
    r[1].drafter_hash = NULL;
    r[2].prompts = "prompts.jsonl ffff";
    r[3].settings = "{}";
    for (int i = 0; i < 4; i++) {
        assert_false(store_run(store, &r[i], &id, &err));
        expect_contains(err.text, differs[i]);
        expect_contains(err.text, sample_store_path());
    }
    assert_true(store_run(store, &facts->run[TREE], &id, &err));
}

TEST(a_stored_turn_is_the_last_one)
{
    const struct sample_sequence *last = NULL; // it was run twice
    struct stored_turn turn;
    for (int i = 0; i < facts->n; i++) {
        const struct sample_sequence *q = &facts->sequence[i];
        if (q->run == NONE && q->row.prompt == 1 && q->row.turn == 1 && q->row.repeat == 0)
            last = q;
    }
    assert_true(store_turn(store, facts->id[NONE], 1, 1, 0, &turn, &err) && turn.found);
    assert_int_equal(turn.n, last->row.new_tokens);
    assert_memory_equal(turn.token, last->token, (size_t)turn.n * sizeof(int32_t));
    assert_int_equal(turn.pair, last->row.pair + 1);
    free(turn.token);
    assert_true(store_turn(store, facts->id[NONE], 1, 2, 0, &turn, &err));
    assert_false(turn.found);
}

TEST(a_sequence_is_stored_once_and_wholly)
{
    static const char count[] = "SELECT count(*) FROM sequence WHERE run = %lld";
    struct sequence_row row = facts->sequence[0].row;
    const int64_t before = (int64_t)sample_facts_query(store, "SELECT count(*) FROM sequence WHERE run = 1");
    row.pair += 1;
    assert_false(store_sequence(store, facts->id[NONE], &row, &err)); // the pair has it
    assert_true(store_new_pair(store, "synthetic", &row.pair, &err));
    row.new_tokens++; // a token that belongs to no step
    assert_false(store_sequence(store, facts->id[NONE], &row, &err));
    expect_contains(err.text, store_path(store));
    expect_contains(err.text, row.prompt_id);
    expect(NONE, count, before);
    row.new_tokens--;
    assert_true(store_sequence(store, facts->id[NONE], &row, &err));
    expect(NONE, count, before + 1);
}

// A stop string may remove tokens of earlier steps; tokens are attributed to steps from the front.
TEST(a_text_cut_across_steps_still_adds_up)
{
#define STEP(of, kept) \
    { \
        .drafted = (of), .depth = (of), .accepted = (kept), .batch = 1, .expected = NAN, .variance = NAN, \
        .accepted_uncut = -1 \
    }
    const struct step_row step[] = { STEP(4, 3), STEP(2, 2), STEP(2, 1) };
    const int32_t token[] = { 1, 2, 3, 4, 5 };
    const struct sequence_row row = { .prompt = 50,
                                      .prompt_id = "x",
                                      .pair = 1,
                                      .new_tokens = 5,
                                      .token = token,
                                      .stop = "string",
                                      .step = step,
                                      .n_steps = 3 };
    assert_true(store_sequence(store, facts->id[TREE], &row, &err));
    expect(TREE,
           "SELECT sum(t.tokens * pow(10, 2 - step)) + sum(accepted * pow(10, 5 - step)) FROM step AS t JOIN sequence"
           " ON sequence.id = sequence WHERE run = %lld AND prompt = 50",
           310410); // accepted 3, 1, 0; tokens 4, 1, 0
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

TEST(ns_per_token_is_the_median_of_the_cells_sequences)
{
    static const struct {
        const char *activations, *cache, *drafter;
    } others[] = { { "f32", "f32", "unknown drafter" }, { "int8", "f32", NULL }, { "f32", "q8_0", NULL } };
    const char *const own = facts->run[TREE].drafter;
    int64_t ns[256];
    size_t n = 0;
    for (int i = 0; i < facts->n; i++)
        if (facts->sequence[i].run == TREE)
            ns[n++] = facts->sequence[i].row.decode_ns / facts->sequence[i].row.new_tokens;
    qsort(ns, n, sizeof(ns[0]), by_size);
    assert_int_equal(store_ns_per_token(store, "0123", "f32", "f32", own, &err), ns[n / 2]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_ns_per_token(store, "0123", others[i].activations, others[i].cache,
                                            others[i].drafter != NULL ? others[i].drafter : own, &err),
                         0);
}

TEST(deleting_a_run_deletes_what_belongs_to_it)
{
    sample_facts_query(store, "DELETE FROM run");
    sample_facts_hold(store, "SELECT NOT EXISTS (SELECT 1 FROM sequence) AND NOT EXISTS (SELECT 1 FROM step) AND"
                             " NOT EXISTS (SELECT 1 FROM trial)");
}

RUN_EACH_TEST(set_up, tear_down)
