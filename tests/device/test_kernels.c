// test_kernels.c - every operation of every backend against plain loops in double, and the bits of a row in different calls:
// alone, among other rows, with other numbers of threads.
//
//     test_kernels [cpu|emulated|emulated-cublas|cuda|cublas [small]]
//
// Optionally one kind of device only; small: smaller shapes, for slow checkers. Backends whose bits vary (backend.varies) are
// compared bit by bit only in operations that copy rows.
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "exact/instance.h"
#include "kernels/backend.h"
#include "tests/support/check.h"
#include "tests/device/host_memory_device.h"
#include "tests/device/gpus.h"
#include "tests/device/reference_operations.h"

enum { MAX_BACKENDS = 6 + MAX_GPUS_HERE };
static struct backend *backends[MAX_BACKENDS];
static bool slow[MAX_BACKENDS]; // large shapes are skipped on slow backends
static int n_backends;

static uint64_t state = 1;

static uint64_t next(void)
{
    return splitmix(&state);
}

static float uniform(void)
{
    return (float)(next() >> 40) * 0x1p-23f - 1;
}

static float *uniforms(int64_t n)
{
    float *x = xmalloc((size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++)
        x[i] = uniform();
    return x;
}

// Whether this backend has products of such weights with such activations.
static bool rounds(struct backend *b, enum activations a, enum type weights)
{
    return b->rounds_to(b, a, weights) == a && !(strcmp(b->name, "cublas") == 0 && type_is_quantized(weights));
}

static struct tensor floats(float *x, int64_t rows, int64_t width)
{
    return tensor_of(x, F32, rows, width);
}

// Random blocks with plausible scales: random bytes, in which the halves that scale a block are then replaced.
static uint8_t *blocks(enum type type, int64_t rows, int64_t width)
{
    static const int scales[TYPES][2] = {
        [Q8_0] = { 0, -1 }, [Q4_0] = { 0, -1 }, [Q4_1] = { 0, 2 }, [Q5_0] = { 0, -1 },
        [Q5_1] = { 0, 2 },  [Q4_K] = { 0, 2 },  [Q5_K] = { 0, 2 }, [Q6_K] = { 208, -1 }
    };
    size_t bytes = (size_t)rows * type_row_bytes(type, width);
    uint8_t *b = xmalloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        b[i] = (uint8_t)next();
    for (size_t at = 0; at < bytes; at += (size_t)type_facts[type].bytes) {
        if (type == F16 || type == BF16) {
            uint16_t h = (uint16_t)((type == F16 ? 0x3000 : 0x3E00) | (next() & 0x83FF));
            memcpy(b + at, &h, 2);
        } else if (type == F32) {
            float x = uniform();
            memcpy(b + at, &x, 4);
        } else {
            for (int s = 0; s < 2; s++)
                if (scales[type][s] >= 0) {
                    uint16_t h = (uint16_t)(0x2000 | (next() & 0x87FF));
                    memcpy(b + at + scales[type][s], &h, 2);
                }
        }
    }
    return b;
}

static struct tensor prepared(struct backend *b, void *data, enum type type, int64_t rows, int64_t width,
                              enum activations a)
{
    struct error err;
    struct tensor w = b->prepare(b, tensor_of(data, type, rows, width), a, &err);
    if (w.data == NULL)
        fail_msg("%s", err.text);
    return w;
}

static struct json *golden(const char *name)
{
    struct error err;
    char *path = xformat("%s/%s", CASES, name);
    struct json *j = json_read(path, &err);
    if (j == NULL)
        fail_msg("%s", err.text);
    free(path);
    return j;
}

static void blocks_dequantize_as_in_gguf_py(void **unused)
{
    (void)unused;
    struct json *j = golden("blocks.json");
    for (int b = 0; b < n_backends; b++)
        for (int t = 1; t < TYPES; t++) {
            char name[8] = { 0 };
            for (size_t i = 0; type_facts[t].name[i] != '\0'; i++)
                name[i] = (char)toupper(type_facts[t].name[i]);
            struct json *list = json_get(json_get(j, name), "blocks");
            assert_true(json_count(list) > 0);
            for (size_t i = 0; i < json_count(list); i++) {
                const char *hex = json_text(json_get(json_at(list, i), "hex"));
                struct json *values = json_get(json_at(list, i), "values");
                uint8_t bytes[1024];
                float out[256];
                size_t n = strlen(hex) / 2, width = json_count(values);
                for (size_t k = 0; k < n; k++)
                    sscanf(hex + 2 * k, "%2hhx", &bytes[k]);
                assert_int_equal(n, type_row_bytes((enum type)t, (int64_t)width));
                backends[b]->take(backends[b], floats(out, 1, (int64_t)width),
                                  tensor_of(bytes, (enum type)t, 1, (int64_t)width), &(const int32_t){ 0 });
                for (size_t k = 0; k < width; k++) {
                    double expected = json_number(json_at(values, k)), got = (double)out[k];
                    // A fused multiply-add may round less than gguf-py's two steps, relative to the terms.
                    double scale = 0;
                    for (size_t l = 0; l < width; l++)
                        scale = fmax(scale, fabs(json_number(json_at(values, l))));
                    if (!(fabs(got - expected) <= 1e-6 * fabs(expected) + 2e-7 * scale))
                        fail_msg("%s %s: element %zu is %.9g, not %.9g", backends[b]->describe(backends[b]), name, k,
                                 got, expected);
                }
            }
        }
    json_free(j);
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

static void matmul_agrees_with_plain_loops_in_double(void **unused)
{
    (void)unused;
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
                struct backend *c = backends[b];
                if (k == 0 || !rounds(c, a, (enum type)t) || (slow[b] && n * k > 20000 && n < 65))
                    continue;
                float *x = uniforms(n * k), *rounded = uniforms(n * k), *out = uniforms(n * m), *w = uniforms(m * k);
                uint8_t *blocked = blocks((enum type)t, m, k);
                double *expected = xcalloc((size_t)(n * m), sizeof(double));
                int32_t *row = xcalloc((size_t)m, sizeof(int32_t));
                for (int r = 0; r < m; r++)
                    row[r] = r;
                c->take(c, floats(w, m, k), tensor_of(blocked, (enum type)t, m, k), row);
                avoid_halves(x, n * k);
                round_activations(rounded, x, n, k, a, type_is_quantized((enum type)t));
                reference_matmul(expected, rounded, w, n, m, k);
                struct tensor weight = prepared(c, blocked, (enum type)t, m, k, a);
                multiply(c, floats(out, n, m), floats(x, n, k), weight);
                double d = reference_distance(out, expected, n * m);
                if (!(d < 4e-6)) // sums are chains of k terms
                    fail_msg("%s %s %s n %d m %d k %d: distance %g", c->describe(c), type_facts[t].name,
                             activations_names[a], n, m, k, d);
                c->unprepare(c, weight);
                free(x), free(rounded), free(out), free(w), free(blocked), free(expected), free(row);
            }
}

static void products_of_one_input_take_bias_and_residual(void **unused)
{
    (void)unused;
    enum { N = 7, K = 64, M = 37, L = 50 };
    for (int b = 0; b < n_backends; b++)
        for (int a = ACTIVATIONS_F32; a <= ACTIVATIONS_INT8; a++) {
            struct backend *c = backends[b];
            if (!rounds(c, (enum activations)a, Q4_1))
                continue;
            float *x = uniforms(N * K), *w = uniforms(M * K), *bias = uniforms(M), *start = uniforms(N * M);
            float *one = uniforms(N * M), *two = uniforms(N * L), *plain = uniforms(N * M), *other = uniforms(N * L);
            float *wide = uniforms(L * K);
            uint8_t *v = blocks(Q4_1, L, K), *u = blocks(Q8_0, L, K);
            struct tensor first = prepared(c, w, F32, M, K, (enum activations)a),
                          second = prepared(c, v, Q4_1, L, K, (enum activations)a),
                          third = prepared(c, u, Q8_0, L, K, (enum activations)a);
            memcpy(one, start, N * M * sizeof(float));
            const struct product p[] = {
                { .out = floats(one, N, M), .w = first, .bias = floats(bias, 1, M), .add = true },
                { .out = floats(two, N, L), .w = second },
            };
            c->matmul(c, floats(x, N, K), p, 2);
            multiply(c, floats(plain, N, M), floats(x, N, K), first);
            multiply(c, floats(other, N, L), floats(x, N, K), second);
            assert_memory_equal(two, other, N * L * sizeof(float));
            for (int i = 0; i < N * M; i++)
                assert_true(one[i] == start[i] + (plain[i] + bias[i % M]));
            // gated: weights of one type, of two, and of two whose rows are rounded differently
            struct tensor gates[] = { second, second, prepared(c, wide, F32, L, K, (enum activations)a) };
            struct tensor ups[] = { second, third, third };
            for (int g = 0; g < 3; g++) {
                double *expected = xcalloc(N * L, sizeof(double));
                float *gated = uniforms(N * L);
                c->gated(c, floats(gated, N, L), floats(x, N, K), gates[g], ups[g]);
                multiply(c, floats(two, N, L), floats(x, N, K), gates[g]);
                multiply(c, floats(other, N, L), floats(x, N, K), ups[g]);
                reference_swiglu(expected, two, other, N * L);
                assert_true(reference_distance(gated, expected, N * L) < 1e-6);
                free(expected), free(gated);
            }
            c->unprepare(c, gates[2]);
            c->unprepare(c, first), c->unprepare(c, second), c->unprepare(c, third);
            free(x), free(w), free(bias), free(start), free(one), free(two), free(plain), free(other), free(v), free(u),
                free(wide);
        }
}

// Float weights, which every backend supports: compared with loops in double, up to rounding.
static void products_of_floats_take_bias_residual_and_gate(void **unused)
{
    (void)unused;
    enum { N = 7, K = 96, M = 37 };
    for (int i = 0; i < n_backends * 3 * 2; i++) {
        struct backend *c = backends[i / 6];
        const enum type type = (enum type[]){ F32, F16, BF16 }[i % 3];
        const enum activations a = i / 3 % 2 == 0 ? ACTIVATIONS_F32 : ACTIVATIONS_BF16;
        if (!rounds(c, a, type))
            continue;
        float *x = uniforms(N * K), *rounded = uniforms(N * K), *bias = uniforms(M), *start = uniforms(N * M);
        float *out = uniforms(N * M), *two = uniforms(N * M), *first = uniforms(M * K), *second = uniforms(M * K);
        uint8_t *v = blocks(type, M, K), *u = blocks(type, M, K);
        double *expected = xcalloc(N * M, sizeof(double)), *other = xcalloc(N * M, sizeof(double));
        int32_t row[M];
        for (int r = 0; r < M; r++)
            row[r] = r;
        c->take(c, floats(first, M, K), tensor_of(v, type, M, K), row);
        c->take(c, floats(second, M, K), tensor_of(u, type, M, K), row);
        struct tensor one = prepared(c, v, type, M, K, a), wider = prepared(c, u, type, M, K, a);
        c->take(c, floats(rounded, M < N ? M : N, K), wider, row); // a prepared weight as a table
        assert_memory_equal(rounded, second, N * K * sizeof(float));
        round_activations(rounded, x, N, K, a, false);

        memcpy(out, start, N * M * sizeof(float));
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
        assert_true(reference_distance(out, expected, N * M) < 4e-6);
        assert_true(reference_distance(two, other, N * M) < 4e-6);

        multiply(c, floats(out, N, M), floats(x, N, K), one);
        multiply(c, floats(two, N, M), floats(x, N, K), wider);
        reference_swiglu(expected, out, two, N * M);
        c->gated(c, floats(out, N, M), floats(x, N, K), one, wider);
        assert_true(reference_distance(out, expected, N * M) < 4e-6);
        c->unprepare(c, one), c->unprepare(c, wider);
        free(x), free(rounded), free(bias), free(start), free(out), free(two), free(first), free(second), free(v),
            free(u), free(expected), free(other);
    }
}

static void a_row_has_the_same_bits_in_every_matmul(void **unused)
{
    (void)unused;
    enum { MAX_COUNT = 500, M = 70 };
    static const int counts[] = { 2,  3,  4,  5,  6,  7,  8,  9,  10, 11,  12,  13,
                                  14, 15, 16, 17, 23, 24, 25, 33, 64, 100, 128, 500 };
    for (int b = 0; b < n_backends; b++)
        for (int t = 0; t < TYPES; t++)
            for (int a = ACTIVATIONS_F32; a <= ACTIVATIONS_INT8; a++) {
                struct backend *c = backends[b];
                if (c->varies || !rounds(c, (enum activations)a, (enum type)t))
                    continue;
                int k = type_facts[t].block == 1 ? 133 : 768;
                const int max = slow[b] ? 66 : MAX_COUNT;
                float *x = uniforms(MAX_COUNT * k), *one = uniforms(MAX_COUNT * M), *many = uniforms(MAX_COUNT * M);
                uint8_t *blocked = blocks((enum type)t, M, k);
                struct tensor w = prepared(c, blocked, (enum type)t, M, k, (enum activations)a);
                for (int i = 0; i < max; i++)
                    multiply(c, floats(one + i * M, 1, M), floats(x + i * k, 1, k), w);
                for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && counts[i] <= max; i++) {
                    if (slow[b] && i % 3 != 1)
                        continue;
                    int n = counts[i], from = (int)(next() % (uint64_t)(max - n + 1));
                    multiply(c, floats(many, n, M), floats(x + from * k, n, k), w);
                    if (memcmp(many, one + from * M, (size_t)(n * M) * sizeof(float)) != 0)
                        fail_msg("%s %s %s: rows of %d differ from rows alone", c->describe(c), type_facts[t].name,
                                 activations_names[a], n);
                }
                c->unprepare(c, w);
                free(x), free(one), free(many), free(blocked);
            }
}

