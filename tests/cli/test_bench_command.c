// test_bench_command.c - what `speclab bench` prints and stores, and the models of `speclab make`. No time is asserted.
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/store.h"
#include "tests/cli/child_process.h"
#include "tests/support/file_write.h"
#include "tests/results/sample_facts.h"
#include "tests/support/numbers.h"
#include "tests/support/small_model.h"

#define QUICK "--no-probe --repeats 1 --rows 1,2 --contexts 8 --prefill 16 --threads 1"

static void the_requested_measurements_are_taken(void **state)
{
    struct child_result s = child_run("bench %s " QUICK " --json --draft %s", models.gguf, models.draft);
    child_expect_success(&s, "bench --json");
    struct json *j = child_result_json(&s);
    size_t rounds_run =
        json_count(json_get(j, "rounds")); // a second one if other processes used the machine in the first
    assert_true(rounds_run == 1 || rounds_run == 2);
    assert_int_equal(json_count(json_get(j, "measured")), 4); // two passes, a draft step, a prompt
    for (size_t i = 0; i < 4; i++)
        assert_true(json_number(json_at(json_get(json_at(json_get(j, "measured"), i), "ns"), 0)) > 0);
    const struct json *placement = json_at(json_get(j, "placements"), 0);
    assert_string_equal(json_text(json_get(placement, "placement")), "unprobed");
    const struct json *one = json_at(json_get(placement, "medians"), 0);
    assert_int_equal(json_int(json_get(one, "n")), 1);
    assert_true(json_number(json_get(one, "c")) == 1);
    assert_true(json_is_object(json_get(json_get(placement, "cost"), "draft_step")));
    assert_true(json_count(json_get(j, "operations")) > 10);
    assert_true(json_is_object(json_get(j, "overhead_ns")));
    json_free(j);
    child_result_free(&s);

    s = child_run("bench %s " QUICK " --cache q8_0 --csv", models.gguf);
    if (s.status == 0) { // a head of the small model may be too small for blocks
        assert_int_equal(strncmp(s.out, "what,placement,context,n,", 25), 0);
        assert_non_null(strstr(s.out, "\r\npass,unprobed,8,2,0,"));
    }
    child_result_free(&s);
    s = child_run("bench %s " QUICK " --csv", models.hf);
    child_expect_success(&s, "bench --csv");
    assert_non_null(strstr(s.out, "\r\npass,unprobed,8,2,0,"));
    child_result_free(&s);
    s = child_run("bench %s --no-probe --repeats 1 --rows 1,2 --threads 1 --prefill 0 --contexts 300",
                  models.gguf); // the loop's prompt is a chunk all the same
    child_expect_success(&s, "bench --prefill 0 --contexts 300");
    child_result_free(&s);
}

// The probes measure the host, which does not limit a GPU.
static void on_a_gpu_the_host_is_not_probed(void **state)
{
    if (!child_use(SPECLAB_EMULATED)) {
        child_use(NULL);
        return;
    }
    struct child_result s = child_run(
        "bench %s --device cuda:1 --repeats 1 --rows 1 --contexts 8 --prefill 4 --threads 1 --json", models.draft);
    child_expect_success(&s, "bench --device cuda:1");
    struct json *j = child_result_json(&s);
    assert_string_equal(json_text(json_get(j, "device")), "cuda:1");
    assert_non_null(strstr(json_text(json_get(j, "machine")), "emulated GPU (cuda:1), compute capability "));
    assert_int_equal(json_count(json_get(j, "peaks")), 0);
    assert_int_equal(json_count(json_get(j, "measured")), 2);
    for (size_t i = 0; i < 2; i++)
        assert_true(json_number(json_at(json_get(json_at(json_get(j, "measured"), i), "ns"), 0)) > 0);
    assert_string_equal(json_text(json_get(json_at(json_get(j, "placements"), 0), "placement")), "unprobed");
    json_free(j);
    child_result_free(&s);

    s = child_run("inspect %s --device cuda --json", models.draft);
    child_expect_success(&s, "inspect --device cuda");
    j = child_result_json(&s);
    const struct json *memory = json_get(j, "device_memory");
    assert_true(json_int(json_get(memory, "bytes")) == (int64_t)4 << 30);
    assert_true(json_int(json_get(memory, "free_bytes")) < (int64_t)4 << 30);
    json_free(j);
    child_result_free(&s);
    static const char *const refused[][2] = {
        { "activations: int8: not supported by cuda (expected f32 or bf16)",
          "generate %s --device cuda --activations int8 x" },
        { "device cuda:9: expected one of the 2 here, from cuda:0 on", "generate %s --device cuda:9 x" },
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        char *words = words_with(refused[i][1], models.draft);
        child_expect_error(1, refused[i][0], words);
        free(words);
    }
    child_use(NULL);
}

