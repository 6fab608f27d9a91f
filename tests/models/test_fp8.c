// test_fp8.c - checkpoints whose matrices are floats of eight bits with scales: the model of the same numbers in F32 has the same logits to
// the bit; what does not fit is refused.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/formats/head_edit.h"
#include "tests/formats/safetensors_write.h"
#include "models/formats/shards.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/device/emulated.h"
#include "tests/device/reference_operations.h"
#include "tests/models/golden_model.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/model_runner.h"
#include "tests/models/small_fp8.h"
#include "tests/support/small_model.h"

static struct error err;
static const int32_t text[] = { 5, 80, 33, 101, 7, 250, 11, 99, 4, 61, 61, 200, 45 };
enum { TEXT = sizeof(text) / sizeof(*text) };

struct pair {
    char *fp8, *plain;
};

static struct pair write_pair(const struct fp8_form *form)
{
    char *from = test_path("model");
    struct pair p = { xformat("%s_%s", from, form->name), xformat("%s_%s_plain", from, form->name) };
    char *command = xformat("rm -rf %s %s %s", from, p.fp8, p.plain);
    assert_int_equal(system(command), 0);
    small_write_hf(from, &fp8_shape);
    small_write_fp8(from, p.fp8, p.plain, form);
    free(command);
    free(from);
    return p;
}

static void pair_free(struct pair *p)
{
    free(p->fp8);
    free(p->plain);
}

static void same_logits(const char *a, const char *b, enum activations activations)
{
    struct runner x = runner_open_as(a, 1, NULL, 1, activations, F32),
                  y = runner_open_as(b, 1, NULL, 1, activations, F32);
    const float *p = runner_pass(&x, TEXT, text, NULL, NULL), *q = runner_pass(&y, TEXT, text, NULL, NULL);
    assert_memory_equal(p, q, (size_t)(TEXT * x.vocab) * sizeof(*p));
    runner_close(&x);
    runner_close(&y);
}

TEST(logits_equal_those_of_the_same_numbers_in_f32)
{
    for (const struct fp8_form *f = fp8_forms; f->name != NULL; f++) {
        struct pair p = write_pair(f);
        print_message("%s\n", f->name);
        same_logits(p.fp8, p.plain, ACTIVATIONS_F32);
        same_logits(p.fp8, p.plain, ACTIVATIONS_BF16);
        pair_free(&p);
    }
}

// Writes the model of `from` as the text model of a Mistral-Small, which has quantization_config beside text_config.
static void write_among_images(const char *from, const char *to)
{
    char *command = xformat("rm -rf %s && cp -r %s %s", to, from, to), *path = xformat("%s/config.json", to);
    assert_int_equal(system(command), 0);
    struct json *own = json_read(path, &err),
                *all = json_of("{'model_type': 'mistral3', 'architectures': ['Mistral3ForConditionalGeneration']}");
    json_set(own, "model_type", json_new_text("mistral"));
    json_set(own, "sliding_window", json_new_null());
    json_set(all, "quantization_config", json_clone(json_get(own, "quantization_config")));
    json_set(own, "quantization_config", json_new_null());
    json_set(all, "text_config", own);
    char *whole = json_write(all);
    file_write_bytes(path, whole, strlen(whole));
    free(path);

    struct shards *s = shards_open(from, &err);
    assert_ok(s != NULL, err);
    const size_t n = shards_count(s);
    struct safetensor *t = xcalloc(n, sizeof(*t));
    for (size_t i = 0; i < n; i++) {
        t[i] = *shards_at(s, i);
        t[i].name = xformat("language_model.%s", t[i].name);
    }
    path = xformat("%s/model.safetensors", to);
    assert_ok(safetensors_write(path, t, n, NULL, &err), err);
    for (size_t i = 0; i < n; i++)
        free((void *)(uintptr_t)t[i].name);
    free(t);
    shards_close(s);
    json_free(all);
    free(whole);
    free(path);
    free(command);
}

TEST(a_text_model_among_images_is_read_with_its_scales)
{
    struct small_model mistral = fp8_shape;
    mistral.bias = false;
    char *from = test_path("mistral"), *fp8 = xformat("%s_fp8", from), *plain = xformat("%s_plain", from),
         *among = xformat("%s_images", from);
    small_write_hf(from, &mistral);
    small_write_fp8(from, fp8, plain, fp8_forms);
    write_among_images(fp8, among);
    same_logits(among, plain, ACTIVATIONS_F32);
    free(from);
    free(fp8);
    free(plain);
    free(among);
}

