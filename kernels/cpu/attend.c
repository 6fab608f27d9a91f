#include "kernels/cpu/attend.h"

#include <assert.h>

#include "kernels/backend.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vectors.h"

enum { KEYS_AHEAD = 48 };                                       // positions; values are asked for while keys are read
enum { COLUMNS = 16, V = COLUMNS / W, ROOM = SPLIT + COLUMNS }; // positions handled together; a score row's floats
#define UNROLL _Pragma("GCC unroll 16")

// Queries, and vectors of values, in registers together.
#if defined(__AVX512F__)
enum { QUERIES = 8, SUMS = 6, WIDE = 4 };
#elif defined(__AVX2__)
enum { QUERIES = 4, SUMS = 4, WIDE = 2 };
#else
enum { QUERIES = 2, SUMS = 2, WIDE = 2 };
#endif

// ---- the cache's rows as floats

INLINE vf bf16_lanes(const uint8_t *p)
{
    typedef uint16_t vh __attribute__((vector_size(W * 2)));
    vh h;
    memcpy(&h, p, sizeof(h));
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

// W elements of a row from element d on; of Q8_0 they lie in one block.
INLINE vf row_lanes(enum type type, const uint8_t *row, int64_t d)
{
    if (type == BF16)
        return bf16_lanes(row + 2 * d);
    if (type == Q8_0) {
        const uint8_t *b = row + d / 32 * 34;
        uint16_t h;
        memcpy(&h, b, sizeof(h));
        return signed_bytes(b + 2 + d % 32) * all(half_to_float(h));
    }
    return load((const float *)row + d);
}

INLINE float row_element(enum type type, const uint8_t *row, int64_t d)
{
    if (type == BF16) {
        uint16_t h;
        memcpy(&h, row + 2 * d, sizeof(h));
        return bits_to_float((uint32_t)h << 16);
    }
    if (type == Q8_0) {
        const uint8_t *b = row + d / 32 * 34;
        uint16_t h;
        memcpy(&h, b, sizeof(h));
        return (float)(int8_t)b[2 + d % 32] * half_to_float(h);
    }
    float f;
    memcpy(&f, row + 4 * d, sizeof(f));
    return f;
}

// to [W][COLUMNS] = element d .. d + W of sixteen rows, one row to a column.
INLINE void turn_square(float *to, enum type type, const uint8_t *const row[COLUMNS], int64_t d)
{
#if defined(__AVX512F__)
    __m512 a[16], b[16];
    UNROLL
    for (int i = 0; i < 16; i++)
        a[i] = (__m512)row_lanes(type, row[i], d);
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) {
        a[i] = (__m512)_mm512_unpacklo_pd((__m512d)b[i], (__m512d)b[i + 2]);
        a[i + 1] = (__m512)_mm512_unpackhi_pd((__m512d)b[i], (__m512d)b[i + 2]);
        a[i + 2] = (__m512)_mm512_unpacklo_pd((__m512d)b[i + 1], (__m512d)b[i + 3]);
        a[i + 3] = (__m512)_mm512_unpackhi_pd((__m512d)b[i + 1], (__m512d)b[i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; i++) { // rows 4 i .. of each half, quarters of 128 bits
        b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
        b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xDD);
        b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
        b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xDD);
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_ps(to + i * 16, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
        _mm512_storeu_ps(to + (i + 8) * 16, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xDD));
        _mm512_storeu_ps(to + (i + 4) * 16, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88));
        _mm512_storeu_ps(to + (i + 12) * 16, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xDD));
    }
