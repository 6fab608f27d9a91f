// test_run_compare.c - a stored run beside one of the same prompts: what is inside and what is outside, with times that the test sets.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/run_again.h"
#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/support/small_model.h"

enum { NONE = 1, RUN = 2 };

static void perform(struct store *s, const char *sql)
{
    struct error err = { "" };
    assert_ok(query_perform(query_open(s, sql), &err), err);
}

// `none` and a run, in a pair for each prompt: 40 tokens by 10 steps of 4 draft tokens, 3 of them accepted; twice as fast as `none`.
static struct store *stored(const char *name)
{
    struct error err = { "" };
    char *path = test_path(name);
    unlink(path);
    struct store *s = store_open(path, &err);
    assert_ok(s != NULL, err);
    free(path);
    perform(
        s,
        "INSERT INTO run (id, experiment, cell, peers, settings, target, drafter, rule, sampling, drafter_kind, target_hash, prompts,"
        " device, machine, revision, seed, batch, started, lossless, drafter_invariant, marked_inflated, model_type, activations, cache)"
        " SELECT value, 'x', 'cell' || value, 'p', '{}', 't', 'd', 'r', 's', iif(value = 1, 'none', 'ngram'), 't', 'p.jsonl', 'cpu', 'm', 'v',"
        " 1, 1, 'now', 1, 1, 0, 'llama', 'f32', 'f32' FROM json_each('[1, 2]')");
    perform(s, "WITH RECURSIVE i(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM i WHERE n < 11)"
               " INSERT INTO pair (id, experiment, started) SELECT n + 1, 'x', 'now' FROM i");
    perform(
        s,
        "WITH RECURSIVE i(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM i WHERE n < 39)"
        " INSERT INTO sequence (id, run, pair, prompt, prompt_id, turn, repeat, prompt_tokens, new_tokens, steps, shared_tokens, prefill_ns,"
        " decode_ns, wall_ns, tokens, text_hash, stop) SELECT 100 * r.id + p.id, r.id, p.id, p.id - 1, p.id, 0, 0, 5, 40, iif(r.id = 1, 40, 10),"
        " 0, 1000, iif(r.id = 1, 80000, 40000), 1, (SELECT json_group_array(n) FROM i), 'h', 'limit' FROM run AS r, pair AS p");
    perform(
        s,
        "WITH RECURSIVE i(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM i WHERE n < 39)"
        " INSERT INTO step (sequence, step, drafted, depth, accepted, tokens, propose_ns, verify_ns, advance_ns, at_ns, batch, round, expected,"
        " variance, accepted_uncut) SELECT q.id, n, iif(run = 1, 0, 4), iif(run = 1, 0, 4), iif(run = 1, 0, 3), iif(run = 1, 1, 4), 1, 1, 1, 1, 1,"
        " 0, NULL, NULL, iif(run = 1, 0, 3) FROM sequence AS q, i WHERE run = 1 OR n < 10");
    return s;
}

static void expect(struct store *then, struct store *now, const struct stored_run *r, const char *verdict)
{
    struct error err = { "" };
    struct text report = { 0 };
    bool same;
    assert_ok(stored_run_compare(r, then, now, &report, &same, &err), err);
    if (strstr(report.s, verdict) == NULL || same != (strncmp(verdict, "\nrep", 4) == 0))
        fail_msg("expected %s found:\n%s", verdict, report.s);
    free(report.s);
}

static struct stored_run run_of(int64_t id, char *cell)
{
    return (struct stored_run){ .id = id, .experiment = "x", .cell = cell };
}

static void noise_of_clocks_that_varies_by_prompt_is_inside(void **state)
{
    struct store *then = stored("then.db"), *now = stored("now.db");
    const struct stored_run r = run_of(RUN, "cell2");
    expect(then, now, &r, "\nreproduced: texts equal, steps equal, acceptance equal, speedup inside\n");
    // All prompts had the same speedup, so the stored interval is one number.
    perform(
        now,
        "UPDATE sequence SET decode_ns = CAST(decode_ns * (1 + 0.03 * (prompt % 3 - 0.9)) AS INTEGER) WHERE run = 2");
    expect(then, now, &r, "\nreproduced: texts equal, steps equal, acceptance equal, speedup inside\n");
    // What slows every pass cancels.
    perform(now, "UPDATE sequence SET decode_ns = decode_ns * 3");
    expect(then, now, &r, "\nreproduced: texts equal, steps equal, acceptance equal, speedup inside\n");
    store_close(then);
    store_close(now);
}