// The emulated cuBLAS sums in another order when there are more rows, so that tests do not rely on equal bits there.
static void backends_whose_bits_vary_declare_it(void **unused)
{
    (void)unused;
    enum { N = 5, M = 33, K = 64 };
    for (int b = 0; b < n_backends; b++) {
        struct backend *c = backends[b];
        float *x = uniforms(N * K), *w = uniforms(M * K), *one = uniforms(N * M), *many = uniforms(N * M);
        struct tensor weight = prepared(c, w, F32, M, K, ACTIVATIONS_F32);
        for (int i = 0; i < N; i++)
            multiply(c, floats(one + i * M, 1, M), floats(x + i * K, 1, K), weight);
        multiply(c, floats(many, N, M), floats(x, N, K), weight);
        const bool same = memcmp(one, many, N * M * sizeof(float)) == 0;
        assert_true(same || c->varies);
        // On a real device the bits may happen to be the same.
        assert_true(!same || !c->varies || strstr(c->describe(c), "emulated") == NULL);
        assert_int_equal(c->varies, strcmp(c->name, "cublas") == 0);
        assert_int_equal(c->varies, strstr(c->describe(c), "not the same bits") != NULL);
        c->unprepare(c, weight);
        free(x), free(w), free(one), free(many);
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
        c->gated(c, to, of, w[0], w[1]);
}

static void check_long_pass(struct backend *c, enum type type, enum activations a, const int size[3], int kind)
{
    static const char *const names[] = { "plain", "with bias and residual", "gated" };
    const int block = type_facts[type].block, n = size[0], m = size[1], k = (size[2] + block - 1) / block * block;
    float *x = uniforms(n * k), *bias = uniforms(m), *start = uniforms(n * m);
    float *at_once = uniforms(n * m), *short_pass = uniforms(64 * m);
    uint8_t *gate = blocks(type, m, k), *up = blocks(type, m, k);
    const struct tensor w[2] = { prepared(c, gate, type, m, k, a), prepared(c, up, type, m, k, a) };
    memcpy(at_once, start, (size_t)(n * m) * sizeof(float));
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
    c->unprepare(c, w[0]), c->unprepare(c, w[1]);
    free(x), free(bias), free(start), free(at_once), free(short_pass), free(gate), free(up);
}

// On a GPU long passes use other kernels, and so do passes with enough blocks for all its processors: the first two sizes have
// enough for the four processors of the emulated GPU, the last for those of a real one. The CPU gets one size, since another test
// covers its products.
static void long_passes_have_the_bits_of_short_passes(void **unused)
{
    (void)unused;
    static const int sizes[][3] = {
        { 260, 20, 576 }, { 130, 150, 64 }, { 65, 37, 32 }, { 96, 18, 1536 }, { 1300, 1300, 96 }
    };
    for (int b = 0; b < n_backends; b++)
        for (int t = 0; t < TYPES; t++)
            for (int a = ACTIVATIONS_F32; a <= ACTIVATIONS_INT8; a++)
                for (int i = 0; i < 5 && !backends[b]->varies && rounds(backends[b], (enum activations)a, (enum type)t);
                     i++)
                    for (int kind = 0; kind < 3; kind++) {
                        const bool cpu = strcmp(backends[b]->name, "cpu") == 0;
                        const bool skip = cpu       ? i != 1
                                          : slow[b] ? i == 4 || (i > 0 && (t + a + i) % 3 != kind)
                                                    : i == 4 && strcmp(backends[b]->name, "cuda") != 0;
                        if (!skip)
                            check_long_pass(backends[b], (enum type)t, (enum activations)a, sizes[i], kind);
                    }
}

static void operations_on_rows_agree_with_plain_loops(void **unused)
{
    (void)unused;
    for (int b = 0; b < n_backends; b++)
        for (int width = 1; width < 2100; width = width * 3 + 1) {
            struct backend *c = backends[b];
            enum { N = 5 };
            float *x = uniforms(N * width), *w = uniforms(N * width), *out = uniforms(N * width);
            double *expected = xcalloc((size_t)(N * width), sizeof(double));

            reference_rmsnorm(expected, x, w, N, width, 1e-5);
            c->rmsnorm(c, floats(out, N, width), floats(x, N, width), floats(w, 1, width), 1e-5f);
            assert_true(reference_distance(out, expected, N * width) < 1e-6);

            for (int i = 0; i < N * width; i++)
                x[i] *= 20;
            reference_swiglu(expected, x, w, N * width);
            c->swiglu(c, floats(out, N, width), floats(x, N, width), floats(w, N, width));
            assert_true(reference_distance(out, expected, N * width) < 1e-6);
            reference_swiglu(expected, x, NULL, N * width);
            c->swiglu(c, floats(out, N, width), floats(x, N, width), (struct tensor){ 0 });
            assert_true(reference_distance(out, expected, N * width) < 1e-6);

            memcpy(out, x, (size_t)(N * width) * sizeof(float));
            c->add(c, floats(out, N, width), floats(w, N, width));
            for (int i = 0; i < N * width; i++)
                assert_true(out[i] == x[i] + w[i]);
            memcpy(out, x, (size_t)(N * width) * sizeof(float));
            c->add(c, floats(out, N, width), floats(w, 1, width));
            for (int i = 0; i < N * width; i++)
                assert_true(out[i] == x[i] + w[i % width]);
            free(x), free(w), free(out), free(expected);
        }
}

static void swiglu_is_accurate_at_the_ends_of_the_range(void **unused)
{
    (void)unused;
    float gate[] = { -200, -100, -88, -87, -50, 0, 50, 87, 88, 100, 200, -0.0f };
    enum { N = sizeof(gate) / sizeof(gate[0]) };
    double expected[N];
    float out[N];
    reference_swiglu(expected, gate, NULL, N);
    for (int b = 0; b < n_backends; b++) {
        backends[b]->swiglu(backends[b], floats(out, 1, N), floats(gate, 1, N), (struct tensor){ 0 });
        for (int i = 0; i < N; i++)
            assert_true(fabs((double)out[i] - expected[i]) <= 1e-6 * fabs(expected[i]) + 1e-35);
    }
}

// Two slots: the first has a tree of 70 pending rows after a prefix of 9, the second a chain without a prefix.
struct two_slots {
    struct layout layout;
    int32_t slot[80], prefix[80], place[80], position[80], parent[80];
    uint64_t ancestors[160];
};

static void make_two_slots(struct two_slots *s, int length)
{
    memset(s, 0, sizeof(*s));
    int n = 0;
    for (int slot = 0; slot < 2; slot++)
        for (int i = 0; i < (slot == 0 ? 70 : 10); i++, n++) {
            int parent = i == 0 ? -1 : slot == 0 ? (int)(next() % (uint64_t)i) : i - 1, at = n - i + parent;
            s->slot[n] = slot;
            s->prefix[n] = slot == 0 ? 9 : 0;
            s->place[n] = slot * length + s->prefix[n] + i;
            s->position[n] = parent < 0 ? s->prefix[n] : s->position[at] + 1;
            for (int w = 0; parent >= 0 && w < 2; w++)
                s->ancestors[2 * n + w] = s->ancestors[2 * at + w];
            s->ancestors[2 * n + i / 64] |= 1ull << i % 64;
        }
    s->layout = (struct layout){ n, 2, length, s->slot, s->prefix, s->place, s->position, s->ancestors, 0, NULL, 0 };
}

static void check_attention(struct backend *c, const struct layout *layout, const int heads[3], enum type type)
{
    int h = heads[0], kv = heads[1], hd = heads[2], n = layout->n, rows = 2 * layout->length;
    float *q = uniforms(n * h * hd), *out = uniforms(n * h * hd);
    float *keys = uniforms(rows * kv * hd), *values = uniforms(rows * kv * hd);
    uint8_t *cache_keys = blocks(type, rows, kv * hd), *cache_values = blocks(type, rows, kv * hd);
    double *expected = xcalloc((size_t)(n * h * hd), sizeof(double));
    int32_t *row = xcalloc((size_t)rows, sizeof(int32_t));
    for (int r = 0; r < rows; r++)
        row[r] = r;
    for (int k = 0; k < n * h * hd; k++)
        q[k] *= 3;
    struct tensor k = tensor_of(cache_keys, type, rows, kv * hd), v = tensor_of(cache_values, type, rows, kv * hd);
    c->take(c, floats(keys, rows, kv * hd), k, row);
    c->take(c, floats(values, rows, kv * hd), v, row);
    reference_attend(expected, q, keys, values, layout, h, kv, hd);
    c->attend(c, floats(out, n, h * hd), floats(q, n, h * hd), k, v, layout, hd);
    double d = reference_distance(out, expected, n * h * hd);
    if (!(d < 4e-6))
        fail_msg("%s heads %d/%d of %d, %s, %d rows: distance %g", c->describe(c), h, kv, hd, type_facts[type].name, n,
                 d);
    free(q), free(keys), free(values), free(out), free(expected), free(row), free(cache_keys), free(cache_values);
}

static void attention_over_trees_agrees_with_plain_loops(void **unused)
{
    (void)unused;
    static const int heads[][3] = { { 4, 4, 8 }, { 9, 3, 64 }, { 5, 1, 12 }, { 2, 1, 80 }, { 3, 3, 2 }, { 30, 1, 16 } };
    struct two_slots s;
    make_two_slots(&s, 90);
    for (int b = 0; b < n_backends; b++)
        for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
            check_attention(backends[b], &s.layout, heads[i], F32);
            check_attention(backends[b], &s.layout, heads[i], BF16);
        }
}

