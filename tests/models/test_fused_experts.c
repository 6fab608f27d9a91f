// test_fused_experts.c - experts in two tensors of a layer: which part is which expert's, by the numbers in it, and which tensors are left as they are.
// That logits are transformers': test_architectures.c.
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "models/formats/safetensors.h"
#include "models/architectures.h"
#include "models/fused_experts.h"
#include "tests/support/tests.h"

enum { EXPERTS = 3, HIDDEN = 4, WIDTH = 5 };

// Number i of the tensor is i.
static struct safetensor numbered(const char *name, int64_t a, int64_t b, int64_t c)
{
    struct safetensor t = { .name = name, .dtype = "F32", .dims = 3, .dim = { a, b, c }, .file = 7 };
    float *v = xmalloc((size_t)(a * b * c) * sizeof(*v));
    for (int64_t i = 0; i < a * b * c; i++)
        v[i] = (float)i;
    t.data = v;
    t.bytes = (size_t)(a * b * c) * sizeof(*v);
    return t;
}

// parts: the n matrices that an expert has in the tensor.
static void check(const char *family, const char *name, int n, int64_t rows, int64_t width, const char *prefix,
                  const char *const *parts)
{
    const struct architecture *a = architecture_of_model_type(family);
    const struct safetensor t = numbered(name, EXPERTS, n * rows, width);
    assert_int_equal(fused_experts_parts(a, &t), EXPERTS * n);
    for (int i = 0; i < EXPERTS * n; i++) {
        const struct safetensor part = fused_experts_part(a, &t, (size_t)i);
        char *expected = xformat("%s%d.%s", prefix, i / n, parts[i % n]);
        assert_string_equal(part.name, expected);
        assert_true(part.dims == 2 && part.dim[0] == rows && part.dim[1] == width && part.file == 7);
        assert_int_equal(part.bytes, (size_t)(rows * width) * sizeof(float));
        for (int64_t r = 0; r < rows; r++) // transformers: linear(x, gate_up[e]).chunk(2)
            assert_true(((const float *)part.data)[r * width] == (float)((i * rows + r) * width));
        free((void *)(uintptr_t)part.name);
        free(expected);
    }
    free((void *)(uintptr_t)t.data);
}

#define PARTS(...) \
    (const char *const[]) \
    { \
        __VA_ARGS__ \
    }

TEST(each_part_is_a_matrix_of_an_expert)
{
#define Q "model.layers.12.mlp.experts."
#define M "model.layers.12.block_sparse_moe.experts."
    check("qwen3_moe", Q "gate_up_proj", 2, HIDDEN, WIDTH, Q, PARTS("gate_proj.weight", "up_proj.weight"));
    check("qwen3_moe", Q "down_proj", 1, WIDTH, HIDDEN, Q, PARTS("down_proj.weight"));
    check("qwen3_moe", Q "gate_up_proj_scale_inv", 2, 1, 2, Q,
          PARTS("gate_proj.weight_scale_inv", "up_proj.weight_scale_inv"));
    check("mixtral", Q "gate_up_proj", 2, HIDDEN, WIDTH, M, PARTS("w1.weight", "w3.weight"));
    check("mixtral", Q "down_proj", 1, WIDTH, HIDDEN, M, PARTS("w2.weight"));
}

TEST(other_tensors_stay_as_they_are)
{
    static const struct {
        const char *family, *name;
        int dims;
        int64_t dim[3];
        const char *becomes;
    } others[] = {
        { "qwen3_moe", Q "3.gate_proj.weight", 2, { 4, 5 }, Q "3.gate_proj.weight" },
        { "qwen3_moe", Q "gate_up_proj", 2, { 24, 5 }, Q "gate_up_proj" },   // another shape
        { "qwen3_moe", Q "gate_up_proj", 3, { 3, 7, 5 }, Q "gate_up_proj" }, // rows that are no two halves
        { "qwen3_moe", Q "gate_up_proj", 3, { 0, 8, 5 }, Q "gate_up_proj" }, // no expert
        { "qwen3_moe", Q "gate_up_proj_bias", 3, { 3, 8, 5 }, Q "gate_up_proj_bias" },
        { "qwen3_moe", "layers.0.mlp.experts.down_proj", 3, { 3, 8, 5 }, "layers.0.mlp.experts.down_proj" },
        { "qwen3_moe", "model.layers.12.mlp.gate.weight", 2, { 3, 5 }, "model.layers.12.mlp.gate.weight" },
        { "mixtral", "model.layers.12.mlp.gate.weight", 2, { 3, 5 }, "model.layers.12.block_sparse_moe.gate.weight" },
        { "llama", Q "gate_up_proj", 3, { 3, 8, 5 }, Q "gate_up_proj" },
        { NULL, Q "gate_up_proj", 3, { 3, 8, 5 }, Q "gate_up_proj" },
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        const struct architecture *a = others[i].family != NULL ? architecture_of_model_type(others[i].family) : NULL;
        struct safetensor t = { .name = others[i].name, .dtype = "F32", .dims = others[i].dims, .bytes = 4 };
        memcpy(t.dim, others[i].dim, sizeof(others[i].dim));
        assert_int_equal(fused_experts_parts(a, &t), 1);
        const struct safetensor part = fused_experts_part(a, &t, 0);
        assert_string_equal(part.name, others[i].becomes);
        assert_true(part.dims == t.dims && part.dim[0] == t.dim[0] && part.data == t.data && part.bytes == t.bytes);
        free((void *)(uintptr_t)part.name);
    }
}

RUN_TESTS(NULL, NULL)
