// test_experiment.c - experiments from cells to database: stored cells are not run again, and steps are recorded as verified.
#include "tests/support/tests.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "experiments/experiment.h"
#include "engine/prompts.h"
#include "experiments/recorder.h"
#include "results/query.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"
#include "verifier/rules/rule.h"

// ---- records

TEST(a_step_is_recorded_as_it_was_verified)
{
    // 0 -+- 1 -+- 3        accepted: 1, 4; a second text ends after the token of 1: kept 1. Node 2 was not tested.
    //    `- 2  `- 4
    int32_t token[] = { 9, 10, 20, 30, 40 }, parent[] = { -1, 0, 0, 1, 1 }, node[] = { 0, 1, 4 },
            out[] = { 10, 40, 50, 10 };
    uint8_t proposal[] = { DETERMINISTIC, SAMPLED, DETERMINISTIC, SAMPLED, SAMPLED_WITHOUT_REPLACEMENT };
    double p[] = { NAN, 0.5, NAN, 0.25, 0.125 }, q[] = { NAN, 0.4, NAN, 0.5, 0.75 };
    static const struct trial_row trials[] = { { 1, 1, 0, 10, SAMPLED, 0.5, 0.4, true, NULL },
                                               { 3, 2, 0, 30, SAMPLED, 0.25, 0.5, false, NULL },
                                               { 4, 2, 1, 40, SAMPLED_WITHOUT_REPLACEMENT, 0.125, 0.75, true, NULL } };
    struct speclab_step s = { .sequence = 77,
                              .position = 4,
                              .token = out,
                              .n = 3,
                              .drafted = 4,
                              .accepted = 2,
                              .depth = 2,
                              .decided = 3,
                              .node = node,
                              .draft = token,
                              .parent = parent,
                              .proposal = proposal,
                              .p = p,
                              .q = q,
                              .propose_ns = 1,
                              .verify_ns = 2,
                              .advance_ns = 3,
                              .at_ns = 4,
                              .batch = 1 };
    const struct speclab_end e = { .sequence = 77,
                                   .token = out,
                                   .n = 4,
                                   .reason = "limit",
                                   .why = SPECLAB_STOP_LIMIT,
                                   .shared = 2,
                                   .prefill_ns = 5,
                                   .decode_ns = 6,
                                   .wall_ns = 7 };
    struct recorder *r = recorder_create(1, true, 0);
    struct speclab_listener l = recorder_listener(r, false);
    struct sequence_row row;
    l.step(l.self, &s); // not recorded: a warm-up
    recorder_begin(r, 77);
    l.step(l.self, &s);
    s.n = s.accepted = 1;
    l.step(l.self, &s);
    assert_int_equal(recorder_take(r, &row), -1);
    l.end(l.self, &e);
    assert_int_equal(recorder_take(r, &row), 77);
    assert_int_equal(recorder_take(r, &(struct sequence_row){ 0 }), -1);

    assert_true(row.new_tokens == 4 && row.n_steps == 2 && row.shared_tokens == 2 && row.prefill_ns == 5);
    assert_memory_equal(row.token, out, sizeof(out));
    assert_string_equal(row.stop, "limit");
    for (int i = 0; i < 2; i++) {
        const struct step_row *at = &row.step[i];
        assert_true(at->drafted == 4 && at->depth == 2 && at->accepted == 2 - i && at->batch == 1 && at->n_trials == 3);
        assert_true(at->propose_ns == 1 && at->verify_ns == 2 && at->advance_ns == 3 && at->at_ns == 4);
        for (int k = 0; k < 3; k++) {
            const struct trial_row *found = &at->trial[k], *of = &trials[k];
            assert_true(found->node == of->node && found->depth == of->depth && found->rank == of->rank);
            assert_true(found->token == of->token && found->proposal == of->proposal &&
                        found->accepted == of->accepted);
            assert_true(found->p == of->p && found->q == of->q);
        }
    }
    recorder_destroy(r);
}

// ---- running

