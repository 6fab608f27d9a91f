#include "kernels/cpu/attention_kernels.h"

#include <stdbool.h>

#include "kernels/backend.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/vectors.h"
#include "kernels/cpu/kv_rows.h"

// KEY_PREFETCH: prefetch distance of keys, in positions (values are prefetched while keys are read). V: registers per key
// tile. SCORE_STRIDE: floats of a row of scores. VALUE_ROWS: rows of values that are added at a time.
enum { KEY_PREFETCH = 48, V = KEY_TILE / W, SCORE_STRIDE = SPLIT + 2 * KEY_TILE, VALUE_ROWS = 64 };

// Register blocking. Scores: SCORE_QUERIES queries by KEY_TILES tiles of sixteen positions. Values: VALUE_QUERIES queries by
// VALUE_REGISTERS registers of the head.
#if defined(__AVX512F__)
enum { SCORE_QUERIES = 12, KEY_TILES = 2, VALUE_QUERIES = 6, VALUE_REGISTERS = 4 };
#elif defined(__AVX2__)
enum { SCORE_QUERIES = 6, KEY_TILES = 1, VALUE_QUERIES = 4, VALUE_REGISTERS = 2 };
#else
enum { SCORE_QUERIES = 2, KEY_TILES = 1, VALUE_QUERIES = 2, VALUE_REGISTERS = 2 };
#endif

// ---- scores

// score (m, SCORE_STRIDE), of which tiles * KEY_TILE columns = q (m, hd) . keys (tiles, hd, KEY_TILE)
INLINE void scores(int m, int tiles, float *score, const float *q, const float *keys, int hd)
{
    vf a[SCORE_QUERIES][KEY_TILES * V];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < tiles * V; v++)
        a[i][v] = (vf){ 0 };
    for (int d = 0; d < hd; d++) {
        vf k[KEY_TILES * V];
        UNROLL
        for (int v = 0; v < tiles * V; v++)
            k[v] = load(keys + (v / V * hd + d) * KEY_TILE + v % V * W);
        UNROLL
        for (int i = 0; i < m; i++)
            UNROLL
        for (int v = 0; v < tiles * V; v++)
            a[i][v] = mad(k[v], splat(q[i * hd + d]), a[i][v]);
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int v = 0; v < tiles * V; v++)
        store(score + i * SCORE_STRIDE + v * W, a[i][v]);
}

#define SCORES(M) \
    case M: \
        if (tiles == KEY_TILES) \
            scores(M, KEY_TILES, score, q, keys, hd); \
        else \
            scores(M, 1, score, q, keys, hd); \
        break;

static void scores_of(int m, int tiles, float *score, const float *q, const float *keys, int hd)
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

// Replaces x (n) by exp(x - max) and returns their sum. x has space up to the next multiple of W.
static float softmax_exp(float *x, int n, float *max)
{
    int padded_n = (n + W - 1) / W * W;
    for (int j = n; j < padded_n; j++)
        x[j] = x[0];
    vf m = load(x), m2 = m;
    int k = W;
    for (; k + 2 * W <= padded_n; k += 2 * W) {
        m = vmax(load(x + k), m);
        m2 = vmax(load(x + k + W), m2);
    }
    if (k < padded_n)
        m = vmax(load(x + k), m);
    *max = reduce_max(vmax(m, m2));
    for (int j = n; j < padded_n; j++)
        x[j] = -INFINITY;
    vf sum = { 0 };
    for (int j = 0; j + W <= n; j += W) {
        vf e = exp_lanes(load(x + j) - splat(*max));
        store(x + j, e);
        sum += e;
    }
    if (n % W != 0) { // lanes beyond the end contribute zero
        float *last = x + n / W * W;
        vf e = exp_lanes(load(last) - splat(*max));
        store(last, e);
        for (int j = n; j < padded_n; j++)
            x[j] = 0;
        sum += load(last);
    }
    return reduce_add(sum);
}

// ---- values