#elif defined(__AVX2__)
    for (int half = 0; half < COLUMNS; half += 8) {
        __m256 a[8], b[8];
        UNROLL
        for (int i = 0; i < 8; i++)
            a[i] = (__m256)row_lanes(type, row[half + i], d);
        UNROLL
        for (int i = 0; i < 8; i += 2) {
            b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
            b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
        }
        UNROLL
        for (int i = 0; i < 8; i += 4) {
            a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
            a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xEE);
            a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
            a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
        }
        UNROLL
        for (int i = 0; i < 4; i++) {
            _mm256_storeu_ps(to + i * COLUMNS + half, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
            _mm256_storeu_ps(to + (i + 4) * COLUMNS + half, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
        }
    }
#else
    for (int i = 0; i < COLUMNS; i++) {
        vf v = row_lanes(type, row[i], d);
        for (int e = 0; e < W; e++)
            to[e * COLUMNS + i] = v[e];
    }
#endif
}

INLINE void turn_rows_of(float *to, enum type type, const uint8_t *const row[COLUMNS], int64_t from, int hd)
{
    int d = 0;
    for (; d + W <= hd; d += W)
        turn_square(to + d * COLUMNS, type, row, from + d);
    for (; d < hd; d++)
        for (int i = 0; i < COLUMNS; i++)
            to[d * COLUMNS + i] = row_element(type, row[i], from + d);
}

// to (hd, COLUMNS) = the elements from .. from + hd of sixteen cache rows.
static void turn_rows(float *to, enum type type, const uint8_t *const row[COLUMNS], int64_t from, int hd)
{
    if (type == BF16)
        turn_rows_of(to, BF16, row, from, hd);
    else if (type == Q8_0)
        turn_rows_of(to, Q8_0, row, from, hd);
    else
        turn_rows_of(to, F32, row, from, hd);
}

INLINE void row_floats_of(float *to, enum type type, const uint8_t *row, int64_t from, int hd)
{
    int d = 0;
    for (; d + W <= hd; d += W)
        save(to + d, row_lanes(type, row, from + d));
    for (; d < hd; d++)
        to[d] = row_element(type, row, from + d);
}

static void row_floats(float *to, enum type type, const uint8_t *row, int64_t from, int hd)
{
    if (type == BF16)
        row_floats_of(to, BF16, row, from, hd);
    else if (type == Q8_0)
        row_floats_of(to, Q8_0, row, from, hd);
    else
        row_floats_of(to, F32, row, from, hd);
}

// ---- scores

// score rows (m, ROOM apart), sixteen positions each = q (m, hd) . keys (hd, COLUMNS)
INLINE void scores(int m, float *score, const float *q, const float *keys, int hd)
{
    vf a[QUERIES][V];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        a[i][v] = (vf){ 0 };
    for (int d = 0; d < hd; d++)
        UNROLL
    for (int v = 0; v < V; v++) {
        vf k = load(keys + d * COLUMNS + v * W);
        UNROLL
        for (int i = 0; i < m; i++)
            a[i][v] = mad(k, all(q[i * hd + d]), a[i][v]);
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < V; v++)
        save(score + i * ROOM + v * W, a[i][v]);
}

#define SCORES(M) \
    case M: \
        scores(M, score, q, keys, hd); \
        break;

static void scores_of(int m, float *score, const float *q, const float *keys, int hd)
{
    switch (m) {
        SCORES(1)
        SCORES(2)
#if defined(__AVX2__)
        SCORES(3)
        SCORES(4)
#endif
#if defined(__AVX512F__)
        SCORES(5)
        SCORES(6)
        SCORES(7)
        SCORES(8)
#endif
    }
}

// exp(x - max) in place, and their sum; room for whole lanes behind n.
static float exponents(float *x, int n, float *most)
{
    int whole = (n + W - 1) / W * W;
    for (int j = n; j < whole; j++)
        x[j] = x[0];
    vf m = load(x);
    for (int j = W; j < whole; j += W)
        m = larger(load(x + j), m);
    *most = largest(m);
    for (int j = n; j < whole; j++)
        x[j] = -INFINITY;
    vf sum = { 0 };
    for (int j = 0; j + W <= n; j += W) {
        vf e = exp_lanes(load(x + j) - all(*most));
        save(x + j, e);
        sum += e;
    }
    if (n % W != 0) { // lanes behind the end count nothing
        float *last = x + n / W * W;
        vf e = exp_lanes(load(last) - all(*most));
        save(last, e);
        for (int j = n; j < whole; j++)
            x[j] = 0;
        sum += load(last);
    }
    return fold(sum);
}