#define RUN_BODY \
    "target: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: chatml}\n" \
    "limits: {new_tokens: 12, context: 400, ignore_end: true}\nseed: 3\nrecord: {trials: true}\n"
#define THREE \
    "cells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  rule: match\n  drafter: [none, ngram, " \
    "{kind: small, model: draft.gguf, widths: [2, 2, 1], pick: greedy}]\n"

TEST(an_experiment_runs_once)
{
    struct store *s = open_store("once.db");
    static const char text[] = "name: once\n" RUN_BODY THREE;
    run(text, s);
    expect_count(s, 6, "run");
    expect_count(s, 0, "run WHERE finished IS NULL");
    expect_count(s, 6 * TURNS, "sequence");
    expect_count(s, 2 * 5, "pair");
    expect_count(s, 0, "paired WHERE none IS NULL");
    // `match`: the same text for every drafter, at temperature 1 too; another one at each temperature
    expect_count(s, 4 * TURNS, "texts");
    expect_count(s, 0, "texts WHERE NOT equal");
    assert_true(query_first_int(s, "SELECT count(DISTINCT text_hash) FROM sequence") > TURNS);
    // Cells run back to back, in rotated order: each is first in some pair.
    assert_int_equal(
        query_first_int(
            s, "SELECT count(DISTINCT run) FROM sequence WHERE id IN (SELECT min(id) FROM sequence GROUP BY pair)"),
        6);
    expect_count(s, 0, "(SELECT pair FROM sequence GROUP BY pair HAVING count(DISTINCT run) <> 3)");
    assert_true(query_first_int(s, "SELECT count(*) FROM trial") > 0);

    run(text, s); // again: nothing to do
    expect_count(s, 6 * TURNS, "sequence");
    expect_count(s, 2 * 5, "pair");

    // A fourth drafter runs, paired with `none`, and no other cell.
    run("name: once\n" RUN_BODY
        "cells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  rule: match\n  drafter: [none, ngram, "
        "{kind: small, model: draft.gguf, widths: [2, 2, 1], pick: greedy}, "
        "{kind: small, model: draft.gguf, tokens: 2}]\n",
        s);
    expect_count(s, 8, "run");
    expect_count(s, 10 * TURNS, "sequence");
    expect_count(s, 4 * TURNS, "sequence JOIN run ON run.id = run WHERE drafter_kind = 'none'");
    expect_count(s, 0, "paired WHERE none IS NULL");
    expect_count(s, 0, "texts WHERE NOT equal");

    // More repeats add sequences to the same cells.
    run("name: once\n" RUN_BODY "repeat: 2\n" THREE, s);
    expect_count(s, 8, "run");
    expect_count(s, 16 * TURNS, "sequence");
    store_close(s);
}

TEST(a_raised_limit_adds_prompts)
{
    struct store *s = open_store("limit.db");
    static const char *const limit[] = { "limit: 2", "limit: 4", "per_category: 1" };
    static const int sequences[] = { 2 * 4, 2 * 7, 2 * 7 };
    for (int i = 0; i < 3; i++) {
        char *text = xformat(
            "name: limit\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none, %s}\n"
            "limits: {new_tokens: 6}\ncells: {batch: 3, drafter: ngram}\n",
            limit[i]);
        run(text, s);
        expect_count(s, 2, "run");
        expect_count(s, sequences[i], "sequence");
        free(text);
    }
    store_close(s);
}

TEST(stored_settings_are_an_experiment_file)
{
    struct store *s = open_store("stored.db");
    run("name: stored\n" RUN_BODY THREE, s);
    int64_t before = query_first_int(s, "SELECT count(*) FROM sequence");
    for (int id = 1; id <= 6; id++) {
        struct error err = { "" };
        struct query *q = query_open(s, "SELECT settings FROM run WHERE id = ?");
        query_put(q, SQL(id));
        assert_true(query_next(q));
        char *text = xstrdup(query_text(q, 0));
        assert_true(query_close(q, &err));
        run(text, s);
        free(text);
    }
    expect_count(s, 6, "run");
    expect_count(s, before, "sequence");
    store_close(s);
}

