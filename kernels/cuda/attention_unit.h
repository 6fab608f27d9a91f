// attention_unit.h - attention on tensor cores: the units of a block, each of which a warp computes for a tile of
// sixteen queries; their keys and values, copied from the cache to shared memory; scores, weights and sums of a unit.
// Included by attention_mma.cu only.
//
// A float is split into three BF16 numbers, each the leading part of the remainder, so the products of queries with
// keys and of weights with values are exact; only the MMA's sums round. The sums of the three are apart until the end,
// where they are added, the smallest first.
#pragma once
#include "kernels/cuda/attention.h"

namespace DEVICE_SPACE
{

// ALL: every row of the block, in place of the number of a row. PLANES: numbers of a float. FEW: at most so many
// queries share a tile with their planes: row 4 p + u of it has plane p of query u.
constexpr int ALL = -1, PLANES = 3, FEW = 4;

// A form of the kernel: the size of a head, the most queries of a block, and its lanes. A lane computes a unit, and has
// a warp for each tile of sixteen queries, which are the rows of an MMA.
template <int SIZE, int MOST, int UNITS> struct block_form {
    static constexpr int HD = SIZE, QUERIES = MOST, LANES = UNITS, TILES = MOST <= 16 ? 1 : MOST / 16;
    static constexpr int LANE = TILES * WARP, THREADS = LANES * LANE; // LANE: threads of a lane
    static constexpr int WIDTH = HD + 8; // a row in shared memory: an odd multiple of sixteen bytes, so that eight
                                         // rows lie in different banks
    static constexpr int PARTS = MOST == FEW ? 1 : PLANES; // MMAs of a product
};

struct run { // one after the other: units, and within a unit rows or ALL
    int unit, row;
};

struct range {      // the positions of a block
    int first, end; // units
    int longest;    // positions of the block's longest row
    int shortest;   // positions of its shortest one, without those that see nothing
    int gap;        // rows may have different cache rows at the same position, from this one on
};

template <typename F> struct mma_scratch {                // shared memory of a block
    alignas(16) uint16_t q[PLANES][F::QUERIES][F::WIDTH]; // rotated and scaled
    alignas(16) uint16_t keys[F::LANES][KEYS][F::WIDTH];  // a lane's; then its sums, as floats: a row a query
    alignas(16) uint16_t values[F::LANES][KEYS][F::WIDTH];
    float max[F::LANES][F::QUERIES], total[F::LANES][F::QUERIES]; // the weights'
    int32_t place[F::LANES][KEYS];                                // the unit's positions', if they are one row's
    struct run run[F::LANES];                                     // what the lanes compute
    int positions[F::QUERIES], dense[F::QUERIES];                 // (rows)
    int row[F::QUERIES], query[F::QUERIES]; // a query's row of the block, and its number in the pass
    int seen[F::QUERIES];                   // positions of a query's row; 0: there is no such query
    int prefix;                             // the slot's
    int own_from, own_count;                // the slot's cache rows that this pass writes: own_from ..
    int own[STORED_ROWS];                   // (own_count) their rows in the pass
    __device__ float *sums(int lane, int u)
    {
        static_assert(F::QUERIES * sizeof(float) <= KEYS * sizeof(uint16_t), "sums take the place of keys");
        return (float *)keys[lane] + u * F::WIDTH;
    }
};

// The number of a warp's lane, of its tile, and of a thread in its lane.
template <typename F> static __device__ inline int lane_of_warp(void)
{
    return (int)threadIdx.x / F::LANE;
}
template <typename F> static __device__ inline int tile_of_warp(void)
{
    return (int)threadIdx.x / WARP % F::TILES;
}
template <typename F> static __device__ inline int thread_of_lane(void)
{
    return (int)threadIdx.x % F::LANE;
}

// ---- what a block computes

template <typename F>
static __device__ inline struct range range_of(const struct attend_call &c, const struct share &a,
                                               const mma_scratch<F> *scratch)
{
    struct range p = { (int)blockIdx.z * c.units, 0, 0, INT32_MAX, INT32_MAX };
    UNROLL_BY(1)
    for (int i = 0; i < a.rows; i++) {
        const int positions = scratch->positions[i];
        p.longest = max(p.longest, positions);
        p.shortest = positions > 0 ? min(p.shortest, positions) : p.shortest;
        p.gap = scratch->dense[i] < positions ? min(p.gap, scratch->dense[i]) : p.gap;
    }
    p.end = min(p.first + c.units, (p.longest + KEYS - 1) / KEYS);
    return p;
}

// The run of a unit from a row on, or of the next unit.
template <typename F>
static __device__ inline struct run run_from(const struct share &a, const mma_scratch<F> *scratch,
                                             const struct range &p, struct run r)
{
    const int from = r.unit * KEYS, end = from + KEYS;
    if (end <= p.gap || r.unit >= p.end)
        return { r.unit, ALL };
    if (r.row <= 0) {
        bool shared = true;
        UNROLL_BY(1)
        for (int i = 0; i < a.rows; i++)
            shared = shared && min(scratch->positions[i], end) <= max(scratch->dense[i], from);
        if (shared)
            return { r.unit, ALL };
    }
    UNROLL_BY(1)
    for (int row = max(r.row, 0); row < a.rows; row++)
        if (scratch->positions[row] > from)
            return { r.unit, row };
    return { r.unit, a.rows };
}

template <typename F>
static __device__ inline struct run next_run(const struct share &a, const mma_scratch<F> *scratch,
                                             const struct range &p, struct run r)
{
    if (r.row != ALL) {
        r = run_from(a, scratch, p, { r.unit, r.row + 1 });
        if (r.row < a.rows)
            return r;
    }
    return run_from(a, scratch, p, { r.unit + 1, 0 });
}

struct view {     // a unit for some queries
    int from;     // first position
    int row;      // or ALL
    int first, m; // queries first .. first + m
    int count;    // positions that some query attends to; 0: nothing is left
};

template <typename F>
static __device__ inline struct view view_of(const struct share &a, const mma_scratch<F> *scratch,
                                             const struct range &p, const struct run &r)
{
    struct view v;
    v.from = r.unit * KEYS;
    v.row = r.row;
    v.first = r.row == ALL ? 0 : r.row * a.heads;
    v.m = r.row == ALL ? a.rows * a.heads : a.heads;
    v.count = r.unit >= p.end ? 0 : min((r.row == ALL ? p.longest : scratch->positions[r.row]) - v.from, KEYS);
    return v;
}

// ---- keys and values

static __device__ inline uint32_t bf16_pair(float x, float y)
{
    return float_to_bf16(x) | (uint32_t)float_to_bf16(y) << 16;
}

struct pairs { // numbers d, d + 1 (low) and half + d, half + d + 1 (high) of a head, d even, and their angles
    float2 low, high, cosine, sine;
};

template <int HD> static __device__ inline struct pairs load_pairs(const float *x, const float *angles, int d)
{
    struct pairs p;
    p.low = *(const float2 *)(x + d), p.high = *(const float2 *)(x + HD / 2 + d);
    p.cosine = *(const float2 *)(angles + d), p.sine = *(const float2 *)(angles + HD / 2 + d);
    return p;
}

// As rotated() of attention.h.
static __device__ inline void rotate(struct pairs *p)
{
    const float2 x = p->low, y = p->high, cosine = p->cosine, sine = p->sine;
    p->low = make_float2(x.x * cosine.x - y.x * sine.x, x.y * cosine.y - y.y * sine.y);
    p->high = make_float2(y.x * cosine.x + x.x * sine.x, y.y * cosine.y + x.y * sine.y);
}

// The rows of the pass that belong to the slot of the block: kv_admit places them one after the other. For the first
// two warps.
template <typename F>
static __device__ inline void find_own(const struct attend_call &c, const struct share &a, mma_scratch<F> *scratch)
{
    const int i = (int)threadIdx.x, lane = i % WARP;
    const int of[2] = { lane < c.n ? c.slot[lane] : -1, lane + WARP < c.n ? c.slot[lane + WARP] : -1 };
    const int32_t place = i < c.n ? c.place[i] : -1, prefix = i < c.n ? c.prefix[i] : 0;
    const uint32_t low = __ballot_sync(0xFFFFFFFF, of[0] == a.slot), high = __ballot_sync(0xFFFFFFFF, of[1] == a.slot);
    const uint64_t rows = (uint64_t)high << WARP | low, before = rows & (((uint64_t)1 << i) - 1);
    const bool own = c.stores && a.slot >= 0;
    if (own && (rows >> i & 1) != 0)
        scratch->own[__popcll(before)] = i;
    if (own ? (rows >> i & 1) != 0 && before == 0 : i == 0) {
        scratch->prefix = prefix;
        scratch->own_from = own ? place - a.slot * c.length : 0;
        scratch->own_count = own ? __popcll(rows) : 0;
    }
}

// What is known of the block's queries without the numbers of the pass, by the last warp.
template <typename F>
static __device__ inline void find_queries(const struct attend_call &c, const struct share &a, mma_scratch<F> *scratch,
                                           int u)
{
    if (u >= F::QUERIES)
        return;
    const int row = u * c.reciprocal >> 16, head = u - row * c.block_heads; // one row, if a block has fewer heads
    const bool is = row < a.rows && head < a.heads;
    const struct counts n = is ? count_positions(c, a.first + row) : counts{ 0, 0 };
    scratch->row[u] = row;
    scratch->query[u] = (a.first + row) * c.heads + a.head + head;
    scratch->seen[u] = n.all;
    if (is && head == 0)
        scratch->positions[row] = n.all, scratch->dense[row] = n.dense;
}

// Finds what the lanes compute next, from the run r on, and the places of a row's positions. Then a barrier.
template <typename F>
static __device__ inline struct view plan(const struct attend_call &c, const struct share &a, mma_scratch<F> *scratch,
                                          const struct range &p, struct run r)
{
    const int lane = lane_of_warp<F>(), thread = thread_of_lane<F>();
    if (p.gap >= p.end * KEYS)
        r.unit += lane;
    else
        UNROLL_BY(1)
    for (int i = 0; i < lane && r.unit < p.end; i++)
        r = next_run(a, scratch, p, r);
    const struct view v = view_of(a, scratch, p, r);
    if (thread == 0)
        scratch->run[lane] = r;
    if (v.row != ALL && v.count > 0)
        find_places(c, a.first + v.row, v.from, v.count, scratch->place[lane], thread, F::LANE);
    __syncthreads();
    return v;
}

// Starts copies of a view's keys, or its values, from the cache, but those that this pass makes. Values that nobody
// attends to are 0, since their weights are.
template <typename F>
static __device__ inline void load_unit(const struct attend_call &c, const struct share &a, mma_scratch<F> *scratch,
                                        const struct view &v, bool values)
{
    constexpr int VECTORS = F::HD / 8, ROWS = F::LANE / VECTORS; // ROWS at a time
    const int lane = lane_of_warp<F>(), own_from = scratch->own_from, own = scratch->own_count;
    const int thread = thread_of_lane<F>(), first = thread / VECTORS, part = thread % VECTORS;
    const uint8_t *from = (values ? c.values : c.keys) + (size_t)a.slot * (size_t)c.length * c.row_bytes +
                          (size_t)(a.kv_head * VECTORS + part) * sizeof(uint4);
    uint16_t(*to)[F::WIDTH] =
        (uint16_t(*)[F::WIDTH]) & (values ? scratch->values : scratch->keys)[lane][first][8 * part];
    if (v.count <= 0 || first >= ROWS)
        return;
    if (v.row == ALL && v.count == KEYS && (own == 0 || v.from + KEYS <= own_from)) {
        from += (size_t)(uint32_t)(v.from + first) * (uint32_t)c.row_bytes;
        UNROLL
        for (int k = 0; k < KEYS; k += ROWS, from += ROWS * c.row_bytes)
            if (KEYS % ROWS == 0 || first + k < KEYS)
                copy_async(to[k], from);
        return;
    }
    UNROLL_BY(1)
    for (int k = 0; first + k < KEYS; k += ROWS) {
        const int at = first + k, place = v.row == ALL ? v.from + at : scratch->place[lane][at];
        if (at >= v.count) {
            if (values)
                *(uint4 *)to[k] = make_uint4(0, 0, 0, 0);
        } else if ((unsigned)(place - own_from) >= (unsigned)own)
            copy_async(to[k], from + (size_t)(uint32_t)place * (uint32_t)c.row_bytes);
    }
}

// Converts the keys and values of all lanes that this pass makes, which other blocks convert, too. Those of the block's
// own rows are written to the cache: each row attends to itself.
template <typename F>
static __device__ inline void load_own(const struct attend_call &c, const struct share &a, mma_scratch<F> *scratch,
                                       const struct range &p)
{
    constexpr int HD = F::HD, PAIRS = HD / 4, BATCH = 2 * F::TILES; // loads of a batch take one round trip
    const int own_from = scratch->own_from, own = scratch->own_count;
    if (own == 0 || p.end * KEYS <= scratch->prefix)
        return;
    UNROLL_BY(1)
    for (int lane = 0; lane < F::LANES; lane++) {
        const struct view v = view_of(a, scratch, p, scratch->run[lane]);
        const int from = max((v.row == ALL ? own_from : scratch->prefix) - v.from, 0);
        const int end = (v.row == ALL ? min(own_from + own - v.from, v.count) : v.count) * PAIRS;
        UNROLL_BY(1)
        for (int at = from * PAIRS + (int)threadIdx.x; at < end; at += BATCH * F::THREADS) {
            struct pairs key[BATCH];
            float2 value[BATCH][2];
            int place[BATCH]; // among the pass's; own: it is another's
            UNROLL
            for (int j = 0; j < BATCH; j++) {
                const int k = min(at + j * F::THREADS, end - 1) / PAIRS, d = (at + j * F::THREADS) % PAIRS * 2;
                place[j] =
                    min((unsigned)((v.row == ALL ? v.from + k : scratch->place[lane][k]) - own_from), (unsigned)own);
                const int64_t i = scratch->own[min(place[j], own - 1)], x = (i * c.kv_heads + a.kv_head) * HD;
                key[j] = load_pairs<HD>(c.k + x, c.angles + i * HD, d);
                value[j][0] = *(const float2 *)(c.v + x + d), value[j][1] = *(const float2 *)(c.v + x + HD / 2 + d);
            }
            UNROLL
            for (int j = 0; j < BATCH; j++) {
                const int now = at + j * F::THREADS, k = now / PAIRS, d = now % PAIRS * 2;
                if (now >= end || place[j] >= own)
                    continue;
                rotate(&key[j]);
                const bool stores = (unsigned)(scratch->own[place[j]] - a.first) < (unsigned)a.rows;
                const size_t to = ((size_t)a.slot * (size_t)c.length + (size_t)(own_from + place[j])) * c.row_bytes +
                                  (size_t)(a.kv_head * HD + d) * sizeof(uint16_t);
                UNROLL
                for (int half = 0; half < 2; half++) {
                    const float2 x = half ? key[j].high : key[j].low, y = value[j][half];
                    const uint32_t keys = bf16_pair(x.x, x.y), values = bf16_pair(y.x, y.y);
                    *(uint32_t *)&scratch->keys[lane][k][half * HD / 2 + d] = keys;
                    *(uint32_t *)&scratch->values[lane][k][half * HD / 2 + d] = values;
                    if (stores) {
                        *(uint32_t *)(c.keys + to + half * HD) = keys;
                        *(uint32_t *)(c.values + to + half * HD) = values;
                    }
                }
            }
        }
    }
}

// Returns the leading halves of two floats as a pair of BF16 and replaces the floats by the remainder, which is 0 after
// three calls.
static __device__ inline uint32_t split_plane(float *x, float *y)
{
    const uint32_t a = __float_as_uint(*x) & 0xFFFF0000, b = __float_as_uint(*y) & 0xFFFF0000;
    *x -= __uint_as_float(a);
    *y -= __uint_as_float(b);
    return a >> 16 | b;
}

// Rotates and scales the block's queries.
template <typename F>
static __device__ inline void load_queries(const struct attend_call &c, const struct share &a, mma_scratch<F> *scratch)
{
    constexpr int HD = F::HD, PAIRS = HD / 4;
    UNROLL_BY(2)
    for (int at = (int)threadIdx.x; at < a.rows * a.heads * PAIRS; at += F::THREADS) {
        const int u = at / PAIRS, d = at % PAIRS * 2;
        struct pairs x = load_pairs<HD>(c.q + (int64_t)scratch->query[u] * HD,
                                        c.angles + (int64_t)(a.first + scratch->row[u]) * HD, d);
        rotate(&x);
        for (int half = 0; half < 2; half++) {
            float one = (half ? x.high.x : x.low.x) * c.scale, two = (half ? x.high.y : x.low.y) * c.scale;
            for (int plane = 0; plane < PLANES; plane++)
                *(uint32_t *)&scratch->q[plane][u][half * HD / 2 + d] = split_plane(&one, &two);
        }
    }
}

// ---- a unit, by a warp

// Row `lane` of four matrices of 8 by 8 that are parts of one of 16 by 16: as the operand a of an MMA; and two operands
// b.
template <int WIDTH> static __device__ inline const uint16_t *row_of_a(uint16_t (*x)[WIDTH], int column)
{
    const int lane = (int)threadIdx.x % WARP;
    return &x[lane % 16][column + lane / 16 * 8];
}

template <int WIDTH> static __device__ inline const uint16_t *row_of_b(uint16_t (*x)[WIDTH], int column)
{
    const int lane = (int)threadIdx.x % WARP;
    return &x[lane % 8 + lane / 16 * 8][column + lane / 8 % 2 * 8];
}

// Lane 4 g + t of a warp has queries g and g + 8 of the tile, and of each eight keys 2 t and 2 t + 1.
static __device__ inline int query_of_lane(int tile, int half)
{
    return 16 * tile + 8 * half + (int)threadIdx.x % WARP / 4;
}

// Whether the view has queries of the tile; one of them.
static __device__ inline bool has_queries(const struct view &v, int tile)
{
    return v.count > 0 && 16 * tile < v.first + v.m && 16 * tile + 16 > v.first;
}

static __device__ inline bool has_query(const struct view &v, int u)
{
    return u >= v.first && u < v.first + v.m;
}

typedef float scores[2][KEYS / 4];                                      // (queries, a lane's keys)
template <typename F> using weights = uint32_t[F::PARTS][KEYS / 16][4]; // operands a of MMAs

// Number e of a lane below 16, whose query has its first and third part in this lane, its second sixteen lanes on.
static __device__ inline float sum_of_parts(const float *of, int e)
{
    return of[2 + e] + __shfl_xor_sync(0xFFFFFFFF, of[e], 16) + of[e];
}

template <typename F> static __device__ inline void unit_scores(scores &x, mma_scratch<F> *scratch, int lane, int tile)
{
    float s[F::PARTS][KEYS / 8][4] = {};
    UNROLL_BY(2)
    for (int step = 0; step < F::HD / 16; step++) {
        uint32_t key[KEYS / 16][4];
        UNROLL
        for (int i = 0; i < KEYS / 16; i++)
            load_matrices(key[i], row_of_b(&scratch->keys[lane][16 * i], 16 * step));
        UNROLL
        for (int plane = 0; plane < F::PARTS; plane++) {
            uint32_t q[4];
            load_matrices(q, row_of_a(&scratch->q[plane][16 * tile], 16 * step));
            UNROLL
            for (int i = 0; i < KEYS / 16; i++) {
                mma_bf16(s[plane][2 * i], q, key[i][0], key[i][1]);
                mma_bf16(s[plane][2 * i + 1], q, key[i][2], key[i][3]);
            }
        }
    }
    UNROLL
    for (int j = 0; j < KEYS / 8; j++)
        UNROLL
    for (int e = 0; e < 2; e++)
        if constexpr (F::QUERIES == FEW)
            x[0][2 * j + e] = sum_of_parts(s[0][j], e);
        else
            UNROLL
    for (int half = 0; half < 2; half++)
        x[half][2 * j + e] = s[2][j][2 * half + e] + s[1][j][2 * half + e] + s[0][j][2 * half + e];
}

// Weights of scores; their maximum and total to shared memory.
template <typename F>
static __device__ inline void unit_weights(weights<F> &w, scores &x, mma_scratch<F> *scratch, const struct view &v,
                                           int lane, int tile)
{
    const int t = (int)threadIdx.x % 4;
    UNROLL
    for (int half = 0; half < (F::QUERIES == FEW ? 1 : 2); half++) {
        if (16 * tile + 8 * half >= v.first + v.m) { // nobody uses them
            UNROLL
            for (int i = 0; i < KEYS / 4; i++)
                x[half][i] = 0;
            continue;
        }
        const int u = query_of_lane(tile, half), seen = has_query(v, u) ? scratch->seen[u] - v.from - 2 * t : 0;
        float most = -INFINITY, total = 0;
        UNROLL
        for (int i = 0; i < KEYS / 4; i++)
            if (8 * (i / 2) + i % 2 < seen)
                most = fmaxf(most, x[half][i]);
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 2));
        most = ceilf(most);
        UNROLL
        for (int i = 0; i < KEYS / 4; i++) {
            x[half][i] = 8 * (i / 2) + i % 2 < seen ? exp2_flushed(x[half][i] - most) : 0;
            total += x[half][i];
        }
        total += __shfl_xor_sync(0xFFFFFFFF, total, 1);
        total += __shfl_xor_sync(0xFFFFFFFF, total, 2);
        if (t == 0 && has_query(v, u)) // lanes from 16 on have none of FEW
            scratch->max[lane][u] = most, scratch->total[lane][u] = total;
    }
    UNROLL
    for (int i = 0; i < KEYS / 16; i++)
        UNROLL
    for (int e = 0; e < 4; e++) {
        float *pair = &x[e % 2][4 * i + e / 2 * 2];
        if constexpr (F::QUERIES != FEW)
            UNROLL
        for (int plane = 0; plane < PLANES; plane++)
            w[plane][i][e] = split_plane(&pair[0], &pair[1]);
        else if (e % 2 == 0)
        {
            const uint32_t first = split_plane(&pair[0], &pair[1]), second = split_plane(&pair[0], &pair[1]);
            const uint32_t other = __shfl_xor_sync(0xFFFFFFFF, second, 16);
            w[0][i][e] = (int)threadIdx.x % WARP < 16 ? first : other;
            w[0][i][e + 1] = split_plane(&pair[0], &pair[1]);
        }
    }
}