static void an_inflated_model_is_marked_everywhere(void **state)
{
    char *large = test_path("inflated.gguf"), *db = test_path("inflated.db");
    struct child_result s = child_run("inflate %s --width 128 --out %s", models.gguf, large);
    child_expect_success(&s, "inflate");
    child_result_free(&s);
    s = child_run("bench %s " QUICK " --packed keep --db %s", large, db);
    child_expect_success(&s, "bench of an inflated model");
    assert_non_null(strstr(s.out, "marked as inflated from "));
    assert_non_null(strstr(s.err, "packed"));
    child_result_free(&s);
    s = child_run("bench %s " QUICK " --packed keep --json", large);
    child_expect_success(&s, "bench --json");
    struct json *j = child_result_json(&s);
    assert_true(json_is_text(json_get(json_get(j, "model"), "inflated_from")));
    json_free(j);
    child_result_free(&s);
    s = child_run("bench %s " QUICK " --csv", large);
    child_expect_success(&s, "bench --csv");
    assert_non_null(strstr(s.out, ",marked_inflated,slots,experts,experts_per_layer,experts_per_layer_expected\r\n"));
    assert_non_null(strstr(s.out, ",1,1,,,\r\n"));
    child_result_free(&s);
    s = child_run("bench %s " QUICK " --db %s", models.gguf, db);
    child_expect_success(&s, "bench of another");
    assert_null(strstr(s.out, "inflated"));
    child_result_free(&s);
    struct error err;
    struct store *store = store_open(db, &err);
    assert_non_null(store);
    assert_int_equal(sample_facts_query(store, "SELECT marked_inflated FROM bench WHERE id = 1"), 1);
    assert_int_equal(sample_facts_query(store, "SELECT marked_inflated FROM bench WHERE id = 2"), 0);
    store_close(store);
    free(large), free(db);
}

static void results_are_printed_and_stored(void **state)
{
    struct error err;
    char *db = test_path("command.db");
    for (int i = 0; i < 2; i++) {
        struct child_result s = child_run("bench %s " QUICK " --db %s", models.gguf, db);
        child_expect_success(&s, "bench --db");
        assert_non_null(strstr(s.out, "Passes of n rows after 8 cached tokens"));
        assert_non_null(strstr(s.out, "Time by operation"));
        assert_non_null(strstr(s.out, "Prompt of 16 tokens"));
        child_result_free(&s);
    }
    struct store *st = store_open(db, &err);
    assert_non_null(st);
    assert_int_equal(sample_facts_query(st, "SELECT count(*) FROM bench"), 2);
    assert_int_equal(sample_facts_query(st, "SELECT count(*) FROM bench_pass WHERE what = 'pass'"), 4);
    assert_int_equal(sample_facts_query(st, "SELECT count(*) FROM cost"), 2);
    assert_int_equal(sample_facts_query(st, "SELECT count(*) FROM bench WHERE overhead_ns IS NOT NULL"), 2);
    store_close(st);
    free(db);
}

