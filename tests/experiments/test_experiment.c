// test_experiment.c - experiments from cells to database: stored cells are not run again, and steps are recorded as verified.
#include "tests/support/check.h"

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

static void a_step_is_recorded_as_it_was_verified(void **state)
{
    // 0 -+- 1 -+- 3        accepted: 1, 4; the text ends after the token of 1: kept 1
    //    `- 2  `- 4
    int32_t token[] = { 9, 10, 20, 30, 40 }, parent[] = { -1, 0, 0, 1, 1 }, node[] = { 0, 1, 4 },
            out[] = { 10, 40, 50 };
    uint8_t proposal[] = { DETERMINISTIC, SAMPLED, DETERMINISTIC, SAMPLED, SAMPLED_WITHOUT_REPLACEMENT };
    double p[] = { NAN, 0.5, NAN, 0.25, 0.125 }, q[] = { NAN, 0.4, NAN, 0.5, 0.75 };
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
    struct recorder *r = recorder_create(1, true, 0);
    struct speclab_listener l = recorder_listener(r, false);
    struct sequence_row row;

    l.step(l.self, &s); // not recorded: a warm-up
    recorder_begin(r, 77);
    l.step(l.self, &s);
    s.n = s.accepted = 1;
    l.step(l.self, &s);
    assert_int_equal(recorder_take(r, &row), -1);
    int32_t all[] = { 10, 40, 50, 10 };
    struct speclab_end e = { .sequence = 77,
                             .token = all,
                             .n = 4,
                             .reason = "limit",
                             .why = SPECLAB_STOP_LIMIT,
                             .shared = 2,
                             .prefill_ns = 5,
                             .decode_ns = 6,
                             .wall_ns = 7 };
    l.end(l.self, &e);
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
    assert_int_equal(row.step[0].n_trials, 3); // node 2 was not tested
    const struct trial_row *t = row.step[1].trial;
    assert_int_equal(t[0].node, 1);
    assert_int_equal(t[0].rank, 0);
    assert_true(t[0].accepted);
    assert_true(t[0].p == 0.5 && t[1].p == 0.25 && t[2].p == 0.125);
    assert_true(t[0].q == 0.4 && t[1].q == 0.5 && t[2].q == 0.75);
    assert_int_equal(row.step[0].propose_ns, 1);
    assert_int_equal(row.step[0].verify_ns, 2);
    assert_int_equal(row.step[0].advance_ns, 3);
    assert_int_equal(row.step[0].at_ns, 4);
    assert_int_equal(row.step[0].batch, 1);
    assert_int_equal(row.shared_tokens, 2);
    assert_int_equal(row.prefill_ns, 5);
    assert_int_equal(t[1].node, 3);
    assert_false(t[1].accepted);
    assert_int_equal(t[2].node, 4);
    assert_int_equal(t[2].depth, 2);
    assert_int_equal(t[2].rank, 1);
    assert_int_equal(t[2].proposal, SAMPLED_WITHOUT_REPLACEMENT);
    assert_true(t[2].accepted);
    recorder_destroy(r);
}

// ---- running

#define RUN_BODY \
    "target: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: chatml}\n" \
    "limits: {new_tokens: 12, context: 400, ignore_end: true}\nseed: 3\nrecord: {trials: true}\n"
#define THREE \
    "cells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  rule: match\n  drafter: [none, ngram, " \
    "{kind: small, model: draft.gguf, widths: [2, 2, 1], pick: greedy}]\n"

static void an_experiment_runs_once(void **state)
{
    struct store *s = open_store("once.db");
    static const char text[] = "name: once\n" RUN_BODY THREE;
    run(text, s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run"), 6);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE finished IS NULL"), 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), 6 * TURNS);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM pair"), 2 * 5);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);
    // `match`: the same text for every drafter, at temperature 1 too; another one at each temperature
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM texts"), 4 * TURNS);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM texts WHERE NOT equal"), 0);
    assert_true(query_first_int(s, "SELECT count(DISTINCT text_hash) FROM sequence") > TURNS);
    // Cells run back to back, in rotated order: each is first in some pair.
    assert_int_equal(
        query_first_int(
            s, "SELECT count(DISTINCT run) FROM sequence WHERE id IN (SELECT min(id) FROM sequence GROUP BY pair)"),
        6);
    assert_int_equal(
        query_first_int(
            s, "SELECT count(*) FROM (SELECT pair FROM sequence GROUP BY pair HAVING count(DISTINCT run) <> 3)"),
        0);
    assert_true(query_first_int(s, "SELECT count(*) FROM trial") > 0);

    run(text, s); // again: nothing to do
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), 6 * TURNS);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM pair"), 2 * 5);

    // A fourth drafter runs, paired with `none`, and no other cell.
    run("name: once\n" RUN_BODY
        "cells:\n  sampling: [{temperature: 0}, {temperature: 1}]\n  rule: match\n  drafter: [none, ngram, "
        "{kind: small, model: draft.gguf, widths: [2, 2, 1], pick: greedy}, "
        "{kind: small, model: draft.gguf, tokens: 2}]\n",
        s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run"), 8);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), 10 * TURNS);
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM sequence JOIN run ON run.id = run WHERE drafter_kind = 'none'"),
        4 * TURNS);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM texts WHERE NOT equal"), 0);

    // More repeats add sequences to the same cells.
    run("name: once\n" RUN_BODY "repeat: 2\n" THREE, s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run"), 8);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), 16 * TURNS);
    store_close(s);
}

