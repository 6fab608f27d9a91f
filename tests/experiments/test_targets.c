// test_targets.c - several targets in one file: each is opened once, with paired runs of its own, and the database has what a file for each would
// have given, row by row.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

#define REST \
    "threads: 1\nprompts: {file: conversations.jsonl, chat: none}\nlimits: {new_tokens: 4}\n" \
    "record: {trials: true}\n"
#define CELLS \
    "cells: {sampling: {temperature: 1}, batch: [1, 2], rule: [rejection, match]," \
    " drafter: [{kind: ngram, longest: 2}, {kind: small, model: draft.gguf, tokens: 2}]}\n"
static const char both[] = "name: x\ntarget: [{model: target.gguf}, {model: draft.gguf}]\n" REST CELLS;
static const char *const alone[] = { "name: x\ntarget: {model: target.gguf}\n" REST CELLS,
                                     "name: x\ntarget: {model: draft.gguf}\n" REST CELLS };

static void run_shard(const char *text, struct store *s, int index, int of)
{
    struct error err;
    struct experiment *e = load(text);
    e->shard = (struct shard){ index, of, false };
    assert_ok(experiment_run(e, s, NULL, NULL, &err), err);
    experiment_free(e);
}

// Runs, steps, acceptance tests, texts, and which were decoded together (a pair by the least of its texts): by what they are, without times and ids.
#define ROWS(db) \
    { \
        "SELECT cell, peers, settings, target, target_hash, drafter, drafter_options, rule, sampling, batch, finished IS NULL FROM " db \
        ".run", \
            "SELECT cell, prompt, turn, repeat, step, drafted, depth, p.accepted, p.tokens, p.batch, p.experts" \
            " FROM " db ".step AS p JOIN " db ".sequence AS s ON s.id = p.sequence JOIN " db \
            ".run AS r ON r.id = s.run", \
            "SELECT cell, prompt, turn, repeat, t.step, node, t.depth, rank, token, proposal, t.p, t.q, t.accepted" \
            " FROM " db ".trial AS t JOIN " db ".sequence AS s ON s.id = t.sequence JOIN " db \
            ".run AS r ON r.id = s.run", \
            "SELECT cell, prompt, prompt_id, turn, repeat, prompt_tokens, new_tokens, steps, shared_tokens, tokens, stop" \
            " FROM " db ".sequence AS s JOIN " db ".run AS r ON r.id = s.run", \
            "SELECT cell, prompt, turn, repeat, (SELECT min(r.cell || ' ' || o.prompt || ' ' || o.repeat) FROM " db \
            ".sequence AS o" \
            " JOIN " db ".run AS r ON r.id = o.run WHERE o.pair = s.pair) FROM " db ".sequence AS s JOIN " db \
            ".run AS r ON r.id = s.run" \
    }
enum { ALL_ROWS = 5, WITHOUT_PAIRS = 3 };

static void expect_equal_rows(struct store *s, const char *other, int n)
{
    static const char *const own[] = ROWS("main"), *const others[] = ROWS("other");
    char *path = test_path(other);
    perform(s, "ATTACH '%s' AS other", path);
    free(path);
    for (int i = 0; i < n; i++) {
        char *count = xformat("SELECT count(*) FROM (%s)", own[i]),
             *too = xformat("SELECT count(*) FROM (%s)", others[i]);
        char *left =
            xformat("SELECT count(*) FROM (SELECT * FROM (%s EXCEPT %s) UNION ALL SELECT * FROM (%s EXCEPT %s))",
                    own[i], others[i], others[i], own[i]);
        assert_true(query_first_int(s, count) > 0);
        assert_true(n < ALL_ROWS || query_first_int(s, count) == query_first_int(s, too));
        expect_none(s, own[i], left);
        free(count), free(too), free(left);
    }
    perform(s, "DETACH other");
}

static int cells_of(const char *text)
{
    struct experiment *e = load(text);
    const int n = experiment_cells(e);
    experiment_free(e);
    return n;
}