// sums (m, stride) += weight (m, SCORE_STRIDE) of `count` positions times their value rows; `registers` registers from
// element d on. fresh: sums start from zero; their contents are ignored.
INLINE void add_weighted(int m, int registers, float *sums, int64_t stride, const float *weight,
                         const float *const *value, int count, int d, bool fresh)
{
    vf a[VALUE_QUERIES][VALUE_REGISTERS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int w = 0; w < registers; w++)
        a[i][w] = fresh ? (vf){ 0 } : load(sums + i * stride + d + w * W);
    for (int j = 0; j < count; j++) {
        vf v[VALUE_REGISTERS];
        UNROLL
        for (int w = 0; w < registers; w++)
            v[w] = load(value[j] + d + w * W);
        UNROLL
        for (int i = 0; i < m; i++) {
            vf by = splat(weight[i * SCORE_STRIDE + j]);
            UNROLL
            for (int w = 0; w < registers; w++)
                a[i][w] = mad(by, v[w], a[i][w]);
        }
    }
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int w = 0; w < registers; w++)
        store(sums + i * stride + d + w * W, a[i][w]);
}

INLINE void add_weighted_rows(int m, float *sums, int padded, const float *weight, const float *const *value, int count,
                              bool fresh)
{
    int d = 0;
    for (; d + VALUE_REGISTERS * W <= padded; d += VALUE_REGISTERS * W)
        add_weighted(m, VALUE_REGISTERS, sums, padded, weight, value, count, d, fresh);
    for (; d < padded; d += W)
        add_weighted(m, 1, sums, padded, weight, value, count, d, fresh);
}

#define ADD_WEIGHTED(M) \
    case M: \
        add_weighted_rows(M, sums, padded, weight, value, count, fresh); \
        break;

static void add_weighted_of(int m, float *sums, int padded, const float *weight, const float *const *value, int count,
                            bool fresh)
{
    switch (m) {
        ADD_WEIGHTED(1)
        ADD_WEIGHTED(2)
#if defined(__AVX2__)
        ADD_WEIGHTED(3)
        ADD_WEIGHTED(4)
#endif
#if defined(__AVX512F__)
        ADD_WEIGHTED(5)
        ADD_WEIGHTED(6)
#endif
    }
}

// ---- one split

static int padded(int head_dim)
{
    return (head_dim + W - 1) / W * W;
}

struct scratch {
    int queries, padded; // padded: head_dim up to a multiple of W
    float *q;            // (queries, hd), scaled
    float *keys;         // (SIXTEENS, hd, COLUMNS)
    float *value;        // (VALUES, padded)
    float *score;        // (queries, CAPACITY)
    float *sums;         // (queries, padded)
    float *max, *total;  // (queries) maximum score, and the sum of exponentials
};

static struct scratch scratch_layout(void *memory, int queries, int hd)
{
    const int64_t width = padded(hd);
    struct scratch w = { .queries = queries, .padded = (int)width, .keys = memory };
    w.value = w.keys + KEY_TILES * KEY_TILE * hd;
    w.score = w.value + VALUE_ROWS * width;
    w.sums = w.score + queries * SCORE_STRIDE;
    w.q = w.sums + queries * width;
    w.max = w.q + queries * hd;
    w.total = w.max + queries;
    return w;
}

// Iterates over the set bits of a row's ancestor mask: the pending rows that it attends to, in order.
struct ancestors {
    const uint64_t *bits;
    int word;
    uint64_t rest;
};

static int next_ancestor(struct ancestors *a)
{
    while (a->rest == 0)
        a->rest = a->bits[++a->word];
    int row = 64 * a->word + __builtin_ctzll(a->rest);
    a->rest &= a->rest - 1;
    return row;
}

// The cache rows of positions from .. to of row i, which do not lie in the cache row of their position. Returns their number.
static int sparse_rows(const struct attend_call *c, int i, int from, int to, int32_t *row)
{
    const struct layout *s = c->layout;
    struct ancestors a = { s->ancestors + (int64_t)i * s->words, 0, 0 };
    a.rest = a.bits[0];
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

static void scale_queries(const struct attend_call *c, struct attend_block b, int kv_head, struct scratch *w)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim;
    const float scale = 1.0f / sqrtf((float)hd);
    for (int r = 0; r < b.n; r++) { // the heads of a group are adjacent
        const float *q = c->q + ((int64_t)(b.first + r) * c->heads + kv_head * group) * hd;
        for (int d = 0; d < group * hd; d++)
            w->q[r * group * hd + d] = q[d] * scale;
    }
}

