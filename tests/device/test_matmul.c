// test_matmul.c - products of every backend against plain loops in double, and the bits of a row in different calls: alone, among other
// rows, with other numbers of threads.
#include "tests/device/every_backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "tests/device/emulated.h"
#include "tests/device/host_memory_device.h"
#include "tests/support/tests.h"

// Whether this backend has products of such weights with such activations.
static bool rounds(struct backend *b, enum activations a, enum type weights)
{
    return b->rounds_to(b, a, weights) == a && !(strcmp(b->name, "cublas") == 0 && type_has_blocks(weights));
}

// x rounded to the activations of a matmul, independently of the kernels. Group scales are amax / 127.
static void round_activations(float *to, const float *x, int64_t n, int64_t k, enum activations a, bool quantized)
{
    for (int64_t i = 0; i < n * k; i++) {
        to[i] = x[i];
        if (a == ACTIVATIONS_BF16) {
            int exponent;
            double fraction = frexp((double)x[i], &exponent);
            to[i] = (float)ldexp(rint(ldexp(fraction, 8)), exponent - 8);
        }
    }
    for (int64_t g = 0; a == ACTIVATIONS_INT8 && quantized && g < n * k; g += 32) {
        float max = 0;
        for (int j = 0; j < 32; j++)
            max = fmaxf(max, fabsf(x[g + j]));
        for (int j = 0; j < 32 && max > 0; j++)
            to[g + j] = (float)(rint((double)x[g + j] * (double)(127.0f / max)) * (double)(max / 127.0f));
    }
}

// Moves quotients away from halves, where rounding up or down depends on the kernel.
static void avoid_halves(float *x, int64_t n)
{
    for (int64_t g = 0; g + 32 <= n; g += 32) {
        float max = 0;
        for (int j = 0; j < 32; j++)
            max = fmaxf(max, fabsf(x[g + j]));
        for (int j = 0; j < 32; j++) {
            double q = (double)x[g + j] * 127 / (double)max;
            if (fabs(q - floor(q) - 0.5) < 1e-3)
                x[g + j] = (float)((floor(q) + 0.25) * (double)max / 127);
        }
    }
}

// Own products of a GPU are sums of eight slices of k: 2.4e-7 at worst on the emulated ones. Those of f32 weights or activations are sums of
// 32 lanes, each a chain of k / 32 terms: 5.7e-7. Others are chains of k terms: 2.4e-6.
static double error_limit(const struct backend *b, enum type type, enum activations a)
{
    return strcmp(b->name, "cuda") != 0 ? 4e-6 : type == F32 || a == ACTIVATIONS_F32 ? 2e-6 : 5e-7;
}

static void check_product(struct backend *c, enum type type, enum activations a, int n, int m, int k)
{
    float *x = uniforms(n * k), *rounded = zeros(n * k), *out = zeros(n * m), *w = zeros(m * k);
    uint8_t *blocked = blocks(type, m, k);
    double *expected = doubles(n * m);
    c->take(c, floats(w, m, k), tensor_of(blocked, type, m, k), each_row(m));
    avoid_halves(x, n * k);
    round_activations(rounded, x, n, k, a, type_is_quantized(type));
    reference_matmul(expected, rounded, w, n, m, k);
    multiply(c, floats(out, n, m), floats(x, n, k), prepared(c, blocked, type, m, k, a));
    double d = reference_distance(out, expected, n * m);
    backends_note(c, d);
    if (!(d < error_limit(c, type, a)))
        fail_msg("%s %s %s n %d m %d k %d: distance %g", c->describe(c), type_facts[type].name, activations_names[a], n,
                 m, k, d);
    scratch_free();
}