TEST(a_run_stores_its_precision)
{
    static const struct {
        const char *given, *activations, *cache;
    } cases[] = {
        { "", "int8", "f32" },
        { ", activations: bf16, cache: bf16", "bf16", "bf16" },
        { ", activations: f32, cache: q8_0", "f32", "q8_0" },
    };
    enum { CASES_HERE = sizeof(cases) / sizeof(cases[0]) };
    write_blocks("quantized.gguf");
    struct store *s = open_store("precision.db");
    for (int i = 0; i < CASES_HERE; i++) {
        char *text = xformat(
            "name: precision\ntarget: {model: quantized.gguf%s}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
            "limits: {new_tokens: 12, ignore_end: true}\ncells: {drafter: [none, {kind: small, model: quantized.gguf},"
            " {kind: small, model: quantized.gguf, activations: f32, cache: q8_0, widths: [2, 2], pick: greedy}]}\n",
            cases[i].given);
        run(text, s);
        run(text, s); // the same cells
        free(text);
        expect_count(s, 3 * (i + 1), "run");
        char *sql =
            xformat("SELECT count(*) FROM run WHERE activations = '%s' AND cache = '%s' AND settings -> '$.target' ="
                    " json_object('model', 'quantized.gguf', 'device', 'cpu', 'activations', '%s', 'cache', '%s')",
                    cases[i].activations, cases[i].cache, cases[i].activations, cases[i].cache);
        assert_int_equal(query_first_int(s, sql), 3);
        free(sql);
    }
    expect_count(s, 3 * CASES_HERE * TURNS, "sequence");
    expect_count(s, 2 * CASES_HERE * TURNS, "texts");
    expect_count(s, 0, "texts WHERE NOT equal"); // bitwise equal in every precision
    expect_count(
        s, CASES_HERE,
        "run WHERE drafter = 'small(model=quantized.gguf)' AND settings LIKE"
        " '%, \"activations\": \"int8\", \"quantize\": \"none\", \"cache\": \"f32\", \"vocabulary\": \"same\"}}}'");
    expect_count(
        s, CASES_HERE,
        "run WHERE settings LIKE"
        " '%, \"activations\": \"f32\", \"quantize\": \"none\", \"cache\": \"q8_0\", \"vocabulary\": \"same\"}}}'");
    expect_count(s, 0, "run WHERE settings LIKE '%default%'");
    assert_int_equal(query_first_int(s, "SELECT count(DISTINCT peers) FROM run"), CASES_HERE);
    store_close(s);
}

TEST(batches_and_trees_decode_the_text_of_plain_decoding)
{
    struct store *s = open_store("batches.db");
    run("name: batches\n" RUN_BODY "cells:\n  batch: [1, 2, 5]\n  rule: [rejection, match]\n  drafter: [none, ngram, "
        "{kind: small, model: draft.gguf, widths: [3, 2, 1], pick: sampled}, "
        "{kind: small, model: other.gguf, nodes: 9, pick: greedy}]\n",
        s);
    expect_count(s, 24, "run");
    expect_count(s, 24 * TURNS, "sequence");
    expect_count(s, 0, "(SELECT 1 FROM sequence GROUP BY prompt, turn HAVING count(DISTINCT tokens) > 1)");
    assert_int_equal(query_first_int(s, "SELECT max(step.batch) FROM step"), 5);
    store_close(s);
}

TEST(a_conversation_that_outgrows_the_context_ends)
{
    struct store *s = open_store("outgrown.db");
    static const char text[] =
        "name: outgrown\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
        "limits: {new_tokens: 30, context: 34, ignore_end: true}\ncells: {drafter: ngram}\n";
    for (int i = 0; i < 2; i++) {
        run(text, s);
        expect_count(s, 10, "sequence WHERE turn = 0");
        expect_count(s, 0, "sequence WHERE turn > 0");
        assert_true(query_first_int(s, "SELECT count(*) FROM sequence WHERE stop = 'context'") > 0);
        expect_count(s, 0, "run WHERE finished IS NULL");
    }
    store_close(s);
}