static void slots_are_measured_and_stored_apart(void **state)
{
    struct error err;
    char *db = test_path("slots.db");
    struct child_result s =
        child_run("bench %s --no-probe --repeats 1 --slots 1,3 --contexts 8 --prefill 0 --threads 1 --json --db %s",
                  models.gguf, db);
    child_expect_success(&s, "bench --slots");
    struct json *j = child_result_json(&s);
    const struct json *measured = json_get(j, "measured");
    assert_int_equal(json_count(measured), 2); // of one row each
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(json_int(json_get(json_at(measured, i), "slots")), i == 0 ? 1 : 3);
        assert_int_equal(json_int(json_get(json_at(measured, i), "n")), 1);
    }
    json_free(j);
    child_result_free(&s);
    struct store *st = store_open(db, &err);
    assert_non_null(st);
    assert_int_equal(sample_facts_query(st, "SELECT count(*) FROM bench_pass WHERE slots IN (1, 3) AND n = 1"), 2);
    assert_int_equal(sample_facts_query(st, "SELECT count(DISTINCT slots) FROM bench_operation"), 2);
    assert_int_equal(sample_facts_query(st, "SELECT count(*) FROM cost_of_pass WHERE c = 1"), 1);
    store_close(st);
    free(db);
}

// Two peers that report a fixed time for every measurement.
static void peers_take_the_same_measurements(void **state)
{
    struct error err;
    char *peer = test_path("peer.sh"), *db = test_path("peers.db");
    file_write(peer,
               "while read w r; do case $w in open) echo ready clockwork-$1 1.0;; pass|prompt) echo $1;; esac; done");
    struct child_result s =
        child_run("bench %s " QUICK " --peer-command 'sh %s 0.001' --peer-command 'sh %s 0.002' --json --db %s",
                  models.gguf, peer, peer, db);
    child_expect_success(&s, "bench --peer-command");
    struct json *j = child_result_json(&s);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(json_text(json_at(json_get(j, "peers"), i)),
                            i == 0 ? "clockwork-0.001 1.0" : "clockwork-0.002 1.0");
        const struct json *m = json_at(json_get(j, "measured"), 0);
        double peer_ns = i == 0 ? 1e6 : 2e6;
        assert_true(json_number(json_at(json_at(json_get(m, "peers_ns"), i), 0)) == peer_ns);
        const struct json *median = json_at(json_get(json_at(json_get(j, "placements"), 0), "medians"), 0);
        const struct json *peer_median = json_at(json_get(median, "peers"), i);
        const struct json *ratio = json_get(peer_median, "ratio");
        assert_true(json_number(json_get(json_get(peer_median, "ns"), "median")) == peer_ns);
        double own_ns = json_number(json_get(json_get(median, "ns"), "median"));
        if (json_int(json_get(ratio, "rounds")) == 1) // two if other processes used the machine in both
            near(json_number(json_get(ratio, "median")), peer_ns / own_ns, 1e-9 * peer_ns / own_ns);
    }
    json_free(j);
    child_result_free(&s);
    struct store *st = store_open(db, &err);
    assert_non_null(st);
    assert_int_equal(sample_facts_query(st, "SELECT count(*) FROM bench_peer"), 2);
    assert_int_equal(sample_facts_query(st, "SELECT median_ns FROM bench_pass WHERE what = 'prompt' AND peer = 2"),
                     2000000);
    store_close(st);

    s = child_run("bench %s " QUICK " --peer-command 'sh %s 0.001' --peer-command 'sh %s 0.002'", models.gguf, peer,
                  peer);
    child_expect_success(&s, "bench --peer-command");
    assert_non_null(strstr(s.out, "\nBeside clockwork-0.001 (the peer), after 8 cached"));
    assert_non_null(strstr(s.out, "\nBeside clockwork-0.002 (the peer), after 8 cached"));
    child_result_free(&s);
    s = child_run("bench %s " QUICK " --peer-command 'sh %s 0.001' --csv", models.gguf, peer);
    child_expect_success(&s, "bench --csv");
    assert_non_null(strstr(s.out, "\r\npass,unprobed,8,2,0,"));
    assert_non_null(strstr(s.out, "\r\npass,unprobed,8,2,1,"));
    child_result_free(&s);
    free(peer);
    free(db);
}

