// test_slices.c - cells that take turns, or share a cache, decode what they decode alone, side by side, with every slot full; prompts come in a random order in
// which categories are spread evenly.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "engine/prompts.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/pairs/paired_run.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/tests.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"

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
    struct text lines = { 0 };
    for (int i = 0; i < 14; i++)
        text_printf(
            &lines,
            i % 4 == 0 ? "{\"turns\": [\"text %d and more\", \"again\"]}\n" : "{\"prompt\": \"text %d text\"}\n", i);
    write_file("many.jsonl", lines.s);
    free(lines.s);
    return 0;
}

// Slices of a nanosecond: each slice of a round's first cell is one step. more: keys of the experiment.
static struct store *decode(const char *db, const char *batch, const char *drafters, const char *more)
{
    struct error err = { "" };
    struct store *s = open_store(db);
    char *text =
        xformat("name: slices\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: many.jsonl, chat: none}\n"
                "limits: {new_tokens: 20, context: 120}\nseed: 3\n"
                "cells: {sampling: [{temperature: 0}, {temperature: 1}], batch: [%s], drafter: %s}\n%s",
                batch, drafters, more);
    struct experiment *e = load(text);
    e->slice_ns = 1;
    assert_ok(experiment_run(e, s, NULL, NULL, &err), err);
    experiment_free(e);
    free(text);
    return s;
}

// Drafters that read states of prompts (heads), the target's cache (layers), its top tokens, with a cache of their own, and none of these.
#define DRAFTERS \
    "[none, {kind: eagle3, weights: eagle3, tokens: 3}, {kind: medusa, weights: medusa, tokens: 2}, ngram, " \
    "{kind: early_exit, exit_layer: 1, tokens: 2}, {kind: recycling, tree: \"[[0], [1], [0, 0]]\"}, " \
    "{kind: small, model: draft.gguf, widths: [2, 2]}, {kind: eagle, weights: eagle, tokens: 2}]"
#define SEQUENCES " JOIN sequence AS q ON q.id = t.sequence JOIN run AS r ON r.id = q.run"

static void expect_full_slots(struct store *s)
{
    expect_none(s, "steps with an empty slot", "SELECT count(*) FROM step AS t" SEQUENCES " WHERE t.batch <> r.batch");
}

TEST(cells_that_take_turns_decode_what_they_decode_alone)
{
    struct store *s = decode("turns.db", "1, 3, 16", DRAFTERS, "");
    expect_full_slots(s);
    expect_none(s, "texts that depend on the batch and the turns",
                "SELECT count(*) FROM (SELECT 1 FROM sequence AS q JOIN run AS r ON r.id = q.run GROUP BY r.drafter,"
                " r.sampling, q.prompt, q.turn HAVING count(*) <> 3 OR count(DISTINCT q.tokens) > 1)");
    expect_none(s, "steps that depend on them",
                "SELECT count(*) FROM (SELECT 1 FROM step AS t" SEQUENCES
                " GROUP BY r.drafter, r.sampling, q.prompt, q.turn, t.step HAVING count(*) <> 3 OR"
                " count(DISTINCT json_array(t.drafted, t.depth, t.accepted, t.tokens)) > 1)");
    expect_none(s, "greedy texts that differ from none's",
                "SELECT count(*) FROM texts JOIN run ON run.id = run WHERE sampling = 'temperature=0' AND NOT equal");
    // A step waits for the prefills of the texts that take a free slot before it: its time by the clock is longer than the pass's.
    expect_none(
        s, "steps that were known before they were done",
        "SELECT count(*) FROM (SELECT t.at_ns - coalesce(lag(t.at_ns) OVER (PARTITION BY t.sequence ORDER BY t.step),"
        " 0) AS took, t.propose_ns + t.verify_ns AS least FROM step AS t) WHERE took < least");
    store_close(s);
}

