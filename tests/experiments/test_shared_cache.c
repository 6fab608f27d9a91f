// test_shared_cache.c - cells that share a cache, and the rows of prompts in it, decode what they decode alone; slots are refilled.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/check.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"

// Drafters that read states of prompts (heads), the target's cache (layers), its top tokens, and none of these.
#define DRAFTERS \
    "[none, {kind: eagle3, weights: eagle3, tokens: 3}, {kind: medusa, weights: medusa, tokens: 2}, ngram, " \
    "{kind: early_exit, exit_layer: 1, tokens: 2}, {kind: recycling, tree: \"[[0], [1], [0, 0]]\"}, " \
    "{kind: small, model: draft.gguf, widths: [2, 2]}, {kind: eagle, weights: eagle, tokens: 2}]"

static int make(void **state)
{
    make_files(state);
    char *target = test_path("target.gguf");
    const struct head_shape s = head_shape_of(target);
    void (*const write[])(const char *, const struct head_shape *) = { heads_write_eagle3, heads_write_medusa,
                                                                       heads_write_eagle };
    static const char *const name[] = { "eagle3", "medusa", "eagle" };
    for (int i = 0; i < 3; i++) {
        char *path = test_path(name[i]);
        write[i](path, &s);
        free(path);
    }
    free(target);
    return 0;
}

static struct store *decode(const char *db, const char *prompts, const char *more)
{
    struct store *s = open_store(db);
    char *text = xformat("name: shared\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: %s, chat: none}\n"
                         "limits: {new_tokens: 12, context: 120, ignore_end: true}\nseed: 3\n"
                         "cells: {sampling: [{temperature: 0}, {temperature: 1}], drafter: " DRAFTERS "}\n%s",
                         prompts, more);
    run(text, s);
    free(text);
    return s;
}

// All that is stored of texts but times: ids of runs and sequences follow from the order of cells, which is the same.
static void compare(struct store *a, const char *other)
{
    static const char *const facts[] = {
        "SELECT cell, settings, lossless FROM %s.run",
        "SELECT r.cell, q.prompt, q.turn, q.repeat, q.prompt_tokens, q.new_tokens, q.steps, q.tokens, q.text, q.stop"
        " FROM %s.sequence AS q JOIN %s.run AS r ON r.id = q.run",
        "SELECT r.cell, q.prompt, q.turn, t.step, t.drafted, t.depth, t.accepted, t.tokens, t.batch FROM %s.step AS t"
        " JOIN %s.sequence AS q ON q.id = t.sequence JOIN %s.run AS r ON r.id = q.run",
    };
    char *path = test_path(other);
    perform(a, "ATTACH '%s' AS other", path);
    free(path);
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        char *mine = xformat(facts[i], "main", "main", "main"), *theirs = xformat(facts[i], "other", "other", "other"),
             *sql = xformat("SELECT (SELECT count(*) FROM (%s EXCEPT %s)) + (SELECT count(*) FROM (%s EXCEPT %s))",
                            mine, theirs, theirs, mine);
        expect_none(a, facts[i], sql);
        free(mine);
        free(theirs);
        free(sql);
    }
}

static void sharing_prompts_changes_nothing_but_times(void **state)
{
    struct store *own = decode("own.db", "conversations.jsonl", "share_prompts: false\n"),
                 *shared = decode("shared.db", "conversations.jsonl", "");
    expect_none(own, "prompts with shared rows", "SELECT count(*) FROM sequence WHERE shared_tokens > 0");
    compare(shared, "own.db");
    // A pair computes each first turn once; the last token of a prompt is the first root, which is never shared.
    expect_none(shared, "first turns that are computed by another number of cells",
                "SELECT count(*) FROM (SELECT sum(q.shared_tokens = 0) AS computed FROM sequence AS q JOIN run AS r"
                " ON r.id = q.run WHERE q.turn = 0 GROUP BY q.pair HAVING computed <> 1)");
    expect_none(shared, "prompts that share other rows than those before the root",
                "SELECT count(*) FROM sequence WHERE turn = 0 AND shared_tokens NOT IN (0, prompt_tokens - 1)");
    assert_true(query_first_int(shared, "SELECT count(*) FROM sequence WHERE turn > 0 AND shared_tokens > 0") > 0);
    expect_none(shared, "prompts without time",
                "SELECT count(*) FROM sequence WHERE prefill_ns = 0 AND prompt_tokens > 1");
    store_close(own);
    store_close(shared);
}

// Conversations of one turn or several, in fewer slots: where none waits, fillers have the slots.
static void slots_are_refilled_until_nothing_waits(void **state)
{
    struct text lines = { 0 };
    enum { TEXTS = 11, SLOTS = 3 };
    for (int i = 0; i < TEXTS; i++)
        text_printf(&lines, i % 3 == 0 ? "{\"turns\": [\"text %d\", \"more\"]}\n" : "{\"prompt\": \"text %d text\"}\n",
                    i);
    write_file("many.jsonl", lines.s);
    free(lines.s);
    struct store *s = open_store("refilled.db");
    run("name: refilled\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: many.jsonl, chat: none}\n"
        "limits: {new_tokens: 20, ignore_end: true, stop: [a, e, t, n]}\n"
        "cells: {sampling: [{temperature: 0}, {temperature: 1}], batch: [1, 3], drafter: [ngram, {kind: small, model: draft.gguf}]}\n",
        s);
    assert_int_equal(
        query_first_int(s, "SELECT count(DISTINCT pair) FROM sequence JOIN run ON run.id = run WHERE batch = 3"), 2);
    expect_none(s, "steps with an empty slot",
                "SELECT count(*) FROM step AS t JOIN sequence AS q ON q.id = t.sequence JOIN run AS r ON r.id = q.run"
                " WHERE t.batch <> r.batch");
    expect_none(s, "texts that depend on the number of slots",
                "SELECT count(*) FROM (SELECT 1 FROM sequence AS q JOIN run AS r ON r.id = q.run GROUP BY r.drafter,"
                " r.sampling, q.prompt, q.turn HAVING count(DISTINCT q.tokens) > 1)");
    // A step waits for the prefills of the texts that take a free slot before it: its time by the clock is longer than the pass's.
    expect_none(
        s, "steps that were known before they were done",
        "SELECT count(*) FROM (SELECT t.at_ns - coalesce(lag(t.at_ns) OVER (PARTITION BY t.sequence ORDER BY t.step),"
        " 0) AS took, t.propose_ns + t.verify_ns AS least FROM step AS t) WHERE took < least");
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharing_prompts_changes_nothing_but_times),
        cmocka_unit_test(slots_are_refilled_until_nothing_waits),
    };
    return cmocka_run_group_tests(tests, make, test_directory_tear_down);
}
