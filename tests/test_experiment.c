// test_experiment.c - experiments from cells to database: what means the same is the same cell, what is there is not
// run again, and what is recorded is what was judged.
#include "tests/check.h"

#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/recorder.h"
#include "results/query.h"
#include "tests/experiments.h"
#include "tests/tiny.h"
#include "verifier/rule.h"

// ---- cells

// Hashes of every cell, and of its peers, in the experiment's order; free() both.
static int hashes(const char *text, char (**hash)[17], char (**peers)[17])
{
    struct error err = { "" };
    struct experiment *e = load(text);
    struct opened o;
    int n = 0;
    *hash = xcalloc(64, sizeof(**hash));
    *peers = xcalloc(64, sizeof(**peers));
    if (!opened_open(&o, e, TARGET_ROWS, &err))
        fail_msg("%s", err.text);
    for (int k = 0; k < groups(e); k++) {
        struct group g;
        if (!group_open(&g, k, &o, &err))
            fail_msg("%s", err.text);
        for (int i = 0; i < g.n; i++, n++) {
            memcpy((*hash)[n], g.contender[i].identity.hash, 17);
            memcpy((*peers)[n], g.contender[i].identity.peers, 17);
        }
        group_close(&g);
    }
    opened_close(&o);
    experiment_free(e);
    return n;
}

#define BODY "target: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: none}\n"
#define CELLS \
    "cells: {sampling: [{temperature: 0}, {temperature: 1, top_k: 5}], batch: [1, 2], rule: [rejection, match], " \
    "drafter: [none, {kind: ngram, longest: 2}]}\n"

static void every_list_under_cells_multiplies(void **state)
{
    (void)state;
    char(*hash)[17], (*peers)[17];
    int n = hashes("name: x\n" BODY CELLS, &hash, &peers);
    assert_int_equal(n, 16);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(hash[i], hash[k]);
            assert_int_equal(strcmp(peers[i], peers[k]) == 0, i / 4 == k / 4);
        }
    free(hash);
    free(peers);

    struct experiment *e = load("name: x\n" BODY);
    assert_int_equal(groups(e) * e->rule.n * e->drafter.n, 1);
    assert_string_equal(e->sampling.entry[0].shown, "temperature=0");
    assert_string_equal(e->drafter.entry[0].shown, "none");
    assert_false(e->none_added);
    experiment_free(e);
    e = load("name: x\n" BODY "cells: {drafter: {kind: ngram}}\n");
    assert_int_equal(e->drafter.n, 2);
    assert_string_equal(e->drafter.entry[0].shown, "none");
    assert_string_equal(e->drafter.entry[1].shown, "ngram");
    assert_true(e->none_added);
    experiment_free(e);
}

static void a_cell_is_known_by_what_it_means(void **state)
{
    (void)state;
    static const char usual[] = "name: x\n" BODY "cells: {drafter: {kind: ngram, longest: 2, tokens: 8}}\n";
    static const struct {
        const char *text;
        bool same;
    } cases[] = {
        { usual, true },
        { "cells: {drafter: [{tokens: 08, kind: ngram, longest: 2}, none]}\nprompts: {chat: none, file: talks.jsonl}\n"
          "threads: 1\ntarget: {model: \"target.gguf\", device: cpu}\nname: x\n",
          true },
        { "name: x\n" BODY "repeat: 3\ncells: {drafter: {kind: ngram, longest: 2}}\n", true },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: none, limit: 2, per_category: 1}\n"
          "seed: 0\nlimits: {new_tokens: 256, stop: []}\ncells: {sampling: {temperature: 0.0}, drafter: {kind: ngram, longest: 2}}\n",
          true },
        { "name: y\n" BODY "cells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {drafter: {kind: ngram, longest: 3}}\n", false },
        { "name: x\n" BODY "seed: 1\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "limits: {new_tokens: 255}\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "limits: {stop: x}\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "limits: {ignore_end: true}\ncells: {drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {batch: 2, drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {rule: match, drafter: {kind: ngram, longest: 2}}\n", false },
        { "name: x\n" BODY "cells: {sampling: {temperature: 0, min_p: 0.1}, drafter: {kind: ngram, longest: 2}}\n",
          false },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 2\nprompts: {file: talks.jsonl, chat: none}\n"
          "cells: {drafter: {kind: ngram, longest: 2}}\n",
          false },
        { "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
          "cells: {drafter: {kind: ngram, longest: 2}}\n",
          false },
    };
    char(*hash)[17], (*peers)[17], (*other)[17], (*others_peers)[17];
    assert_int_equal(hashes(usual, &hash, &peers), 2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int n = hashes(cases[i].text, &other, &others_peers);
        assert_int_equal(n, 2);
        bool found = strcmp(other[0], hash[1]) == 0 || strcmp(other[1], hash[1]) == 0; // `none` may stand last
        if (found != cases[i].same)
            fail_msg("%s: %s", cases[i].same ? "another cell" : "the same cell", cases[i].text);
        free(other);
        free(others_peers);
    }
    free(hash);
    free(peers);
}

