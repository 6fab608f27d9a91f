// test_shapes.c - models with random weights: what file_map shows of one, and the whole file of another process.
#include "tests/support/tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/input.h"
#include "core/files/mapped.h"
#include "core/memory.h"
#include "models/formats/gguf.h"
#include "models/formats/shape.h"

#define SMALL "layers=2,width=96,heads=6,kv_heads=2,head_dim=16,hidden=160,vocab=300,context=128,seed=3"

static struct gguf *opened(const char *name)
{
    struct error err;
    char *path = shape_path(name, 0, &err);
    assert_ok(path != NULL, err);
    struct gguf *g = gguf_open(path, &err);
    assert_ok(g != NULL, err);
    free(path);
    return g;
}

static const uint16_t *halves(const struct gguf *g, const char *tensor, size_t *n)
{
    const struct gguf_tensor *t = gguf_tensor(g, tensor);
    assert_non_null(t);
    *n = t->bytes / sizeof(uint16_t);
    return t->tensor.data;
}

static double number(uint16_t bf16)
{
    float x;
    memcpy(&x, &(uint32_t){ (uint32_t)bf16 << 16 }, sizeof(x));
    return x;
}

// Other programs read the bytes that this one sees mapped.
TEST(the_whole_file_has_the_mapped_tensors)
{
    static const char *const types[] = { "q4_0", "q8_0", "bf16", "f32", "iq4_nl", "mxfp4" };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        char *name = xformat("shape:smollm2-135m,type=%s," SMALL, types[i]);
        struct gguf *g = opened(name);
        struct error err;
        size_t n;
        char *path = shape_whole_path(name, &err), *bytes = file_text(path, &n, &err);
        assert_ok(bytes != NULL, err);
        const uint8_t *const start = (const uint8_t *)gguf_value_at(g, 0)->key.s - 32; // magic, version, counts, length
        assert_memory_equal(bytes, start, 24);
        for (size_t t = 0; t < gguf_tensors(g); t++) {
            const struct gguf_tensor *own = gguf_tensor_at(g, t);
            const size_t at = (size_t)((const uint8_t *)own->tensor.data - start);
            assert_true(at + own->bytes <= n);
            assert_memory_equal(bytes + at, own->tensor.data, own->bytes);
        }
        gguf_close(g);
        free(bytes);
        free(path);
        free(name);
    }
}

// A matrix of more numbers than are random: 0.02 and 1 as deviations, rows that repeat after thousands, and no tensor like another.
TEST(large_models_share_their_numbers)
{
    struct gguf *g = opened("shape:llama-8b,type=bf16,layers=2");
    static const char *const names[] = { "token_embd.weight", "blk.0.ffn_gate.weight", "blk.1.ffn_gate.weight",
                                         "blk.0.attn_q.weight", "output.weight" };
    size_t n;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const uint16_t *x = halves(g, names[i], &n);
        double sum = 0, squares = 0;
        for (size_t k = n - 4000000; k < n; k++) {
            sum += number(x[k]);
            squares += number(x[k]) * number(x[k]);
        }
        assert_true(fabs(sum / 4e6) < 1e-4);
        assert_true(fabs(sqrt(squares / 4e6) - 0.02) < 1e-4);
        for (size_t k = 0; k < i; k++) {
            size_t m;
            assert_true(memcmp(x, halves(g, names[k], &m), 4096) != 0);
        }
    }
    const uint16_t *head = halves(g, "output.weight", &n);
    size_t twins = 0;
    for (size_t row = 1; row < 128256; row++)
        twins += memcmp(head, head + row * 4096, 8192) == 0;
    assert_in_range(twins, 1, 10);
    gguf_close(g);

    g = opened("shape:qwen3-30b-a3b,type=bf16,layers=1,experts=2,experts_used=1");
    const uint16_t *embedding = halves(g, "token_embd.weight", &n);
    double squares = 0;
    for (size_t k = 0; k < 1000000; k++)
        squares += number(embedding[k]) * number(embedding[k]);
    assert_true(fabs(sqrt(squares / 1e6) - 1) < 0.01);
    gguf_close(g);
}

TEST(seeds_differ_and_repeat)
{
    size_t n;
    struct gguf *one = opened("shape:llama-1b,type=bf16,layers=1,vocab=1000"),
                *other = opened("shape:llama-1b,type=bf16,layers=1,vocab=1000,seed=2"),
                *same = opened("shape:llama-1b,type=bf16,layers=1,vocab=1000,seed=1");
    const uint16_t *x = halves(one, "blk.0.ffn_up.weight", &n);
    assert_memory_equal(x, halves(same, "blk.0.ffn_up.weight", &n), n * sizeof(*x));
    assert_true(memcmp(x, halves(other, "blk.0.ffn_up.weight", &n), n * sizeof(*x)) != 0);
    const float *norm = gguf_tensor(one, "blk.0.attn_norm.weight")->tensor.data;
    assert_true(norm[0] == 1 && norm[2047] == 1);
    gguf_close(one), gguf_close(other), gguf_close(same);
}

RUN_TESTS(NULL, NULL)
