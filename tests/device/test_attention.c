// test_attention.c - attention and its cache on every backend, against plain loops in double.
#include "core/error.h"
#include "tests/device/emulated.h"
#include "tests/device/every_backend.h"
#include "tests/device/host_memory_device.h"

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
    s->layout = (struct layout){ n,    2, length, s->slot, s->prefix, s->place, s->position, s->ancestors, 0,
                                 NULL, 0, 0,      NULL,    NULL,      0,        NULL,        NULL };
}

// Angles that rotate nothing.
static float *no_rotation(int n, int hd)
{
    float *angles = xmalloc((size_t)(n * hd) * sizeof(float));
    for (int i = 0; i < n * hd; i++)
        angles[i] = i % hd < hd / 2 ? 1 : 0;
    return angles;
}

static void check_with(struct backend *c, const struct layout *layout, const int heads[3], enum type type,
                       struct attention a)
{
    int h = heads[0], kv = heads[1], hd = heads[2], n = layout->n, rows = 2 * layout->length;
    float *q = uniforms(n * h * hd), *out = uniforms(n * h * hd), *k = uniforms(n * kv * hd),
          *v = uniforms(n * kv * hd);
    float *keys = uniforms(rows * kv * hd), *values = uniforms(rows * kv * hd), *angles = no_rotation(n, hd);
    uint8_t *cache_keys = blocks(type, rows, kv * hd), *cache_values = blocks(type, rows, kv * hd);
    double *expected = xcalloc((size_t)(n * h * hd), sizeof(double));
    int32_t *row = xcalloc((size_t)rows, sizeof(int32_t));
    for (int r = 0; r < rows; r++)
        row[r] = r;
    for (int i = 0; i < n * h * hd; i++)
        q[i] *= 3;
    float *q_before = xmalloc((size_t)(n * h * hd) * sizeof(float));
    memcpy(q_before, q, (size_t)(n * h * hd) * sizeof(float));
    struct tensor tk = tensor_of(cache_keys, type, rows, kv * hd), tv = tensor_of(cache_values, type, rows, kv * hd);
    c->attend(c, floats(out, n, h * hd), floats(q, n, h * hd), floats(k, n, kv * hd), floats(v, n, kv * hd),
              floats(angles, n, hd), tk, tv, layout, a);
    c->take(c, floats(keys, rows, kv * hd), tk, row); // with the rows of the pass
    c->take(c, floats(values, rows, kv * hd), tv, row);
    reference_attend(expected, q_before, keys, values, layout, h, kv, a);
    double d = reference_distance(out, expected, n * h * hd);
    backends_note(c, d);
    if (!(d < 2e-6)) // 1.7e-6 at worst, of the emulated GPU; 1.4e-6 of a CPU
        fail_msg("%s heads %d/%d of %d, %s, %d rows, scale %g, cap %g, window %d: distance %g", c->describe(c), h, kv,
                 hd, type_facts[type].name, n, (double)a.scale, (double)a.cap, a.window, d);
    free(q), free(q_before), free(k), free(v), free(keys), free(values), free(angles), free(out), free(expected);
    free(row), free(cache_keys), free(cache_values);
}

static void check_attention(struct backend *c, const struct layout *layout, const int heads[3], enum type type)
{
    check_with(c, layout, heads, type, (struct attention){ .head_dim = heads[2] });
}