static void a_changed_model_or_prompt_file_is_another_cell(void **state)
{
    (void)state;
    static const char text[] = "name: x\ntarget: {model: target.gguf}\nprompts: {file: changing.jsonl, chat: none}\n"
                               "cells: {drafter: {kind: small, model: changing.gguf}}\n";
    char(*hash)[3][17] = xcalloc(3, sizeof(*hash)), (*h)[17], (*peers)[17];
    struct tiny t = tiny_usual;
    char *draft = tiny_path("changing.gguf");
    t.layers = 1;
    for (int i = 0; i < 3; i++) {
        t.seed = i == 1 ? 5 : 6;
        tiny_write_gguf(draft, &t);
        write_file("changing.jsonl", i == 2 ? "{\"prompt\": \"abd\"}\n" : "{\"prompt\": \"abc\"}\n");
        assert_int_equal(hashes(text, &h, &peers), 2);
        memcpy(hash[i][0], h[0], 17); // none
        memcpy(hash[i][1], h[1], 17); // small
        memcpy(hash[i][2], peers[1], 17);
        assert_string_equal(peers[0], peers[1]);
        free(h);
        free(peers);
    }
    assert_string_equal(hash[0][0], hash[1][0]); // the draft model is nothing to `none`
    assert_string_equal(hash[0][2], hash[1][2]);
    assert_string_not_equal(hash[0][1], hash[1][1]);
    assert_string_not_equal(hash[0][0], hash[2][0]);
    assert_string_not_equal(hash[0][1], hash[2][1]);
    assert_string_not_equal(hash[0][2], hash[2][2]);
    free(hash);
    free(draft);
}

// A model whose weights are quantised and whose heads are whole blocks.
static void write_blocks(const char *name)
{
    struct tiny t = tiny_usual;
    char *path = tiny_path(name);
    t.type = Q8_0;
    t.heads = 2;
    t.kv_heads = 1;
    t.head_dim = 32;
    tiny_write_gguf(path, &t);
    free(path);
}

// The hash of `small`, and of `none` beside it, with these words in the target's and in the drafter's braces.
static void hash_with(const char *model, const char *target, const char *drafter, char to[2][17])
{
    char(*hash)[17], (*peers)[17];
    char *text = xformat("name: x\ntarget: {model: %s%s}\nthreads: 1\nprompts: {file: talks.jsonl, chat: none}\n"
                         "cells: {drafter: [none, {kind: small, model: %s%s}]}\n",
                         model, target, model, drafter);
    assert_int_equal(hashes(text, &hash, &peers), 2);
    memcpy(to[0], hash[1], 17);
    memcpy(to[1], hash[0], 17);
    free(hash);
    free(peers);
    free(text);
}

