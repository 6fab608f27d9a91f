// test_attention.c - attention and its cache on every backend, against plain loops in double.
#include "core/error.h"
#include "tests/device/emulated.h"
#include "tests/device/every_backend.h"
#include "tests/device/host_memory_device.h"
#include "tests/support/tests.h"

#include <math.h>
#include <string.h>

// Two slots: the first has a tree of 70 pending rows after a prefix of 9, the second a chain without a prefix.
struct two_slots {
    struct layout layout;
    int32_t slot[80], prefix[80], place[80], position[80], parent[80];
    uint64_t ancestors[160];
};

// length: of a slot in the cache; before: rows of the first slot's prefix.
static void make_two_slots(struct two_slots *s, int length, int before)
{
    memset(s, 0, sizeof(*s));
    int n = 0;
    for (int slot = 0; slot < 2; slot++)
        for (int i = 0; i < (slot == 0 ? 70 : 10); i++, n++) {
            int parent = i == 0 ? -1 : slot == 0 ? (int)(next() % (uint64_t)i) : i - 1, at = n - i + parent;
            s->slot[n] = slot;
            s->prefix[n] = slot == 0 ? before : 0;
            s->place[n] = slot * length + s->prefix[n] + i;
            s->position[n] = parent < 0 ? s->prefix[n] : s->position[at] + 1;
            for (int w = 0; parent >= 0 && w < 2; w++)
                s->ancestors[2 * n + w] = s->ancestors[2 * at + w];
            s->ancestors[2 * n + i / 64] |= 1ull << i % 64;
        }
    s->layout = (struct layout){ n,    2, length, s->slot, s->prefix, s->place, s->position, s->ancestors, 0,
                                 NULL, 0, 0,      NULL,    NULL,      0,        NULL,        NULL };
}

// What attention reads and writes, for rows of a layout; random.
struct inputs {
    float *q, *k, *v, *angles, *out;
    struct tensor keys, values; // the cache
    int rotated;                // numbers of a head
};

static struct inputs inputs_of(const struct layout *s, const int heads[3], enum type type)
{
    const int width = heads[0] * heads[2], kv = heads[1] * heads[2], rows = 2 * s->length;
    struct inputs in = { .q = uniforms(s->n * width), .k = uniforms(s->n * kv), .v = uniforms(s->n * kv) };
    in.angles = uniforms(s->n * heads[2]);
    in.out = zeros(s->n * width);
    in.keys = tensor_of(blocks(type, rows, kv), type, rows, kv);
    in.values = tensor_of(blocks(type, rows, kv), type, rows, kv);
    in.rotated = heads[2];
    return in;
}

// Angles that rotate nothing.
static void rotate_nothing(struct inputs *in, int n, int hd)
{
    for (int i = 0; i < n * hd; i++)
        in->angles[i] = i % hd < hd / 2 ? 1 : 0;
}

// Rows `first` and those behind it, of which the layout is.
static void attend(struct backend *c, const struct inputs *in, const struct layout *s, const int heads[3], int first,
                   struct attention a)
{
    const int width = heads[0] * heads[2], kv = heads[1] * heads[2], n = s->n;
    a.head_dim = heads[2];
    c->attend(c, floats(in->out + first * width, n, width), floats(in->q + first * width, n, width),
              floats(in->k + first * kv, n, kv), floats(in->v + first * kv, n, kv),
              in->rotated > 0 ? floats(in->angles + first * in->rotated, n, in->rotated) : (struct tensor){ 0 },
              in->keys, in->values, s, a);
}

static void check_with(struct backend *c, const struct layout *layout, const int heads[3], enum type type,
                       struct attention a)
{
    const int h = heads[0], kv = heads[1], hd = heads[2], n = layout->n, rows = 2 * layout->length;
    struct inputs in = inputs_of(layout, heads, type);
    float *keys = zeros(rows * kv * hd), *values = zeros(rows * kv * hd);
    double *expected = doubles(n * h * hd);
    rotate_nothing(&in, n, hd);
    for (int i = 0; i < n * h * hd; i++)
        in.q[i] *= 3;
    const float *q_before = copied(in.q, n * h * hd);
    attend(c, &in, layout, heads, 0, a);
    c->take(c, floats(keys, rows, kv * hd), in.keys, each_row(rows)); // with the rows of the pass
    c->take(c, floats(values, rows, kv * hd), in.values, each_row(rows));
    a.head_dim = hd;
    reference_attend(expected, q_before, keys, values, layout, h, kv, a);
    double d = reference_distance(in.out, expected, n * h * hd);
    backends_note(c, d);
    if (!(d < 2e-6)) // 1.7e-6 at worst, of the emulated GPU; 1.4e-6 of a CPU
        fail_msg("%s heads %d/%d of %d, %s, %d rows, scale %g, cap %g, window %d: distance %g", c->describe(c), h, kv,
                 hd, type_facts[type].name, n, (double)a.scale, (double)a.cap, a.window, d);
    scratch_free();
}