TEST(stop_strings_end_texts_at_the_same_token_for_every_drafter)
{
    // A character of the target's text without stop strings.
    struct error err = { "" };
    struct store *s = open_store("stops.db");
    static const char body[] =
        "target: {model: target.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
        "cells: {drafter: [ngram, {kind: small, model: draft.gguf, widths: [2, 2, 2], pick: greedy}]}\n";
    char *text = xformat("name: free\n%slimits: {new_tokens: 40, ignore_end: true}\n", body);
    run(text, s);
    free(text);
    struct query *q = query_open(s, "SELECT text FROM sequence WHERE new_tokens = 40 LIMIT 1");
    assert_true(query_next(q));
    const char *free_text = query_text(q, 0);
    char stop[32] = "";
    for (const char *c = free_text + strlen(free_text) / 2; *c != '\0' && stop[0] == '\0'; c++)
        if (c[0] > 0x20 && c[0] < 0x7F && c[0] != '"' && c[0] != '\\')
            snprintf(stop, sizeof(stop), "%c", *c);
    assert_true(query_close(q, &err));
    if (stop[0] == '\0')
        store_close(s), skip(); // no printable character: the text depends on the arithmetic
    text = xformat("name: stopped\n%slimits: {new_tokens: 40, ignore_end: true, stop: [\"%s\"]}\n", body, stop);
    run(text, s);
    free(text);
    expect_count(s, 3, "sequence JOIN run ON run.id = run WHERE experiment = 'stopped'");
    assert_int_equal(
        query_first_int(
            s, "SELECT count(DISTINCT tokens) FROM sequence JOIN run ON run.id = run WHERE experiment = 'stopped'"),
        1);
    expect_count(s, 3, "sequence WHERE stop = 'string'");
    store_close(s);
}

// ---- the dry run, and the project's own files

TEST(a_dry_run_reports_what_is_done_and_changes_nothing)
{
    struct store *s = open_store("dry.db");
    static const char text[] = "name: dry\n" RUN_BODY "cells: {drafter: [ngram, {kind: small, model: draft.gguf}]}\n";
    for (int i = 0; i < 2; i++) {
        struct json *plan = dry_run(text, s);
        assert_int_equal(planned(plan, "all_cells", -1), 3);
        assert_int_equal(planned(plan, "prompts", -1), 5);
        assert_int_equal(planned(plan, "prompt_turns", -1), TURNS);
        assert_true(json_bool(json_get(plan, "none_added")));
        assert_int_equal(planned(plan, "done", 1), i == 0 ? 0 : 5);
        assert_int_equal(planned(plan, "turns", -1), i == 0 ? 3 * TURNS : 0);
        json_free(plan);
        expect_count(s, i == 0 ? 0 : 3 * TURNS, "sequence");
        expect_count(s, i == 0 ? 0 : 3, "run");
        if (i == 0)
            run(text, s);
    }
    store_close(s);
}

TEST(a_dry_run_counts_the_cache_by_its_type)
{
    // Heads of 32: 2 x 3 layers x 40 slots x 400 rows x 32 numbers, each of 4 bytes, of 2, or of 34 / 32.
    static const struct {
        const char *type;
        int bytes;
    } cases[] = { { "default", 12288000 }, { "f32", 12288000 }, { "bf16", 6144000 }, { "q8_0", 3264000 } };
    write_blocks("heads.gguf");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = xformat("name: dry\ntarget: {model: heads.gguf, activations: bf16, cache: %s}\nthreads: 1\n"
                             "prompts: {file: p.jsonl, chat: none}\nlimits: {context: 400}\ncells: {batch: 40}\n",
                             cases[i].type);
        struct json *plan = dry_run(text, NULL), *target = json_at(json_get(plan, "targets"), 0);
        assert_int_equal(json_int(json_get(target, "cache_bytes")), cases[i].bytes);
        assert_string_equal(json_text(json_get(target, "weights")), "q8_0");
        assert_string_equal(json_text(json_get(target, "activations")), "bf16");
        assert_string_equal(json_text(json_get(target, "cache")), i == 0 ? "f32" : cases[i].type);
        json_free(plan);
        free(text);
    }
}

