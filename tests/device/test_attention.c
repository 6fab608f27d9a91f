// test_attention.c - attention and its cache on every backend, against plain loops in double.
#include "tests/device/every_backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    if (!(d < 2e-6)) // 1.4e-6 at worst, of a CPU; 1.1e-6 of the emulated GPUs
        fail_msg("%s heads %d/%d of %d, %s, %d rows: distance %g", c->describe(c), h, kv, hd, type_facts[type].name, n,
                 d);
    free(q), free(keys), free(values), free(out), free(expected), free(row), free(cache_keys), free(cache_values);
}

static void attention_over_trees_agrees_with_plain_loops(void **unused)
{
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

// bfloat16 rounds to nearest, q8_0 to half a step of its blocks' scales.
static void a_cache_of_fewer_bits_rounds_to_its_type(void **unused)
{
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

static void store_rotates_by_position_and_writes_rows_to_their_places(void **unused)
{
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_over_trees_agrees_with_plain_loops),
        cmocka_unit_test(attention_over_long_sequences_and_quantized_caches),
        cmocka_unit_test(attention_at_the_end_of_a_split),
        cmocka_unit_test(a_cache_of_fewer_bits_rounds_to_its_type),
        cmocka_unit_test(store_rotates_by_position_and_writes_rows_to_their_places),
    };
    return backends_open(argc, argv) ? cmocka_run_group_tests(tests, NULL, backends_close) : 77;
}
