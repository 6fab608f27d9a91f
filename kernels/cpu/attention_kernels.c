#include "kernels/cpu/attention_kernels.h"

#include <stdbool.h>

#include "kernels/backend.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/vectors.h"
#include "kernels/cpu/kv_rows.h"

// KEY_PREFETCH: prefetch distance of keys, in positions (values are prefetched while keys are read). SCORE_STRIDE:
// floats of a row of scores. VALUE_ROWS: rows of values that are added at a time.
enum { KEY_PREFETCH = 32, SCORE_STRIDE = SPLIT + 2 * KEY_TILE, VALUE_ROWS = 64 };

// Register blocking. Scores: SCORE_QUERIES queries by KEY_TILES tiles of sixteen positions. Values: VALUE_QUERIES
// queries by VALUE_REGISTERS registers of the head.
#if defined(__AVX512F__)
enum { SCORE_QUERIES = 12, KEY_TILES = 2, VALUE_QUERIES = 6, VALUE_REGISTERS = 4 };
#define EACH_SCORES UP_TO_12
#define EACH_VALUES UP_TO_6
#elif defined(__AVX2__)
enum { SCORE_QUERIES = 6, KEY_TILES = 1, VALUE_QUERIES = 4, VALUE_REGISTERS = 2 };
#define EACH_SCORES UP_TO_6
#define EACH_VALUES UP_TO_4
#elif defined(NEON)
enum { SCORE_QUERIES = 6, KEY_TILES = 1, VALUE_QUERIES = 6, VALUE_REGISTERS = 4 };
#define EACH_SCORES UP_TO_6
#define EACH_VALUES UP_TO_6
#else
enum { SCORE_QUERIES = 2, KEY_TILES = 1, VALUE_QUERIES = 2, VALUE_REGISTERS = 2 };
#define EACH_SCORES UP_TO_2
#define EACH_VALUES UP_TO_2
#endif

// ---- scores

// Bytes of the cache that will be read soon. They are prefetched a little with every step of a loop, because a
// processor stalls at a prefetch when too many are under way.
struct soon {
    const uint8_t *at;
    size_t step; // 0: nothing
};

INLINE void prefetch_step(struct soon s, int64_t k)
{
    __builtin_prefetch(s.at + (size_t)k * s.step, 0, 2);
}

// score (m, SCORE_STRIDE), of which tiles * KEY_TILE columns = q (m, hd) . keys (tiles, hd, KEY_TILE)
INLINE void scores(int m, int tiles, float *score, const float *q, const float *keys, int hd, struct soon soon)
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
        for (int v = 0; v < tiles; v++)
            prefetch_step(soon, d * tiles + v);
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
            scores(M, KEY_TILES, score, q, keys, hd, soon); \
        else \
            scores(M, 1, score, q, keys, hd, soon); \
        break;

static void scores_of(int m, int tiles, float *score, const float *q, const float *keys, int hd, struct soon soon)
{
    switch (m) {
        EACH_SCORES(SCORES)
    }
}

// Returns sum + the exponentials of the first `count` of W elements, which replace them. The other elements become
// zeros.
INLINE vf add_exp(vf sum, float *x, int count, float max)
{
    store(x, exp_lanes(load(x) - splat(max)));
    for (int j = count; j < W; j++)
        x[j] = 0;
    return sum + load(x);
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
    vf sum[V] = { { 0 } };
    int j = 0;
    for (; j + LANES <= n; j += LANES)
        UNROLL
    for (int v = 0; v < V; v++)
        sum[v] = add_exp(sum[v], x + j + v * W, W, *max);
    UNROLL
    for (int v = 0; v < V; v++, j += W) // fewer than sixteen remain
        if (j < n)
            sum[v] = add_exp(sum[v], x + j, n - j < W ? n - j : W, *max);
    return reduce_sums(sum);
}

// ---- values

// The rows of values of one head.
struct values {
    enum type type;
    const uint8_t *row[VALUE_ROWS];
    size_t soon; // distance in bytes to the rows that will be read soon; 0: unknown
};

