// test_targets.c - several targets in one file: each is opened once, with paired runs of its own, and the database has what a file for each would
// have given, row by row.
#include "tests/support/tests.h"

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

static int cells_of(const char *text)
{
    struct experiment *e = load(text);
    const int n = experiment_cells(e);
    experiment_free(e);
    return n;
}

TEST(two_targets_in_a_file_give_what_two_files_give)
{
    struct store *s = open_store("two.db");
    for (int i = 0; i < 2; i++)
        run(alone[i], s);
    store_close(s);
    s = open_store("one.db");
    run(both, s);
    expect_same_results(s, "two.db", true);
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
    expect_count(s, pairs, "pair");
    perform(s, "DELETE FROM sequence WHERE prompt = 1 AND run IN (SELECT id FROM run WHERE target = 'draft.gguf')");
    run(both, s);
    expect_same_results(s, "two.db", false);
    char *later =
        xformat("SELECT count(*) FROM sequence JOIN run ON run.id = run WHERE pair > %lld AND target = 'target.gguf'",
                (long long)pairs);
    expect_none(s, "later pairs of the first target", later);
    free(later);
    store_close(s);
}

// Each target's work is dealt as if it were alone.
TEST(shards_of_two_targets_are_those_of_two_files)
{
    for (int i = 0; i < 2; i++) {
        struct store *one = open_store("shards.db"), *two = open_store("shards-alone.db");
        run_part(both, one, i, 2);
        for (int k = 0; k < 2; k++)
            run_part(alone[k], two, i, 2);
        store_close(two);
        expect_same_results(one, "shards-alone.db", true);
        store_close(one);
    }
    struct store *s = open_store("shards.db");
    expect_same_results(s, "two.db", true);
    store_close(s);
}

TEST(a_dry_run_has_the_cells_of_each_target)
{
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
TEST(zip_exclude_and_ranges_are_of_targets_too)
{
    static const struct {
        const char *text;
        int cells;
    } cases[] = {
        { "name: x\ntarget: {model: {any: [target.gguf, draft.gguf]}}\n" REST "cells: {drafter: [none, ngram]}\n", 4 },
        { "name: x\n" REST "cells: {target: [{model: target.gguf}, {model: draft.gguf}], drafter: [none, ngram]}\n",
          4 },
        { "name: x\ntarget: [{model: target.gguf}, {model: draft.gguf}]\n" REST
          "cells: {drafter: [none, ngram, suffix], exclude: [{target: draft.gguf, drafter: ngram}]}\n",
          5 },
        { "name: x\n" REST
          "cells: {zip: {target: [{model: target.gguf}, {model: draft.gguf}], drafter: [ngram, suffix]}}\n",
          4 },
        { "name: x\ntarget: {model: target.gguf, cache: {any: [f32, bf16]}}\n" REST "cells: {drafter: [none, ngram]}\n",
          4 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(cells_of(cases[i].text), cases[i].cells);
}

TEST(a_wrong_target_is_an_error_with_its_place)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "name: x\n" REST, "x.yaml:1:1: .. \"target\"" },
        { "name: x\ntarget:\n  - {model: target.gguf}\n  - {model: no.gguf}\n" REST, "x.yaml:4:13: model: " },
        { "name: x\ntarget:\n  - {model: target.gguf}\n  - {model: target.gguf}\n" REST,
          "x.yaml:4:5: target: target.gguf .. line 3" },
        { "name: x\ntarget: {model: target.gguf}\ncells: {target: {model: draft.gguf}}\n" REST,
          "x.yaml:3:17: cells.target: .. line 2" },
        { "name: x\ntarget: {model: target.gguf}\ncells: {exclude: [{target: other.gguf}]}\n" REST,
          "x.yaml:3:28: exclude: .. other.gguf" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        expect_load_error(cases[i].text, cases[i].message);
}

RUN_TESTS(make_files, test_directory_tear_down)