static void a_preset_is_the_cell_that_it_settles_to(void **state)
{
    (void)state;
    write_blocks("blocks.gguf");
    static const struct {
        const char *model, *target, *drafter;
        bool same, same_none; // as with presets alone
    } cases[] = {
        { "target.gguf", ", activations: f32", "", true, true },
        { "target.gguf", ", cache: f32", ", cache: f32, activations: f32", true, true },
        { "target.gguf", ", activations: bf16", "", false, false },
        { "target.gguf", ", cache: bf16", "", false, false },
        { "target.gguf", "", ", activations: bf16", false, true },
        { "target.gguf", "", ", cache: bf16", false, true },
        { "blocks.gguf", ", activations: int8", ", activations: int8", true, true },
        { "blocks.gguf", ", activations: preset, cache: preset", ", cache: preset", true, true },
        { "blocks.gguf", ", activations: f32", "", false, false },
        { "blocks.gguf", "", ", activations: bf16", false, true },
        { "blocks.gguf", ", cache: q8_0", "", false, false },
        { "blocks.gguf", "", ", cache: q8_0", false, true },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char preset[2][17], said[2][17];
        hash_with(cases[i].model, "", "", preset);
        hash_with(cases[i].model, cases[i].target, cases[i].drafter, said);
        if ((strcmp(preset[0], said[0]) == 0) != cases[i].same)
            fail_msg("%s, small: %s%s", cases[i].model, cases[i].target, cases[i].drafter);
        if ((strcmp(preset[1], said[1]) == 0) != cases[i].same_none)
            fail_msg("%s, none: %s%s", cases[i].model, cases[i].target, cases[i].drafter);
    }
}

static void more_nodes_than_a_usual_pass_has_rows_open_the_target_anew(void **state)
{
    (void)state;
    char(*hash)[17], (*peers)[17];
    int n = hashes("name: x\n" BODY "cells: {batch: 40, drafter: [{kind: small, model: draft.gguf, widths: [4, 4]}, "
                   "{kind: ngram, tokens: 30}]}\n",
                   &hash, &peers);
    assert_int_equal(n, 3);
    free(hash);
    free(peers);
}

// ---- records

static void a_step_is_recorded_as_it_was_judged(void **state)
{
    (void)state;
    // 0 -+- 1 -+- 3        stands: 1, 4; the text ends behind token of 1: kept 1
    //    `- 2  `- 4
    int32_t token[] = { 9, 10, 20, 30, 40 }, parent[] = { -1, 0, 0, 1, 1 }, node[] = { 0, 1, 4 },
            out[] = { 10, 40, 50 };
    uint8_t drawn[] = { CHOSEN, DRAWN, CHOSEN, DRAWN, DRAWN_DISTINCT };
    double p[] = { NAN, 0.5, NAN, 0.25, 0.125 }, q[] = { NAN, 0.4, NAN, 0.5, 0.75 };
    struct draft d = { 5, 5, token, parent, drawn, NULL };
    struct advance a = { .slot = 0, .n = 3, .token = out, .node = node };
    struct judgement j = { .n = 3, .token = out, .node = node, .trial_p = p, .trial_q = q };
    struct step s = { 77, 4, &d, &a, &j, 3, 1, 2, 3, 1 };
    struct recorder *r = recorder_create(1, true);
    struct listener l = recorder_listener(r);
    struct sequence_row row;

    l.step(l.self, &s); // nobody asked: a warm-up
    recorder_expect(r, 77);
    l.step(l.self, &s);
    s.kept = 1;
    l.step(l.self, &s);
    assert_int_equal(recorder_take(r, &row), -1);
    int32_t all[] = { 10, 40, 50, 10 };
    struct ending e = { 77, all, 4, STOP_LIMIT, 5, 6, 7 };
    l.done(l.self, &e);
    assert_int_equal(recorder_take(r, &row), 77);
    assert_int_equal(recorder_take(r, &(struct sequence_row){ 0 }), -1);

    assert_int_equal(row.new_tokens, 4);
    assert_memory_equal(row.token, all, sizeof(all));
    assert_string_equal(row.stop, "limit");
    assert_int_equal(row.n_steps, 2);
    assert_int_equal(row.step[0].drafted, 4);
    assert_int_equal(row.step[0].depth, 2);
    assert_int_equal(row.step[0].accepted, 2);
    assert_int_equal(row.step[1].accepted, 1); // the text ended there
    assert_int_equal(row.step[0].n_trials, 3); // node 2 was never looked at
    const struct trial_row *t = row.step[1].trial;
    assert_int_equal(t[0].node, 1);
    assert_int_equal(t[0].rank, 0);
    assert_true(t[0].stood);
    assert_true(t[0].q == 0.4);
    assert_int_equal(t[1].node, 3);
    assert_false(t[1].stood);
    assert_int_equal(t[2].node, 4);
    assert_int_equal(t[2].depth, 2);
    assert_int_equal(t[2].rank, 1);
    assert_int_equal(t[2].drawn, DRAWN_DISTINCT);
    assert_true(t[2].stood);
    recorder_destroy(r);
}