// Prefetches one head's part of n rows: the KV cache was last read one pass ago.
static void prefetch_rows(const uint8_t *row, int n, size_t row_bytes, size_t head_bytes, int kv_head)
{
    row += (size_t)kv_head * head_bytes;
    for (int i = 0; i < n; i++, row += row_bytes)
        prefetch_lines(row, head_bytes);
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

// Whether a row of queries first .. first + m of a block has a dense position >= p.
static bool has_dense_positions(const struct attend_call *c, struct attend_block b, int first, int m, int p)
{
    const int group = c->heads / c->kv_heads;
    for (int r = first / group; r <= (first + m - 1) / group; r++)
        if (c->dense[b.first + r] > p)
            return true;
    return false;
}

// Scores of `tiles` tiles of positions from p on. Queries are divided into equal shares of at most SCORE_QUERIES; shares
// without a dense position there are skipped.
static void all_scores(const struct attend_call *c, struct attend_block b, const struct scratch *w, int p, int tiles)
{
    const int hd = c->head_dim, shares = (w->queries + SCORE_QUERIES - 1) / SCORE_QUERIES;
    for (int s = 0, first = 0, end; s < shares; s++, first = end) {
        end = w->queries * (s + 1) / shares;
        if (has_dense_positions(c, b, first, end - first, p))
            scores_of(end - first, tiles, w->score + first * SCORE_STRIDE + p % SPLIT, w->q + first * hd, w->keys, hd);
    }
}

// Scores of the positions from .. to of row i of the pass (row r of the block), which are not dense.
static void sparse_scores(const struct attend_call *c, const struct scratch *w, int kv_head, int i, int r, int from,
                          int to, int start)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim;
    int32_t row[SPLIT];
    int n = sparse_rows(c, i, from, to, row);
    for (int j = 0; j < n; j += KEY_TILE) {
        const uint8_t *at[KEY_TILE];
        for (int k = 0; k < KEY_TILE; k++)
            at[k] = key_row(c, row[j + k < n ? j + k : n - 1]);
        transpose_rows(w->keys, c->keys.type, at, (int64_t)kv_head * hd, hd);
        for (int h = 0; h < group; h++) {
            const int query = r * group + h;
            const float *q = w->q + query * hd;
            float one[KEY_TILE] = { 0 };
            for (int v = 0; v < KEY_TILE; v += W) {
                vf a = { 0 };
                for (int d = 0; d < hd; d++)
                    a = mad(load(w->keys + d * KEY_TILE + v), splat(q[d]), a);
                store(one + v, a);
            }
            int count = n - j < KEY_TILE ? n - j : KEY_TILE;
            memcpy(w->score + query * SCORE_STRIDE + (from - start) + j, one, (size_t)count * sizeof(float));
        }
    }
}