static void a_raised_limit_adds_prompts(void **state)
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
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM run"), 2);
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), sequences[i]);
        free(text);
    }
    store_close(s);
}

static void stored_settings_are_an_experiment_file(void **state)
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
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run"), 6);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), before);
    store_close(s);
}

static void a_run_stores_its_precision(void **state)
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
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM run"), 3 * (i + 1));
        char *sql =
            xformat("SELECT count(*) FROM run WHERE activations = '%s' AND cache = '%s' AND settings -> '$.target' ="
                    " json_object('model', 'quantized.gguf', 'device', 'cpu', 'activations', '%s', 'cache', '%s')",
                    cases[i].activations, cases[i].cache, cases[i].activations, cases[i].cache);
        assert_int_equal(query_first_int(s, sql), 3);
        free(sql);
    }
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), 3 * CASES_HERE * TURNS);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM texts"), 2 * CASES_HERE * TURNS);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM texts WHERE NOT equal"),
                     0); // bitwise equal in every precision
    assert_int_equal(
        query_first_int(
            s,
            "SELECT count(*) FROM run WHERE drafter = 'small(model=quantized.gguf)' AND settings LIKE"
            " '%, \"activations\": \"int8\", \"quantize\": \"none\", \"cache\": \"f32\", \"vocabulary\": \"same\"}}}'"),
        CASES_HERE);
    assert_int_equal(
        query_first_int(
            s,
            "SELECT count(*) FROM run WHERE settings LIKE"
            " '%, \"activations\": \"f32\", \"quantize\": \"none\", \"cache\": \"q8_0\", \"vocabulary\": \"same\"}}}'"),
        CASES_HERE);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE settings LIKE '%default%'"), 0);
    assert_int_equal(query_first_int(s, "SELECT count(DISTINCT peers) FROM run"), CASES_HERE);
    store_close(s);
}

static void batches_and_trees_decode_the_text_of_plain_decoding(void **state)
{
    struct store *s = open_store("batches.db");
    run("name: batches\n" RUN_BODY "cells:\n  batch: [1, 2, 5]\n  rule: [rejection, match]\n  drafter: [none, ngram, "
        "{kind: small, model: draft.gguf, widths: [3, 2, 1], pick: sampled}, "
        "{kind: small, model: other.gguf, nodes: 9, pick: greedy}]\n",
        s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run"), 24);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), 24 * TURNS);
    assert_int_equal(
        query_first_int(
            s, "SELECT count(*) FROM (SELECT 1 FROM sequence GROUP BY prompt, turn HAVING count(DISTINCT tokens) > 1)"),
        0);
    assert_int_equal(query_first_int(s, "SELECT max(step.batch) FROM step"), 5);
    store_close(s);
}

static void a_conversation_that_outgrows_the_context_ends(void **state)
{
    struct store *s = open_store("outgrown.db");
    static const char text[] =
        "name: outgrown\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
        "limits: {new_tokens: 30, context: 34, ignore_end: true}\ncells: {drafter: ngram}\n";
    for (int i = 0; i < 2; i++) {
        run(text, s);
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence WHERE turn = 0"), 10);
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence WHERE turn > 0"), 0);
        assert_true(query_first_int(s, "SELECT count(*) FROM sequence WHERE stop = 'context'") > 0);
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE finished IS NULL"), 0);
    }
    store_close(s);
}

static void stop_strings_end_texts_at_the_same_token_for_every_drafter(void **state)
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
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM sequence JOIN run ON run.id = run WHERE experiment = 'stopped'"), 3);
    assert_int_equal(
        query_first_int(
            s, "SELECT count(DISTINCT tokens) FROM sequence JOIN run ON run.id = run WHERE experiment = 'stopped'"),
        1);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence WHERE stop = 'string'"), 3);
    store_close(s);
}

// ---- the dry run, and the project's own files

static void a_dry_run_reports_what_is_done_and_changes_nothing(void **state)
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
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), i == 0 ? 0 : 3 * TURNS);
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM run"), i == 0 ? 0 : 3);
        if (i == 0)
            run(text, s);
    }
    store_close(s);
}

static void a_dry_run_counts_the_cache_by_its_type(void **state)
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

static void a_dry_run_counts_memory_by_device(void **state)
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