// ---- running

#define RUN_BODY \
    "target: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: chatml}\n" \
    "limits: {new_tokens: 12, context: 400, ignore_end: true}\nseed: 3\nrecord: {trials: true}\n"
#define THREE \
    "cells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  rule: match\n  drafter: [none, ngram, " \
    "{kind: small, model: draft.gguf, widths: [2, 2, 1], pick: likeliest}]\n"

static void an_experiment_runs_once(void **state)
{
    (void)state;
    struct store *s = open_store("once.db");
    static const char text[] = "name: once\n" RUN_BODY THREE;
    run(text, s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run"), 6);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE finished IS NULL"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 6 * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM pair"), 2 * 5);
    assert_int_equal(ask(s, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);
    // `match`: one text for every drafter, at temperature 1 too, and another at every temperature
    assert_int_equal(ask(s, "SELECT count(*) FROM texts"), 4 * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM texts WHERE NOT equal"), 0);
    assert_true(ask(s, "SELECT count(DISTINCT text_hash) FROM sequence") > TURNS);
    // Cells run back to back, in rotated order: each is first on some occasion.
    assert_int_equal(
        ask(s, "SELECT count(DISTINCT run) FROM sequence WHERE id IN (SELECT min(id) FROM sequence GROUP BY pair)"), 6);
    assert_int_equal(
        ask(s, "SELECT count(*) FROM (SELECT pair FROM sequence GROUP BY pair HAVING count(DISTINCT run) <> 3)"), 0);
    assert_true(ask(s, "SELECT count(*) FROM trial") > 0);

    run(text, s); // again: nothing
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 6 * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM pair"), 2 * 5);

    // A fourth drafter runs, `none` beside it, and nobody else.
    run("name: once\n" RUN_BODY
        "cells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  rule: match\n  drafter: [none, ngram, "
        "{kind: small, model: draft.gguf, widths: [2, 2, 1], pick: likeliest}, {kind: small, model: draft.gguf, tokens: 2}]\n",
        s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run"), 8);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 10 * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence JOIN run ON run.id = run WHERE drafter_kind = 'none'"),
                     4 * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM texts WHERE NOT equal"), 0);

    // More repeats are more of the same cells.
    run("name: once\n" RUN_BODY "repeat: 2\n" THREE, s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run"), 8);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 16 * TURNS);
    store_close(s);
}

static void a_raised_limit_adds_prompts(void **state)
{
    (void)state;
    struct store *s = open_store("limit.db");
    static const char *const limit[] = { "limit: 2", "limit: 4", "per_category: 1" };
    static const int sequences[] = { 2 * 4, 2 * 7, 2 * 7 };
    for (int i = 0; i < 3; i++) {
        char *text = xformat(
            "name: limit\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: none, %s}\n"
            "limits: {new_tokens: 6}\ncells: {batch: 3, drafter: ngram}\n",
            limit[i]);
        run(text, s);
        assert_int_equal(ask(s, "SELECT count(*) FROM run"), 2);
        assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), sequences[i]);
        free(text);
    }
    store_close(s);
}

static void a_stored_cell_is_an_experiment_of_its_own(void **state)
{
    (void)state;
    struct store *s = open_store("stored.db");
    run("name: stored\n" RUN_BODY THREE, s);
    int64_t before = ask(s, "SELECT count(*) FROM sequence");
    for (int id = 1; id <= 6; id++) {
        struct error err = { "" };
        struct query *q = query_open(s, "SELECT settings FROM run WHERE id = ?");
        query_put_int(q, id);
        assert_true(query_next(q));
        char *text = xstrdup(query_text(q, 0));
        assert_true(query_close(q, &err));
        run(text, s);
        free(text);
    }
    assert_int_equal(ask(s, "SELECT count(*) FROM run"), 6);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), before);
    store_close(s);
}

