// test_bench_command.c - what `speclab bench` prints and stores, and shapes. No time is asserted.
#include "tests/formats/derived_model.h"
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

#define QUICK "--json --no-probe --repeats 1 --rows 1,2 --contexts 8 --prefill 16 --threads 1"

static void the_requested_measurements_are_taken(void **state)
{
    struct child_result s = child_run("bench %s " QUICK " --draft %s", models.gguf, models.draft);
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
    assert_int_equal(json_count(json_get(j, "overheads")), 3);
    json_free(j);
    child_result_free(&s);

    s = child_run("bench %s " QUICK, models.hf);
    child_expect_success(&s, "bench of a folder");
    child_result_free(&s);
    s = child_run("bench %s --json --no-probe --repeats 1 --rows 1,2 --threads 1 --prefill 0 --contexts 300",
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
    assert_int_equal(json_count(json_get(j, "rounds")), 1); // it counts, whatever else ran
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
    derived_write(models.gguf, large, &(const struct derived){ .type = F32, .inflated = "target.gguf" });
    struct child_result s = child_run("bench %s " QUICK " --packed keep --db %s", large, db);
    child_expect_success(&s, "bench of an inflated model");
    assert_non_null(strstr(s.err, "packed"));
    struct json *j = child_result_json(&s);
    assert_true(json_is_text(json_get(json_get(j, "model"), "inflated_from")));
    json_free(j);
    child_result_free(&s);
    s = child_run("bench %s " QUICK " --db %s", models.gguf, db);
    child_expect_success(&s, "bench of another");
    assert_non_null(strstr(s.out, "\"inflated_from\":null"));
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
        assert_non_null(strstr(s.out, "{\"what\":\"prompt\",\"slots\":1,\"n\":16"));
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
    assert_int_equal(sample_facts_query(st, "SELECT count(*) FROM cost_of_pass WHERE c = 1"), 1);
    store_close(st);
    free(db);
}

static void errors_are_one_sentence(void **state)
{
    static const struct mistake mistakes[] = {
        { 2, "bench --json", "missing" },
        { 2, "bench --json %s --rows 0", "\"0\"" },
        { 2, "bench --json %s --rows 1,,2", "\"\"" },
        { 2, "bench --json %s --rows 1,x", "\"x\"" },
        { 2, "bench --json %s --rows 100000", "\"100000\"" },
        { 2, "bench --json %s --rows 4,2", "ascending" },
        { 2, "bench --json %s --rows 2,2", "ascending" },
        { 2, "bench --json %s --contexts -1", "\"-1\"" },
        { 2, "bench --json %s --slots 0", "\"0\"" },
        { 2, "bench --json %s --slots 257", "\"257\"" },
        { 2, "bench --json %s --slots 4,2", "ascending" },
        { 2, "bench --json %s --slots 1,64 --rows 2,9", "64 slots of 9 rows are 576 rows; expected at most 512" },
        { 1, "bench --json %s --contexts 512", "is 512 tokens" },
        { 2, "bench --json %s --rows 512,", "\"\"" },
        { 2, "bench --json %s --repeats 0", "from 1 to" },
        { 2, "bench --json %s --prefill -5", "--prefill" },
        { 2, "bench --json %s --activations int7", "int7" },
        { 2, "bench --json %s --cache q2", "q2" },
        { 1, "bench --json %s --activations int8", "int8" },
        { 2, "bench %s --compare", "./run bench --compare" },
        { 2, "bench %s --peer-command=x", "./run bench --peer-command" },
        { 1, "bench --json %s --draft nowhere.gguf", "--draft: nowhere.gguf" },
        { 1, "bench --json %s --db /nowhere/x.db", "/nowhere/x.db" },
        { 1, "bench --json %s-not-there", "no such model" },
        { 1, "bench --json %s --turns 999", "expected an open socket" },
    };
    child_expect_errors(mistakes, sizeof(mistakes) / sizeof(*mistakes), models.gguf);
    char *words = xformat("bench --json %s --turns 3", models.hf);
    child_expect_error(1, "Hugging Face directory", words);
    free(words);
}

// ---- shapes: models with random weights in memory

#define SHAPE "layers=2,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,vocab=300,context=128"

static void shapes_run(void **state)
{
    static const char *const types[] = { "q4_0", "q8_0", "bf16", "f32", "iq4_nl", "mxfp4" };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct child_result s = child_run_with("{\"ids\": [1, 2, 3, 4, 5, 6, 7, 8]}\n",
                                               "inspect --score shape:smollm2-135m,type=%s," SHAPE, types[i]);
        child_expect_success(&s, "score of a shape");
        struct json *j = child_result_json(&s);
        double perplexity = json_number(json_get(j, "perplexity")); // 300 for a uniform distribution
        assert_true(perplexity > 200 && perplexity < 450);
        json_free(j);
        child_result_free(&s);
        s = child_run("bench shape:smollm2-135m,type=%s," SHAPE " " QUICK " --draft shape:smollm2-135m," SHAPE,
                      types[i]);
        child_expect_success(&s, "bench of a shape");
        child_result_free(&s);
    }
    struct child_result s = child_run("inspect shape:smollm2-135m,type=f32," SHAPE " --no-probe --json");
    struct json *j = child_result_json(&s);
    static const char *const keys[] = {
        "layers", "width", "heads", "kv_heads", "head_dim", "hidden", "vocab", "context"
    };
    static const int values[] = { 2, 64, 4, 2, 16, 96, 300, 128 };
    for (int i = 0; i < 8; i++)
        assert_int_equal(json_int(json_get(j, keys[i])), values[i]);
    assert_string_equal(json_text(json_get(j, "model")), "shape:smollm2-135m,type=f32," SHAPE);
    json_free(j);
    child_result_free(&s);
}