// ---- values

// sums (m, apart) += weight (m, ROOM apart) of `count` positions times their rows, from element d on: WIDE registers.
INLINE void weigh(int m, int wide, float *sums, int64_t apart, const float *weight, const float *const *value,
                  int count, int d)
{
    vf a[SUMS][WIDE];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int w = 0; w < wide; w++)
        a[i][w] = load(sums + i * apart + d + w * W);
    for (int j = 0; j < count; j++) {
        vf v[WIDE];
        UNROLL
        for (int w = 0; w < wide; w++)
            v[w] = load(value[j] + d + w * W);
        UNROLL
        for (int i = 0; i < m; i++) {
            vf by = all(weight[i * ROOM + j]);
            UNROLL
            for (int w = 0; w < wide; w++)
                a[i][w] = mad(by, v[w], a[i][w]);
        }
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int w = 0; w < wide; w++)
        save(sums + i * apart + d + w * W, a[i][w]);
}

INLINE void weigh_rows(int m, float *sums, int padded, const float *weight, const float *const *value, int count)
{
    int d = 0;
    for (; d + WIDE * W <= padded; d += WIDE * W)
        weigh(m, WIDE, sums, padded, weight, value, count, d);
    for (; d < padded; d += W)
        weigh(m, 1, sums, padded, weight, value, count, d);
}

#define WEIGH(M) \
    case M: \
        weigh_rows(M, sums, padded, weight, value, count); \
        break;

static void weigh_of(int m, float *sums, int padded, const float *weight, const float *const *value, int count)
{
    switch (m) {
        WEIGH(1)
        WEIGH(2)
#if defined(__AVX2__)
        WEIGH(3)
        WEIGH(4)
#endif
#if defined(__AVX512F__)
        WEIGH(5)
        WEIGH(6)
#endif
    }
}

// ---- a stretch

static int padded(int head_dim)
{
    return (head_dim + W - 1) / W * W;
}

struct work {
    int queries, padded;
    float *q;     // (queries, hd), scaled
    float *keys;  // (hd, COLUMNS)
    float *value; // (COLUMNS, padded)
    float *score; // (queries, ROOM)
    float *sums;  // (queries, padded)
};

static struct work lay_out(void *room, int queries, int hd)
{
    const int64_t wide = padded(hd);
    struct work w = { .queries = queries, .padded = (int)wide, .q = room };
    w.keys = w.q + (queries * hd + 15) / 16 * 16;
    w.value = w.keys + hd * COLUMNS;
    w.score = w.value + COLUMNS * wide;
    w.sums = w.score + queries * ROOM;
    return w;
}

// The cache row of position j of row i of the pass. next: the pending rows that it sees, kept up by the caller.
struct ancestors {
    const uint64_t *bits;
    int word;
    uint64_t left;
};

static int next_ancestor(struct ancestors *a)
{
    while (a->left == 0)
        a->left = a->bits[++a->word];
    int row = 64 * a->word + __builtin_ctzll(a->left);
    a->left &= a->left - 1;
    return row;
}

// The cache rows of positions from .. to of row i that do not lie where their position says.
static int sparse_rows(const struct attend_call *c, int i, int from, int to, int32_t *row)
{
    const struct layout *s = c->see;
    struct ancestors a = { s->ancestors + (int64_t)i * s->words, 0, 0 };
    a.left = a.bits[0];
    int n = 0;
    for (int p = s->prefix[i]; p < to; p++) {
        int at = next_ancestor(&a);
        if (p >= from)
            row[n++] = s->slot[i] * s->length + s->prefix[i] + at;
    }
    return n;
}

static const uint8_t *key_row(const struct attend_call *c, int64_t row)
{
    return (const uint8_t *)c->keys.data + (size_t)row * c->row_bytes;
}