static void a_change_beyond_the_noise_and_the_interval_is_outside(void **state)
{
    struct store *then = stored("then.db"), *now = stored("now.db");
    const struct stored_run r = run_of(RUN, "cell2");
    perform(now,
            "UPDATE sequence SET decode_ns = CAST(decode_ns * (1.1 + 0.01 * (prompt % 3)) AS INTEGER) WHERE run = 2");
    expect(then, now, &r, "\nnot reproduced: texts equal, steps equal, acceptance equal, speedup outside\n");
    expect(then, now, &r, "speedup    on 12 prompts: was 2.000 [2.000, 2.000], is 1.802, ratio 0.901 [");
    // Where prompts differ by more, the stored interval has it.
    perform(then, "UPDATE sequence SET decode_ns = CAST(decode_ns * (1 + 0.1 * prompt) AS INTEGER) WHERE run = 2");
    perform(now, "UPDATE sequence SET decode_ns = CAST(decode_ns * (1 + 0.1 * prompt) AS INTEGER) WHERE run = 2");
    expect(then, now, &r, "\nreproduced: texts equal, steps equal, acceptance equal, speedup inside\n");
    store_close(then);
    store_close(now);
}

// Fewer tokens a step, and less time for them: the speed stays.
static void accept_fewer(struct store *s, const char *which)
{
    char *sql = xformat("UPDATE step SET accepted = 2, tokens = 3 WHERE sequence > 200 AND step <= %s %% 3", which);
    perform(s, sql);
    perform(s,
            "UPDATE sequence SET decode_ns = 1000 * (SELECT sum(tokens) FROM step WHERE sequence = id) WHERE run = 2");
    free(sql);
}

static void drafts_that_may_vary_are_compared_by_their_acceptance(void **state)
{
    struct store *then = stored("then.db"), *now = stored("now.db");
    struct stored_run r = run_of(RUN, "cell2");
    accept_fewer(now, "sequence");
    expect(then, now, &r, "\nnot reproduced: texts equal, steps differ, acceptance outside, speedup inside\n");
    accept_fewer(then, "(sequence + 1)");
    r.drafts_vary = true;
    expect(then, now, &r, "\nreproduced: texts equal, steps differ, acceptance inside, speedup inside\n");
    perform(now, "UPDATE sequence SET tokens = json_set(tokens, '$[2]', 9) WHERE prompt = 3");
    expect(then, now, &r, "texts      11 of 12 are equal; first difference: prompt 4, turn 0, token 2\n");
    expect(then, now, &r, "\nnot reproduced: texts differ, steps differ, acceptance inside, speedup inside\n");
    r.texts_vary = true;
    expect(then, now, &r, "\nreproduced: texts differ, steps differ, acceptance inside, speedup inside\n");
    store_close(then);
    store_close(now);
}

static void of_none_only_texts_and_steps_decide(void **state)
{
    struct store *then = stored("then.db"), *now = stored("now.db");
    struct stored_run r = run_of(NONE, "cell1");
    r.none = true;
    perform(now, "UPDATE sequence SET decode_ns = 2 * decode_ns WHERE run = 1");
    expect(then, now, &r, "\nreproduced: texts equal, steps equal\n");
    store_close(then);
    store_close(now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noise_of_clocks_that_varies_by_prompt_is_inside),
        cmocka_unit_test(a_change_beyond_the_noise_and_the_interval_is_outside),
        cmocka_unit_test(drafts_that_may_vary_are_compared_by_their_acceptance),
        cmocka_unit_test(of_none_only_texts_and_steps_decide),
    };
    return cmocka_run_group_tests(tests, NULL, test_directory_tear_down);
}