static void two_targets_in_a_file_give_what_two_files_give(void **state)
{
    (void)state;
    struct store *s = open_store("two.db");
    for (int i = 0; i < 2; i++)
        run(alone[i], s);
    store_close(s);
    s = open_store("one.db");
    run(both, s);
    expect_equal_rows(s, "two.db", ALL_ROWS);
    assert_int_equal(query_first_int(s, "SELECT count(DISTINCT target) FROM run"), 2);
    expect_none(
        s, "pairs of two targets",
        "SELECT count(*) FROM (SELECT pair FROM sequence JOIN run ON run.id = run GROUP BY pair HAVING count(DISTINCT target) > 1)");
    expect_none(
        s, "sequences without a pair with none of their target",
        "SELECT count(*) FROM sequence AS q JOIN run AS r ON r.id = q.run WHERE NOT EXISTS (SELECT 1 FROM sequence AS o"
        " JOIN run AS n ON n.id = o.run WHERE (o.pair, o.prompt, o.turn, n.target, n.drafter_kind) = (q.pair, q.prompt, q.turn,"
        " r.target, 'none'))");
    const int64_t pairs = query_first_int(s, "SELECT count(*) FROM pair");
    run(both, s); // all is stored
    run(alone[1], s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM pair"), pairs);
    perform(s, "DELETE FROM sequence WHERE prompt = 1 AND run IN (SELECT id FROM run WHERE target = 'draft.gguf')");
    run(both, s);
    expect_equal_rows(s, "two.db", WITHOUT_PAIRS);
    char *later =
        xformat("SELECT count(*) FROM sequence JOIN run ON run.id = run WHERE pair > %lld AND target = 'target.gguf'",
                (long long)pairs);
    expect_none(s, "later pairs of the first target", later);
    free(later);
    store_close(s);
}

// Each target's work is dealt as if it were alone.
static void shards_of_two_targets_are_those_of_two_files(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct store *one = open_store("shards.db"), *two = open_store("shards-alone.db");
        run_shard(both, one, i, 2);
        for (int k = 0; k < 2; k++)
            run_shard(alone[k], two, i, 2);
        store_close(two);
        expect_equal_rows(one, "shards-alone.db", ALL_ROWS);
        store_close(one);
    }
    struct store *s = open_store("shards.db");
    expect_equal_rows(s, "two.db", ALL_ROWS);
    store_close(s);
}

static void a_dry_run_has_the_cells_of_each_target(void **state)
{
    (void)state;
    struct store *s = open_store("one.db");
    struct json *plan = dry_run(both, s), *targets = json_get(plan, "targets");
    const int n = cells_of(alone[0]);
    assert_int_equal(planned(plan, "all_cells", -1), 2 * n);
    assert_int_equal(json_count(json_get(plan, "cells")), 2 * n);
    for (int i = 0; i < 2 * n; i++)
        assert_int_equal(planned(plan, "target", i), i / n);
    assert_string_equal(json_text(json_get(json_at(targets, 0), "model")), "target.gguf");
    assert_string_equal(json_text(json_get(json_at(targets, 1), "name")), "draft.gguf");
    assert_int_equal(planned(plan, "turns", -1), 0);
    json_free(plan);
    store_close(s);
}

// {none, ngram} x {target, draft}, and fewer where something is said of a target.
static void zip_exclude_and_ranges_are_of_targets_too(void **state)
{
    (void)state;
    assert_int_equal(cells_of("name: x\ntarget: {model: {any: [target.gguf, draft.gguf]}}\n" REST
                              "cells: {drafter: [none, ngram]}\n"),
                     4);
    assert_int_equal(cells_of("name: x\n" REST
                              "cells: {target: [{model: target.gguf}, {model: draft.gguf}], drafter: [none, ngram]}\n"),
                     4);
    assert_int_equal(
        cells_of("name: x\ntarget: [{model: target.gguf}, {model: draft.gguf}]\n" REST
                 "cells: {drafter: [none, ngram, suffix], exclude: [{target: draft.gguf, drafter: ngram}]}\n"),
        5);
    assert_int_equal(cells_of("name: x\n" REST "cells: {zip: {target: [{model: target.gguf}, {model: draft.gguf}],"
                              " drafter: [ngram, suffix]}}\n"),
                     4);
    assert_int_equal(cells_of("name: x\ntarget: {model: target.gguf, cache: {any: [f32, bf16]}}\n" REST
                              "cells: {drafter: [none, ngram]}\n"),
                     4);
}

static void expect_refused(const char *text, const char *why)
{
    struct error err;
    write_file("wrong.yaml", text);
    char *path = xformat("%s/wrong.yaml", test_directory());
    struct experiment *e = experiment_load(path, &err);
    free(path);
    assert_null(e);
    if (strstr(err.text, why) == NULL)
        fail_msg("expected \"%s\", found \"%s\"", why, err.text);
}

static void a_wrong_target_is_an_error_with_its_place(void **state)
{
    (void)state;
    expect_refused("name: x\n" REST, "an experiment needs the key \"target\"");
    expect_refused("name: x\ntarget:\n  - {model: target.gguf}\n  - {model: no.gguf}\n" REST,
                   "wrong.yaml:4:13: model: ");
    expect_refused("name: x\ntarget:\n  - {model: target.gguf}\n  - {model: target.gguf}\n" REST,
                   "wrong.yaml:4:5: target: target.gguf is listed twice, first on line 3");
    expect_refused("name: x\ntarget: {model: target.gguf}\ncells: {target: {model: draft.gguf}}\n" REST,
                   "wrong.yaml:3:17: cells.target: \"target\" is also given on line 2");
    expect_refused("name: x\ntarget: {model: target.gguf}\ncells: {exclude: [{target: other.gguf}]}\n" REST,
                   "exclude: no target of this experiment is other.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_targets_in_a_file_give_what_two_files_give),
        cmocka_unit_test(shards_of_two_targets_are_those_of_two_files),
        cmocka_unit_test(a_dry_run_has_the_cells_of_each_target),
        cmocka_unit_test(zip_exclude_and_ranges_are_of_targets_too),
        cmocka_unit_test(a_wrong_target_is_an_error_with_its_place),
    };
    return cmocka_run_group_tests(tests, make_files, test_directory_tear_down);
}