static const uint8_t *value_row(const struct attend_call *c, int64_t row)
{
    return (const uint8_t *)c->values.data + (size_t)row * c->row_bytes;
}

static void take_queries(const struct attend_call *c, struct attend_block b, int kv_head, struct work *w)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim;
    const float scale = 1.0f / sqrtf((float)hd);
    for (int r = 0; r < b.n; r++) { // the heads of a group lie side by side
        const float *q = c->q + ((int64_t)(b.first + r) * c->heads + kv_head * group) * hd;
        for (int d = 0; d < group * hd; d++)
            w->q[r * group * hd + d] = q[d] * scale;
    }
}

// Asks memory for a head's part of rows `from` on: a cache was last read a whole pass ago.
static void ask_rows(const uint8_t *row, int n, size_t row_bytes, size_t head_bytes, int kv_head)
{
    row += (size_t)kv_head * head_bytes;
    for (int i = 0; i < n; i++, row += row_bytes)
        for (size_t b = 0; b < head_bytes + 63; b += 64)
            __builtin_prefetch(row + (b < head_bytes ? b : head_bytes - 1), 0, 2);
}

static void all_scores(const struct work *w, int hd, int column)
{
    for (int first = 0; first < w->queries; first += QUERIES) {
        int m = w->queries - first < QUERIES ? w->queries - first : QUERIES;
        scores_of(m, w->score + first * ROOM + column, w->q + first * hd, w->keys, hd);
    }
}

// Scores of one row's positions that lie elsewhere. Every query of the block is scored, and this row's kept.
static void sparse_scores(const struct attend_call *c, const struct work *w, int kv_head, int i, int r, int from,
                          int to, int start)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim;
    int32_t row[SPLIT];
    int n = sparse_rows(c, i, from, to, row);
    for (int j = 0; j < n; j += COLUMNS) {
        const uint8_t *at[COLUMNS];
        for (int k = 0; k < COLUMNS; k++)
            at[k] = key_row(c, row[j + k < n ? j + k : n - 1]);
        turn_rows(w->keys, c->keys.type, at, (int64_t)kv_head * hd, hd);
        for (int h = 0; h < group; h++) {
            const int query = r * group + h;
            const float *q = w->q + query * hd;
            float one[COLUMNS] = { 0 };
            for (int v = 0; v < COLUMNS; v += W) {
                vf a = { 0 };
                for (int d = 0; d < hd; d++)
                    a = mad(load(w->keys + d * COLUMNS + v), all(q[d]), a);
                save(one + v, a);
            }
            int keep = n - j < COLUMNS ? n - j : COLUMNS;
            memcpy(w->score + query * ROOM + (from - start) + j, one, (size_t)keep * sizeof(float));
        }
    }
}

// Rows of values, as floats: where they lie if they are that, else made so.
static void take_values(const struct attend_call *c, const struct work *w, int kv_head, const int32_t *row, int n,
                        const float **value)
{
    const int hd = c->head_dim;
    for (int j = 0; j < n; j++) {
        const uint8_t *at = value_row(c, row[j]);
        if (c->values.type == F32 && hd == w->padded) {
            value[j] = (const float *)at + kv_head * hd;
            continue;
        }
        float *to = w->value + j * w->padded;
        row_floats(to, c->values.type, at, (int64_t)kv_head * hd, hd);
        for (int d = hd; d < w->padded; d++)
            to[d] = 0;
        value[j] = to;
    }
}

// Queries first .. first + n take these positions, the columns from `column` on.
static void add_values(const struct work *w, int first, int n, int column, const float *const *value, int count)
{
    for (int i = 0; i < n; i += SUMS) {
        int m = n - i < SUMS ? n - i : SUMS;
        weigh_of(m, w->sums + (first + i) * w->padded, w->padded, w->score + (first + i) * ROOM + column, value, count);
    }
}

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