TEST(attention_over_trees_agrees_with_plain_loops)
{
    static const int heads[][3] = { { 4, 4, 8 }, { 9, 3, 64 },  { 5, 1, 12 },  { 2, 1, 80 },
                                    { 3, 3, 2 }, { 30, 1, 16 }, { 40, 1, 96 }, { 4, 2, 128 } };
    struct two_slots s;
    make_two_slots(&s, 90, 9);
    for (int b = 0; b < n_backends; b++)
        for (size_t i = 0; i < 2 * sizeof(heads) / sizeof(heads[0]); i++)
            check_with(backends[b], &s.layout, heads[i / 2], i % 2 == 0 ? F32 : BF16, (struct attention){ 0 });
}

static const enum type cache_types[] = { F32, BF16, Q8_0 };

// Sequences of several splits: with few rows the threads divide the splits, with many the rows.
TEST(attention_over_long_sequences_and_quantized_caches)
{
    struct two_slots s;
    make_two_slots(&s, 1380, 1290);
    for (int b = 0; b < n_backends; b++)
        for (int few = 0; few < 2; few++)
            for (int t = 0; t < 3; t++) {
                struct layout layout = s.layout;
                layout.n = few ? 3 : layout.n;
                check_with(backends[b], &layout, (const int[]){ 6, 2, 32 }, cache_types[t], (struct attention){ 0 });
            }
}

// Prefixes for which the rows' positions end right before, at and after a multiple of 256.
TEST(attention_at_the_end_of_a_split)
{
    static const int prefixes[] = { 254, 255, 256, 510, 511, 512 };
    for (int b = 0; b < n_backends; b++)
        for (size_t k = 0; k < sizeof(prefixes) / sizeof(prefixes[0]); k += slow[b] ? 4 : 1) {
            struct two_slots s;
            make_two_slots(&s, 530, prefixes[k]);
            s.layout.n = 3;
            for (int t = 0; t < 3; t++)
                check_with(backends[b], &s.layout, (const int[]){ 2, 1, 32 }, cache_types[t], (struct attention){ 0 });
        }
}

// A window that begins within a tree, at a multiple of a split, one before it and after it, and before the text; caps and scales.
TEST(scores_are_scaled_capped_and_seen_within_a_window)
{
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
    make_two_slots(&s, 790, 700);
    for (int b = 0; b < n_backends; b++)
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k += slow[b] ? 3 : 1)
            for (int few = 0; few < 2; few++) {
                struct layout layout = s.layout;
                layout.n = few ? 3 : layout.n;
                check_with(backends[b], &layout, heads[k % 2], k % 3 == 0 ? BF16 : F32, kinds[k]);
            }
}

// bfloat16 rounds to nearest, q8_0 to half a step of its blocks' scales.
TEST(a_cache_of_fewer_bits_rounds_to_its_type)
{
    enum { HD = 32, K = 2 * HD };
    struct two_slots s;
    make_two_slots(&s, 90, 9);
    const int n = s.layout.n, heads[] = { 2, 2, HD };
    for (int b = 0; b < n_backends; b++)
        for (int half = 0; half < 2; half++) {
            struct inputs in = inputs_of(&s.layout, heads, half ? BF16 : Q8_0);
            float *got = zeros(n * K);
            rotate_nothing(&in, n, HD);
            attend(backends[b], &in, &s.layout, heads, 0, (struct attention){ 0 });
            for (int w = 0; w < 2; w++) {
                const float *before = w == 0 ? in.k : in.v;
                backends[b]->take(backends[b], floats(got, n, K), w == 0 ? in.keys : in.values, s.place);
                for (int i = 0; i < n * K; i++) {
                    float max = 0;
                    for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++)
                        max = fmaxf(max, fabsf(before[j]));
                    float step = half ? fabsf(before[i]) * 0x1p-8f : max / 127 * 0.5f + max * 0x1p-11f;
                    assert_true(fabsf(got[i] - before[i]) <= step * 1.001f);
                }
            }
            scratch_free();
        }
}