static void errors_are_one_sentence(void **state)
{
    static const struct mistake mistakes[] = {
        { 2, "bench", "missing" },
        { 2, "bench %s --rows 0", "\"0\"" },
        { 2, "bench %s --rows 1,,2", "\"\"" },
        { 2, "bench %s --rows 1,x", "\"x\"" },
        { 2, "bench %s --rows 100000", "\"100000\"" },
        { 2, "bench %s --rows 4,2", "ascending" },
        { 2, "bench %s --rows 2,2", "ascending" },
        { 2, "bench %s --contexts -1", "\"-1\"" },
        { 2, "bench %s --slots 0", "\"0\"" },
        { 2, "bench %s --slots 257", "\"257\"" },
        { 2, "bench %s --slots 4,2", "ascending" },
        { 2, "bench %s --slots 1,64 --rows 2,9", "64 slots of 9 rows are 576 rows; expected at most 512" },
        { 1, "bench %s --contexts 512", "is 512 tokens" },
        { 2, "bench %s --rows 512,", "\"\"" },
        { 2, "bench %s --repeats 0", "from 1 to" },
        { 2, "bench %s --prefill -5", "--prefill" },
        { 2, "bench %s --activations int7", "int7" },
        { 2, "bench %s --cache q2", "q2" },
        { 1, "bench %s --activations int8", "int8" },
        { 2, "bench %s --csv --json", "exclude each other" },
        { 2, "bench %s --compare --peer-command a --peer-command b --peer-command c --peer-command d",
          "at most 4 engines" },
        { 2, "bench %s --peer-command x --peer-option a=b", "--compare" },
        { 2, "bench %s --peer-option a=b", "--compare" },
        { 2, "bench %s --compare --peer-option ab", "KEY=VALUE" },
        { 1, "bench %s --draft nowhere.gguf", "--draft: nowhere.gguf" },
        { 1, "bench %s --db /nowhere/x.db", "/nowhere/x.db" },
        { 1, "bench %s-not-there", "no such model" },
        { 1, "bench %s --compare --no-probe", "/nowhere/python: No such file" },
        { 1, "bench %s --peer-command 'echo error it is out of order'", "it is out of order" },
        { 1, "bench %s --peer-command 'echo hello'", "found \"hello\"" },
        { 1, "bench %s --slots 2 --contexts 8 --peer-command 'echo ready it; cat >/dev/null'",
          "several slots (--slots)" },
        { 1, "bench %s --peer-command true", "ended without an answer (exit status 0)" },
        { 1, "bench %s --peer-command 'read l; exit 3'", "(exit status 3)" },
        { 1, "bench %s --peer-command 'read l; kill -9 $$'", "(Killed)" },
        { 1, "bench %s " QUICK " --peer-command 'echo ready x; while read l; do echo soon; done'", "\"soon\"" },
    };
    setenv("SPECLAB_PYTHON", "/nowhere/python", 1);
    child_expect_errors(mistakes, sizeof(mistakes) / sizeof(*mistakes), models.gguf);
    unsetenv("SPECLAB_PYTHON");
    char *words = xformat("bench %s --peer-command true", models.hf);
    child_expect_error(1, "Hugging Face directory", words);
    free(words);
}

// ---- models for benchmarks