// Sequences of several splits: with few rows the threads divide the splits, with many the rows.
static void attention_over_long_sequences_and_quantized_caches(void **unused)
{
    (void)unused;
    enum { PREFIX = 1290, LENGTH = PREFIX + 90 };
    static const int heads[3] = { 6, 2, 32 };
    struct two_slots s;
    make_two_slots(&s, LENGTH);
    for (int i = 0; i < s.layout.n; i++)
        if (s.slot[i] == 0) {
            s.prefix[i] += PREFIX - 9;
            s.position[i] += PREFIX - 9;
            s.place[i] += PREFIX - 9;
        }
    for (int b = 0; b < n_backends; b++)
        for (int small_shapes = 0; small_shapes < 2; small_shapes++) {
            struct layout layout = s.layout;
            layout.n = small_shapes ? 3 : layout.n;
            check_attention(backends[b], &layout, heads, F32);
            check_attention(backends[b], &layout, heads, BF16);
            check_attention(backends[b], &layout, heads, Q8_0);
        }
}

// Prefixes for which the rows' positions end right before, at and after a multiple of 256.
static void attention_at_the_end_of_a_split(void **unused)
{
    (void)unused;
    enum { LENGTH = 530 };
    static const int heads[3] = { 2, 1, 32 }, prefixes[] = { 254, 255, 256, 510, 511, 512 };
    for (int b = 0; b < n_backends; b++)
        for (size_t k = 0; k < sizeof(prefixes) / sizeof(prefixes[0]); k += slow[b] ? 4 : 1) {
            struct two_slots s;
            make_two_slots(&s, LENGTH);
            struct layout layout = s.layout;
            layout.n = 3;
            for (int i = 0; i < layout.n; i++) {
                s.place[i] += prefixes[k] - s.prefix[i];
                s.position[i] += prefixes[k] - s.prefix[i];
                s.prefix[i] = prefixes[k];
            }
            check_attention(backends[b], &layout, heads, F32);
            check_attention(backends[b], &layout, heads, BF16);
            check_attention(backends[b], &layout, heads, Q8_0);
        }
}