TEST(queries_and_keys_are_rotated_by_position_and_rows_are_written_to_their_places)
{
    enum { HEADS = 6, KV = 3, HD = 24, Q = HEADS * HD, K = KV * HD };
    static const int heads[] = { HEADS, KV, HD };
    struct two_slots s;
    make_two_slots(&s, 90, 9);
    const int n = s.layout.n;
    for (int i = 0; i < n; i++)
        s.position[i] *= 37;
    for (int b = 0; b < 3 * n_backends; b++) { // all numbers of a head, a third of them, none
        struct backend *c = backends[b / 3];
        struct inputs in = inputs_of(&s.layout, heads, F32);
        float frequency[HD / 2], *q_rotated = zeros(n * Q), *keys = in.keys.data, *values = in.values.data;
        double *expected = doubles(n * Q);
        in.rotated = (int[]){ HD, HD / 3, 0 }[b % 3];
        for (int i = 0; i < n * Q; i++)
            expected[i] = (double)in.q[i];
        for (int d = 0; d < HD / 2; d++)
            frequency[d] = (float)pow(1e4, -2.0 * d / HD);
        if (in.rotated > 0)
            c->angles(c, floats(in.angles, n, in.rotated), &s.layout, floats(frequency, 1, in.rotated / 2));
        attend(c, &in, &s.layout, heads, 0, (struct attention){ 0 });
        for (int i = 0; i < n; i++)
            reference_rope(expected + i * Q, frequency, s.position[i], HEADS, HD, in.rotated);
        for (int i = 0; i < n * Q; i++)
            q_rotated[i] = (float)expected[i];
        reference_attend(expected, q_rotated, keys, values, &s.layout, HEADS, KV, (struct attention){ .head_dim = HD });
        assert_true(reference_distance(in.out, expected, n * Q) < 4e-6);
        for (int i = 0; i < n; i++) {
            for (int d = 0; d < K; d++)
                expected[d] = (double)in.k[i * K + d];
            reference_rope(expected, frequency, s.position[i], KV, HD, in.rotated);
            assert_true(reference_distance(keys + s.place[i] * K, expected, K) < 1e-6);
            assert_memory_equal(values + s.place[i] * K, in.v + i * K, K * sizeof(float));
        }
        scratch_free();
    }
}

// A value that is not finite reaches the rows that attend to it, and no others; a key at least no others.
TEST(infinities_reach_descendants_only)
{
    enum { HD = 64, FROM = 3 };
    struct two_slots s;
    make_two_slots(&s, 90, 9);
    for (int b = 0; b < n_backends; b++)
        for (int i = 0; i < 4; i++) {
            const bool values = i % 2 != 0, few = i / 2 != 0;
            const int heads[] = { few ? 1 : 4, 1, HD }, n = s.layout.n = few ? 4 : 16, width = heads[0] * HD;
            struct inputs in = inputs_of(&s.layout, heads, BF16);
            rotate_nothing(&in, n, HD);
            for (int d = 0; d < HD; d++)
                (values ? in.v : in.k)[FROM * HD + d] = INFINITY;
            attend(backends[b], &in, &s.layout, heads, 0, (struct attention){ 0 });
            for (int row = 0; row < n; row++)
                for (int d = 0; d < width; d++)
                    if ((s.ancestors[2 * row] >> FROM & 1) == 0)
                        assert_true(isfinite(in.out[row * width + d]));
                    else if (values)
                        assert_false(isfinite(in.out[row * width + d]));
            scratch_free();
        }
}

// ---- bits

// Rows first .. first + n of the layout.
static struct layout rows_of(const struct layout *s, int first, int n)
{
    struct layout part = *s;
    part.n = n;
    part.slot += first, part.prefix += first, part.place += first, part.position += first;
    part.ancestors += first * s->words;
    return part;
}

// The rows of a layout in passes of at most `rows` rows, with inputs that depend on the shapes only: results, and the cache. window > 0: with
// a cap, too.
static struct inputs bits_of(struct backend *c, const struct layout *s, const int heads[3], enum type type, int rows,
                             int window)
{
    seed(11);
    struct inputs in = inputs_of(s, heads, type);
    for (int at = 0; at < s->n; at += rows) {
        const struct layout part = rows_of(s, at, at + rows < s->n ? rows : s->n - at);
        attend(c, &in, &part, heads, at, (struct attention){ .window = window, .cap = window > 0 ? 3 : 0 });
    }
    return in;
}