// Cells that share a cache, and the rows of prompts in it, decode what they decode alone.
TEST(sharing_prompts_changes_nothing_but_times)
{
    struct store *own = decode("own.db", "1", DRAFTERS, "share_prompts: false\n"),
                 *shared = decode("shared.db", "1", DRAFTERS, "");
    expect_none(own, "prompts with shared rows", "SELECT count(*) FROM sequence WHERE shared_tokens > 0");
    expect_same_results(shared, "own.db", true);
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

TEST(rounds_have_a_slice_of_every_cell_that_is_not_done)
{
    struct store *s = decode("rounds.db", "1, 4", "[none, ngram, {kind: small, model: draft.gguf, tokens: 3}]", "");
    assert_true(query_first_int(s, "SELECT max(round) FROM slice") > 20);
    expect_none(s, "slices of a batch of one that are not whole texts",
                "SELECT count(*) FROM slice JOIN run ON run.id = run WHERE batch = 1 AND round > 0");
    expect_none(s, "steps without a slice",
                "SELECT count(*) FROM step AS t JOIN sequence AS q ON q.id = t.sequence WHERE NOT EXISTS (SELECT 1 FROM"
                " slice AS s WHERE (s.pair, s.run, s.round) = (q.pair, q.run, t.round))");
    expect_none(s, "rounds that are left out between others",
                "SELECT count(*) FROM (SELECT 1 FROM slice GROUP BY pair, run HAVING count(*) <> max(round) + 1)");
    expect_none(
        s, "texts whose steps go back in time",
        "SELECT count(*) FROM (SELECT round < lag(round) OVER (PARTITION BY sequence ORDER BY step) AS back FROM"
        " step) WHERE back");
    // While conversations wait, no filler decodes: the cells of a pair have the same numbers of tokens at the end of each round, but for those of
    // the last step of each slot.
    expect_none(
        s, "rounds at whose end cells are apart",
        "WITH at AS (SELECT q.pair, q.run, r.drafter_kind AS kind, t.round, sum(sum(t.tokens)) OVER (PARTITION BY q.pair, q.run"
        " ORDER BY t.round) AS tokens FROM step AS t JOIN sequence AS q ON q.id = t.sequence JOIN run AS r ON r.id = q.run"
        " WHERE r.batch = 4 GROUP BY q.pair, q.run, t.round)"
        " SELECT count(*) FROM at AS x JOIN at AS y ON (y.pair, y.round) = (x.pair, x.round) WHERE x.tokens > y.tokens + 4 * 9"
        " AND x.tokens < 100");
    store_close(s);
}

// Fewer prompts than slots, and a pair that is resumed with one text: fillers have the other slots.
TEST(a_resumed_text_has_a_full_batch)
{
    struct store *s = decode("resumed.db", "6", "[none, ngram]", "");
    perform(s, "CREATE TEMP TABLE was AS SELECT run, prompt, turn, tokens FROM sequence");
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 5");
    store_close(s);
    s = decode("resumed.db", "6", "[none, ngram]", "");
    expect_full_slots(s);
    assert_int_equal(query_first_int(s, "SELECT count(DISTINCT pair) FROM sequence WHERE prompt = 5 AND run <= 2"), 2);
    expect_none(s, "texts that differ when they are decoded again",
                "SELECT count(*) FROM (SELECT 1 FROM sequence WHERE prompt = 5 GROUP BY run, turn HAVING"
                " count(DISTINCT tokens) > 1)");
    store_close(s);
}

// Slices that are too short wait for those that follow; the last ones are disturbed if those before them were.
TEST(short_slices_are_measured_together)
{
    struct error err = { "" };
    struct store *s = decode("short.db", "1", "[none]", "");
    perform(s, "DELETE FROM slice");
    struct slice_load w = { 0 };
    for (int disturbed = 0; disturbed < 2; disturbed++) {
        for (int round = 0; round < 40; round++) {
            slice_load_begin(&w);
            const struct slice_row row = { .pair = 1 + disturbed, .run = 1, .round = round, .ns = 5 };
            assert_ok(slice_load_end(&w, s, &row, &err), err);
        }
        w.disturbed = disturbed;
        assert_ok(slice_load_close(&w, s, &err), err);
        expect_count(s, 40 * (1 + disturbed), "slice WHERE foreign_load IS NULL OR foreign_load >= 0");
    }
    expect_none(s, "rows of the others",
                "SELECT count(*) FROM slice WHERE foreign_load IS NULL AND disturbed <> pair - 1");
    assert_true(query_first_int(s, "SELECT count(*) FROM slice WHERE foreign_load IS NULL") > 0);
    store_close(s);
}

TEST(fillers_are_prompts_that_were_begun)
{
    for (int first = 0; first < 130; first += 65)
        for (int n = 1; n <= 64; n += 7) {
            const struct paired_run o = { .first = first, .n = n };
            for (int i = 0; i < 300; i++) {
                const int prompt = filler_prompt(&o, i);
                assert_in_range(prompt, 0, first + n - 1);
                assert_true(i >= n || prompt >= first);
                assert_true(i == 0 || i >= first + n || prompt < filler_prompt(&o, i - 1));
            }
        }
}

TEST(caches_that_do_not_fit_together_are_refused)
{
    struct error err = { "" };
    struct experiment *e =
        load("name: much\ntarget: {model: target.gguf}\nprompts: {file: many.jsonl, chat: none}\n"
             "limits: {new_tokens: 20}\ncells: {sampling: [{temperature: 0}], batch: [1, 8], drafter: "
             "[none, ngram, suffix]}\n");
    struct loaded_experiment o;
    assert_ok(loaded_experiment_open(&o, e, 0, &err), err);
    for (int batch = 0; batch < 2; batch++)
        for (int large = 0; large < 2; large++) {
            struct group g = { 0 };
            o.available = large ? (size_t)1 << 30 : 1000;
            const bool ok = group_open(&g, batch, &o, &err);
            assert_int_equal(ok, batch == 0 || large); // without a batch the cells share one cache
            if (ok)
                group_close(&g);
        }
    expect_error(&err, "x.yaml: batch 8: .. 3 cells .. 0.0 MB are available", "caches");
    loaded_experiment_close(&o);
    experiment_free(e);
}

// ---- order

enum { PROMPTS = 97, CATEGORIES = 4 };

TEST(categories_are_spread_evenly_in_a_random_order)
{
    struct text lines = { 0 };
    int all[CATEGORIES] = { 0 };
    for (int i = 0; i < PROMPTS; i++) { // by category, as files stand; the last category is of prompts without one
        const int c = i < 50 ? 0 : i < 80 ? 1 : i < 90 ? 2 : 3;
        text_printf(&lines, c == 3 ? "{\"prompt\": \"%d\"}\n" : "{\"prompt\": \"%d\", \"category\": \"c%d\"}\n", i, c);
        all[c]++;
    }
    write_file("categories.jsonl", lines.s);
    free(lines.s);
    struct error err = { "" };
    char *path = test_path("categories.jsonl");
    int other[2][PROMPTS], moved = 0;
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct prompts p;
        assert_ok(prompts_read(path, 0, 0, &p, &err), err);
        bool seen[PROMPTS] = { false };
        int count[CATEGORIES] = { 0 };
        prompts_shuffle(&p, seed);
        assert_int_equal(p.n, PROMPTS);
        for (int i = 0; i < PROMPTS; i++) {
            const struct prompt *q = &p.prompt[i];
            assert_false(seen[q->number]);
            seen[q->number] = true;
            other[seed][i] = q->number;
            count[q->category == NULL ? 3 : q->category[1] - '0']++;
            for (int c = 0; c < CATEGORIES;
                 c++) // each place is within one of its category of where even shares would have it
                assert_true(fabs(count[c] - (double)(i + 1) * all[c] / PROMPTS) < 2);
        }
        prompts_free(&p);
    }
    free(path);
    for (int i = 0; i < PROMPTS; i++)
        moved += other[0][i] != other[1][i];
    assert_true(moved > PROMPTS / 2);
}

RUN_TESTS(make, test_directory_tear_down)