// The pair of keys `key`, key + 1, without those from `limit` on.
static __device__ inline uint32_t pair_below(uint32_t pair, int key, int limit)
{
    return key + 1 < limit ? pair : key < limit ? pair & 0xFFFF : 0;
}

// Sums of weights . values of the tile's queries in the view, to shared memory. BELOW: values of keys from `limit` on
// are not used, whatever their weights. Returns whether a sum is not finite.
template <typename F, bool BELOW>
static __device__ inline bool unit_sums(const weights<F> &w, mma_scratch<F> *scratch, const struct view &v, int limit,
                                        int lane, int tile)
{
    const int number = (int)threadIdx.x % WARP, t = number % 4;
    bool is[2];
    float zero = 0; // NaN after a number that is not finite
    UNROLL
    for (int half = 0; half < 2; half++)
        is[half] = has_query(v, query_of_lane(tile, half)) && scratch->seen[query_of_lane(tile, half)] > v.from;
    UNROLL_BY(F::QUERIES == FEW ? 4 : 1)
    for (int d = 0; d < F::HD; d += 16) {
        float sum[F::PARTS][2][4] = {};
        UNROLL
        for (int keys = 0; keys < KEYS; keys += 32) {
            uint32_t value[2][4];
            UNROLL
            for (int e = 0; e < 2; e++)
                load_matrices<true>(value[e], &scratch->values[lane][keys + number][d + 8 * e]);
            if constexpr (BELOW)
                UNROLL
            for (int i = 0; i < 8; i++)
                value[i / 4][i % 4] = pair_below(value[i / 4][i % 4], keys + i % 4 * 8 + 2 * t, limit);
            UNROLL
            for (int i = 0; i < 2; i++)
                UNROLL
            for (int plane = 0; plane < F::PARTS; plane++)
                UNROLL
            for (int e = 0; e < 2; e++)
                mma_bf16(sum[plane][e], w[plane][keys / 16 + i], value[e][2 * i], value[e][2 * i + 1]);
        }
        UNROLL
        for (int half = 0; half < (F::QUERIES == FEW ? 1 : 2); half++)
            UNROLL
        for (int e = 0; e < 2; e++) {
            float one, two;
            if constexpr (F::QUERIES == FEW)
                one = sum_of_parts(sum[0][e], 0), two = sum_of_parts(sum[0][e], 1);
            else {
                one = sum[2][e][2 * half] + sum[1][e][2 * half] + sum[0][e][2 * half];
                two = sum[2][e][2 * half + 1] + sum[1][e][2 * half + 1] + sum[0][e][2 * half + 1];
            }
            zero = fmaf(one, 0, fmaf(two, 0, zero));
            if (is[half])
                *(float2 *)(scratch->sums(lane, query_of_lane(tile, half)) + d + 8 * e + 2 * t) = make_float2(one, two);
        }
    }
    return __any_sync(0xFFFFFFFF, zero != 0 && (F::QUERIES != FEW || number < 16)) != 0;
}

} // namespace DEVICE_SPACE