TEST(matmul_agrees_with_plain_loops_in_double)
{
    static const int sizes[][3] = {
        { 1, 7, 5 },      { 3, 17, 33 },    { 5, 64, 256 },  { 2, 3, 512 },    { 9, 40, 100 },
        { 64, 33, 288 },  { 1, 1, 1 },      { 12, 16, 768 }, { 13, 48, 1056 }, { 25, 20, 2048 },
        { 130, 150, 64 }, { 65, 150, 256 }, { 96, 70, 544 }, { 200, 20, 32 },  { 65, 37, 1536 },
    };
    for (int b = 0; b < n_backends; b++)
        for (int t = 0; t < TYPES; t++)
            for (size_t i = 0; i < 3 * sizeof(sizes) / sizeof(sizes[0]); i++) {
                const int *size = sizes[i / 3];
                enum activations a = (enum activations)(ACTIVATIONS_F32 + i % 3);
                int n = size[0], m = size[1], k = size[2] / type_facts[t].block * type_facts[t].block;
                if (k != 0 && rounds(backends[b], a, (enum type)t) && !(slow[b] && n * k > 20000 && n < 65))
                    check_product(backends[b], (enum type)t, a, n, m, k);
            }
}

// The matrix instructions of the two emulated devices add as those of Hopper and of Ampere (emulated/numbers.cpp). 1 and then 31
// products of 2^-25: Hopper keeps 25 bits behind the point, so they count, and 31 / 4 is truncated towards zero; Ampere keeps 24, so
// they are lost.
TEST(products_of_both_emulated_devices)
{
#if defined(EMULATED_DEVICE)
    static const int sums[] = { 7, 0 }; // of 2^-23, beside the 1
    for (int device = 0; device < 2; device++) {
        struct error err;
        struct backend *c = backend_host_memory(backend_emulated(device, &err));
        for (int t = 0; t < TYPES; t++)
            for (int a = ACTIVATIONS_F32; device == 1 && a <= ACTIVATIONS_BF16; a++) {
                check_product(c, (enum type)t, (enum activations)a, 2, 37, 1536);
                check_product(c, (enum type)t, (enum activations)a, 65, 20, 768);
            }
        for (int sign = 1; sign >= -1; sign -= 2) {
            float x[32], w[32], out;
            uint16_t halves[32];
            for (int i = 0; i < 32; i++) {
                x[i] = i == 0 ? (float)sign : (float)sign * 0x1p-13f;
                w[i] = i == 0 ? 1 : 0x1p-12f;
                uint32_t u;
                memcpy(&u, &w[i], sizeof(u));
                halves[i] = (uint16_t)(u >> 16);
            }
            multiply(c, floats(&out, 1, 1), floats(x, 1, 32), prepared(c, halves, BF16, 1, 32, ACTIVATIONS_BF16));
            if (out != (float)sign * (1 + (float)sums[device] * 0x1p-23f))
                fail_msg("device %d: 1 + %g x 2^-23", device, ((double)out * sign - 1) * 0x1p23);
            scratch_free();
        }
        c->destroy(c);
    }
#endif
}

TEST(products_of_one_input_take_bias_and_residual)
{
    enum { N = 7, K = 64, M = 37, L = 50 };
    for (int at = 0; at < 3 * n_backends; at++) {
        struct backend *c = backends[at / 3];
        const enum activations a = (enum activations)(ACTIVATIONS_F32 + at % 3);
        if (!rounds(c, a, Q4_1))
            continue;
        float *start = uniforms(N * M), *one = copied(start, N * M), *bias = uniforms(M), *plain = zeros(N * M);
        float *two = zeros(N * L), *other = zeros(N * L), *gated = zeros(N * L);
        double *expected = doubles(N * L);
        const struct tensor x = floats(uniforms(N * K), N, K), first = prepared(c, uniforms(M * K), F32, M, K, a),
                            second = prepared(c, blocks(Q4_1, L, K), Q4_1, L, K, a),
                            third = prepared(c, blocks(Q8_0, L, K), Q8_0, L, K, a);
        const struct product p[] = {
            { .out = floats(one, N, M), .w = first, .bias = floats(bias, 1, M), .add = true },
            { .out = floats(two, N, L), .w = second },
        };
        c->matmul(c, x, p, 2);
        multiply(c, floats(plain, N, M), x, first);
        multiply(c, floats(other, N, L), x, second);
        assert_memory_equal(two, other, N * L * sizeof(float));
        for (int i = 0; i < N * M; i++)
            assert_true(one[i] == start[i] + (plain[i] + bias[i % M]));
        // gated: weights of one type, of two, and of two whose rows are rounded differently
        const struct tensor gates[] = { second, second, prepared(c, uniforms(L * K), F32, L, K, a) };
        const struct tensor ups[] = { second, third, third };
        for (int i = 0; i < 6; i++) {
            const enum gate_function f = i < 3 ? GATE_SILU : GATE_GELU;
            c->gated(c, floats(gated, N, L), x, gates[i % 3], ups[i % 3], f);
            multiply(c, floats(two, N, L), x, gates[i % 3]);
            multiply(c, floats(other, N, L), x, ups[i % 3]);
            reference_glu(expected, two, other, N * L, f);
            assert_true(reference_distance(gated, expected, N * L) < 1e-6);
        }
        scratch_free();
    }
}