static void a_run_says_in_which_precision_it_was(void **state)
{
    (void)state;
    static const struct {
        const char *said, *activations, *cache;
    } cases[] = {
        { "", "int8", "f32" },
        { ", activations: bf16, cache: bf16", "bf16", "bf16" },
        { ", activations: f32, cache: q8_0", "f32", "q8_0" },
    };
    enum { CASES_HERE = sizeof(cases) / sizeof(cases[0]) };
    write_blocks("quantised.gguf");
    struct store *s = open_store("precision.db");
    for (int i = 0; i < CASES_HERE; i++) {
        char *text = xformat(
            "name: precision\ntarget: {model: quantised.gguf%s}\nthreads: 1\nprompts: {file: talks.jsonl, chat: none}\n"
            "limits: {new_tokens: 12, ignore_end: true}\ncells: {drafter: [none, {kind: small, model: quantised.gguf},"
            " {kind: small, model: quantised.gguf, activations: f32, cache: q8_0, widths: [2, 2], pick: likeliest}]}\n",
            cases[i].said);
        run(text, s);
        run(text, s); // the same cells
        free(text);
        assert_int_equal(ask(s, "SELECT count(*) FROM run"), 3 * (i + 1));
        char *sql = xformat("SELECT count(*) FROM run WHERE activations = '%s' AND cache = '%s' AND settings LIKE"
                            " '%%target: {model: quantised.gguf, device: cpu, activations: %s, cache: %s}%%'",
                            cases[i].activations, cases[i].cache, cases[i].activations, cases[i].cache);
        assert_int_equal(ask(s, sql), 3);
        free(sql);
    }
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 3 * CASES_HERE * TURNS);
    assert_int_equal(ask(s, "SELECT count(*) FROM texts WHERE NOT equal"), 0); // to the bit in every precision
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE drafter = 'small(model=quantised.gguf)' AND settings LIKE"
                            " '%, activations: int8, cache: f32}}}'"),
                     CASES_HERE);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE settings LIKE '%, activations: f32, cache: q8_0}}}'"),
                     CASES_HERE);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE settings LIKE '%preset%'"), 0);
    assert_int_equal(ask(s, "SELECT count(DISTINCT peers) FROM run"), CASES_HERE);
    store_close(s);
}

static void batches_and_trees_say_what_plain_decoding_says(void **state)
{
    (void)state;
    struct store *s = open_store("batches.db");
    run("name: batches\n" RUN_BODY "cells:\n  batch: [1, 2, 5]\n  rule: [rejection, match]\n  drafter: [none, ngram, "
        "{kind: small, model: draft.gguf, widths: [3, 2, 1], pick: drawn}, {kind: small, model: other.gguf, nodes: 9, pick: likeliest}]\n",
        s);
    assert_int_equal(ask(s, "SELECT count(*) FROM run"), 24);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), 24 * TURNS);
    assert_int_equal(
        ask(s, "SELECT count(*) FROM (SELECT 1 FROM sequence GROUP BY prompt, turn HAVING count(DISTINCT tokens) > 1)"),
        0);
    assert_int_equal(ask(s, "SELECT max(step.batch) FROM step"), 5);
    store_close(s);
}

static void a_conversation_that_outgrows_the_context_ends(void **state)
{
    (void)state;
    struct store *s = open_store("outgrown.db");
    static const char text[] =
        "name: outgrown\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: none}\n"
        "limits: {new_tokens: 30, context: 34, ignore_end: true}\ncells: {drafter: ngram}\n";
    for (int i = 0; i < 2; i++) {
        run(text, s);
        assert_int_equal(ask(s, "SELECT count(*) FROM sequence WHERE turn = 0"), 10);
        assert_int_equal(ask(s, "SELECT count(*) FROM sequence WHERE turn > 0"), 0);
        assert_true(ask(s, "SELECT count(*) FROM sequence WHERE stop = 'context'") > 0);
        assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE finished IS NULL"), 0);
    }
    store_close(s);
}

