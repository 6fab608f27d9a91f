// test_mixture_files.c - files of mixtures of experts: quantized and pruned GGUF files and directories, tensor by tensor.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/checkpoint/prune.h"
#include "commands/checkpoint/quantize.h"
#include "commands/checkpoint/random_model.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "formats/gguf.h"
#include "kernels/backend.h"
#include "models/config.h"
#include "models/model.h"
#include "models/weights.h"
#include "tests/models/golden_model.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"

enum { EXPERTS = 6, WIDTH = 64, HIDDEN = 32 };

static char *written(void)
{
    const struct random_shape shape = { .name = "mixture",
                                        .layers = 3,
                                        .width = WIDTH,
                                        .heads = 2,
                                        .kv_heads = 1,
                                        .head_dim = 32,
                                        .hidden = 96,
                                        .vocab = 40,
                                        .context = 128,
                                        .theta = 1e4,
                                        .architecture = "qwen3moe",
                                        .experts = EXPERTS,
                                        .experts_used = 2,
                                        .expert_hidden = HIDDEN };
    struct error err;
    char *path = test_path("mixture.gguf");
    unlink(path);
    assert_ok(random_model_write(&shape, F32, 3, path, NULL, &err), err);
    return path;
}

static struct gguf *opened(const char *path)
{
    struct error err;
    struct gguf *g = gguf_open(path, &err);
    assert_ok(g != NULL, err);
    return g;
}

static const struct gguf_tensor *tensor_named(const struct gguf *g, const char *name)
{
    for (size_t i = 0; i < gguf_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->name.n == strlen(name) && memcmp(t->name.s, name, t->name.n) == 0)
            return t;
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

static void quantize_to(const char *from, enum type type, const char *to)
{
    struct error err;
    struct backend *b = backend_cpu(1, &err);
    struct quantize_summary done;
    assert_ok(quantize_model(from, type, to, b, NULL, &done, &err), err);
    free(done.unchanged_names);
    b->destroy(b);
}

static void opens(const char *path)
{
    struct error err;
    struct backend *b = backend_cpu(1, &err);
    struct model *m = model_open(path, b, ACTIVATIONS_F32, 4, &err);
    assert_ok(m != NULL, err);
    model_close(m);
    b->destroy(b);
}

static void experts_of_a_file_are_quantized_and_its_router_is_not(void **state)
{
    static const struct {
        const char *name;
        int rows, width;
    } experts[] = { { "ffn_gate_exps", HIDDEN, WIDTH },
                    { "ffn_up_exps", HIDDEN, WIDTH },
                    { "ffn_down_exps", WIDTH, HIDDEN } };
    char *from = written(), *to = test_path("quantized.gguf");
    quantize_to(from, Q8_0, to);
    struct gguf *a = opened(from), *b = opened(to);
    for (int layer = 0; layer < 3; layer++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%d.ffn_gate_inp.weight", layer);
        const struct gguf_tensor *router = tensor_named(b, name), *before = tensor_named(a, name);
        assert_int_equal(router->tensor.type, F32);
        assert_memory_equal(router->tensor.data, before->tensor.data, EXPERTS * WIDTH * sizeof(float));
        for (size_t k = 0; k < sizeof(experts) / sizeof(*experts); k++) {
            snprintf(name, sizeof(name), "blk.%d.%s.weight", layer, experts[k].name);
            const struct gguf_tensor *of = tensor_named(b, name);
            const float *x = tensor_named(a, name)->tensor.data;
            const int width = experts[k].width;
            const size_t row_bytes = type_row_bytes(Q8_0, width);
            uint8_t row[WIDTH * 2];
            assert_int_equal(of->tensor.type, Q8_0);
            assert_int_equal(of->dims, 3);
            assert_true(of->dim[0] == (uint64_t)width && of->dim[1] == (uint64_t)experts[k].rows &&
                        of->dim[2] == EXPERTS);
            for (int r = 0; r < EXPERTS * experts[k].rows; r++) {
                assert_true(quantize_floats(Q8_0, x + r * width, width, row));
                assert_memory_equal((const uint8_t *)of->tensor.data + (size_t)r * row_bytes, row, row_bytes);
            }
        }
    }
    gguf_close(a);
    gguf_close(b);
    opens(to);
    free(from), free(to);
}

static void a_pruned_file_has_its_layers_experts(void **state)
{
    struct error err;
    char *from = written(), *to = test_path("pruned.gguf");
    const int keep[] = { 0, 2 };
    assert_ok(prune_model(from, keep, 2, to, NULL, &err), err);
    struct gguf *a = opened(from), *b = opened(to);
    static const char *const parts[] = { "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps" };
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof(parts) / sizeof(*parts); k++) {
            char name[64], kept[64];
            snprintf(name, sizeof(name), "blk.%d.%s.weight", keep[i], parts[k]);
            snprintf(kept, sizeof(kept), "blk.%d.%s.weight", i, parts[k]);
            const struct gguf_tensor *x = tensor_named(a, name), *y = tensor_named(b, kept);
            assert_true(x->bytes == y->bytes && memcmp(x->tensor.data, y->tensor.data, x->bytes) == 0);
        }
    gguf_close(a);
    gguf_close(b);
    struct model_config c;
    assert_ok(config_read(to, &c, &err), err);
    assert_true(c.layers == 2 && c.experts == EXPERTS && c.experts_used == 2 && config_mixed_layers(&c) == 2);
    config_free(&c);
    opens(to);
    free(from), free(to);
}