// Each type and activations of each backend whose rows have the same bits in every product.
static void for_each_pair(void (*check)(struct backend *c, enum type type, enum activations a, bool is_slow))
{
    for (int b = 0; b < n_backends; b++)
        for (int t = 0; t < TYPES; t++)
            for (enum activations a = ACTIVATIONS_F32; a <= ACTIVATIONS_INT8; a++)
                if (!backends[b]->varies && rounds(backends[b], a, (enum type)t))
                    check(backends[b], (enum type)t, a, slow[b]);
}

// Groups of rows of x in any order, some of them empty, one of more rows than a block of the kernels has: the bits of a product for each.
// ups: of gated products; TYPES: none.
static void check_groups(struct backend *c, enum type gates, enum type ups, enum activations a, const int *rows,
                         bool gathered)
{
    enum { GROUPS = 5, M = 50, MOST = 160, K = 768 };
    struct row_group group[GROUPS];
    int32_t row[MOST];
    int n = 0;
    for (int g = 0; g < GROUPS; n += rows[g++]) {
        group[g] = (struct row_group){ .w = prepared(c, blocks(gates, M, K), gates, M, K, a), .rows = rows[g] };
        if (ups < TYPES)
            group[g].up = prepared(c, blocks(ups, M, K), ups, M, K, a);
    }
    assert_true(n <= MOST);
    for (int i = 0; i < n; i++)
        row[i] = gathered ? (i * 7 + 3) % MOST : i;
    float *x = uniforms(MOST * K), *out = zeros(MOST * M), one[M];
    const struct tensor all = floats(x, gathered ? MOST : n, K);
    c->grouped(c, floats(out, n, M), all, gathered ? row : NULL, group, GROUPS, GATE_GELU);
    for (int g = 0, i = 0; g < GROUPS; g++)
        for (int r = 0; r < rows[g]; r++, i++) {
            const struct tensor from = floats(x + row[i] * K, 1, K);
            if (ups < TYPES)
                c->gated(c, floats(one, 1, M), from, group[g].w, group[g].up, GATE_GELU);
            else
                multiply(c, floats(one, 1, M), from, group[g].w);
            if (memcmp(one, out + i * M, M * sizeof(float)) != 0)
                fail_msg("%s %s %s, group %d of %d rows: row %d has other bits than alone", c->describe(c),
                         type_facts[gates].name, activations_names[a], g, rows[g], r);
        }
    scratch_free();
}

static void check_all_groups(struct backend *c, enum type type, enum activations a, bool is_slow)
{
    static const int rows[][5] = {
        { 1, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1 }, { 0, 3, 0, 9, 1 }, { 16, 0, 33, 1, 7 }, { 0, 0, 90, 2, 65 }
    };
    const enum type up[] = { TYPES, type, type == F32 ? Q8_0 : F32 };
    for (int i = 0; i < 5; i++)
        for (int gated = 0; gated < 3; gated++)
            if (!is_slow || ((int)type + (int)a + i) % 3 == gated)
                check_groups(c, type, up[gated], a, rows[i], (i + gated) % 2 == 0);
}

TEST(groups_have_the_bits_of_their_products)
{
    for_each_pair(check_all_groups);
}