static void attention_over_trees_agrees_with_plain_loops(void **unused)
{
    static const int heads[][3] = { { 4, 4, 8 }, { 9, 3, 64 },  { 5, 1, 12 },  { 2, 1, 80 },
                                    { 3, 3, 2 }, { 30, 1, 16 }, { 40, 1, 96 }, { 4, 2, 128 } };
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

// A window that begins within a tree, at a multiple of a split, one before it and after it, and before the text; caps and scales.
static void scores_are_scaled_capped_and_seen_within_a_window(void **unused)
{
    enum { PREFIX = 700, LENGTH = PREFIX + 90 };
    static const int heads[][3] = { { 6, 2, 32 }, { 2, 1, 64 } };
    static const struct attention kinds[] = {
        { .window = 1 },   { .window = 3 },
        { .window = 40 },  { .window = 188 },
        { .window = 189 }, { .window = 190 },
        { .window = 445 }, { .window = 512 },
        { .window = 900 }, { .window = 300, .cap = 2 },
        { .cap = 0.5f },   { .cap = 50 },
        { .scale = 0.3f }, { .scale = 0.1f, .cap = 3, .window = 70 },
    };
    struct two_slots s;
    make_two_slots(&s, LENGTH);
    for (int i = 0; i < s.layout.n; i++)
        if (s.slot[i] == 0) {
            s.prefix[i] += PREFIX - 9;
            s.position[i] += PREFIX - 9;
            s.place[i] += PREFIX - 9;
        }
    for (int b = 0; b < n_backends; b++)
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k += slow[b] ? 3 : 1)
            for (int few = 0; few < 2; few++) {
                struct layout layout = s.layout;
                struct attention a = kinds[k];
                a.head_dim = heads[k % 2][2];
                layout.n = few ? 3 : layout.n;
                check_with(backends[b], &layout, heads[k % 2], k % 3 == 0 ? BF16 : F32, a);
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
            float *q = uniforms(n * K), *k = uniforms(n * K), *v = uniforms(n * K), *angles = no_rotation(n, HD);
            float *got = uniforms(n * K), *out = uniforms(n * K);
            uint8_t *keys = xcalloc(180, type_row_bytes(type, K)), *values = xcalloc(180, type_row_bytes(type, K));
            struct tensor tk = tensor_of(keys, type, 180, K), tv = tensor_of(values, type, 180, K);
            c->attend(c, floats(out, n, K), floats(q, n, K), floats(k, n, K), floats(v, n, K), floats(angles, n, HD),
                      tk, tv, &s.layout, (struct attention){ .head_dim = HD });
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
            free(q), free(k), free(v), free(angles), free(got), free(out), free(keys), free(values);
        }
}

static void queries_and_keys_are_rotated_by_position_and_rows_are_written_to_their_places(void **unused)
{
    enum { HEADS = 6, KV = 3, HD = 24, Q = HEADS * HD, K = KV * HD };
    const struct attention a = { .head_dim = HD };
    struct two_slots s;
    make_two_slots(&s, 90);
    const int n = s.layout.n;
    for (int i = 0; i < n; i++)
        s.position[i] *= 37;
    for (int b = 0; b < 3 * n_backends; b++) { // all numbers of a head, a third of them, none
        struct backend *c = backends[b / 3];
        const int rotated = (int[]){ HD, HD / 3, 0 }[b % 3];
        float frequency[HD / 2], *q = uniforms(n * Q), *k = uniforms(n * K), *v = uniforms(n * K),
                                 *out = uniforms(n * Q);
        float *angles = uniforms(n * HD), *keys = xcalloc(180 * K, sizeof(float)),
              *values = xcalloc(180 * K, sizeof(float)), *q_rotated = xmalloc((size_t)(n * Q) * sizeof(float));
        double *expected = xcalloc((size_t)(n * Q), sizeof(double));
        for (int i = 0; i < n * Q; i++)
            expected[i] = (double)q[i];
        for (int d = 0; d < HD / 2; d++)
            frequency[d] = (float)pow(1e4, -2.0 * d / HD);
        if (rotated > 0)
            c->angles(c, floats(angles, n, rotated), &s.layout, floats(frequency, 1, rotated / 2));
        c->attend(c, floats(out, n, Q), floats(q, n, Q), floats(k, n, K), floats(v, n, K),
                  rotated > 0 ? floats(angles, n, rotated) : (struct tensor){ 0 }, floats(keys, 180, K),
                  floats(values, 180, K), &s.layout, a);
        for (int i = 0; i < n; i++)
            reference_rope(expected + i * Q, frequency, s.position[i], HEADS, HD, rotated);
        for (int i = 0; i < n * Q; i++)
            q_rotated[i] = (float)expected[i];
        reference_attend(expected, q_rotated, keys, values, &s.layout, HEADS, KV, a);
        assert_true(reference_distance(out, expected, n * Q) < 4e-6);
        for (int i = 0; i < n; i++) {
            for (int d = 0; d < K; d++)
                expected[d] = (double)k[i * K + d];
            reference_rope(expected, frequency, s.position[i], KV, HD, rotated);
            assert_true(reference_distance(keys + s.place[i] * K, expected, K) < 1e-6);
            assert_memory_equal(values + s.place[i] * K, v + i * K, K * sizeof(float));
        }
        free(q), free(k), free(v), free(angles), free(keys), free(values), free(q_rotated), free(expected), free(out);
    }
}

