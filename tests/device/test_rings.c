// test_rings.c - products whose weights come by bulk copies (matmul_ring.cu) have the bits of the others (matmul_small.cu and
// matmul_large.cu): on the emulated GPU, and on a real one from compute capability 9.0 on.
#include "tests/device/every_backend.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "tests/device/host_memory_device.h"

static struct backend *opened(const struct gpu_here *gpu, bool bulk)
{
    struct error err;
    if (!bulk)
        setenv("SPECLAB_CUDA_NO_BULK", "1", 1);
    struct backend *b = gpu->open(&err);
    unsetenv("SPECLAB_CUDA_NO_BULK");
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
    struct error err;
    struct tensor packed[4];
    struct product p[PARTS] = { 0 };
    float *at = out;
    const int64_t down_k = down_width(s);
    for (int i = 0; i < 4; i++) {
        packed[i] = b->prepare(b, tensor_of(w[i], type, i < PARTS ? s->m[i] : 40, i < PARTS ? s->k : down_k), a, &err);
        assert_ok(packed[i].data != NULL, err);
    }
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
    for (int i = 0; i < 4; i++)
        b->unprepare(b, packed[i]);
}

static void check(struct backend *const b[2], enum type type, enum activations a, const struct shape *s)
{
    const int64_t rows = 2 * s->m[0] + s->m[1] + s->m[2] + 40, count = s->n * rows;
    uint8_t *w[4];
    float *x = uniforms(s->n * s->k), *bias = uniforms(s->m[1]),
          *out[2] = { uniforms(count), xmalloc((size_t)count * sizeof(float)) };
    for (int i = 0; i < 4; i++)
        w[i] = blocks(type, i < PARTS ? s->m[i] : 40, i < PARTS ? s->k : down_width(s));
    memcpy(out[1], out[0], (size_t)count * sizeof(float)); // what nothing is written to, and the residual, are the same
    for (int i = 0; i < 2; i++)
        run(b[i], type, a, s, w, x, bias, out[i]);
    for (int64_t i = 0; i < count; i++)
        if (memcmp(out[0] + i, out[1] + i, sizeof(float)) != 0)
            fail_msg("%s %s, n %d k %d m %d %d %d: number %d of %d is %.9g by bulk copies, %.9g without",
                     type_facts[type].name, activations_names[a], s->n, s->k, (int)s->m[0], (int)s->m[1], (int)s->m[2],
                     (int)i, (int)count, (double)out[0][i], (double)out[1][i]);
    for (int i = 0; i < 4; i++)
        free(w[i]);
    free(x), free(bias), free(out[0]), free(out[1]);
}

// On the emulated GPU, which has four multiprocessors, 512 rows of weights are enough for matmul_large.cu, 256 not.
static void products_have_the_same_bits_with_and_without(void **unused)
{
    static const struct shape shapes[] = {
        { 1, 2304, { 400, 400, 33 } }, { 9, 256, { 256, 256, 33 } },   { 5, 256, { 70, 150, 16 } },
        { 33, 256, { 512, 512, 20 } }, { 64, 768, { 256, 256, 100 } }, { 40, 2304, { 5, 130, 128 } },
        { 16, 512, { 37, 150, 16 } },  { 17, 512, { 256, 256, 70 } },  { 2, 8448, { 90, 90, 8 } },
    };
    struct gpu_here gpu[MAX_GPUS_HERE];
    const int n = gpus_here(gpu);
    for (int g = 0; g < n; g++) {
        if (gpu[g].varies)
            continue;
        struct backend *b[2] = { opened(&gpu[g], true), opened(&gpu[g], false) };
        for (int t = 0; t < TYPES; t++)
            for (int a = ACTIVATIONS_F32; a <= ACTIVATIONS_BF16; a++)
                for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) &&
                                   b[0]->rounds_to(b[0], (enum activations)a, (enum type)t) == (enum activations)a;
                     i++)
                    if (!gpu[g].emulated || (i + (size_t)t) % 3 == (size_t)a % 3)
                        check(b, (enum type)t, (enum activations)a, &shapes[i]);
        b[0]->destroy(b[0]);
        b[1]->destroy(b[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(products_have_the_same_bits_with_and_without) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