// Float weights, which every backend supports: compared with loops in double, up to rounding.
TEST(products_of_floats_take_bias_residual_and_gate)
{
    enum { N = 7, K = 96, M = 37 };
    for (int i = 0; i < n_backends * 3 * 2; i++) {
        struct backend *c = backends[i / 6];
        const enum type type = (enum type[]){ F32, F16, BF16 }[i % 3];
        const enum activations a = i / 3 % 2 == 0 ? ACTIVATIONS_F32 : ACTIVATIONS_BF16;
        if (!rounds(c, a, type))
            continue;
        float *x = uniforms(N * K), *rounded = zeros(N * K), *bias = uniforms(M), *start = uniforms(N * M);
        float *out = copied(start, N * M), *two = zeros(N * M), *first = zeros(M * K), *second = zeros(M * K);
        uint8_t *v = blocks(type, M, K), *u = blocks(type, M, K);
        double *expected = doubles(N * M), *other = doubles(N * M);
        const struct tensor one = prepared(c, v, type, M, K, a), wider = prepared(c, u, type, M, K, a);
        c->take(c, floats(first, M, K), tensor_of(v, type, M, K), each_row(M));
        c->take(c, floats(second, M, K), tensor_of(u, type, M, K), each_row(M));
        c->take(c, floats(rounded, N, K), wider, each_row(N)); // a prepared weight as a table
        assert_memory_equal(rounded, second, N * K * sizeof(float));
        round_activations(rounded, x, N, K, a, false);

        const struct product p[] = {
            { .out = floats(out, N, M), .w = one, .bias = floats(bias, 1, M), .add = true },
            { .out = floats(two, N, M), .w = wider, .bias = floats(bias, 1, M) },
        };
        c->matmul(c, floats(x, N, K), p, 2);
        reference_matmul(expected, rounded, first, N, M, K);
        reference_matmul(other, rounded, second, N, M, K);
        for (int at = 0; at < N * M; at++) {
            expected[at] += (double)start[at] + (double)bias[at % M];
            other[at] += (double)bias[at % M];
        }
        assert_true(reference_distance(out, expected, N * M) < error_limit(c, F32, a));
        assert_true(reference_distance(two, other, N * M) < error_limit(c, F32, a));

        multiply(c, floats(out, N, M), floats(x, N, K), one);
        multiply(c, floats(two, N, M), floats(x, N, K), wider);
        reference_glu(expected, out, two, N * M, GATE_SILU);
        c->gated(c, floats(out, N, M), floats(x, N, K), one, wider, GATE_SILU);
        assert_true(reference_distance(out, expected, N * M) < 1e-6);
        scratch_free();
    }
}

static void check_same_bits(struct backend *c, enum type type, enum activations a, bool is_slow)
{
    enum { MAX_COUNT = 500, M = 70 };
    static const int counts[] = { 2,  3,  4,  5,  6,  7,  8,  9,  10, 11,  12,  13,
                                  14, 15, 16, 17, 23, 24, 25, 33, 64, 100, 128, 500 };
    const int k = type_facts[type].block == 1 ? 133 : 768, max = is_slow ? 66 : MAX_COUNT;
    float *x = uniforms(MAX_COUNT * k), *one = zeros(MAX_COUNT * M), *many = zeros(MAX_COUNT * M);
    const struct tensor w = prepared(c, blocks(type, M, k), type, M, k, a);
    for (int i = 0; i < max; i++)
        multiply(c, floats(one + i * M, 1, M), floats(x + i * k, 1, k), w);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && counts[i] <= max; i++) {
        if (is_slow && i % 3 != 1)
            continue;
        const int n = counts[i], from = (int)(next() % (uint64_t)(max - n + 1));
        multiply(c, floats(many, n, M), floats(x + from * k, n, k), w);
        if (memcmp(many, one + from * M, (size_t)(n * M) * sizeof(float)) != 0)
            fail_msg("%s %s %s: rows of %d differ from rows alone", c->describe(c), type_facts[type].name,
                     activations_names[a], n);
    }
    scratch_free();
}

TEST(a_row_has_the_same_bits_in_every_matmul)
{
    for_each_pair(check_same_bits);
}