TEST(logits_are_those_of_transformers)
{
    struct json *models = golden_json("fp8.json");
    assert_true(json_count(models) > 0);
    for (size_t i = 0; i < json_count(models); i++) {
        const struct json *model = json_at(models, i), *rows = json_get(model, "rows"),
                          *tokens = json_get(model, "tokens");
        const struct fp8_form *form = fp8_forms;
        while (strcmp(form->name, json_text(json_get(model, "form"))) != 0)
            form++;
        char *from = golden_model_write(model, F32), *path = xformat("%s_fp8", from);
        small_write_fp8(from, path, NULL, form);
        struct runner r = runner_open_as(path, 1, NULL, 1, ACTIVATIONS_F32, F32);
        int32_t token[64];
        const int n = (int)json_count(tokens);
        assert_true(n <= 64);
        for (int k = 0; k < n; k++)
            token[k] = (int32_t)json_int(json_at(tokens, (size_t)k));
        const float *logits = runner_pass(&r, n, token, NULL, NULL);
        double worst = 0;
        for (size_t k = 0; k < json_count(rows); k++) {
            double row[128];
            assert_true(r.vocab <= 128);
            for (int v = 0; v < r.vocab; v++)
                row[v] = json_number(json_at(json_at(json_get(model, "logits"), k), (size_t)v));
            worst = fmax(worst, reference_distance(logits + json_int(json_at(rows, k)) * r.vocab, row, r.vocab));
        }
        print_message("%s: max |difference| / max |reference| %.2g\n", form->name, worst);
        assert_true(worst <= 1e-5);
        runner_close(&r);
        free(from);
        free(path);
    }
    json_free(models);
}

static void same_bits_in_every_pass(struct runner r)
{
    float *alone = runner_one_by_one(&r, text, TEXT);
    for (int from = TEXT - 2; from >= 0; from -= 3) { // passes keep nothing
        kv_truncate(r.cache, 0, from);
        const float *logits = runner_pass(&r, TEXT - from, text + from, NULL, NULL);
        for (int i = 0; i < TEXT - from; i++)
            runner_same_bits(logits + i * r.vocab, alone + (from + i) * r.vocab, r.vocab, "f8_e4m3", TEXT - from);
    }
    free(alone);
    runner_close(&r);
}

TEST(a_row_has_the_same_bits_in_every_pass)
{
    struct pair p = write_pair(&fp8_forms[0]);
    for (enum activations a = ACTIVATIONS_DEFAULT; a <= ACTIVATIONS_BF16; a++) {
        struct runner r = runner_open_as(p.fp8, 2, NULL, 1, a, F32);
        assert_int_equal(model_activations(r.model), a == ACTIVATIONS_DEFAULT ? ACTIVATIONS_BF16 : a);
        assert_string_equal(model_type(r.model), "f8_e4m3");
        same_bits_in_every_pass(r);
    }
#if defined(EMULATED_DEVICE)
    for (enum activations a = ACTIVATIONS_F32; a <= ACTIVATIONS_BF16; a++) {
        struct backend *b = backend_emulated(0, &err);
        assert_ok(b != NULL, err);
        same_bits_in_every_pass(runner_open_on(b, p.fp8, 1, a, F32));
    }
#endif
    pair_free(&p);
}

TEST(int8_activations_are_refused)
{
    struct pair p = write_pair(&fp8_forms[0]);
    assert_null(model_open(p.fp8, one_cpu, ACTIVATIONS_INT8, 1, &err));
    assert_error_mentions(&err, p.fp8, "activations: int8 is for quantized weights; those of");
    pair_free(&p);
}

TEST(packed_weights_are_cached)
{
    struct pair p = write_pair(&fp8_forms[1]);
    char *message;
    for (int i = 0; i < 2; i++) {
        struct model *m = model_open_as(p.fp8, one_cpu, ACTIVATIONS_F32, QUANTIZE_NONE, RUNNER_ROWS, &message, &err);
        assert_ok(m != NULL, err);
        assert_non_null(strstr(message, i == 0 ? "written to" : "read from"));
        free(message);
        model_close(m);
    }
    pair_free(&p);
}

TEST(matrices_are_quantized_as_they_are_loaded)
{
    struct pair p = write_pair(&fp8_forms[0]);
    const char *const path[] = { p.fp8, p.plain };
    float *logits[2];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        struct backend *b = backend_cpu(1, &err);
        struct model *m = model_open_as(path[i], b, ACTIVATIONS_INT8, QUANTIZE_Q8_0, RUNNER_ROWS, NULL, &err);
        assert_ok(m != NULL, err);
        bytes[i] = model_bytes(m);
        struct runner r = runner_of(b, m, 1, F32);
        const size_t n = (size_t)(TEXT * r.vocab);
        logits[i] = xmalloc(n * sizeof(float));
        memcpy(logits[i], runner_pass(&r, TEXT, text, NULL, NULL), n * sizeof(float));
        runner_close(&r);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(logits[0], logits[1], TEXT * (size_t)fp8_shape.vocab * sizeof(float));
    free(logits[0]), free(logits[1]);
    pair_free(&p);
}