TEST(a_dry_run_counts_memory_by_device)
{
#if defined(EMULATED_DEVICE)
    // Weights of three layers and of one, tables of embeddings included; 2 x 3 layers x 3 drafters x 2 slots x some 200 rows x 32
    // numbers of 4 bytes; 2 x 1 layer for each draft model.
    static const struct {
        const char *target, *draft, *devices[2]; // with their own memory: that of the emulated GPU
    } cases[] = {
        { "cpu", "cpu", { "cpu", NULL } },
        { "cuda", "cuda:0", { "cuda:0", "cpu" } },
        { "cuda:1", "cpu", { "cuda:1", "cpu" } },
        { "cpu", "cuda", { "cpu", "cuda:0" } },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = xformat("name: dry\ntarget: {model: target.gguf, device: %s}\nthreads: 1\n"
                             "prompts: {file: p.jsonl, chat: none}\nlimits: {context: 200}\ncells:\n"
                             "  drafter: [{kind: small, model: draft.gguf, device: %s}]\n",
                             cases[i].target, cases[i].draft);
        struct json *plan = dry_run(text, NULL), *target = json_at(json_get(plan, "targets"), 0),
                    *devices = json_get(target, "devices");
        const json_int_t weights = json_int(json_get(target, "weight_bytes")),
                         whole = weights + json_int(json_get(target, "scratch_bytes")) +
                                 json_int(json_get(target, "cache_bytes"));
        assert_int_equal(weights / 100000, 5);
        for (int k = 0; k < 2 && cases[i].devices[k] != NULL; k++) {
            const char *device = cases[i].devices[k];
            const struct json *j = json_at(devices, (size_t)k);
            assert_string_equal(json_text(json_get(j, "device")), device);
            assert_int_equal(json_int(json_get(j, "of")), strcmp(device, "cpu") == 0 ? 0 : 4294967296);
            assert_int_equal(json_int(json_get(j, "available")) > 0, k == 0 && strcmp(device, "cpu") == 0);
            assert_true(json_int(json_get(j, "bytes")) > (k == 0 ? whole : 0));
        }
        assert_int_equal(json_count(devices), cases[i].devices[1] != NULL ? 2 : 1);
        json_free(plan);
        free(text);
    }
#endif
}

// The drafter's device, and what a device gives up while it decodes, stand beside the processor: they change no bit.
TEST(a_run_names_its_devices_and_what_they_gave_up)
{
#if defined(EMULATED_DEVICE)
    static const char text[] = "name: devices\ntarget: {model: target.gguf, device: %s}\nthreads: 1\n"
                               "prompts: {file: p.jsonl, chat: none}\nlimits: {context: 200, new_tokens: 3}\n"
                               "cells: {drafter: [%s]}\n";
    struct error err;
    struct store *s = open_store("devices.db");
    char *progress, *drafter = xformat(text, "cpu", "{kind: small, model: draft.gguf, tokens: 2, device: cuda}"),
                    *target = xformat(text, "cuda", "none");
    size_t n;
    run(drafter, s);
    expect_count(s, 1, "run WHERE machine LIKE '%; drafter on emulated GPU (cuda:0), compute capability %'");
    expect_count(s, 1, "run WHERE machine NOT LIKE '%emulated%'"); // none's
    assert_true(query_first_int(s, "SELECT count(*) FROM texts") > 0);
    expect_count(s, 0, "texts WHERE NOT equal");
    FILE *to = open_memstream(&progress, &n);
    struct experiment *e = load(target);
    setenv("SPECLAB_CUDA_SYNC", "1", 1);
    assert_ok(experiment_run(e, s, to, NULL, &err), err);
    unsetenv("SPECLAB_CUDA_SYNC");
    experiment_free(e);
    fclose(to);
    assert_int_equal(occurrences(progress, "CUDA graphs: off (SPECLAB_CUDA_SYNC is set)"), 1);
    expect_count(s, 1,
                 "run WHERE machine LIKE '%; CUDA graphs: off (SPECLAB_CUDA_SYNC is set), emulated GPU (cuda:0)%'");
    perform(s, "DELETE FROM sequence"); // it resumes: bits are the same
    run(target, s);
    store_close(s);
    free(progress);
    free(drafter);
    free(target);
#endif
}