static void stretch(const struct attend_call *c, struct attend_block b, int kv_head, int split, void *room)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim, start = split * SPLIT;
    const int64_t base = (int64_t)c->see->slot[b.first] * c->see->length;
    struct work work = lay_out(room, b.n * group, hd), *w = &work;
    int densest = 0, common = INT32_MAX;
    int32_t row[COLUMNS];
    const float *value[COLUMNS];
    for (int r = 0; r < b.n; r++) {
        densest = c->dense[b.first + r] > densest ? c->dense[b.first + r] : densest;
        common = at_most(c->dense[b.first + r], common);
    }
    densest = at_most(densest, start + SPLIT);
    common = at_most(common, start + SPLIT);
    const size_t head_bytes = c->row_bytes / (size_t)c->kv_heads;
    ask_rows(key_row(c, base + start), at_most(densest - start, KEYS_AHEAD), c->row_bytes, head_bytes, kv_head);
    take_queries(c, b, kv_head, w);
    for (int p = start; p < densest; p += COLUMNS) {
        const int next = p + KEYS_AHEAD;
        ask_rows(key_row(c, base + next), at_most(densest - next, COLUMNS), c->row_bytes, head_bytes, kv_head);
        ask_rows(value_row(c, base + p), at_most(densest - p, COLUMNS), c->row_bytes, head_bytes, kv_head);
        const uint8_t *at[COLUMNS];
        for (int k = 0; k < COLUMNS; k++)
            at[k] = key_row(c, base + at_most(p + k, densest - 1));
        turn_rows(w->keys, c->keys.type, at, (int64_t)kv_head * hd, hd);
        all_scores(w, hd, p - start);
    }
    memset(w->sums, 0, (size_t)(w->queries * w->padded) * sizeof(float));
    float most[BLOCK_MOST * 16], total[BLOCK_MOST * 16];
    assert(w->queries <= BLOCK_MOST * 16);
    for (int r = 0; r < b.n; r++) {
        const int i = b.first + r, to = at_most(c->positions[i], start + SPLIT);
        const int from = c->dense[i] > start ? c->dense[i] : start;
        if (from < to)
            sparse_scores(c, w, kv_head, i, r, from, to, start);
        for (int h = r * group; h < (r + 1) * group && to > start; h++)
            total[h] = exponents(w->score + h * ROOM, to - start, &most[h]);
    }
    for (int p = start; p < common; p += COLUMNS) {
        int n = at_most(common - p, COLUMNS);
        for (int k = 0; k < n; k++)
            row[k] = (int32_t)base + p + k;
        take_values(c, w, kv_head, row, n, value);
        add_values(w, 0, w->queries, p - start, value, n);
    }
    for (int r = 0; r < b.n; r++) {
        const int i = b.first + r, to = at_most(c->positions[i], start + SPLIT), dense = at_most(c->dense[i], to);
        for (int p = common > start ? common : start; p < to;) {
            int n = 0;
            if (p < dense)
                for (; n < COLUMNS && p + n < dense; n++)
                    row[n] = (int32_t)base + p + n;
            else
                n = sparse_rows(c, i, p, at_most(p + COLUMNS, to), row);
            take_values(c, w, kv_head, row, n, value);
            add_values(w, r * group, group, p - start, value, n);
            p += n;
        }
        if (to <= start)
            continue;
        for (int h = 0; h < group; h++) {
            const int query = r * group + h, head = kv_head * group + h;
            const float *sums = w->sums + query * w->padded;
            if (c->splits == 1) {
                float *out = c->out + ((int64_t)i * c->heads + head) * hd;
                float by = 1.0f / total[query];
                for (int d = 0; d < hd; d++)
                    out[d] = sums[d] * by;
                continue;
            }
            float *out = attend_partial(c, i, head, split);
            memcpy(out, sums, (size_t)hd * sizeof(float));
            out[hd] = most[query];
            out[hd + 1] = total[query];
        }
    }
}