static void stop_strings_end_texts_in_the_same_place_for_every_drafter(void **state)
{
    (void)state;
    // A letter out of what the target says without a stop.
    struct error err = { "" };
    struct store *s = open_store("stops.db");
    static const char body[] =
        "target: {model: target.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
        "cells: {drafter: [ngram, {kind: small, model: draft.gguf, widths: [2, 2, 2], pick: likeliest}]}\n";
    char *text = xformat("name: free\n%slimits: {new_tokens: 40, ignore_end: true}\n", body);
    run(text, s);
    free(text);
    struct query *q = query_open(s, "SELECT text FROM sequence WHERE new_tokens = 40 LIMIT 1");
    assert_true(query_next(q));
    const char *said = query_text(q, 0);
    char stop[32] = "";
    for (const char *c = said + strlen(said) / 2; *c != '\0' && stop[0] == '\0'; c++)
        if (c[0] > 0x20 && c[0] < 0x7F && c[0] != '"' && c[0] != '\\')
            snprintf(stop, sizeof(stop), "%c", *c);
    assert_true(query_close(q, &err));
    if (stop[0] == '\0')
        store_close(s), skip(); // nothing but odd bytes: other arithmetic, another text
    text = xformat("name: stopped\n%slimits: {new_tokens: 40, ignore_end: true, stop: [\"%s\"]}\n", body, stop);
    run(text, s);
    free(text);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence JOIN run ON run.id = run WHERE experiment = 'stopped'"), 3);
    assert_int_equal(
        ask(s, "SELECT count(DISTINCT tokens) FROM sequence JOIN run ON run.id = run WHERE experiment = 'stopped'"), 1);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence WHERE stop = 'string'"), 3);
    store_close(s);
}

// ---- the dry run, and the files that come with the project

static void a_dry_run_tells_what_is_done_and_changes_nothing(void **state)
{
    (void)state;
    struct error err = { "" };
    struct store *s = open_store("dry.db");
    static const char text[] = "name: dry\n" RUN_BODY "cells: {drafter: [ngram, {kind: small, model: draft.gguf}]}\n";
    for (int i = 0; i < 2; i++) {
        char *out = NULL;
        size_t n = 0;
        FILE *to = open_memstream(&out, &n);
        struct experiment *e = load(text);
        if (!experiment_dry_run(e, s, to, &err))
            fail_msg("%s", err.text);
        experiment_free(e);
        fclose(to);
        assert_non_null(strstr(out, "dry: 3 cells, 5 prompts of 8 turns, 1 repeat\n"));
        assert_non_null(strstr(out, "was added to the list of drafters"));
        assert_non_null(
            strstr(out, i == 0 ? "      0 of 5      ngram, rejection\n" : "      5 of 5      ngram, rejection\n"));
        assert_int_equal(strstr(out, "everything is in the database") != NULL, i == 1);
        free(out);
        assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), i == 0 ? 0 : 3 * TURNS);
        assert_int_equal(ask(s, "SELECT count(*) FROM run"), i == 0 ? 0 : 3);
        if (i == 0)
            run(text, s);
    }
    store_close(s);
}