static void store_rotates_by_position_and_writes_rows_to_their_places(void **unused)
{
    (void)unused;
    enum { HEADS = 6, KV = 3, HD = 24, Q = HEADS * HD, K = KV * HD };
    struct two_slots s;
    make_two_slots(&s, 90);
    const int n = s.layout.n;
    for (int i = 0; i < n; i++)
        s.position[i] *= 37;
    for (int b = 0; b < n_backends; b++) {
        struct backend *c = backends[b];
        float frequency[HD / 2], *q = uniforms(n * Q), *k = uniforms(n * K), *v = uniforms(n * K);
        float *angles = uniforms(n * HD), *keys = xcalloc(180 * K, sizeof(float)),
              *values = xcalloc(180 * K, sizeof(float)), *q_before = xmalloc((size_t)(n * Q) * sizeof(float));
        double *expected = xcalloc((size_t)(n * Q), sizeof(double));
        memcpy(q_before, q, (size_t)(n * Q) * sizeof(float));
        for (int d = 0; d < HD / 2; d++)
            frequency[d] = (float)pow(1e4, -2.0 * d / HD);
        c->angles(c, floats(angles, n, HD), &s.layout, floats(frequency, 1, HD / 2));
        c->store(c, floats(q, n, Q), floats(k, n, K), floats(v, n, K), floats(angles, n, HD), floats(keys, 180, K),
                 floats(values, 180, K), &s.layout);
        for (int i = 0; i < n * Q; i++)
            expected[i] = (double)q_before[i];
        for (int i = 0; i < n; i++)
            reference_rope(expected + i * Q, frequency, s.position[i], HEADS, HD);
        assert_true(reference_distance(q, expected, n * Q) < 1e-6);
        for (int i = 0; i < n; i++) {
            for (int d = 0; d < K; d++)
                expected[d] = (double)k[i * K + d];
            reference_rope(expected, frequency, s.position[i], KV, HD);
            assert_true(reference_distance(keys + s.place[i] * K, expected, K) < 1e-6);
            assert_memory_equal(values + s.place[i] * K, v + i * K, K * sizeof(float));
        }
        free(q), free(k), free(v), free(angles), free(keys), free(values), free(q_before), free(expected);
    }
}