static void a_run_names_the_drafters_device(void **state)
{
#if defined(EMULATED_DEVICE)
    struct store *s = open_store("devices.db");
    run("name: devices\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: p.jsonl, chat: none}\n"
        "limits: {context: 200, new_tokens: 3}\n"
        "cells: {drafter: [{kind: small, model: draft.gguf, tokens: 2, device: cuda}]}\n",
        s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE device = 'cpu' AND"
                                        " machine LIKE '%; drafter on emulated GPU (cuda:0), compute capability %'"),
                     1);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE machine NOT LIKE '%emulated%'"), 1); // none's
    assert_true(query_first_int(s, "SELECT count(*) FROM texts") > 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM texts WHERE NOT equal"), 0);
    store_close(s);
#endif
}

// What a device gives up while it decodes is in the results, beside the processor: it changes no bit.
static void a_run_names_what_its_device_gave_up(void **state)
{
#if defined(EMULATED_DEVICE)
    static const char sentence[] = "CUDA graphs: off (SPECLAB_CUDA_SYNC is set)";
    static const char text[] = "name: given_up\ntarget: {model: target.gguf, device: cuda}\nthreads: 1\n"
                               "prompts: {file: p.jsonl, chat: none}\nlimits: {context: 200, new_tokens: 3}\n"
                               "cells: {drafter: [none]}\n";
    struct error err;
    char *progress;
    size_t n;
    FILE *to = open_memstream(&progress, &n);
    struct store *s = open_store("given_up.db");
    struct experiment *e = load(text);
    setenv("SPECLAB_CUDA_SYNC", "1", 1);
    assert_ok(experiment_run(e, s, to, NULL, &err), err);
    unsetenv("SPECLAB_CUDA_SYNC");
    experiment_free(e);
    fclose(to);
    const char *first = strstr(progress, sentence);
    assert_true(first != NULL && strstr(first + 1, sentence) == NULL);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE machine LIKE"
                                        " '%; CUDA graphs: off (SPECLAB_CUDA_SYNC is set), emulated GPU (cuda:0)%'"),
                     1);
    perform(s, "DELETE FROM sequence"); // it resumes: bits are the same
    run(text, s);
    store_close(s);
    free(progress);
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
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM step WHERE drafted > 0 AND accepted_uncut IS NULL"), 0);
    assert_int_equal(
        query_first_int(
            s,
            "SELECT count(*) FROM step WHERE accepted_uncut IS NOT NULL AND accepted <> min(accepted_uncut, tokens)"),
        0);
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM step WHERE accepted_uncut IS NOT NULL AND expected > depth"), 0);
    store_close(s);
    free(text);
    free(db);
}

// On a GPU a step is recorded after later ones have been verified.
static void expectations_are_recorded_with_their_own_step(void **state)
{
    write_file("short.jsonl", "{\"prompt\": \"abc\"}\n{\"prompt\": \"xyx\"}\n{\"prompt\": \"1 2\"}\n");
    check_expectations_of_steps("cpu");
#if defined(EMULATED_DEVICE)
    check_expectations_of_steps("cuda");
#endif
}

static void the_smoke_experiment_runs(void **state)
{
    struct error err = { "" };
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
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE finished IS NULL"), 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM paired WHERE none IS NULL"), 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM texts JOIN run ON run.id = texts.run WHERE NOT equal AND"
                                        " (sampling = 'temperature=0' OR rule = 'match')"),
                     0);
    store_close(s);
    experiment_free(e);
    free(cache);
    free(models);
    free(target);
    free(draft);
}

static void the_prompt_set_agrees_with_its_readme(void **state)
{
    struct error err = { "" };
    struct prompts p;
    assert_ok(prompts_read(SOURCE "/experiments/data/prompts.jsonl", 0, 2, &p, &err), err);
    assert_int_equal(p.n, 12); // six categories
    prompts_free(&p);
    assert_true(prompts_read(SOURCE "/experiments/data/prompts.jsonl", 0, 0, &p, &err));
    assert_true(p.n >= 60);
    prompts_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_recorded_as_it_was_verified),
        cmocka_unit_test(an_experiment_runs_once),
        cmocka_unit_test(a_raised_limit_adds_prompts),
        cmocka_unit_test(stored_settings_are_an_experiment_file),
        cmocka_unit_test(a_run_stores_its_precision),
        cmocka_unit_test(batches_and_trees_decode_the_text_of_plain_decoding),
        cmocka_unit_test(a_conversation_that_outgrows_the_context_ends),
        cmocka_unit_test(stop_strings_end_texts_at_the_same_token_for_every_drafter),
        cmocka_unit_test(a_dry_run_reports_what_is_done_and_changes_nothing),
        cmocka_unit_test(a_dry_run_counts_the_cache_by_its_type),
        cmocka_unit_test(a_dry_run_counts_memory_by_device),
        cmocka_unit_test(a_run_names_the_drafters_device),
        cmocka_unit_test(a_run_names_what_its_device_gave_up),
        cmocka_unit_test(expectations_are_recorded_with_their_own_step),
        cmocka_unit_test(the_smoke_experiment_runs),
        cmocka_unit_test(the_prompt_set_agrees_with_its_readme),
    };
    return cmocka_run_group_tests(tests, make_files, test_directory_tear_down);
}
