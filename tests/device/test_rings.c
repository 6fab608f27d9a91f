// test_rings.c - products whose weights come by bulk copies (matmul_ring.cu), spread over clusters or not, have the bits of the others
// (matmul_small.cu and matmul_large.cu): on the emulated GPU, and on a real one from compute capability 9.0 on.
#include "tests/device/every_backend.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "tests/device/host_memory_device.h"
#include "tests/support/tests.h"

// How a backend is opened: as it is; without clusters, so that no product is spread over blocks; without bulk copies.
enum { WAYS = 3 };
static const char *const without[WAYS] = { NULL, "SPECLAB_CUDA_NO_CLUSTERS", "SPECLAB_CUDA_NO_BULK" };

static struct backend *opened(const struct gpu_here *gpu, int way)
{
    struct error err;
    if (without[way] != NULL)
        setenv(without[way], "1", 1);
    struct backend *b = gpu->open(&err);
    if (without[way] != NULL)
        unsetenv(without[way]);
    assert_ok(b != NULL, err);
    return backend_host_memory(b);
}

enum { PARTS = 3, MAX_N = 64 };

struct shape {
    int n, k;
    int64_t m[PARTS]; // rows of weights that share a launch
};

// Numbers that the fourth weight reads: the output of a gated product, if it is as wide.
static int64_t down_width(const struct shape *s)
{
    return s->m[0] < 256 ? 256 : s->m[0] / 256 * 256;
}

// Three products of one input, one of them with bias and residual; and a gated product of two of the weights, whose output, with the
// planes that it has, is the input of another. out: all results, one after the other.
static void run(struct backend *b, enum type type, enum activations a, const struct shape *s, uint8_t *const w[4],
                float *x, float *bias, float *out)
{
    struct tensor packed[4];
    struct product p[PARTS] = { 0 };
    float *at = out;
    const int64_t down_k = down_width(s);
    for (int i = 0; i < 4; i++)
        packed[i] = prepared(b, w[i], type, i < PARTS ? s->m[i] : 40, i < PARTS ? s->k : down_k, a);
    for (int i = 0; i < PARTS; i++, at += s->n * s->m[i - 1])
        p[i] = (struct product){ .out = floats(at, s->n, s->m[i]), .w = packed[i] };
    p[1].bias = floats(bias, 1, s->m[1]);
    p[1].add = true;
    b->matmul(b, floats(x, s->n, s->k), p, PARTS);
    if (s->m[0] == s->m[1]) {
        struct tensor gated =
            b->gated(b, floats(at, s->n, s->m[0]), floats(x, s->n, s->k), packed[0], packed[1], GATE_SILU);
        at += s->n * s->m[0];
        if (gated.width == down_k)
            multiply(b, floats(at, s->n, 40), gated, packed[3]);
    }
}

static void check(struct backend *const b[WAYS], enum type type, enum activations a, const struct shape *s)
{
    const int64_t rows = 2 * s->m[0] + s->m[1] + s->m[2] + 40, count = s->n * rows;
    uint8_t *w[4];
    float *x = uniforms(s->n * s->k), *bias = uniforms(s->m[1]), *out[WAYS] = { uniforms(count) };
    for (int i = 0; i < 4; i++)
        w[i] = blocks(type, i < PARTS ? s->m[i] : 40, i < PARTS ? s->k : down_width(s));
    for (int way = 1; way < WAYS; way++) // what nothing is written to, and the residual, are the same
        out[way] = copied(out[0], count);
    for (int way = 0; way < WAYS; way++)
        run(b[way], type, a, s, w, x, bias, out[way]);
    for (int64_t i = 0; i < count * (WAYS - 1); i++) {
        const int way = 1 + (int)(i / count);
        const float found = out[way][i % count], expected = out[0][i % count];
        if (memcmp(&found, &expected, sizeof(float)) != 0)
            fail_msg("%s %s, n %d k %d m %d %d %d: number %d of %d is %.9g, with %s %.9g", type_facts[type].name,
                     activations_names[a], s->n, s->k, (int)s->m[0], (int)s->m[1], (int)s->m[2], (int)(i % count),
                     (int)count, (double)expected, without[way], (double)found);
    }
    scratch_free();
}

// On the emulated GPU, which has four multiprocessors, 512 rows of weights are enough for matmul_large.cu, 256 not, and more than
// 512 for products whose warps take all slices; 1,100 are more than one group of those.
TEST(products_have_the_same_bits_with_and_without)
{
    static const struct shape shapes[] = {
        { 1, 2304, { 400, 400, 33 } }, { 9, 256, { 256, 256, 33 } },   { 5, 256, { 70, 150, 16 } },
        { 33, 256, { 512, 512, 20 } }, { 64, 768, { 256, 256, 100 } }, { 40, 2304, { 5, 130, 128 } },
        { 16, 512, { 37, 150, 16 } },  { 3, 256, { 1100, 1100, 33 } }, { 50, 256, { 1100, 70, 33 } },
        { 17, 512, { 256, 256, 70 } }, { 2, 8448, { 90, 90, 8 } },
    };
    struct gpu_here gpu[MAX_GPUS_HERE];
    const int n = gpus_here(gpu);
    for (int g = 0; g < n; g++) {
        if (gpu[g].varies)
            continue;
        struct backend *b[WAYS];
        for (int way = 0; way < WAYS; way++)
            b[way] = opened(&gpu[g], way);
        for (int t = 0; t < TYPES; t++)
            for (int a = ACTIVATIONS_F32; a <= ACTIVATIONS_BF16; a++)
                for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) &&
                                   b[0]->rounds_to(b[0], (enum activations)a, (enum type)t) == (enum activations)a;
                     i++)
                    if (!gpu[g].emulated || (i + (size_t)t) % 4 == (size_t)a % 4)
                        check(b, (enum type)t, (enum activations)a, &shapes[i]);
        for (int way = 0; way < WAYS; way++)
            b[way]->destroy(b[way]);
    }
}

RUN_TESTS(NULL, NULL)