// bfloat16 rounds to nearest, q8_0 to half a step of its blocks' scales.
static void a_cache_of_fewer_bits_rounds_to_its_type(void **unused)
{
    (void)unused;
    enum { KV = 2, HD = 32, K = KV * HD };
    struct two_slots s;
    make_two_slots(&s, 90);
    const int n = s.layout.n;
    for (int b = 0; b < n_backends; b++)
        for (int half = 0; half < 2; half++) {
            struct backend *c = backends[b];
            const enum type type = half ? BF16 : Q8_0;
            float *q = uniforms(n * K), *k = uniforms(n * K), *v = uniforms(n * K),
                  *angles = xcalloc(n * HD, sizeof(float));
            float *got = uniforms(n * K);
            uint8_t *keys = xcalloc(180, type_row_bytes(type, K)), *values = xcalloc(180, type_row_bytes(type, K));
            for (int i = 0; i < n * HD; i++)
                angles[i] = i % HD < HD / 2 ? 1 : 0; // no rotation
            struct tensor tk = tensor_of(keys, type, 180, K), tv = tensor_of(values, type, 180, K);
            c->store(c, floats(q, n, K), floats(k, n, K), floats(v, n, K), floats(angles, n, HD), tk, tv, &s.layout);
            for (int w = 0; w < 2; w++) {
                const float *before_value = w == 0 ? k : v;
                c->take(c, floats(got, n, K), w == 0 ? tk : tv, s.place);
                for (int i = 0; i < n * K; i++) {
                    float max = 0;
                    for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++)
                        max = fmaxf(max, fabsf(before_value[j]));
                    float step = half ? fabsf(before_value[i]) * 0x1p-8f : max / 127 * 0.5f + max * 0x1p-11f;
                    assert_true(fabsf(got[i] - before_value[i]) <= step * 1.001f);
                }
            }
            free(q), free(k), free(v), free(angles), free(got), free(keys), free(values);
        }
}