// The emulated cuBLAS sums in another order when there are more rows, so that tests do not rely on equal bits there.
TEST(backends_whose_bits_vary_declare_it)
{
    enum { N = 5, M = 33, K = 64 };
    for (int b = 0; b < n_backends; b++) {
        struct backend *c = backends[b];
        float *x = uniforms(N * K), *one = zeros(N * M), *many = zeros(N * M);
        const struct tensor weight = prepared(c, uniforms(M * K), F32, M, K, ACTIVATIONS_F32);
        for (int i = 0; i < N; i++)
            multiply(c, floats(one + i * M, 1, M), floats(x + i * K, 1, K), weight);
        multiply(c, floats(many, N, M), floats(x, N, K), weight);
        const bool same = memcmp(one, many, N * M * sizeof(float)) == 0;
        assert_true(same || c->varies);
        // On a real device the bits may happen to be the same.
        assert_true(!same || !c->varies || strstr(c->describe(c), "emulated") == NULL);
        assert_int_equal(c->varies, strcmp(c->name, "cublas") == 0);
        assert_int_equal(c->varies, strstr(c->describe(c), "not the same bits") != NULL);
        scratch_free();
    }
}

// A product of n rows. kind: 0 plain, 1 with bias and residual, 2 gated.
static void run_product(struct backend *c, int kind, float *out, float *x, int n, const struct tensor w[2], float *bias)
{
    const struct tensor to = floats(out, n, w[0].rows), of = floats(x, n, w[0].width);
    const struct product p = { .out = to, .w = w[0], .bias = floats(bias, 1, w[0].rows), .add = true };
    if (kind == 0)
        multiply(c, to, of, w[0]);
    else if (kind == 1)
        c->matmul(c, of, &p, 1);
    else
        c->gated(c, to, of, w[0], w[1], GATE_SILU);
}

static void check_long_pass(struct backend *c, enum type type, enum activations a, const int size[3], int kind)
{
    static const char *const names[] = { "plain", "with bias and residual", "gated" };
    const int block = type_facts[type].block, n = size[0], m = size[1], k = (size[2] + block - 1) / block * block;
    float *x = uniforms(n * k), *bias = uniforms(m), *start = uniforms(n * m);
    float *at_once = copied(start, n * m), *short_pass = zeros(64 * m);
    const struct tensor w[2] = { prepared(c, blocks(type, m, k), type, m, k, a),
                                 prepared(c, blocks(type, m, k), type, m, k, a) };
    run_product(c, kind, at_once, x, n, w, bias);
    for (int share = 64; share > 0; share -= 63) // all rows in passes of 64, and some rows alone
        for (int i = 0; i < n; i += share == 1 ? 61 : share) {
            const int rows = share < n - i ? share : n - i;
            const size_t bytes = (size_t)(rows * m) * sizeof(float);
            memcpy(short_pass, start + i * m, bytes);
            run_product(c, kind, short_pass, x + i * k, rows, w, bias);
            if (memcmp(at_once + i * m, short_pass, bytes) != 0)
                fail_msg("%s %s %s, n %d m %d k %d, %s: rows from %d on differ from those of a pass of %d",
                         c->describe(c), type_facts[type].name, activations_names[a], n, m, k, names[kind], i, rows);
        }
    scratch_free();
}

// On a GPU long passes use other kernels, and so do passes with enough blocks for all its processors: the first two sizes have
// enough for the four processors of the emulated GPU, the last for those of a real one. The CPU gets one size, since another test
// covers its products.
static void check_long_passes(struct backend *c, enum type type, enum activations a, bool is_slow)
{
    static const int sizes[][3] = {
        { 260, 20, 576 }, { 130, 150, 64 }, { 65, 37, 32 }, { 96, 18, 1536 }, { 1300, 1300, 96 }
    };
    for (int i = 0; i < 5; i++)
        for (int kind = 0; kind < 3; kind++)
            if (strcmp(c->name, "cpu") == 0 ? i == 1
                : is_slow                   ? i == 0 || (i < 4 && ((int)type + (int)a + i) % 3 == kind)
                                            : i < 4 || strcmp(c->name, "cuda") == 0)
                check_long_pass(c, type, a, sizes[i], kind);
}

TEST(long_passes_have_the_bits_of_short_passes)
{
    for_each_pair(check_long_passes);
}

int main(int argc, char **argv)
{
    return backends_open(argc, argv) ? tests_run(NULL, backends_close) : 77;
}