// sums (m, stride) += weight (m, SCORE_STRIDE) of `count` positions times their value rows; `registers` registers from
// element d on. fresh: sums start from zero; their contents are ignored.
INLINE void add_weighted(enum type type, int m, int registers, float *sums, int64_t stride, const float *weight,
                         const struct values *value, int count, int d, bool fresh)
{
    const int bytes = type == F32 ? 4 : type == BF16 ? 2 : 1; // approximate bytes of an element
    vf a[VALUE_QUERIES][VALUE_REGISTERS];
    UNROLL
    for (int i = 0; i < m; i++)
        UNROLL
    for (int w = 0; w < registers; w++)
        a[i][w] = fresh ? (vf){ 0 } : load(sums + i * stride + d + w * W);
    for (int j = 0; j < count; j++) {
        const uint8_t *row = value->row[j];
        vf v[VALUE_REGISTERS];
        UNROLL
        for (int w = 0; w < registers; w++)
            v[w] = row_lanes(type, row, d + w * W);
        UNROLL
        for (int b = 0; b < registers * W * bytes; b += 64)
            __builtin_prefetch(row + value->soon + d * bytes + b, 0, 2);
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

INLINE void add_weighted_rows(enum type type, int m, float *sums, int padded, const float *weight,
                              const struct values *value, int count, bool fresh)
{
    int d = 0;
    for (; d + VALUE_REGISTERS * W <= padded; d += VALUE_REGISTERS * W)
        add_weighted(type, m, VALUE_REGISTERS, sums, padded, weight, value, count, d, fresh);
    for (; d < padded; d += W)
        add_weighted(type, m, 1, sums, padded, weight, value, count, d, fresh);
}

#define ADD_WEIGHTED(M) \
    case M: \
        if (value->type == BF16) \
            add_weighted_rows(BF16, M, sums, padded, weight, value, count, fresh); \
        else if (value->type == Q8_0) \
            add_weighted_rows(Q8_0, M, sums, padded, weight, value, count, fresh); \
        else \
            add_weighted_rows(F32, M, sums, padded, weight, value, count, fresh); \
        break;

static void add_weighted_of(int m, float *sums, int padded, const float *weight, const struct values *value, int count,
                            bool fresh)
{
    switch (m) {
        EACH_VALUES(ADD_WEIGHTED)
    }
}

// ---- one split

static int padded(int head_dim)
{
    return (head_dim + W - 1) / W * W;
}

// The workspace of the queries that share a kv head.
struct scratch {
    int queries, padded; // padded: head_dim rounded up to a multiple of W
    float *q;            // (queries, hd), scaled
    float *keys;         // (KEY_TILES, hd, KEY_TILE)
    float *value;        // (VALUE_ROWS, padded)
    float *score;        // (queries, SCORE_STRIDE)
    float *sums;         // (queries, padded)
    float *max, *total;  // (queries) maximum score, and the sum of exponentials
};

// Returns the workspace of head h of a part. All heads share keys and value.
static struct scratch scratch_of(const struct attend_call *c, const struct attend_part *t, int h, void *memory)
{
    const int hd = c->head_dim, queries = t->n * (c->heads / c->kv_heads), width = padded(hd);
    struct scratch w = { .queries = queries, .padded = width, .keys = memory };
    w.value = w.keys + KEY_TILES * KEY_TILE * hd;
    w.score = w.value + VALUE_ROWS * width + (int64_t)h * queries * (SCORE_STRIDE + width + hd + 2);
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

// Finds the cache rows of positions from .. to of row i that are not in the cache row of their position. Returns their
// number.
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

static void scale_queries(const struct attend_call *c, const struct attend_part *t, int kv_head, struct scratch *w)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim;
    const float scale = c->scale;
    for (int r = 0; r < t->n; r++) { // the heads of a group are adjacent
        const float *q = c->q + ((int64_t)(t->first + r) * c->heads + kv_head * group) * hd;
        for (int d = 0; d < group * hd; d++)
            w->q[r * group * hd + d] = q[d] * scale;
    }
}

// Prefetches the part's heads of n rows, since the KV cache was last read one pass ago.
static void prefetch_rows(const struct attend_call *c, const struct attend_part *t, const uint8_t *row, int n)
{
    const size_t head_bytes = c->row_bytes / (size_t)c->kv_heads;
    row += (size_t)t->kv_head * head_bytes;
    for (int i = 0; i < n; i++, row += c->row_bytes)
        prefetch_lines(row, (size_t)t->kv_heads * head_bytes);
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

// Returns whether a row of queries first .. first + m of a part has a dense position >= p.
static bool has_dense_positions(const struct attend_call *c, const struct attend_part *t, int first, int m, int p)
{
    const int group = c->heads / c->kv_heads;
    for (int r = first / group; r <= (first + m - 1) / group; r++)
        if (c->dense[t->first + r] > p)
            return true;
    return false;
}

// Computes scores of `tiles` tiles of positions from p on. Queries are divided into equal shares of at most
// SCORE_QUERIES; shares without a dense position there are skipped.
static void all_scores(const struct attend_call *c, const struct attend_part *t, const struct scratch *w, int p,
                       int tiles, struct soon soon)
{
    const int hd = c->head_dim, shares = (w->queries + SCORE_QUERIES - 1) / SCORE_QUERIES;
    for (int s = 0, first = 0, end; s < shares; s++, first = end) {
        end = w->queries * (s + 1) / shares;
        if (!has_dense_positions(c, t, first, end - first, p))
            continue;
        scores_of(end - first, tiles, w->score + first * SCORE_STRIDE + p % SPLIT, w->q + first * hd, w->keys, hd,
                  soon);
        soon.step = 0;
    }
}

// Computes scores of the positions start .. end of the cache, of which one row is dense up to end.
static void dense_scores(const struct attend_call *c, const struct attend_part *t, int64_t base, int start, int end,
                         void *memory)
{
    const bool whole_rows = t->kv_heads == c->kv_heads; // the rows are then one stream of bytes
    const size_t step = KEY_TILE * c->row_bytes / (size_t)(c->kv_heads * c->head_dim);
    prefetch_rows(c, t, key_row(c, base + start), min_int(end - start, KEY_PREFETCH));
    for (int p = start, tiles; p < end; p += tiles * KEY_TILE) {
        const uint8_t *key[KEY_TILES * KEY_TILE];
        tiles = end - p > KEY_TILE ? KEY_TILES : 1;
        for (int k = 0; k < tiles * KEY_TILE; k++)
            key[k] = key_row(c, base + min_int(p + k, end - 1));
        if (!whole_rows) {
            prefetch_rows(c, t, key_row(c, base + p + KEY_PREFETCH), min_int(end - p - KEY_PREFETCH, tiles * KEY_TILE));
            prefetch_rows(c, t, value_row(c, base + p), min_int(end - p, tiles * KEY_TILE));
        }
        for (int h = 0; h < t->kv_heads; h++) {
            const struct scratch w = scratch_of(c, t, h, memory);
            const size_t at = (size_t)h * (size_t)(tiles * c->head_dim) * step;
            const struct soon soon = { key_row(c, base + p + KEY_PREFETCH) + at, whole_rows ? step : 0 };
            for (int s = 0; s < tiles; s++)
                transpose_rows(w.keys + s * KEY_TILE * c->head_dim, c->keys.type, key + s * KEY_TILE,
                               (int64_t)(t->kv_head + h) * c->head_dim, c->head_dim);
            all_scores(c, t, &w, p, tiles, soon);
        }
    }
}

// Computes scores of the positions from .. to of row r of the part, which are not dense.
static void sparse_scores(const struct attend_call *c, const struct attend_part *t, int r, int from, int to, int start,
                          void *memory)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim;
    int32_t row[SPLIT];
    int n = sparse_rows(c, t->first + r, from, to, row);
    for (int j = 0; j < n; j += KEY_TILE) {
        const uint8_t *at[KEY_TILE];
        for (int k = 0; k < KEY_TILE; k++)
            at[k] = key_row(c, row[j + k < n ? j + k : n - 1]);
        for (int head = 0; head < t->kv_heads * group; head++) {
            const struct scratch w = scratch_of(c, t, head / group, memory);
            const int query = r * group + head % group;
            const float *q = w.q + query * hd;
            float one[KEY_TILE] = { 0 };
            if (head % group == 0)
                transpose_rows(w.keys, c->keys.type, at, (int64_t)(t->kv_head + head / group) * hd, hd);
            for (int v = 0; v < KEY_TILE; v += W) {
                vf a = { 0 };
                for (int d = 0; d < hd; d++)
                    a = mad(load(w.keys + d * KEY_TILE + v), splat(q[d]), a);
                store(one + v, a);
            }
            int count = n - j < KEY_TILE ? n - j : KEY_TILE;
            memcpy(w.score + query * SCORE_STRIDE + (from - start) + j, one, (size_t)count * sizeof(float));
        }
    }
}

// Loads one head's part of n cache rows of values, for this many queries. If many queries need it, it is converted
// once.
static void load_values(const struct attend_call *c, const struct scratch *w, int kv_head, const int32_t *row, int n,
                        int queries, struct values *value)
{
    const enum type type = c->values.type;
    const int hd = c->head_dim;
    const int64_t from = (int64_t)kv_head * hd;
    const bool direct = hd == w->padded && (type == F32 || queries <= 2 * VALUE_QUERIES);
    const size_t at = type_row_bytes(type, from), bytes = type_row_bytes(type, hd);
    value->type = direct ? type : F32;
    value->soon = direct ? VALUE_ROWS * c->row_bytes : 0;
    for (int j = 0; j < n; j++) {
        const uint8_t *from_row = value_row(c, row[j]);
        if (direct) {
            value->row[j] = from_row + at;
            continue;
        }
        float *to = w->value + j * w->padded;
        prefetch_lines(from_row + VALUE_ROWS * c->row_bytes + at, bytes);
        row_floats(to, type, from_row, from, hd);
        for (int d = hd; d < w->padded; d++)
            to[d] = 0;
        value->row[j] = (const uint8_t *)to;
    }
}

// Adds the values of n cache rows, columns of the scores from `column` on, to the sums of rows first .. first + count
// of the part.
static void add_values(const struct attend_call *c, const struct attend_part *t, int first, int count,
                       const int32_t *row, int n, int column, void *memory)
{
    const int group = c->heads / c->kv_heads, end = (first + count) * group;
    struct values value;
    for (int h = 0; h < t->kv_heads; h++) {
        const struct scratch w = scratch_of(c, t, h, memory);
        load_values(c, &w, t->kv_head + h, row, n, count * group, &value);
        for (int i = first * group; i < end; i += VALUE_QUERIES, value.soon = 0)
            add_weighted_of(min_int(end - i, VALUE_QUERIES), w.sums + i * w.padded, w.padded,
                            w.score + i * SCORE_STRIDE + column, &value, n, column == 0);
    }
}

// Adds the values of the positions from .. to of row r of the part.
static void add_values_of_row(const struct attend_call *c, const struct attend_part *t, int r, int from, int to,
                              int64_t base, int start, void *memory)
{
    const int i = t->first + r, dense = min_int(c->dense[i], to);
    int32_t row[VALUE_ROWS];
    for (int p = from, n; p < to; p += n) {
        n = 0;
        if (p < dense)
            for (; n < VALUE_ROWS && p + n < dense; n++)
                row[n] = (int32_t)base + p + n;
        else
            n = sparse_rows(c, i, p, min_int(p + VALUE_ROWS, to), row);
        add_values(c, t, r, 1, row, n, p - start, memory);
    }
}

// Writes the sums of row r of the part to the output or, if there are several splits, to the partial sums.
static void write_sums(const struct attend_call *c, const struct attend_part *t, int r, void *memory)
{
    const int group = c->heads / c->kv_heads, hd = c->head_dim, i = t->first + r;
    for (int head = 0; head < t->kv_heads * group; head++) {
        const struct scratch w = scratch_of(c, t, head / group, memory);
        const int query = r * group + head % group, number = t->kv_head * group + head;
        const float *sums = w.sums + query * w.padded;
        if (c->splits == 1) {
            float *out = c->out + ((int64_t)i * c->heads + number) * hd;
            float by = 1.0f / w.total[query];
            for (int d = 0; d < hd; d++)
                out[d] = sums[d] * by;
            continue;
        }
        float *out = attend_partial(c, i, number, t->split);
        memcpy(out, sums, (size_t)hd * sizeof(float));
        out[hd] = w.max[query];
        out[hd + 1] = w.total[query];
    }
}

// Replaces scores (n) by weights. The first `hidden` weights are 0.
static void weigh(const struct attend_call *c, float *score, int n, int hidden, float *max, float *total)
{
    if (hidden >= n) {
        memset(score, 0, (size_t)n * sizeof(float));
        *total = 0;
        return;
    }
    for (int k = 0; c->cap > 0 && k < n; k += W) // x has space up to a multiple of W
        store(score + k, tanh_lanes(load(score + k) / splat(c->cap)) * splat(c->cap));
    *total = softmax_exp(score + hidden, n - hidden, max);
    memset(score, 0, (size_t)hidden * sizeof(float));
}

static void run_split(const struct attend_call *c, const struct attend_part *t, void *memory)
{
    const int group = c->heads / c->kv_heads, start = t->split * SPLIT, end = start + SPLIT;
    const int64_t base = (int64_t)c->layout->slot[t->first] * c->layout->length;
    int max_dense = 0, min_dense = INT32_MAX; // the maximum and the minimum of the rows' dense positions
    for (int r = 0; r < t->n; r++) {
        max_dense = c->dense[t->first + r] > max_dense ? c->dense[t->first + r] : max_dense;
        min_dense = min_int(c->dense[t->first + r], min_dense);
    }
    min_dense = min_int(min_dense, end);
    for (int h = 0; h < t->kv_heads; h++) {
        struct scratch w = scratch_of(c, t, h, memory);
        scale_queries(c, t, t->kv_head + h, &w);
    }
    dense_scores(c, t, base, start, min_int(max_dense, end), memory);
    for (int r = 0; r < t->n; r++) {
        const int i = t->first + r, to = min_int(c->positions[i], end);
        const int from = c->dense[i] > start ? c->dense[i] : start;
        if (from < to)
            sparse_scores(c, t, r, from, to, start, memory);
        const int hidden = attend_first(c, i) > start ? attend_first(c, i) - start : 0;
        for (int head = 0; head < t->kv_heads * group && to > start; head++) {
            const struct scratch w = scratch_of(c, t, head / group, memory);
            const int query = r * group + head % group;
            weigh(c, w.score + query * SCORE_STRIDE, to - start, hidden, &w.max[query], &w.total[query]);
        }
    }
    for (int p = start; p < min_dense; p += VALUE_ROWS) {
        const int n = min_int(min_dense - p, VALUE_ROWS);
        int32_t row[VALUE_ROWS];
        for (int k = 0; k < n; k++)
            row[k] = (int32_t)base + p + k;
        add_values(c, t, 0, t->n, row, n, p - start, memory);
    }
    for (int r = 0; r < t->n; r++) {
        const int to = min_int(c->positions[t->first + r], end);
        add_values_of_row(c, t, r, min_dense > start ? min_dense : start, to, base, start, memory);
        if (to > start)
            write_sums(c, t, r, memory);
    }
}

// A single split is used unchanged; several are rescaled to the maximum score. For a sequence of one split both give
// equal bits: its weight is exp(0) = 1.
static void combine(const struct attend_call *c, int i, int head)
{
    const int hd = c->head_dim, first = attend_first(c, i) / SPLIT, n = (c->positions[i] + SPLIT - 1) / SPLIT - first;
    const float *p = attend_partial(c, i, head, first);
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