static void place_take_and_cut_copy_the_right_rows(void **unused)
{
    (void)unused;
    for (int b = 0; b < n_backends; b++) {
        struct backend *c = backends[b];
        float *x = uniforms(80 * 6), wide[4 * 9] = { 0 };
        const int32_t row[] = { 5, 0, 5, 79 };
        float gathered[4 * 6];
        c->take(c, floats(gathered, 4, 6), floats(x, 80, 6), row);
        for (int i = 0; i < 4; i++)
            assert_memory_equal(gathered + i * 6, x + row[i] * 6, 6 * sizeof(float));
        c->place(c, floats(wide, 4, 9), 3, floats(gathered, 4, 6));
        for (int i = 0; i < 4; i++)
            assert_memory_equal(wide + i * 9 + 3, gathered + i * 6, 6 * sizeof(float));
        float again[4 * 6];
        c->cut(c, floats(again, 4, 6), floats(wide, 4, 9), 3);
        assert_memory_equal(again, gathered, sizeof(gathered));
        free(x);
    }
}

// Moves rows to TO .. TO + n in `count` consecutive tensors; all other rows stay unchanged.
static void check_move(struct backend *c, int count, int rows, int width, int n)
{
    enum { TO = 10 };
    const size_t each = (size_t)rows * (size_t)width, all = (size_t)count * each * sizeof(float);
    float *x = uniforms((int64_t)count * rows * width), *before = xmalloc(all);
    struct tensor *t = xcalloc((size_t)count, sizeof(*t));
    int32_t *row = xcalloc((size_t)n, sizeof(*row));
    memcpy(before, x, all);
    for (int k = 0; k < count; k++)
        t[k] = floats(x + (size_t)k * each, rows, width);
    for (int i = 0; i < n; i++)
        row[i] = TO + i + (i + 2) / 3;
    c->move(c, t, count, TO, row, n);
    for (int k = 0; k < count; k++)
        for (int r = 0; r < rows; r++) {
            const int source = r >= TO && r < TO + n ? row[r - TO] : r;
            const size_t at = (size_t)k * each;
            assert_memory_equal(x + at + (size_t)(r * width), before + at + (size_t)(source * width),
                                (size_t)width * sizeof(float));
        }
    free(x), free(before), free(t), free(row);
}