// ---- what is refused

static void expect_refusal(const char *path, const char *words)
{
    struct model *m = model_open(path, one_cpu, ACTIVATIONS_F32, 1, &err);
    if (m != NULL)
        fail_msg("expected an error: %s", words);
    print_message("%s\n", err.text);
    assert_error_mentions(&err, path, words);
}

TEST(settings_that_are_not_fp8_with_scales_of_weights_are_refused)
{
#define GROUP(OF) "{'quant_method': 'compressed-tensors', 'config_groups': {'a': {" OF "}}}"
#define FP8(MORE) "{'quant_method': 'fp8', " MORE "}"
    static const struct {
        const char *config, *words;
    } faults[] = {
        { "{'quant_method': 'awq', 'bits': 4}",
          ".quant_method: expected \"fp8\" or \"compressed-tensors\", found \"awq\"" },
        { "{'load_in_4bit': true}", ".quant_method: expected \"fp8\"" },
        { "7", ".quant_method" },
        { FP8("'fmt': 'e5m2'"), ".fmt: expected \"e4m3\", found \"e5m2\"" },
        { FP8("'activation_scheme': 'static'"), ".activation_scheme: expected \"dynamic\", found \"static\"" },
        { FP8("'expert_dtype': 'fp4'"), ".expert_dtype: expected \"fp8\", found \"fp4\"" },
        { FP8("'weight_block_size': [128]"), ".weight_block_size" },
        { FP8("'weight_block_size': [128, 64]"), ".weight_block_size: expected two numbers, of rows and of columns" },
        { FP8("'weight_block_size': [0, 128]"), ".weight_block_size" },
        { FP8("'smooth': 1"), ".smooth: expected no such setting, found 1" },
        { "{'quant_method': 'compressed-tensors', 'format': 'pack-quantized'}", ".format" },
        { "{'quant_method': 'compressed-tensors', 'format': 'float-quantized'}",
          ".config_groups: expected one group, found nothing" },
        { "{'quant_method': 'compressed-tensors', 'kv_cache_scheme': {'num_bits': 8}}",
          ".kv_cache_scheme: expected null" },
        { GROUP("'weights': {'num_bits': 4}"), ".config_groups.a.weights.num_bits: expected 8, found 4" },
        { GROUP("'weights': {'num_bits': 8, 'strategy': 'group'}"), ".config_groups.a.weights.strategy" },
        { GROUP("'weights': {'num_bits': 8}, 'input_activations': {'dynamic': false}"),
          ".config_groups.a.input_activations: expected null, or dynamic ones" },
    };
    struct pair p = write_pair(&fp8_forms[0]);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        char *change = xformat("quantization_config=%s", faults[i].config),
             *words = xformat("quantization_config%s", faults[i].words);
        head_change(p.fp8, change);
        expect_refusal(p.fp8, words);
        free(change);
        free(words);
    }
    pair_free(&p);
}

TEST(tensors_that_do_not_fit_are_refused)
{
#define UP "model.layers.1.mlp.up_proj.weight"
#define SCALES UP "_scale_inv"
    static const char *const faults[][2] = {
        { "-" SCALES, "tensor " UP ": expected its scales, " SCALES ", found none" },
        { "~" SCALES " F32 2 3", "weight_scale_inv: expected 3 rows of 2 scales, found 2 of 3" },
        { "~" SCALES " I32 3 2", "weight_scale_inv: expected F32 or BF16, found I32" },
        { SCALES "[0]=0; " SCALES "[1]=0; " SCALES "[2]=128; " SCALES "[3]=127", // an infinity
          "up_proj.weight: row 0 holds a number that is not finite" },
        { SCALES "[0]=0; " SCALES "[1]=0; " SCALES "[2]=0; " SCALES "[3]=127", // 2^127
          "up_proj.weight: row 0 holds a number that is not finite" },
        { UP "[4552]=255", "up_proj.weight: row 17 holds a number that is not finite" },
        { "~" UP " F8_E5M2 384 256", "up_proj.weight: expected F32, F16 or BF16, found F8_E5M2" },
        { "~" UP " U8 384 256", "up_proj.weight: expected F32, F16 or BF16, found U8" },
        { "-" UP, "there is no tensor " UP },
        { "quantization_config=null", "expected F32, F16 or BF16, found F8_E4M3" },
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        struct pair p = write_pair(&fp8_forms[1]);
        head_change(p.fp8, faults[i][0]);
        expect_refusal(p.fp8, faults[i][1]);
        pair_free(&p);
    }
}

RUN_TESTS(cpu_set_up, cpu_tear_down)