static void making_a_model_is_deterministic_and_the_model_runs(void **state)
{
    char *a = test_path("made-a.gguf"), *b = test_path("made-b.gguf");
    const char *shape = "layers=2,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,vocab=300,context=128";
    const char *types[] = { "q4_0", "q8_0", "bf16", "f32", "iq4_nl", "mxfp4" };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        unlink(a);
        unlink(b);
        struct child_result s = child_run("make smollm2-135m:type=%s,%s --out %s", types[i], shape, a);
        child_expect_success(&s, "make");
        child_result_free(&s);
        s = child_run("make smollm2-135m:type=%s,%s --out %s", types[i], shape, b);
        child_result_free(&s);
        char *same = xformat("cmp -s %s %s", a, b);
        assert_int_equal(system(same), 0);
        free(same);
        s = child_run_with("{\"ids\": [1, 2, 3, 4, 5, 6, 7, 8]}\n", "score %s", a);
        child_expect_success(&s, "score of a made model");
        struct json *j = child_result_json(&s);
        double perplexity = json_number(json_get(j, "perplexity")); // 300 for a uniform distribution
        assert_true(perplexity > 200 && perplexity < 450);
        json_free(j);
        child_result_free(&s);
        s = child_run("bench %s " QUICK " --csv", a);
        child_expect_success(&s, "bench of a made model");
        child_result_free(&s);
    }
    char *words = xformat("make llama-1b --out %s", a);
    child_expect_error(1, "exists already", words);
    free(words);
    child_expect_error(2, "llama-1b, llama-3b", "make llama-2b --out x");
    child_expect_error(2, "q4_0|q8_0|bf16|f32|iq4_nl|iq4_xs|mxfp4", "make llama-1b:type=q3 --out x");
    child_expect_error(2, "block size 32", "make llama-1b:width=100 --out x");
    child_expect_error(2, "multiple of kv_heads", "make llama-1b:heads=30 --out x");
    child_expect_error(2, "SHAPE: layers: expected an integer from 1 to 1024, found 0",
                       "make llama-1b:layers=0 --out x");
    child_expect_error(2, "SHAPE: layers: expected an integer from 1 to 1024, found 1025",
                       "make llama-1b:layers=1025 --out x");
    child_expect_error(2, "SHAPE: vocab: expected an integer from 2 to 1048576, found 1",
                       "make llama-1b:vocab=1 --out x");
    child_expect_error(2, "SHAPE: experts: expected an integer from 1 to 4096, found 0",
                       "make qwen3-30b-a3b:experts=0 --out x");
    child_expect_error(2, "experts_used: llama-1b has none", "make llama-1b:experts_used=2 --out x");
    child_expect_error(2, "of 4 experts at most as many used", "make qwen3-30b-a3b:experts=4,type=f32 --out x");
    child_expect_error(2, "--out", "make llama-1b");
    child_expect_error(1, "/nowhere", "make llama-1b --out /nowhere/x.gguf");
    free(a);
    free(b);
}

static void a_made_head_fits_its_model_and_runs(void **state)
{
    char *folder = test_path("made-head");
    const char *types[] = { "bf16", "f32" };
    for (int i = 0; i < 2; i++) {
        struct child_result s =
            child_run("make eagle3:of=%s,draft_vocab=90,type=%s --out %s-%d", models.gguf, types[i], folder, i);
        child_expect_success(&s, "make eagle3");
        child_result_free(&s);
        s = child_run("inspect %s-%d --target %s", folder, i, models.gguf);
        child_expect_success(&s, "inspect of a made head");
        assert_non_null(strstr(s.out, "an EAGLE-3 head"));
        assert_non_null(strstr(s.out, ": fits"));
        assert_non_null(strstr(s.out, "90 tokens"));
        child_result_free(&s);
        s = child_run("generate %s --drafter eagle3:weights=%s-%d,widths=[2,2] --rule synthetic:rate=1 --tokens 12 "
                      "--ignore-end --ids '[1, 2, 3]'",
                      models.gguf, folder, i);
        child_expect_success(&s, "generate with a made head");
        assert_non_null(
            strstr(s.err, "12 tokens in 4 steps")); // two accepted draft tokens and the target's own token a step
        child_result_free(&s);
    }
    char *words = xformat("make eagle3:of=%s,draft_vocab=90 --out %s-0", models.gguf, folder);
    child_expect_error(1, "exists already", words);
    free(words);
    words = xformat("make eagle3:of=%s,draft_vocab=100000 --out %s-2", models.gguf, folder);
    child_expect_error(1, "draft_vocab is 100000", words);
    free(words);
    words = xformat("make eagle3:of=%s,draft_vocab=9 --out /nowhere/head", models.gguf);
    child_expect_error(1, "/nowhere/head", words);
    free(words);
    child_expect_error(2, "needs the option \"of\"", "make eagle3 --out x");
    child_expect_error(1, "no such model", "make eagle3:of=nowhere --out x");
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_requested_measurements_are_taken),
        cmocka_unit_test(results_are_printed_and_stored),
        cmocka_unit_test(on_a_gpu_the_host_is_not_probed),
        cmocka_unit_test(an_inflated_model_is_marked_everywhere),
        cmocka_unit_test(slots_are_measured_and_stored_apart),
        cmocka_unit_test(peers_take_the_same_measurements),
        cmocka_unit_test(errors_are_one_sentence),
        cmocka_unit_test(making_a_model_is_deterministic_and_the_model_runs),
        cmocka_unit_test(a_made_head_fits_its_model_and_runs),
    };
    return run_with_models(tests);
}