// More tensors and more rows than fit into one launch; rows of a multiple of 16 bytes and others.
static void rows_of_many_tensors_move_down(void **unused)
{
    (void)unused;
    for (int b = 0; b < n_backends; b++) {
        check_move(backends[b], 1, 40, 6, 4);
        check_move(backends[b], 200, 900, 2, 600);
        check_move(backends[b], 200, 30, 4, 9);
    }
}

static void best_returns_the_top_k_with_ties_to_the_lowest_id(void **unused)
{
    (void)unused;
    for (int b = 0; b < n_backends; b++)
        for (int vocab = 1; vocab < 5000; vocab = vocab * 7 + 3) {
            enum { N = 4 };
            struct backend *c = backends[b];
            int k = vocab < 9 ? vocab : 9;
            float *x = uniforms(N * vocab), log_p[N * 9];
            int32_t token[N * 9];
            for (int i = 0; i < N * vocab; i++)
                x[i] = roundf(x[i] * 20); // many ties
            c->best(c, floats(x, N, vocab), k, token, log_p);
            for (int i = 0; i < N; i++) {
                double total = 0;
                for (int v = 0; v < vocab; v++)
                    total += exp((double)x[i * vocab + v]);
                for (int r = 0; r < k; r++) {
                    int better = 0, own = token[i * k + r];
                    for (int v = 0; v < vocab; v++)
                        better += x[i * vocab + v] > x[i * vocab + own] ||
                                  (x[i * vocab + v] == x[i * vocab + own] && v < own);
                    assert_int_equal(better, r);
                    assert_true(fabs((double)log_p[i * k + r] - ((double)x[i * vocab + own] - log(total))) < 1e-5);
                }
            }
            free(x);
        }
}