// value (n): rows of values as floats: pointers into the cache if it holds floats, else converted copies in scratch.
static void load_values(const struct attend_call *c, const struct scratch *w, int kv_head, const int32_t *row, int n,
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

// Adds `count` positions, columns from `column` on, to the sums of queries first .. first + n.
static void add_values(const struct scratch *w, int first, int n, int column, const float *const *value, int count)
{
    for (int i = 0; i < n; i += VALUE_QUERIES) {
        int m = n - i < VALUE_QUERIES ? n - i : VALUE_QUERIES;
        add_weighted_of(m, w->sums + (first + i) * w->padded, w->padded, w->score + (first + i) * SCORE_STRIDE + column,
                        value, count, column == 0);
    }
}

static void run_split(const struct attend_call *c, struct attend_block b, int kv_head, int split, void *memory)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim, start = split * SPLIT;
    const int64_t base = (int64_t)c->layout->slot[b.first] * c->layout->length;
    struct scratch scratch = scratch_layout(memory, b.n * group, hd), *w = &scratch;
    int max_dense = 0, min_dense = INT32_MAX; // the maximum and the minimum of the rows' dense positions
    int32_t row[VALUE_ROWS];
    const float *value[VALUE_ROWS];
    for (int r = 0; r < b.n; r++) {
        max_dense = c->dense[b.first + r] > max_dense ? c->dense[b.first + r] : max_dense;
        min_dense = min_int(c->dense[b.first + r], min_dense);
    }
    max_dense = min_int(max_dense, start + SPLIT);
    min_dense = min_int(min_dense, start + SPLIT);
    const size_t head_bytes = c->row_bytes / (size_t)c->kv_heads;
    prefetch_rows(key_row(c, base + start), min_int(max_dense - start, KEY_PREFETCH), c->row_bytes, head_bytes,
                  kv_head);
    scale_queries(c, b, kv_head, w);
    for (int p = start, tiles; p < max_dense; p += tiles * KEY_TILE) {
        tiles = max_dense - p > KEY_TILE ? KEY_TILES : 1;
        for (int s = 0, at = p; s < tiles; s++, at += KEY_TILE) {
            const uint8_t *key[KEY_TILE];
            prefetch_rows(key_row(c, base + at + KEY_PREFETCH), min_int(max_dense - at - KEY_PREFETCH, KEY_TILE),
                          c->row_bytes, head_bytes, kv_head);
            prefetch_rows(value_row(c, base + at), min_int(max_dense - at, KEY_TILE), c->row_bytes, head_bytes,
                          kv_head);
            for (int k = 0; k < KEY_TILE; k++)
                key[k] = key_row(c, base + min_int(at + k, max_dense - 1));
            transpose_rows(w->keys + s * KEY_TILE * hd, c->keys.type, key, (int64_t)kv_head * hd, hd);
        }
        all_scores(c, b, w, p, tiles);
    }
    for (int r = 0; r < b.n; r++) {
        const int i = b.first + r, to = min_int(c->positions[i], start + SPLIT);
        const int from = c->dense[i] > start ? c->dense[i] : start;
        if (from < to)
            sparse_scores(c, w, kv_head, i, r, from, to, start);
        for (int h = r * group; h < (r + 1) * group && to > start; h++)
            w->total[h] = softmax_exp(w->score + h * SCORE_STRIDE, to - start, &w->max[h]);
    }
    for (int p = start; p < min_dense; p += VALUE_ROWS) {
        int n = min_int(min_dense - p, VALUE_ROWS);
        for (int k = 0; k < n; k++)
            row[k] = (int32_t)base + p + k;
        load_values(c, w, kv_head, row, n, value);
        add_values(w, 0, w->queries, p - start, value, n);
    }
    for (int r = 0; r < b.n; r++) {
        const int i = b.first + r, to = min_int(c->positions[i], start + SPLIT), dense = min_int(c->dense[i], to);
        for (int p = min_dense > start ? min_dense : start; p < to;) {
            int n = 0;
            if (p < dense)
                for (; n < VALUE_ROWS && p + n < dense; n++)
                    row[n] = (int32_t)base + p + n;
            else
                n = sparse_rows(c, i, p, min_int(p + VALUE_ROWS, to), row);
            load_values(c, w, kv_head, row, n, value);
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
            out[hd] = w->max[query];
            out[hd + 1] = w->total[query];
        }
    }
}

// A single split is used as it is; several are rescaled to the maximum score. For a sequence of one split both give the same
// bits: its weight is exp(0) = 1.
static void combine(const struct attend_call *c, int i, int head)
{
    const int hd = c->head_dim, n = (c->positions[i] + SPLIT - 1) / SPLIT;
    const float *p = attend_partial(c, i, head, 0);
    float *out = c->out + ((int64_t)i * c->heads + head) * hd, max = p[hd], total = 0;
    for (int s = 1; s < n; s++)
        max = p[s * (hd + 2) + hd] > max ? p[s * (hd + 2) + hd] : max;
    memset(out, 0, (size_t)hd * sizeof(float));
    for (int s = 0; s < n; s++, p += hd + 2) {
        float by = p[hd] == max ? 1.0f : exp_lanes(splat(p[hd] - max))[0];
        for (int d = 0; d < hd; d++)
            out[d] += by * p[d];
        total += by * p[hd + 1];
    }
    for (int d = 0; d < hd; d++)
        out[d] *= 1.0f / total;
}

const struct attention_kernels PASTE(attention_kernels_, ISA) = { run_split, combine };