static void check_expectations_of_steps(const char *device)
{
    char *db = xformat("expected_%s.db", device);
    char *text = xformat(
        "name: expected\ntarget: {model: target.gguf, device: %s}\nthreads: 1\nprompts: {file: short.jsonl, chat: none}\n"
        "limits: {context: 200, new_tokens: 9, ignore_end: true}\nrecord: {expected: true}\n"
        "cells: {sampling: {temperature: 1}, batch: 2, drafter: [{kind: small, model: draft.gguf, tokens: 3}]}\n",
        device);
    struct store *s = open_store(db);
    run(text, s);
    assert_true(query_first_int(s, "SELECT count(*) FROM step WHERE drafted > 0 AND accepted_uncut = 0") > 1);
    assert_true(query_first_int(s, "SELECT count(*) FROM step WHERE drafted > 0 AND accepted_uncut > 0") > 1);
    expect_count(s, 0, "step WHERE drafted > 0 AND accepted_uncut IS NULL");
    expect_count(s, 0, "step WHERE accepted_uncut IS NOT NULL AND accepted <> min(accepted_uncut, tokens)");
    expect_count(s, 0, "step WHERE accepted_uncut IS NOT NULL AND expected > depth");
    store_close(s);
    free(text);
    free(db);
}

// On a GPU a step is recorded after later ones have been verified.
TEST(expectations_are_recorded_with_their_own_step)
{
    write_file("short.jsonl", "{\"prompt\": \"abc\"}\n{\"prompt\": \"xyx\"}\n{\"prompt\": \"1 2\"}\n");
    check_expectations_of_steps("cpu");
#if defined(EMULATED_DEVICE)
    check_expectations_of_steps("cuda");
#endif
}

// And the prompts of the other experiments are as many, of as many categories, as their page says.
TEST(the_smoke_experiment_runs)
{
    struct error err = { "" };
    for (int each = 0; each <= 2; each += 2) {
        struct prompts p;
        assert_ok(prompts_read(SOURCE "/experiments/data/prompts.jsonl", 0, each, &p, &err), err);
        assert_true(each == 0 ? p.n >= 60 : p.n == 12); // two of each of six categories
        prompts_free(&p);
    }
    char *cache = test_path("speclab"), *models = test_path("speclab/models"),
         *target = xformat("%s/tiny.gguf", models), *draft = xformat("%s/tiny-pruned.gguf", models);
    struct small_model t = small_default;
    assert_int_equal(mkdir(cache, 0755) | mkdir(models, 0755), 0);
    small_write_gguf(target, &t);
    t.layers = 2;
    small_write_gguf(draft, &t);
    setenv("XDG_CACHE_HOME", test_directory(), 1);
    struct experiment *e = experiment_load(SOURCE "/experiments/smoke.yaml", &err);
    assert_ok(e != NULL, err);
    struct store *s = open_store("smoke.db");
    assert_ok(experiment_run(e, s, NULL, NULL, &err), err);
    expect_count(s, 0, "run WHERE finished IS NULL");
    expect_count(s, 0, "paired WHERE none IS NULL");
    expect_count(s, 0,
                 "texts JOIN run ON run.id = texts.run WHERE NOT equal AND"
                 " (sampling = 'temperature=0' OR rule = 'match')");
    store_close(s);
    experiment_free(e);
    free(cache);
    free(models);
    free(target);
    free(draft);
}

RUN_TESTS(make_files, test_directory_tear_down)