static bool is_selected(const char *only, const char *device)
{
    return only == NULL || strcmp(only, device) == 0;
}

// The emulated GPU is slow, so it gets small shapes; a real one has memory of its own, so it is wrapped for host tensors.
static void add_gpus(const char *only, bool small_shapes)
{
    struct error err;
    struct gpu_here gpu[MAX_GPUS_HERE];
    const int n = gpus_here(gpu);
    for (int i = 0; i < n; i++)
        if (is_selected(only, gpu[i].name)) {
            struct backend *b = gpu[i].open(&err);
            assert_non_null(b);
            slow[n_backends] = gpu[i].emulated || small_shapes;
            backends[n_backends++] = gpu[i].emulated ? b : backend_host_memory(b);
        }
}

int main(int argc, char **argv)
{
    static const char *const isa[] = { "plain", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16" };
    static const int threads[] = { 3, 2, 3, 1, 2, 2 };
    const char *only = argc > 1 ? argv[1] : NULL;
    for (int i = 0; i < 6 && is_selected(only, "cpu"); i++) {
        struct error err;
        struct backend *b = backend_cpu_with(threads[i], isa[i], &err);
        if (b == NULL)
            printf("skipped: %s\n", err.text);
        else
            backends[n_backends++] = b;
    }
    add_gpus(only, argc > 2);
    if (n_backends == 0)
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_dequantize_as_in_gguf_py),
        cmocka_unit_test(matmul_agrees_with_plain_loops_in_double),
        cmocka_unit_test(products_of_one_input_take_bias_and_residual),
        cmocka_unit_test(products_of_floats_take_bias_residual_and_gate),
        cmocka_unit_test(a_row_has_the_same_bits_in_every_matmul),
        cmocka_unit_test(backends_whose_bits_vary_declare_it),
        cmocka_unit_test(long_passes_have_the_bits_of_short_passes),
        cmocka_unit_test(operations_on_rows_agree_with_plain_loops),
        cmocka_unit_test(swiglu_is_accurate_at_the_ends_of_the_range),
        cmocka_unit_test(attention_over_trees_agrees_with_plain_loops),
        cmocka_unit_test(attention_over_long_sequences_and_quantized_caches),
        cmocka_unit_test(attention_at_the_end_of_a_split),
        cmocka_unit_test(a_cache_of_fewer_bits_rounds_to_its_type),
        cmocka_unit_test(store_rotates_by_position_and_writes_rows_to_their_places),
        cmocka_unit_test(place_take_and_cut_copy_the_right_rows),
        cmocka_unit_test(rows_of_many_tensors_move_down),
        cmocka_unit_test(best_returns_the_top_k_with_ties_to_the_lowest_id),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < n_backends; i++)
        backends[i]->destroy(backends[i]);
    return failed;
}
