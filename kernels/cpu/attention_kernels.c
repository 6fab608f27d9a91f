#include "kernels/cpu/attention_kernels.h"

#include <stdbool.h>

#include "kernels/backend.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/vectors.h"
#include "kernels/cpu/kv_rows.h"

// KEYS_AHEAD, positions: values are asked for while keys are read. V, registers to sixteen positions. CAPACITY, a score row's
// floats. VALUES, rows of values that are added in one go.
enum { KEYS_AHEAD = 48, V = COLUMNS / W, CAPACITY = SPLIT + 2 * COLUMNS, VALUES = 64 };

// In registers together: queries, and sixteens of positions, for scores; queries, and registers to each, for values.
#if defined(__AVX512F__)
enum { QUERIES = 12, SIXTEENS = 2, SUMS = 6, WIDE = 4 };
#elif defined(__AVX2__)
enum { QUERIES = 6, SIXTEENS = 1, SUMS = 4, WIDE = 2 };
#else
enum { QUERIES = 2, SIXTEENS = 1, SUMS = 2, WIDE = 2 };
#endif

// ---- scores

// score rows (m, CAPACITY apart), `sixteens` times sixteen positions each = q (m, hd) . keys (sixteens, hd, COLUMNS)
INLINE void scores(int m, int sixteens, float *score, const float *q, const float *keys, int hd)
{
    vf a[QUERIES][SIXTEENS * V];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < sixteens * V; v++)
        a[i][v] = (vf){ 0 };
    for (int d = 0; d < hd; d++) {
        vf k[SIXTEENS * V];
        UNROLL
        for (int v = 0; v < sixteens * V; v++)
            k[v] = load(keys + (v / V * hd + d) * COLUMNS + v % V * W);
        UNROLL
        for (int i = 0; i < m; i++)
            UNROLL
        for (int v = 0; v < sixteens * V; v++)
            a[i][v] = mad(k[v], all(q[i * hd + d]), a[i][v]);
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < sixteens * V; v++)
        save(score + i * CAPACITY + v * W, a[i][v]);
}

#define SCORES(M) \
    case M: \
        if (sixteens == SIXTEENS) \
            scores(M, SIXTEENS, score, q, keys, hd); \
        else \
            scores(M, 1, score, q, keys, hd); \
        break;

static void scores_of(int m, int sixteens, float *score, const float *q, const float *keys, int hd)
{
    switch (m) {
        SCORES(1)
        SCORES(2)
#if defined(__AVX2__)
        SCORES(3)
        SCORES(4)
        SCORES(5)
        SCORES(6)
#endif
#if defined(__AVX512F__)
        SCORES(7)
        SCORES(8)
        SCORES(9)
        SCORES(10)
        SCORES(11)
        SCORES(12)
#endif
    }
}