static void a_name_is_always_the_same_model(void **state)
{
    static const struct {
        const char *name, *hash;
    } shapes[] = {
        { "shape:llama-1b,layers=1,width=64,heads=4,kv_heads=2,head_dim=16,hidden=96,vocab=320,context=77,type=q8_0,seed=5",
          "4c49d35e4c0c6637aa92dbbb4278b348" },
        { "shape:qwen3-30b-a3b,type=bf16,layers=1,vocab=512,width=256,heads=4,kv_heads=2,experts=8,experts_used=2,expert_hidden=64",
          "fe5bc6ae1bf9f12411e9600a22ee727a" },
    };
    for (int i = 0; i < 2; i++) {
        struct child_result s = child_run(
            "bench %s --no-probe --repeats 1 --rows 1 --contexts 8 --prefill 0 --threads 1 --json", shapes[i].name);
        child_expect_success(&s, shapes[i].name);
        struct json *j = child_result_json(&s);
        assert_string_equal(json_text(json_get(json_get(j, "model"), "hash")), shapes[i].hash);
        assert_string_equal(json_text(json_get(json_get(j, "model"), "path")), shapes[i].name);
        json_free(j);
        child_result_free(&s);
    }
}

static void wrong_shapes_are_refused(void **state)
{
    static const struct mistake mistakes[] = {
        { 1, "inspect --json shape:llama-2b",
          "expected llama-1b, llama-3b, llama-8b, smollm2-135m or qwen3-30b-a3b, found \"llama-2b\"" },
        { 1, "inspect --json shape:", "found \"\"" },
        { 1, "inspect --json shape:llama-1b,", "expected KEY=VALUE" },
        { 1, "inspect --json shape:llama-1b,type=q3", "q4_0|q8_0|bf16|f32|iq4_nl|iq4_xs|mxfp4" },
        { 1, "inspect --json shape:llama-1b,kind=x", "no option \"kind\"" },
        { 1, "inspect --json shape:llama-1b,seed=1,seed=2", "given twice" },
        { 1, "inspect --json shape:llama-1b,width=100", "block size 32" },
        { 1, "inspect --json shape:llama-1b,heads=30", "multiple of kv_heads" },
        { 1, "inspect --json shape:llama-1b,layers=0", "layers: expected an integer from 1 to 1024, found 0" },
        { 1, "inspect --json shape:llama-1b,vocab=1", "vocab: expected an integer from 2 to 1048576, found 1" },
        { 1, "inspect --json shape:qwen3-30b-a3b,experts=0", "experts: expected an integer from 1 to 4096, found 0" },
        { 1, "inspect --json shape:llama-1b,experts_used=2", "experts_used: llama-1b has none" },
        { 1, "inspect --json shape:qwen3-30b-a3b,experts=4,type=f32", "of 4 experts at most as many used" },
        { 1, "inspect --json shape:llama-8b,type=f32,layers=1024,width=1048576",
          "GB of free memory for its weights, found " },
    };
    child_expect_errors(mistakes, sizeof(mistakes) / sizeof(*mistakes), "");
}

int main(void)
{
    setenv("SPECLAB_TOOL", "1", 1); // words of the Python package are named, not run
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_requested_measurements_are_taken),
        cmocka_unit_test(results_are_printed_and_stored),
        cmocka_unit_test(on_a_gpu_the_host_is_not_probed),
        cmocka_unit_test(an_inflated_model_is_marked_everywhere),
        cmocka_unit_test(slots_are_measured_and_stored_apart),
        cmocka_unit_test(errors_are_one_sentence),
        cmocka_unit_test(shapes_run),
        cmocka_unit_test(a_name_is_always_the_same_model),
        cmocka_unit_test(wrong_shapes_are_refused),
    };
    return run_with_models(tests);
}
