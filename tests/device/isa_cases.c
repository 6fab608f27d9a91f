#include "tests/device/isa_cases.h"

#include <stdio.h>
#include <string.h>

#include "kernels/backend.h"
#include "tests/device/random_tensors.h"

struct cases {
    struct backend *b;
    void (*result)(void *self, const char *name, const void *data, size_t bytes);
    void *self;
};

enum { M = 70 }; // outputs of a product

// ---- products

// Of three rows, one has the largest numbers only, of one sign, so that sums in sixteen bits reach their limits; one has numbers that
// lie between two integers when they are rounded to int8.
static float *rows_of(int n, int k)
{
    float *x = uniforms(n * k);
    for (int i = 0; i < n * k; i++)
        if (i / k % 3 == 0)
            x[i] = i / k % 2 == 0 ? 1.0f : -1.0f;
        else if (i / k % 3 == 1)
            x[i] = i % k % 32 == 0 ? 127.0f : (float)(next() % 253) - 126.5f;
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

static void product(const struct cases *c, enum type type, enum activations a, int n, int k)
{
    char name[64];
    uint8_t *w = blocks(type, M, k), *v = blocks(type, M, k);
    float *x = rows_of(n, k), *out = zeros(n * M);
    if (a == ACTIVATIONS_INT8)
        put_extremes(w, type, M, k);
    const struct tensor one = prepared(c->b, w, type, M, k, a), two = prepared(c->b, v, type, M, k, a);
    multiply(c->b, floats(out, n, M), floats(x, n, k), one);
    snprintf(name, sizeof(name), "product %s %s, n %d k %d", type_facts[type].name, activations_names[a], n, k);
    c->result(c->self, name, out, (size_t)(n * M) * sizeof(float));
    if (n == 6) {
        c->b->gated(c->b, floats(out, n, M), floats(x, n, k), one, two, GATE_SILU);
        memcpy(name, "gated  ", 7);
        c->result(c->self, name, out, (size_t)(n * M) * sizeof(float));
    }
    scratch_free();
}

static void products(const struct cases *c)
{
    static const int int8_rows[] = { 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 17, 25, 37 };
    static const int float_rows[] = { 1, 2, 3, 4, 5, 6, 7, 13, 25 };
    for (int t = 0; t < TYPES; t++) {
        const enum type type = (enum type)t;
        const int k = type_has_blocks(type) ? 256 : 151; // odd, and more than a tile
        for (size_t i = 0; i < sizeof(int8_rows) / sizeof(int8_rows[0]) && type_is_quantized(type); i++)
            for (int wide = 0; wide < 2; wide++)
                product(c, type, ACTIVATIONS_INT8, int8_rows[i], wide ? 768 : 256);
        for (size_t i = 0; i < sizeof(float_rows) / sizeof(float_rows[0]); i++) {
            product(c, type, ACTIVATIONS_F32, float_rows[i], k);
            product(c, type, ACTIVATIONS_BF16, float_rows[i], k);
        }
    }
}

// ---- attention

// A slot with a prefix of 301 positions, so that there are two splits, and a tree of twelve rows; and one with a chain of five.
static void attention(const struct cases *c, enum type type, int heads, int kv_heads, int hd)
{
    enum { N = 17, TREE = 12, LENGTH = 320 };
    int32_t slot[N], prefix[N], place[N], position[N];
    uint64_t ancestors[N];
    for (int i = 0; i < N; i++) {
        const int first = i < TREE ? 0 : TREE, parent = i == first ? -1 : i < TREE ? (i - 1) / 2 : i - 1;
        slot[i] = i >= TREE;
        prefix[i] = i < TREE ? 301 : 0;
        place[i] = slot[i] * LENGTH + prefix[i] + i - first;
        position[i] = parent < 0 ? prefix[i] : position[parent] + 1;
        ancestors[i] = (parent < 0 ? 0 : ancestors[parent]) | 1ull << (i - first);
    }
    struct layout s = {
        N, 1, LENGTH, slot, prefix, place, position, ancestors, 0, NULL, 0, 0, NULL, NULL, 0, NULL, NULL
    };
    const int rows = 2 * LENGTH, width = heads * hd, kv = kv_heads * hd;
    float *q = uniforms(N * width), *k = uniforms(N * kv), *v = uniforms(N * kv), *angles = uniforms(N * hd);
    float *out = zeros(N * width);
    uint8_t *keys = blocks(type, rows, kv), *values = blocks(type, rows, kv);
    char name[64];
    for (int kind = 0; kind < 4; kind++) { // all rows, one; with a cap and a window, rotated in part
        const int rotated = kind < 2 ? hd : hd / 2;
        const struct attention a = { .head_dim = hd, .cap = kind < 2 ? 0 : 5, .window = kind < 2 ? 0 : 47 };
        s.n = kind % 2 == 0 ? N : 1;
        c->b->attend(c->b, floats(out, s.n, width), floats(q, s.n, width), floats(k, s.n, kv), floats(v, s.n, kv),
                     floats(angles, s.n, rotated), tensor_of(keys, type, rows, kv), tensor_of(values, type, rows, kv),
                     &s, a);
        snprintf(name, sizeof(name), "attention %s, %d/%d heads of %d, n %d, %d", type_facts[type].name, heads,
                 kv_heads, hd, s.n, kind);
        c->result(c->self, name, out, (size_t)(s.n * width) * sizeof(float));
    }
    memcpy(name, "keys     ", 9);
    c->result(c->self, name, keys, (size_t)rows * type_row_bytes(type, kv));
    memcpy(name, "values   ", 9);
    c->result(c->self, name, values, (size_t)rows * type_row_bytes(type, kv));
    scratch_free();
}

static void attentions(const struct cases *c)
{
    static const int heads[][3] = { { 9, 3, 64 }, { 4, 2, 80 }, { 7, 1, 32 }, { 4, 4, 128 } };
    static const enum type types[] = { F32, BF16, Q8_0 };
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
            if (types[t] != Q8_0 || heads[i][2] % 32 == 0)
                attention(c, types[t], heads[i][0], heads[i][1], heads[i][2]);
}

// ---- rows

static void row_result(const struct cases *c, const char *operation, int width, const void *data, int64_t numbers)
{
    char name[64];
    snprintf(name, sizeof(name), "%s, %d", operation, width);
    c->result(c->self, name, data, (size_t)numbers * sizeof(float));
}

static void rows(const struct cases *c, int width)
{
    enum { N = 3, K = 5 };
    static const int32_t row[N] = { 2, 0, 1 };
    static const float weight[N] = { 0.3f, -1.7f, 0.9f };
    const int all = N * width;
    float *x = uniforms(all), *w = uniforms(width), *out = zeros(all), log_p[N * K];
    const struct tensor from = floats(x, N, width), to = floats(out, N, width);
    int32_t token[N * K];
    c->b->rmsnorm(c->b, to, from, floats(w, 1, width), 1e-5f);
    row_result(c, "rmsnorm", width, out, all);
    for (int i = 0; i < all; i++)
        x[i] *= 200; // beyond what exp has as a float
    c->b->glu(c->b, to, from, to, GATE_SILU);
    row_result(c, "swiglu", width, out, all);
    c->b->glu(c->b, to, from, (struct tensor){ 0 }, GATE_GELU);
    row_result(c, "gelu", width, out, all);
    c->b->mix(c->b, floats(out, 1, width), from, row, weight, N);
    row_result(c, "mix", width, out, width);
    memcpy(out, x, tensor_bytes(to));
    c->b->rescale(c->b, to, 0.01f, 30);
    row_result(c, "rescale", width, out, all);
    c->b->best(c->b, from, K, token, log_p);
    row_result(c, "best", width, log_p, N * K);
    for (int t = 0; t < TYPES; t++)
        if (width % type_facts[t].block == 0) {
            uint8_t *table = blocks((enum type)t, N, width);
            c->b->take(c->b, to, tensor_of(table, (enum type)t, N, width), row);
            row_result(c, type_facts[t].name, width, out, all);
        }
    scratch_free();
}

void isa_cases(struct backend *b, void (*result)(void *self, const char *name, const void *data, size_t bytes),
               void *self)
{
    const struct cases c = { b, result, self };
    seed(1);
    products(&c);
    attentions(&c);
    for (int width = 5; width <= 512; width += width < 64 ? 11 : 64)
        rows(&c, width);
}