static void a_dry_run_counts_the_cache_by_its_type(void **state)
{
    (void)state;
    // Heads of 32: 2 x 3 layers x 40 slots x 400 rows x 32 numbers, each of 4 bytes, of 2, or of 34 / 32.
    static const struct {
        const char *type, *line;
    } cases[] = {
        { "preset", "of a group f32 caches 12.3, logits" },
        { "f32", "of a group f32 caches 12.3, logits" },
        { "bf16", "of a group bf16 caches 6.1, logits" },
        { "q8_0", "of a group q8_0 caches 3.3, logits" },
    };
    write_blocks("heads.gguf");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        char *out = NULL,
             *text = xformat("name: dry\ntarget: {model: heads.gguf, activations: bf16, cache: %s}\nthreads: 1\n"
                             "prompts: {file: p.jsonl, chat: none}\nlimits: {context: 400}\ncells: {batch: 40}\n",
                             cases[i].type);
        size_t n = 0;
        FILE *to = open_memstream(&out, &n);
        struct experiment *e = load(text);
        if (!experiment_dry_run(e, NULL, to, &err))
            fail_msg("%s", err.text);
        fclose(to);
        char *precision = xformat("q8_0 weights, bf16 activations, %s cache, on cpu\n", i == 0 ? "f32" : cases[i].type);
        if (strstr(out, cases[i].line) == NULL || strstr(out, precision) == NULL)
            fail_msg("expected \"%s\" and \"%s\": %s", cases[i].line, precision, out);
        experiment_free(e);
        free(precision);
        free(text);
        free(out);
    }
}

static void the_smoke_experiment_runs(void **state)
{
    (void)state;
    struct error err = { "" };
    char *cache = tiny_path("speclab"), *models = tiny_path("speclab/models"),
         *target = xformat("%s/tiny.gguf", models), *draft = xformat("%s/tiny-pruned.gguf", models);
    struct tiny t = tiny_usual;
    assert_int_equal(mkdir(cache, 0755) | mkdir(models, 0755), 0);
    tiny_write_gguf(target, &t);
    t.layers = 2;
    tiny_write_gguf(draft, &t);
    setenv("XDG_CACHE_HOME", tiny_directory(), 1);
    struct experiment *e = experiment_load(SOURCE "/experiments/smoke.yaml", &err);
    if (e == NULL)
        fail_msg("%s", err.text);
    struct store *s = open_store("smoke.db");
    if (!experiment_run(e, s, NULL, NULL, &err))
        fail_msg("%s", err.text);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE finished IS NULL"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM texts JOIN run ON run.id = texts.run WHERE NOT equal AND"
                            " (sampling = 'temperature=0' OR rule = 'match')"),
                     0);
    store_close(s);
    experiment_free(e);
    free(cache);
    free(models);
    free(target);
    free(draft);
}

static void the_prompt_set_is_what_its_readme_says(void **state)
{
    (void)state;
    struct error err = { "" };
    struct prompts p;
    if (!prompts_read(SOURCE "/experiments/data/prompts.jsonl", 0, 2, &p, &err))
        fail_msg("%s", err.text);
    assert_int_equal(p.n, 12); // six kinds
    prompts_free(&p);
    assert_true(prompts_read(SOURCE "/experiments/data/prompts.jsonl", 0, 0, &p, &err));
    assert_true(p.n >= 60);
    prompts_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_list_under_cells_multiplies),
        cmocka_unit_test(a_cell_is_known_by_what_it_means),
        cmocka_unit_test(a_changed_model_or_prompt_file_is_another_cell),
        cmocka_unit_test(a_preset_is_the_cell_that_it_settles_to),
        cmocka_unit_test(more_nodes_than_a_usual_pass_has_rows_open_the_target_anew),
        cmocka_unit_test(a_step_is_recorded_as_it_was_judged),
        cmocka_unit_test(an_experiment_runs_once),
        cmocka_unit_test(a_raised_limit_adds_prompts),
        cmocka_unit_test(a_stored_cell_is_an_experiment_of_its_own),
        cmocka_unit_test(a_run_says_in_which_precision_it_was),
        cmocka_unit_test(batches_and_trees_say_what_plain_decoding_says),
        cmocka_unit_test(a_conversation_that_outgrows_the_context_ends),
        cmocka_unit_test(stop_strings_end_texts_in_the_same_place_for_every_drafter),
        cmocka_unit_test(a_dry_run_tells_what_is_done_and_changes_nothing),
        cmocka_unit_test(a_dry_run_counts_the_cache_by_its_type),
        cmocka_unit_test(the_smoke_experiment_runs),
        cmocka_unit_test(the_prompt_set_is_what_its_readme_says),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
