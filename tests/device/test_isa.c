// test_isa.c - products of int8 rows have the same bits with every instruction set that has fused multiply-adds: the sums of a group are
// integers, and the floats after them are the same operations in the same order.
#include "tests/device/every_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

enum { MAX_ISA = 4, M = 70, MAX_N = 37 };
static struct backend *isa[MAX_ISA];
static int n_isa;

// Every third row has the largest numbers only, of one sign: sums in sixteen bits then reach their limits.
static float *rows_of(int n, int k)
{
    float *x = uniforms(n * k);
    for (int i = 0; i < n * k; i++)
        if (i / k % 3 == 0)
            x[i] = i / k % 2 == 0 ? 1.0f : -1.0f;
    return x;
}

// All numbers of three rows of four are at an end of their range; the halves d and m keep their values.
static void put_extremes(uint8_t *blocks, enum type type, int rows, int k)
{
    static const int byte[] = { 0xFF, 0x80, 0x7F };
    const size_t bytes = (size_t)type_facts[type].bytes, per_row = type_row_bytes(type, k);
    const size_t from = type == Q6_K ? 0 : 4, to = type == Q6_K ? bytes - 2 : bytes;
    for (int r = 0; r < rows; r++)
        for (size_t b = 0; b < per_row / bytes && r % 4 < 3; b++)
            memset(blocks + (size_t)r * per_row + b * bytes + from, byte[r % 4], to - from);
}

static void check(enum type type, int n, int k)
{
    struct error err;
    uint8_t *w = blocks(type, M, k);
    float *x = rows_of(n, k), *first = uniforms(n * M), *out = uniforms(n * M);
    put_extremes(w, type, M, k);
    for (int i = 0; i < n_isa; i++) {
        struct tensor packed = isa[i]->prepare(isa[i], tensor_of(w, type, M, k), ACTIVATIONS_INT8, &err);
        assert_ok(packed.data != NULL, err);
        float *to = i == 0 ? first : out;
        multiply(isa[i], floats(to, n, M), floats(x, n, k), packed);
        if (i > 0 && memcmp(first, out, (size_t)(n * M) * sizeof(float)) != 0)
            fail_msg("%s, n %d k %d: %s and %s differ", type_facts[type].name, n, k, isa[0]->describe(isa[0]),
                     isa[i]->describe(isa[i]));
        isa[i]->unprepare(isa[i], packed);
    }
    free(w), free(x), free(first), free(out);
}

static void int8_products_have_the_same_bits(void **unused)
{
    static const int counts[] = { 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17, 25, MAX_N };
    for (int t = 0; t < TYPES; t++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && type_is_quantized((enum type)t); i++)
            for (int k = 256; k <= 768; k += 512)
                check((enum type)t, counts[i], k);
}

int main(void)
{
    static const char *const names[MAX_ISA] = { "avx2", "avx2_vnni", "avx512", "avx512_vnni" };
    const struct CMUnitTest tests[] = { cmocka_unit_test(int8_products_have_the_same_bits) };
    struct error err;
    for (int i = 0; i < MAX_ISA; i++) {
        struct backend *b = backend_cpu_with(1 + i % 2, names[i], &err);
        if (b == NULL)
            printf("skipped: %s\n", err.text);
        else
            isa[n_isa++] = b;
    }
    const int status = n_isa < 2 ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < n_isa; i++)
        isa[i]->destroy(isa[i]);
    return status;
}