// A value that is not finite reaches the rows that attend to it, and no others; a key at least no others.
static void infinities_reach_descendants_only(void **unused)
{
    enum { HD = 64, FROM = 3, LENGTH = 90 };
    struct two_slots s;
    make_two_slots(&s, LENGTH);
    struct layout layout = s.layout;
    for (int b = 0; b < n_backends; b++)
        for (int i = 0; i < 4; i++) {
            const bool values = i % 2 != 0, few = i / 2 != 0;
            const int n = layout.n = few ? 4 : 16, width = few ? HD : 4 * HD; // one head, or four
            float *q = uniforms(n * width), *k = uniforms(n * HD), *v = uniforms(n * HD), *out = uniforms(n * width);
            float *angles = no_rotation(n, HD);
            uint8_t *keys = blocks(BF16, 2 * LENGTH, HD), *cache_values = blocks(BF16, 2 * LENGTH, HD);
            for (int d = 0; d < HD; d++)
                (values ? v : k)[FROM * HD + d] = INFINITY;
            backends[b]->attend(backends[b], floats(out, n, width), floats(q, n, width), floats(k, n, HD),
                                floats(v, n, HD), floats(angles, n, HD), tensor_of(keys, BF16, 2 * LENGTH, HD),
                                tensor_of(cache_values, BF16, 2 * LENGTH, HD), &layout,
                                (struct attention){ .head_dim = HD });
            for (int row = 0; row < n; row++)
                for (int d = 0; d < width; d++)
                    if ((s.ancestors[2 * row] >> FROM & 1) == 0)
                        assert_true(isfinite(out[row * width + d]));
                    else if (values)
                        assert_false(isfinite(out[row * width + d]));
            free(q), free(k), free(v), free(out), free(angles), free(keys), free(cache_values);
        }
}

// ---- bits

struct bits { // of one call or several: results, and the cache
    float *out;
    uint8_t *keys, *values;
    size_t out_bytes, cache_bytes;
};

// Rows first .. first + n of the layout.
static struct layout rows_of(const struct layout *s, int first, int n)
{
    struct layout part = *s;
    part.n = n;
    part.slot += first, part.prefix += first, part.place += first, part.position += first;
    part.ancestors += first * s->words;
    return part;
}

// The rows of a layout in passes of at most `rows` rows, with inputs that depend on the shapes only.
// window > 0: with a cap, too.
static struct bits bits_of(struct backend *c, const struct layout *s, const int heads[3], enum type type, int rows,
                           int window)
{
    const struct attention a = { .head_dim = heads[2], .window = window, .cap = window > 0 ? 3 : 0 };
    const int h = heads[0] * heads[2], kv = heads[1] * heads[2], hd = heads[2], n = s->n;
    struct bits r = { .out_bytes = (size_t)(n * h) * sizeof(float),
                      .cache_bytes = 2 * (size_t)s->length * type_row_bytes(type, kv) };
    seed(11);
    r.out = uniforms(n * h);
    r.keys = blocks(type, 2 * s->length, kv), r.values = blocks(type, 2 * s->length, kv);
    float *q = uniforms(n * h), *k = uniforms(n * kv), *v = uniforms(n * kv), *angles = uniforms(n * hd);
    for (int at = 0; at < n; at += rows) {
        const int m = at + rows < n ? rows : n - at;
        const struct layout part = rows_of(s, at, m);
        c->attend(c, floats(r.out + at * h, m, h), floats(q + at * h, m, h), floats(k + at * kv, m, kv),
                  floats(v + at * kv, m, kv), floats(angles + at * hd, m, hd),
                  tensor_of(r.keys, type, 2 * s->length, kv), tensor_of(r.values, type, 2 * s->length, kv), &part, a);
    }
    free(q), free(k), free(v), free(angles);
    return r;
}

static void assert_same_bits(struct bits a, struct bits b)
{
    assert_memory_equal(a.out, b.out, a.out_bytes);
    assert_memory_equal(a.keys, b.keys, a.cache_bytes);
    assert_memory_equal(a.values, b.values, a.cache_bytes);
    free(b.out), free(b.keys), free(b.values);
}

static void drop_bits(struct bits a)
{
    free(a.out), free(a.keys), free(a.values);
}

static void make_long(struct two_slots *s, int prefix, int length)
{
    make_two_slots(s, length);
    for (int i = 0; i < s->layout.n; i++)
        if (s->slot[i] == 0) {
            s->prefix[i] += prefix - 9;
            s->position[i] += prefix - 9;
            s->place[i] += prefix - 9;
        }
}

static const struct {
    int heads[3];
    enum type type;
} shapes[] = { { { 4, 1, 64 }, BF16 }, { { 4, 2, 128 }, BF16 }, { { 3, 1, 80 }, BF16 },
               { { 3, 3, 96 }, BF16 }, { { 4, 1, 24 }, F32 },   { { 2, 1, 32 }, Q8_0 } };