static char *golden(const char *name)
{
    size_t n;
    char *path = NULL;
    struct json **models = golden_models(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(json_text(json_get(models[i], "name")), name) == 0)
            path = golden_model_write(models[i], BF16);
    golden_models_free(models, n);
    assert_non_null(path);
    return path;
}

// Its layers 0, 1 and 2 have no experts, by decoder_sparse_step and by mlp_only_layers.
static void a_pruned_directory_knows_which_of_its_layers_have_experts(void **state)
{
    static const int keep[][2] = { { 0, 3 }, { 1, 3 }, { 0, 2 } };
    char *from = golden("qwen3moe-mixed");
    for (int i = 0; i < 3; i++) {
        struct error err;
        struct model_config c;
        char *to = xformat("%s-pruned-%d", from, i);
        assert_ok(prune_model(from, keep[i], 2, to, NULL, &err), err);
        assert_ok(config_read(to, &c, &err), err);
        assert_int_equal(c.layers, 2);
        for (int l = 0; l < 2; l++)
            assert_int_equal(layer_set_has(&c.dense, l), keep[i][l] != 3);
        config_free(&c);
        opens(to);
        free(to);
    }
    free(from);
    char *mixtral = golden("mixtral"), *to = xformat("%s-pruned", mixtral);
    struct error err;
    assert_ok(prune_model(mixtral, keep[2], 2, to, NULL, &err), err);
    opens(to);
    free(to), free(mixtral);
}

// llama.cpp's names and keys; test_architectures compares the logits of such files with those of their directories.
static void a_file_of_a_directory_has_the_names_and_keys_of_llama_cpp(void **state)
{
    static const struct {
        const char *name, *architecture;
        int experts, used, hidden; // hidden 0: without a key of its own
    } cases[] = { { "mixtral", "llama", 5, 2, 0 }, { "qwen3moe", "qwen3moe", 9, 4, 24 } };
    static const char *const parts[] = { "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps" };
    for (int i = 0; i < 2; i++) {
        char *from = golden(cases[i].name), *to = xformat("%s.gguf", from), key[64], name[64];
        quantize_to(from, BF16, to);
        struct gguf *g = opened(to);
        int64_t n;
        snprintf(key, sizeof(key), "%s.expert_count", cases[i].architecture);
        assert_true(gguf_int(g, key, &n) && n == cases[i].experts);
        snprintf(key, sizeof(key), "%s.expert_used_count", cases[i].architecture);
        assert_true(gguf_int(g, key, &n) && n == cases[i].used);
        snprintf(key, sizeof(key), "%s.expert_feed_forward_length", cases[i].architecture);
        assert_int_equal(gguf_int(g, key, &n) ? n : 0, cases[i].hidden);
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof(name), "blk.2.%s.weight", parts[k]);
            const struct gguf_tensor *t = tensor_named(g, name);
            assert_true(t->dims == 3 && t->dim[2] == (uint64_t)cases[i].experts);
        }
        assert_int_equal(tensor_named(g, "blk.2.ffn_gate_inp.weight")->dim[1], cases[i].experts);
        gguf_close(g);
        free(from), free(to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_of_a_file_are_quantized_and_its_router_is_not),
        cmocka_unit_test(a_pruned_file_has_its_layers_experts),
        cmocka_unit_test(a_pruned_directory_knows_which_of_its_layers_have_experts),
        cmocka_unit_test(a_file_of_a_directory_has_the_names_and_keys_of_llama_cpp),
    };
    return cmocka_run_group_tests(tests, NULL, test_directory_tear_down);
}