static void assert_same_bits(const struct inputs *a, struct inputs b, const struct layout *s, const int heads[3])
{
    assert_memory_equal(a->out, b.out, (size_t)(s->n * heads[0] * heads[2]) * sizeof(float));
    assert_memory_equal(a->keys.data, b.keys.data, tensor_bytes(a->keys));
    assert_memory_equal(a->values.data, b.values.data, tensor_bytes(a->values));
}

static const struct {
    int heads[3];
    enum type type;
} shapes[] = { { { 4, 1, 64 }, BF16 }, { { 4, 2, 128 }, BF16 }, { { 3, 1, 80 }, BF16 },
               { { 3, 3, 96 }, BF16 }, { { 4, 1, 24 }, F32 },   { { 2, 1, 32 }, Q8_0 } };

// On a GPU, passes of more than 64 rows write their keys and values to the cache before attention, others in the same kernel.
TEST(rows_have_the_same_bits_in_passes_of_every_length)
{
    static const int rows[] = { 64, 23, 1 };
    struct two_slots s;
    make_two_slots(&s, 200, 120);
    for (int b = 0; b < n_backends; b++)
        for (size_t i = 0; i < 2 * sizeof(shapes) / sizeof(shapes[0]); i++) {
            const int *heads = shapes[i / 2].heads, window = i % 2 == 0 ? 0 : 60;
            const enum type type = shapes[i / 2].type;
            const struct inputs all = bits_of(backends[b], &s.layout, heads, type, s.layout.n, window);
            for (size_t k = 0; k < (slow[b] && i > 3 ? 2 : 3); k++)
                assert_same_bits(&all, bits_of(backends[b], &s.layout, heads, type, rows[k], window), &s.layout, heads);
            scratch_free();
        }
}

// A GPU of many processors gets blocks of a split (256 positions), smaller ones blocks of a group (2048); one with less shared memory
// blocks of fewer rows, which compute two units at a time.
TEST(every_division_among_processors_has_the_same_bits)
{
#if defined(EMULATED_DEVICE)
    static const int processors[] = { 1, 5, 15, 1000, 15 }, shared[] = { 227, 227, 227, 227, 99 }, rows[] = { 1, 6 };
    struct two_slots s;
    make_two_slots(&s, 2200, 2110);
    for (size_t i = 0; i < 2 * sizeof(shapes) / sizeof(shapes[0]); i++)
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            const int *heads = shapes[i / 2].heads, window = i % 2 == 0 ? 0 : 900;
            const struct layout layout = rows_of(&s.layout, 40, rows[r]); // of a tree, far from its root
            struct inputs one = { NULL };
            for (size_t k = 0; k < sizeof(processors) / sizeof(processors[0]); k++) {
                struct error err;
                emulated_processors(processors[k]);
                emulated_shared_limit((size_t)shared[k] << 10);
                struct backend *b = backend_host_memory(backend_emulated(0, &err));
                const struct inputs in = bits_of(b, &layout, heads, shapes[i / 2].type, rows[r], window);
                if (k == 0)
                    one = in;
                assert_same_bits(&one, in, &layout, heads);
                b->destroy(b);
            }
            scratch_free();
        }
    emulated_shared_limit(227 << 10);
    emulated_processors(4);
#endif
}

// On a CPU, one thread reads all kv heads of a cache row at once; more threads get some heads or some splits each.
TEST(every_division_among_threads_has_the_same_bits)
{
    static const int heads[][3] = { { 9, 3, 64 }, { 4, 4, 24 }, { 8, 2, 32 } }, rows[] = { 1, 2, 7 };
    struct two_slots s;
    make_two_slots(&s, 1400, 1300);
    for (size_t i = 0; i < 54; i++) {
        const int *h = heads[i % 3], n = rows[i / 3 % 3], window = i < 27 ? 0 : 700;
        const enum type type = h[2] % 32 != 0 && cache_types[i / 9 % 3] == Q8_0 ? F32 : cache_types[i / 9 % 3];
        const struct layout layout = rows_of(&s.layout, 40, n); // of a tree, far from its root
        struct inputs one = { NULL };
        for (int k = 0; k <= 5; k++) { // one thread, row by row; one to five threads
            struct error err;
            struct backend *b = backend_cpu(k == 0 ? 1 : k, &err);
            const struct inputs in = bits_of(b, &layout, h, type, k == 0 ? 1 : n, window);
            if (k == 0)
                one = in;
            assert_same_bits(&one, in, &layout, h);
            b->destroy(b);
        }
        scratch_free();
    }
}

int main(int argc, char **argv)
{
    return backends_open(argc, argv) ? tests_run(NULL, backends_close) : 77;
}