// On a GPU, passes of more than 64 rows write their keys and values to the cache before attention, others in the same kernel.
static void rows_have_the_same_bits_in_passes_of_every_length(void **unused)
{
    static const int rows[] = { 64, 23, 1 };
    struct two_slots s;
    make_long(&s, 120, 200);
    for (int b = 0; b < n_backends; b++)
        for (size_t i = 0; i < 2 * sizeof(shapes) / sizeof(shapes[0]); i++) {
            const int *heads = shapes[i / 2].heads, window = i % 2 == 0 ? 0 : 60;
            const enum type type = shapes[i / 2].type;
            const struct bits all = bits_of(backends[b], &s.layout, heads, type, s.layout.n, window);
            for (size_t k = 0; k < (slow[b] && i > 3 ? 2 : 3); k++)
                assert_same_bits(all, bits_of(backends[b], &s.layout, heads, type, rows[k], window));
            drop_bits(all);
        }
}

// A GPU of many processors gets blocks of a split (256 positions), smaller ones blocks of a group (2048); one with less shared memory
// blocks of fewer rows, which compute two units at a time.
static void every_division_among_processors_has_the_same_bits(void **unused)
{
#if defined(EMULATED_DEVICE)
    static const int processors[] = { 5, 15, 1000, 15 }, shared[] = { 227, 227, 227, 99 }, rows[] = { 1, 6 };
    struct two_slots s;
    make_long(&s, 2110, 2200);
    for (size_t i = 0; i < 2 * sizeof(shapes) / sizeof(shapes[0]); i++)
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            const int *heads = shapes[i / 2].heads, window = i % 2 == 0 ? 0 : 900;
            const enum type type = shapes[i / 2].type;
            const struct layout layout = rows_of(&s.layout, 40, rows[r]); // of a tree, far from its root
            struct error err;
            emulated_processors(1);
            struct backend *one = backend_host_memory(backend_emulated(0, &err));
            const struct bits all = bits_of(one, &layout, heads, type, rows[r], window);
            for (size_t k = 0; k < sizeof(processors) / sizeof(processors[0]); k++) {
                emulated_processors(processors[k]);
                emulated_shared_limit((size_t)shared[k] << 10);
                struct backend *more = backend_host_memory(backend_emulated(0, &err));
                assert_same_bits(all, bits_of(more, &layout, heads, type, rows[r], window));
                more->destroy(more);
            }
            emulated_shared_limit(227 << 10);
            drop_bits(all);
            one->destroy(one);
        }
    emulated_processors(4);
#endif
}

// On a CPU, one thread reads all kv heads of a cache row at once; more threads get some heads or some splits each.
static void every_division_among_threads_has_the_same_bits(void **unused)
{
    static const int heads[][3] = { { 9, 3, 64 }, { 4, 4, 24 }, { 8, 2, 32 } }, rows[] = { 1, 2, 7 };
    static const enum type types[] = { F32, BF16, Q8_0 };
    struct two_slots s;
    make_long(&s, 1300, 1400);
    for (size_t i = 0; i < 54; i++) {
        const int *h = heads[i % 3], n = rows[i / 3 % 3], window = i < 27 ? 0 : 700;
        const enum type type = h[2] % 32 != 0 && types[i / 9 % 3] == Q8_0 ? F32 : types[i / 9 % 3];
        const struct layout layout = rows_of(&s.layout, 40, n); // of a tree, far from its root
        struct error err;
        struct backend *one = backend_cpu(1, &err);
        const struct bits all = bits_of(one, &layout, h, type, n, window);
        for (int threads = 2; threads <= 5; threads++) {
            struct backend *more = backend_cpu(threads, &err);
            assert_same_bits(all, bits_of(more, &layout, h, type, n, window));
            more->destroy(more);
        }
        assert_same_bits(all, bits_of(one, &layout, h, type, 1, window));
        drop_bits(all);
        one->destroy(one);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_over_trees_agrees_with_plain_loops),
        cmocka_unit_test(attention_over_long_sequences_and_quantized_caches),
        cmocka_unit_test(attention_at_the_end_of_a_split),
        cmocka_unit_test(scores_are_scaled_capped_and_seen_within_a_window),
        cmocka_unit_test(a_cache_of_fewer_bits_rounds_to_its_type),
        cmocka_unit_test(queries_and_keys_are_rotated_by_position_and_rows_are_written_to_their_places),
        cmocka_unit_test(infinities_reach_descendants_only),
        cmocka_unit_test(rows_have_the_same_bits_in_passes_of_every_length),
        cmocka_unit_test(every_division_among_processors_has_the_same_bits),
        cmocka_unit_test(every_division_among_threads_has_the_same_bits),
    };
    return backends_open(argc, argv) ? cmocka_run_group_tests(tests, NULL, backends_close) : 77;
}