// exp(x - max) in place, and their sum; room for whole lanes behind n.
static float exponents(float *x, int n, float *most)
{
    int whole = (n + W - 1) / W * W;
    for (int j = n; j < whole; j++)
        x[j] = x[0];
    vf m = load(x), m2 = m;
    int k = W;
    for (; k + 2 * W <= whole; k += 2 * W) {
        m = larger(load(x + k), m);
        m2 = larger(load(x + k + W), m2);
    }
    if (k < whole)
        m = larger(load(x + k), m);
    *most = largest(larger(m, m2));
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

// sums (m, apart) += weight (m, CAPACITY apart) of `count` positions times their rows, from element d on: WIDE registers.
// fresh: sums are zero, whatever stands there.
INLINE void weigh(int m, int wide, float *sums, int64_t apart, const float *weight, const float *const *value,
                  int count, int d, bool fresh)
{
    vf a[SUMS][WIDE];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int w = 0; w < wide; w++)
        a[i][w] = fresh ? (vf){ 0 } : load(sums + i * apart + d + w * W);
    for (int j = 0; j < count; j++) {
        vf v[WIDE];
        UNROLL
        for (int w = 0; w < wide; w++)
            v[w] = load(value[j] + d + w * W);
        UNROLL
        for (int i = 0; i < m; i++) {
            vf by = all(weight[i * CAPACITY + j]);
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

INLINE void weigh_rows(int m, float *sums, int padded, const float *weight, const float *const *value, int count,
                       bool fresh)
{
    int d = 0;
    for (; d + WIDE * W <= padded; d += WIDE * W)
        weigh(m, WIDE, sums, padded, weight, value, count, d, fresh);
    for (; d < padded; d += W)
        weigh(m, 1, sums, padded, weight, value, count, d, fresh);
}

#define WEIGH(M) \
    case M: \
        weigh_rows(M, sums, padded, weight, value, count, fresh); \
        break;

static void weigh_of(int m, float *sums, int padded, const float *weight, const float *const *value, int count,
                     bool fresh)
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
    float *q;            // (queries, hd), scaled
    float *keys;         // (SIXTEENS, hd, COLUMNS)
    float *value;        // (VALUES, padded)
    float *score;        // (queries, CAPACITY)
    float *sums;         // (queries, padded)
    float *most, *total; // (queries) a score row's largest, and the sum of its exponents
};

static struct work lay_out(void *capacity, int queries, int hd)
{
    const int64_t wide = padded(hd);
    struct work w = { .queries = queries, .padded = (int)wide, .keys = capacity };
    w.value = w.keys + SIXTEENS * COLUMNS * hd;
    w.score = w.value + VALUES * wide;
    w.sums = w.score + queries * CAPACITY;
    w.q = w.sums + queries * wide;
    w.most = w.q + queries * hd;
    w.total = w.most + queries;
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
static void prefetch_rows(const uint8_t *row, int n, size_t row_bytes, size_t head_bytes, int kv_head)
{
    row += (size_t)kv_head * head_bytes;
    for (int i = 0; i < n; i++, row += row_bytes)
        prefetch_lines(row, head_bytes);
}

static int at_most(int a, int b)
{
    return a < b ? a : b;
}

// Whether a row of queries first .. first + m of a block sees a position from p on where that says.
static bool sees(const struct attend_call *c, struct attend_block b, int first, int m, int p)
{
    const int group = c->heads / c->kv_heads;
    for (int r = first / group; r <= (first + m - 1) / group; r++)
        if (c->dense[b.first + r] > p)
            return true;
    return false;
}

// Scores of sixteens of positions from p on, in even shares of the queries; shares that see none of them are left out.
static void all_scores(const struct attend_call *c, struct attend_block b, const struct work *w, int p, int sixteens)
{
    const int hd = c->head_dim, shares = (w->queries + QUERIES - 1) / QUERIES;
    for (int s = 0, first = 0, end; s < shares; s++, first = end) {
        end = w->queries * (s + 1) / shares;
        if (sees(c, b, first, end - first, p))
            scores_of(end - first, sixteens, w->score + first * CAPACITY + p % SPLIT, w->q + first * hd, w->keys, hd);
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
            memcpy(w->score + query * CAPACITY + (from - start) + j, one, (size_t)keep * sizeof(float));
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
        weigh_of(m, w->sums + (first + i) * w->padded, w->padded, w->score + (first + i) * CAPACITY + column, value,
                 count, column == 0);
    }
}

static void chunk(const struct attend_call *c, struct attend_block b, int kv_head, int split, void *capacity)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim, start = split * SPLIT;
    const int64_t base = (int64_t)c->see->slot[b.first] * c->see->length;
    struct work work = lay_out(capacity, b.n * group, hd), *w = &work;
    int densest = 0, common = INT32_MAX;
    int32_t row[VALUES];
    const float *value[VALUES];
    for (int r = 0; r < b.n; r++) {
        densest = c->dense[b.first + r] > densest ? c->dense[b.first + r] : densest;
        common = at_most(c->dense[b.first + r], common);
    }
    densest = at_most(densest, start + SPLIT);
    common = at_most(common, start + SPLIT);
    const size_t head_bytes = c->row_bytes / (size_t)c->kv_heads;
    prefetch_rows(key_row(c, base + start), at_most(densest - start, KEYS_AHEAD), c->row_bytes, head_bytes, kv_head);
    take_queries(c, b, kv_head, w);
    for (int p = start, sixteens; p < densest; p += sixteens * COLUMNS) {
        sixteens = densest - p > COLUMNS ? SIXTEENS : 1;
        for (int s = 0, at = p; s < sixteens; s++, at += COLUMNS) {
            const uint8_t *key[COLUMNS];
            prefetch_rows(key_row(c, base + at + KEYS_AHEAD), at_most(densest - at - KEYS_AHEAD, COLUMNS), c->row_bytes,
                          head_bytes, kv_head);
            prefetch_rows(value_row(c, base + at), at_most(densest - at, COLUMNS), c->row_bytes, head_bytes, kv_head);
            for (int k = 0; k < COLUMNS; k++)
                key[k] = key_row(c, base + at_most(at + k, densest - 1));
            turn_rows(w->keys + s * COLUMNS * hd, c->keys.type, key, (int64_t)kv_head * hd, hd);
        }
        all_scores(c, b, w, p, sixteens);
    }
    for (int r = 0; r < b.n; r++) {
        const int i = b.first + r, to = at_most(c->positions[i], start + SPLIT);
        const int from = c->dense[i] > start ? c->dense[i] : start;
        if (from < to)
            sparse_scores(c, w, kv_head, i, r, from, to, start);
        for (int h = r * group; h < (r + 1) * group && to > start; h++)
            w->total[h] = exponents(w->score + h * CAPACITY, to - start, &w->most[h]);
    }
    for (int p = start; p < common; p += VALUES) {
        int n = at_most(common - p, VALUES);
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
                for (; n < VALUES && p + n < dense; n++)
                    row[n] = (int32_t)base + p + n;
            else
                n = sparse_rows(c, i, p, at_most(p + VALUES, to), row);
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
                float by = 1.0f / w->total[query];
                for (int d = 0; d < hd; d++)
                    out[d] = sums[d] * by;
                continue;
            }
            float *out = attend_partial(c, i, head, split);
            memcpy(out, sums, (size_t)hd * sizeof(float));
            out[hd] = w->most[query];
            out[hd + 1] = w->total[query];
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

const struct attention PASTE(attention_, LANES) = { chunk, join };
