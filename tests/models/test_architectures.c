// test_architectures.c - each family's forward pass: against logits of transformers, and bit for bit against itself in other passes, on the CPU
// and on an emulated GPU.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/layer_tensors.h"
#include "models/weights.h"
#include "tests/device/emulated.h"
#include "tests/device/host_memory_device.h"
#include "tests/device/reference_operations.h"
#include "tests/support/tests.h"
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
static void check_bits(struct runner *r, const struct json *model, int every)
{
    int32_t token[MOST], tree[MOST], parent[MOST];
    const char *name = json_text(json_get(model, "name"));
    const int n = tokens_of(model, token);
    float *alone = runner_one_by_one(r, token, n);
    for (int from = 0; from < n; from += every) {
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

static void check_on(struct backend *(*open)(struct error *err), int every)
{
    for (size_t i = 0; i < n_models; i++) {
        struct error err;
        char *path = golden_model_write(models[i], F32);
        struct backend *b = open(&err);
        assert_non_null(b);
        struct runner r = runner_open_on(b, path, 1, ACTIVATIONS_F32, F32);
        check_logits(&r, models[i]);
        check_bits(&r, models[i], every);
        runner_close(&r);
        free(path);
    }
}

// ---- caches that keep a window

static int any_number(uint64_t *state, int below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)below);
}

// The next pass on both caches, of n rows; node[0..kept) are kept afterwards.
struct step {
    int n, kept;
    int32_t token[16], parent[16], node[16];
};

// A chain, of which some rows are kept, or a tree, of which a path is.
static struct step any_step(uint64_t *state, int vocab)
{
    struct step s = { 0 };
    const bool tree = any_number(state, 3) == 0;
    s.n = 1 + any_number(state, 15);
    for (int i = 0; i < s.n; i++) {
        s.token[i] = any_number(state, vocab);
        s.parent[i] = i == 0 ? -1 : tree ? any_number(state, i) : i - 1;
    }
    int32_t path[16];
    int depth = 0;
    for (int at = any_number(state, s.n); at >= 0; at = s.parent[at])
        path[depth++] = at;
    for (int i = 0; i < depth; i++)
        s.node[s.kept++] = path[depth - 1 - i];
    return s;
}

static struct kv_cache *cache_of(const struct runner *r, int window)
{
    struct error err;
    struct kv_shape shape = model_kv_shape(r->model, 1, 4096, 16);
    assert_true(shape.window > 0);
    shape.window = window < 0 ? shape.window : window;
    struct kv_cache *c = kv_create(r->backend, &shape, &err);
    assert_non_null(c);
    return c;
}

// Tokens in steps of any kind, more than a short cache has rows: every logit has the bits that it has with a cache that keeps all rows.
static void check_short_cache(struct runner *r, const char *name, int tokens)
{
    struct kv_cache *own = r->cache, *both[2] = { cache_of(r, 0), cache_of(r, -1) };
    uint64_t state = 5;
    float *first = xmalloc(16 * (size_t)r->vocab * sizeof(float));
    while (kv_length(both[0], 0) < tokens) {
        const struct step s = any_step(&state, r->vocab);
        for (int i = 0; i < 2; i++) {
            r->cache = both[i];
            const float *logits = runner_pass(r, s.n, s.token, NULL, s.parent);
            kv_keep(both[i], 0, s.node, s.kept);
            if (i == 0)
                memcpy(first, logits, (size_t)(s.n * r->vocab) * sizeof(float));
            for (int k = 0; k < s.n && i == 1; k++)
                runner_same_bits(logits + k * r->vocab, first + k * r->vocab, r->vocab, name, s.n);
        }
    }
    const int length = kv_length(both[1], 0);
    assert_int_equal(kv_truncate(both[1], 0, length), length);
    assert_int_equal(kv_truncate(both[1], 0, 3), 0); // what position 3 sees is gone
    assert_int_equal(kv_truncate(both[0], 0, 3), 3);
    free(first);
    kv_destroy(both[0]);
    kv_destroy(both[1]);
    r->cache = own;
}

static void check_short_caches_on(struct backend *(*open)(struct error *err), size_t step, int tokens)
{
    size_t found = 0;
    for (size_t i = 0; i < n_models; i++) {
        struct error err;
        char *path = golden_model_write(models[i], F32);
        struct runner r = runner_open_on(open(&err), path, 1, ACTIVATIONS_F32, F32);
        const struct kv_shape shape = model_kv_shape(r.model, 1, 4096, 16);
        if (shape.window > 0 && shape.window < 3000 && found++ % step == 0) {
            struct kv_shape full = shape;
            full.window = 0;
            assert_true(kv_bytes(&shape) < kv_bytes(&full));
            check_short_cache(&r, json_text(json_get(models[i], "name")), tokens);
        }
        runner_close(&r);
        free(path);
    }
    assert_true(found >= 8);
}

static struct backend *cpu(struct error *err)
{
    return backend_cpu(2, err);
}

TEST(logits_and_bits_on_the_cpu)
{
    check_on(cpu, 3);
}

TEST(short_caches_on_the_cpu)
{
    check_short_caches_on(cpu, 1, 1700);
}

#if defined(EMULATED_DEVICE)
static struct backend *emulated(struct error *err)
{
    return backend_host_memory(backend_emulated(0, err));
}

TEST(logits_and_bits_on_an_emulated_gpu)
{
    check_on(emulated, 19);
}

TEST(short_caches_on_an_emulated_gpu)
{
    check_short_caches_on(emulated, 8, 900);
}
#endif

TEST(names_of_texts_and_images)
{
    static const char *const names[][2] = {
        { "language_model.model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight" },
        { "model.language_model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight" },
        { "model.language_model.embed_tokens.weight", "model.embed_tokens.weight" },
        { "language_model.lm_head.weight", "lm_head.weight" },
        { "lm_head.weight", "lm_head.weight" },
        { "vision_tower.patch_conv.weight", NULL },
        { "model.vision_tower.patch_conv.weight", NULL },
        { "multi_modal_projector.norm.weight", NULL },
        { "model.multi_modal_projector.norm.weight", NULL },
        { "audio_tower.norm.weight", "audio_tower.norm.weight" }, // no model's: refused as unused
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char *name = weights_text_name(names[i][0]);
        assert_true(name == NULL || names[i][1] == NULL ? name == names[i][1] : strcmp(name, names[i][1]) == 0);
        free(name);
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

RUN_TESTS(set_up, tear_down)
