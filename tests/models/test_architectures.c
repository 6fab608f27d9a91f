// test_architectures.c - each family's forward pass: against logits of transformers, and bit for bit against itself in other passes, on the CPU
// and on an emulated GPU.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/checkpoint/quantize.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/device/emulated.h"
#include "tests/device/host_memory_device.h"
#include "tests/device/reference_operations.h"
#include "tests/support/check.h"
#include "tests/models/golden_model.h"
#include "tests/support/model_runner.h"
#include "tests/support/small_model.h"

enum { MOST = 64 };

static struct json **models;
static size_t n_models;

static int tokens_of(const struct json *model, int32_t token[MOST])
{
    const struct json *list = json_get(model, "tokens");
    const int n = (int)json_count(list);
    assert_true(n <= MOST);
    for (int i = 0; i < n; i++)
        token[i] = (int32_t)json_int(json_at(list, (size_t)i));
    return n;
}

// Each row within 1e-5 of transformers', relative to its largest logit.
static void check_logits(struct runner *r, const struct json *model)
{
    const struct json *rows = json_get(model, "rows");
    int32_t token[MOST];
    const int n = tokens_of(model, token);
    const float *logits = runner_pass(r, n, token, NULL, NULL);
    double worst = 0;
    for (size_t k = 0; k < json_count(rows); k++) {
        const struct json *expected = json_at(json_get(model, "logits"), k);
        double row[512];
        assert_int_equal(json_count(expected), r->vocab);
        for (int v = 0; v < r->vocab; v++)
            row[v] = json_number(json_at(expected, (size_t)v));
        const double d = reference_distance(logits + json_int(json_at(rows, k)) * r->vocab, row, r->vocab);
        worst = d > worst ? d : worst;
    }
    printf("    %-16s %s: max |difference| / max |reference| %.2g\n", json_text(json_get(model, "name")),
           r->backend->name, worst);
    if (!(worst <= 1e-5))
        fail_msg("%s on %s: logits differ from transformers' by %g", json_text(json_get(model, "name")),
                 r->backend->name, worst);
    kv_truncate(r->cache, 0, 0);
}

// Chains from every length of prefix, and a tree whose paths are the text: row i + 1 follows row i, and a wrong sibling of each.
static void check_bits(struct runner *r, const struct json *model)
{
    int32_t token[MOST], tree[MOST], parent[MOST];
    const char *name = json_text(json_get(model, "name"));
    const int n = tokens_of(model, token);
    float *alone = runner_one_by_one(r, token, n);
    for (int from = 0; from < n; from += 3) {
        kv_truncate(r->cache, 0, 0);
        if (from > 0)
            runner_prefill(r, 0, token, from);
        const float *logits = runner_pass(r, n - from, token + from, NULL, NULL);
        for (int i = 0; i < n - from; i++)
            runner_same_bits(logits + i * r->vocab, alone + (from + i) * r->vocab, r->vocab, name, n - from);
    }
    const int from = 5, pairs = 12;
    for (int i = 0; i < 2 * pairs; i++) {
        tree[i] = i % 2 == 0 ? token[from + i / 2] : (token[from + i / 2] + 1) % r->vocab;
        parent[i] = i < 2 ? -1 : (i / 2 - 1) * 2;
    }
    kv_truncate(r->cache, 0, 0);
    runner_prefill(r, 0, token, from);
    const float *logits = runner_pass(r, 2 * pairs, tree, NULL, parent);
    int32_t path[MOST];
    for (int i = 0; i < pairs; i++) {
        runner_same_bits(logits + 2 * i * r->vocab, alone + (from + i) * r->vocab, r->vocab, name, 2 * pairs);
        path[i] = 2 * i;
    }
    kv_keep(r->cache, 0, path, pairs);
    logits = runner_pass(r, n - from - pairs, token + from + pairs, NULL, NULL);
    for (int i = 0; i < n - from - pairs; i++)
        runner_same_bits(logits + i * r->vocab, alone + (from + pairs + i) * r->vocab, r->vocab, name, n);
    free(alone);
}

static void check_on(struct backend *(*open)(struct error *err))
{
    for (size_t i = 0; i < n_models; i++) {
        struct error err;
        char *path = golden_model_write(models[i], F32);
        struct backend *b = open(&err);
        assert_non_null(b);
        struct runner r = runner_open_on(b, path, 1, ACTIVATIONS_F32, F32);
        check_logits(&r, models[i]);
        check_bits(&r, models[i]);
        runner_close(&r);
        free(path);
    }
}

static struct backend *cpu(struct error *err)
{
    return backend_cpu(2, err);
}

static void logits_and_bits_on_the_cpu(void **unused)
{
    check_on(cpu);
}

#if defined(EMULATED_DEVICE)
static struct backend *emulated(struct error *err)
{
    return backend_host_memory(backend_emulated(0, err));
}

static void logits_and_bits_on_an_emulated_gpu(void **unused)
{
    check_on(emulated);
}
#endif

// A GGUF file has the same numbers and computes the same bits, or cannot say what the configuration does and is refused.
static void a_gguf_file_has_the_bits_of_its_directory_or_is_refused(void **unused)
{
    static const char *const refused[] = { "qwen2-window", "qwen2-types", "mistral-window",
                                           "mistral-one",  "gemma2",      "gemma3-pattern",
                                           "gemma3-types", "smollm3",     "smollm3-window" };
    for (size_t i = 0; i < n_models; i++) {
        const char *name = json_text(json_get(models[i], "name"));
        struct error err = { "" };
        bool expected = true;
        for (size_t k = 0; k < sizeof(refused) / sizeof(*refused); k++)
            expected = expected && strcmp(name, refused[k]) != 0;
        char *from = golden_model_write(models[i], BF16), *to = xformat("%s.gguf", from);
        struct backend *b = backend_cpu(1, &err);
        struct quantize_summary done;
        const bool made = quantize_model(from, BF16, to, b, NULL, &done, &err);
        b->destroy(b);
        free(done.unchanged_names);
        if (made != expected || (!made && strstr(err.text, "would differ in its windows") == NULL))
            fail_msg("%s: %s", name, made ? "a GGUF file was written" : err.text);
        if (made) {
            int32_t token[MOST];
            const int n = tokens_of(models[i], token);
            struct runner one = runner_open(from, 1, NULL, 1), two = runner_open(to, 1, NULL, 1);
            const float *a = runner_pass(&one, n, token, NULL, NULL), *c = runner_pass(&two, n, token, NULL, NULL);
            for (int k = 0; k < n; k++)
                runner_same_bits(c + k * one.vocab, a + k * one.vocab, one.vocab, name, n);
            runner_close(&one);
            runner_close(&two);
        }
        free(from);
        free(to);
    }
}

static int set_up(void **state)
{
    models = golden_models(&n_models);
    return 0;
}

static int tear_down(void **state)
{
    golden_models_free(models, n_models);
    return test_directory_tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_bits_on_the_cpu),
        cmocka_unit_test(a_gguf_file_has_the_bits_of_its_directory_or_is_refused),
#if defined(EMULATED_DEVICE)
        cmocka_unit_test(logits_and_bits_on_an_emulated_gpu),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