// One stretch is what it is; of several the largest score decides the scale. Both give the same bits for a text of one
// stretch: its weight is exp(0) = 1.
static void join(const struct attend_call *c, int i, int head)
{
    const int hd = c->head_dim, n = (c->positions[i] + SPLIT - 1) / SPLIT;
    const float *p = attend_partial(c, i, head, 0);
    float *out = c->out + ((int64_t)i * c->heads + head) * hd, most = p[hd], total = 0;
    for (int s = 1; s < n; s++)
        most = p[s * (hd + 2) + hd] > most ? p[s * (hd + 2) + hd] : most;
    memset(out, 0, (size_t)hd * sizeof(float));
    for (int s = 0; s < n; s++, p += hd + 2) {
        float by = p[hd] == most ? 1.0f : exp_lanes(all(p[hd] - most))[0];
        for (int d = 0; d < hd; d++)
            out[d] += by * p[d];
        total += by * p[hd + 1];
    }
    for (int d = 0; d < hd; d++)
        out[d] *= 1.0f / total;
}

// ---- rows into the cache

static uint16_t float_to_half(float x)
{
#if defined(__AVX2__)
    return (uint16_t)_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0);
#else
    uint32_t u, sign;
    memcpy(&u, &x, sizeof(u));
    sign = u >> 16 & 0x8000;
    u &= 0x7FFFFFFF;
    if (u >= 0x7F800000) // infinity and NaN
        return (uint16_t)(sign | 0x7C00 | (u > 0x7F800000 ? 0x200 : 0));
    if (u >= 0x477FF000) // rounds beyond the largest
        return (uint16_t)(sign | 0x7C00);
    if (u < 0x38800000) { // subnormal: a multiple of 2^-24
        float f;
        memcpy(&f, &u, sizeof(f));
        return (uint16_t)(sign | (uint32_t)lrintf(f * 0x1p24f));
    }
    return (uint16_t)(sign | (u + 0xFFF + (u >> 13 & 1) - 0x38000000) >> 13);
#endif
}

static void keep_bf16(uint8_t *to, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof(u));
        uint16_t h = (uint16_t)((u & 0x7FFFFFFF) > 0x7F800000 ? u >> 16 | 0x40 : (u + 0x7FFF + (u >> 16 & 1)) >> 16);
        memcpy(to + 2 * i, &h, sizeof(h));
    }
}

static void keep_q8_0(uint8_t *to, const float *x, int64_t n)
{
    for (; n > 0; n -= 32, x += 32, to += 34) {
        vf most = { 0 };
        for (int i = 0; i < 32; i += W)
            most = larger(magnitude(load(x + i)), most);
        float scale = largest(most) / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
        uint16_t h = float_to_half(scale);
        memcpy(to, &h, sizeof(h));
        for (int i = 0; i < 32; i += W) {
            typedef int8_t vb __attribute__((vector_size(W)));
            const vf magic = all(0x1.8p23f);
            vb b =
                __builtin_convertvector(__builtin_convertvector((load(x + i) * all(inverse) + magic) - magic, vi), vb);
            memcpy(to + 2 + i, &b, sizeof(b));
        }
    }
}

static void keep(void *to, enum type type, const float *x, int64_t n)
{
    if (type == BF16)
        keep_bf16(to, x, n);
    else if (type == Q8_0)
        keep_q8_0(to, x, n);
    else
        memcpy(to, x, (size_t)n * sizeof(float));
}

// Halves of a head are turned against each other ("rotate half").
static void turn(float *to, const float *x, const float *angles, int64_t width, int hd)
{
    const int half = hd / 2;
    for (int64_t h = 0; h < width; h += hd) {
        int d = 0;
        for (; d + W <= half; d += W) {
            vf a = load(x + h + d), b = load(x + h + d + half), c = load(angles + d), s = load(angles + d + half);
            save(to + h + d, a * c - b * s);
            save(to + h + d + half, b * c + a * s);
        }
        for (; d < half; d++) {
            float a = x[h + d], b = x[h + d + half], c = angles[d], s = angles[d + half];
            to[h + d] = a * c - b * s;
            to[h + d + half] = b * c + a * s;
        }
    }
}

const struct attention PASTE(attention_, LANES) = { stretch, join, keep, turn };
