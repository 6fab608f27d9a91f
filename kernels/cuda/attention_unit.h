// attention_unit.h - a unit of attention on tensor cores: which positions a block has, unit by unit; their keys and
// values, copied from the cache through a ring in shared memory, several units ahead; the scores, weights and sums of a
// unit. Included by attention_mma.cu only.
//
// Each tile of sixteen queries, which are the rows of an MMA, has the same number of warps. These share the unit's keys
// for the scores, and the head's elements for the sums of values. A float is split into three BF16 numbers, each the
// leading part of the remainder, so the products of queries with keys and of weights with values are exact; only the
// MMA's sums round.
#pragma once
#include "kernels/cuda/attention.h"

namespace DEVICE_SPACE
{

// ALL: every row of the block, in place of the number of a row.
constexpr int THREADS = 128, WARPS = THREADS / WARP, ALL = -1, PLANES = 3;

// Shared memory of a block; QUERY_TILES tiles of sixteen queries. Rows are padded by sixteen bytes to an odd multiple
// of that, so that eight of them lie in different banks.
template <int HD, int QUERY_TILES> struct mma_scratch {
    static constexpr int QUERIES = 16 * QUERY_TILES, WIDTH = HD + 8;
    static constexpr int SLOTS = HD == 64 ? 6 : QUERY_TILES == 1 ? 4 : 3; // the ring's
    alignas(16) uint16_t q[PLANES][QUERIES][WIDTH];                       // rotated and scaled
    alignas(16) uint16_t ring[SLOTS][KEYS][WIDTH];                        // keys and values in turn
    alignas(16) uint16_t weight[QUERIES][PLANES * KEYS + 8]; // (query, plane, key); before: scores, as floats
    float max[QUERIES], total[QUERIES];
    int32_t place[KEYS];
    int positions[QUERIES], dense[QUERIES]; // (rows)
    int seen[QUERIES];                      // positions of a query's row; 0: there is no such query
    int own_from, own_count;                // the slot's cache rows that this pass writes: own_from ..
    int own[STORED_ROWS];                   // (own_count) their rows in the pass
};

// ---- the views of a block

struct range {      // the positions of a block
    int first, end; // units
    int longest;    // positions of the block's longest row
    int shortest;   // positions of its shortest one, without those that see nothing
    int gap;        // rows may have different cache rows at the same position, from this one on
};

struct run { // one after the other: units, and within a unit rows or ALL
    int unit, row;
};

struct view {     // a unit for some queries
    int from;     // first position
    int row;      // or ALL
    int first, m; // queries first .. first + m
    int count;    // positions that some query attends to
};

template <int HD, int QUERY_TILES>
static __device__ inline struct range range_of(const struct attend_call &c, const struct share &a,
                                               const mma_scratch<HD, QUERY_TILES> *scratch)
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

template <int HD, int QUERY_TILES>
static __device__ inline bool shares_places(const struct share &a, const mma_scratch<HD, QUERY_TILES> *scratch,
                                            const struct range &p, int unit)
{
    const int from = unit * KEYS, end = from + KEYS;
    bool shared = true;
    UNROLL_BY(1)
    for (int i = 0; end > p.gap && i < a.rows; i++)
        shared = shared && min(scratch->positions[i], end) <= max(scratch->dense[i], from);
    return shared;
}

template <int HD, int QUERY_TILES>
static __device__ inline struct run run_from(const struct share &a, const mma_scratch<HD, QUERY_TILES> *scratch,
                                             const struct range &p, int unit, int row)
{
    if (row == 0 && (unit >= p.end || shares_places(a, scratch, p, unit)))
        return { unit, ALL };
    UNROLL_BY(1)
    for (; row < a.rows; row++)
        if (scratch->positions[row] > unit * KEYS)
            return { unit, row };
    return { unit, a.rows };
}

template <int HD, int QUERY_TILES>
static __device__ inline struct run next_run(const struct share &a, const mma_scratch<HD, QUERY_TILES> *scratch,
                                             const struct range &p, const struct run &r)
{
    const struct run next = r.row == ALL ? r : run_from(a, scratch, p, r.unit, r.row + 1);
    return r.row != ALL && next.row < a.rows ? next : run_from(a, scratch, p, r.unit + 1, 0);
}

template <int HD, int QUERY_TILES>
static __device__ inline struct view view_of(const struct share &a, const mma_scratch<HD, QUERY_TILES> *scratch,
                                             const struct range &p, const struct run &r)
{
    struct view v;
    v.from = r.unit * KEYS;
    v.row = r.row;
    v.first = r.row == ALL ? 0 : r.row * a.heads;
    v.m = r.row == ALL ? a.rows * a.heads : a.heads;
    v.count = min((r.row == ALL ? p.longest : scratch->positions[r.row]) - v.from, KEYS);
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

// Numbers d, d + 1 and half + d, half + d + 1 of row i of the pass, as they are in the cache.
template <int HD>
static __device__ inline void convert_pairs(const struct attend_call &c, int i, int kv_head, int d, uint32_t key[2],
                                            uint32_t value[2])
{
    const int64_t at = ((int64_t)i * c.kv_heads + kv_head) * HD;
    const float2 x = *(const float2 *)(c.v + at + d), y = *(const float2 *)(c.v + at + HD / 2 + d);
    struct pairs p = load_pairs<HD>(c.k + at, c.angles + (int64_t)i * HD, d);
    rotate(&p);
    key[0] = bf16_pair(p.low.x, p.low.y), key[1] = bf16_pair(p.high.x, p.high.y);
    value[0] = bf16_pair(x.x, x.y), value[1] = bf16_pair(y.x, y.y);
}

// Writes the keys and values of the block's rows to the cache.
template <int HD> static __device__ inline void store_rows(const struct attend_call &c, const struct share &a)
{
    constexpr int PAIRS = HD / 4;
    UNROLL_BY(1)
    for (int at = (int)threadIdx.x; at < a.rows * PAIRS; at += THREADS) {
        const int i = a.first + at / PAIRS, d = at % PAIRS * 2;
        const int64_t place = c.place[i],
                      to = place * (int64_t)c.row_bytes + (a.kv_head * HD + d) * (int)sizeof(uint16_t);
        uint32_t key[2], value[2];
        if (place < 0)
            continue;
        convert_pairs<HD>(c, i, a.kv_head, d, key, value);
        for (int half = 0; half < 2; half++) {
            *(uint32_t *)(c.keys + to + half * HD) = key[half];
            *(uint32_t *)(c.values + to + half * HD) = value[half];
        }
    }
}

// The rows of the pass that belong to the slot of the block: kv_admit places them one after the other. For the first
// two warps.
template <int HD, int QUERY_TILES>
static __device__ inline void find_own(const struct attend_call &c, const struct share &a,
                                       mma_scratch<HD, QUERY_TILES> *scratch)
{
    const int i = (int)threadIdx.x, lane = i % WARP;
    const int of[2] = { lane < c.n ? c.slot[lane] : -1, lane + WARP < c.n ? c.slot[lane + WARP] : -1 };
    const int32_t place = i < c.n ? c.place[i] : -1;
    const uint32_t low = __ballot_sync(0xFFFFFFFF, of[0] == a.slot), high = __ballot_sync(0xFFFFFFFF, of[1] == a.slot);
    const uint64_t rows = (uint64_t)high << WARP | low, before = rows & (((uint64_t)1 << i) - 1);
    const bool own = c.stores && a.slot >= 0;
    if (own && (rows >> i & 1) != 0)
        scratch->own[__popcll(before)] = i;
    if (own ? (rows >> i & 1) != 0 && before == 0 : i == 0) {
        scratch->own_from = own ? place - a.slot * c.length : 0;
        scratch->own_count = own ? __popcll(rows) : 0;
    }
}

// Converts the keys and values of a view that this pass makes. They may not be in the cache yet: another block writes
// them.
template <int HD, int QUERY_TILES>
static __device__ inline void load_own(const struct attend_call &c, const struct share &a,
                                       mma_scratch<HD, QUERY_TILES> *scratch, const struct view &v, int key_slot,
                                       int value_slot)
{
    constexpr int PAIRS = HD / 4;
    const int own_from = scratch->own_from, own = scratch->own_count;
    const int from = v.row == ALL ? max(own_from - v.from, 0) : 0;
    const int end = v.row == ALL ? min(own_from + own - v.from, v.count) : own > 0 ? v.count : 0;
    UNROLL_BY(1)
    for (int at = from * PAIRS + (int)threadIdx.x; at < end * PAIRS; at += THREADS) {
        const int k = at / PAIRS, d = at % PAIRS * 2, place = v.row == ALL ? v.from + k : scratch->place[k];
        if ((unsigned)(place - own_from) >= (unsigned)own)
            continue;
        uint32_t key[2], value[2];
        convert_pairs<HD>(c, scratch->own[place - own_from], a.kv_head, d, key, value);
        for (int half = 0; half < 2; half++) {
            *(uint32_t *)&scratch->ring[key_slot][k][half * HD / 2 + d] = key[half];
            *(uint32_t *)&scratch->ring[value_slot][k][half * HD / 2 + d] = value[half];
        }
    }
}

// Starts copies of the keys and values of the block's first units, as far as they lie in the prefix: what writes them
// has ended when the pass's graph begins. Returns the prefix.
template <int HD, int QUERY_TILES>
static __device__ inline int load_prefix(const struct attend_call &c, const struct share &a,
                                         mma_scratch<HD, QUERY_TILES> *scratch)
{
    constexpr int VECTORS = HD / 8;
    const int first = (int)blockIdx.z * c.units, prefix = a.slot >= 0 ? c.prefix[a.first] : 0;
    UNROLL_BY(1)
    for (int i = 0; i < mma_scratch<HD, QUERY_TILES>::SLOTS - 1 && i / 2 < c.units; i++) {
        const int from = (first + i / 2) * KEYS, count = min(prefix - from, KEYS);
        const uint8_t *cache = (i % 2 != 0 ? c.values : c.keys) +
                               ((size_t)a.slot * (size_t)c.length + (size_t)from) * c.row_bytes +
                               (size_t)a.kv_head * HD * sizeof(uint16_t);
        UNROLL_BY(4)
        for (int at = (int)threadIdx.x; at < count * VECTORS; at += THREADS)
            copy_async(&scratch->ring[i][at / VECTORS][at % VECTORS * 8],
                       cache + (uint64_t)(uint32_t)(at / VECTORS) * (uint32_t)c.row_bytes + at % VECTORS * 16);
    }
    return prefix;
}

// Starts copies of a view's keys, or its values, but the first `copied`, from the cache to a slot of the ring. Keys
// first, then, to the next slot, values.
template <int HD, int QUERY_TILES>
static __device__ inline void load_unit(const struct attend_call &c, const struct share &a,
                                        mma_scratch<HD, QUERY_TILES> *scratch, const struct view &v, bool values,
                                        int slot, int copied)
{
    constexpr int VECTORS = HD / 8, SLOTS = mma_scratch<HD, QUERY_TILES>::SLOTS;
    const int thread = (int)threadIdx.x, own_from = scratch->own_from, own = scratch->own_count;
    const uint8_t *cache = (values ? c.values : c.keys) + (size_t)a.slot * (size_t)c.length * c.row_bytes +
                           (size_t)a.kv_head * HD * sizeof(uint16_t);
    if (v.row != ALL && !values) {
        __syncthreads(); // until the last view's places are no longer read
        find_places(c, a.first + v.row, v.from, v.count, scratch->place, thread, THREADS);
        __syncthreads();
    }
    UNROLL_BY(1)
    for (int at = copied * VECTORS + thread; at < v.count * VECTORS; at += THREADS) {
        const int k = at / VECTORS, part = at % VECTORS, place = v.row == ALL ? v.from + k : scratch->place[k];
        if ((unsigned)(place - own_from) >= (unsigned)own)
            copy_async(&scratch->ring[slot][k][8 * part], cache + (uint64_t)(uint32_t)place * c.row_bytes + 16 * part);
    }
    if (values) // both at once: their loads take one round trip
        load_own(c, a, scratch, v, (slot + SLOTS - 1) % SLOTS, slot);
}

struct loader { // what is loaded next
    struct run run;
    bool values;
    int slot;
    int begun, prefix; // how often; positions that load_prefix has seen
};

template <int HD, int QUERY_TILES>
static __device__ inline void load_next(const struct attend_call &c, const struct share &a,
                                        mma_scratch<HD, QUERY_TILES> *scratch, const struct range &p, struct loader *l)
{
    if (l->run.unit < p.end) {
        const struct view v = view_of(a, scratch, p, l->run);
        const bool early = l->begun < mma_scratch<HD, QUERY_TILES>::SLOTS - 1 && l->begun / 2 == l->run.unit - p.first;
        load_unit(c, a, scratch, v, l->values, l->slot, early ? max(min(l->prefix - v.from, v.count), 0) : 0);
        l->begun++;
        if (l->values)
            l->run = next_run(a, scratch, p, l->run);
        l->values = !l->values;
    }
    commit_copies();
    l->slot = l->slot + 1 < mma_scratch<HD, QUERY_TILES>::SLOTS ? l->slot + 1 : 0;
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

// ---- scores

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

// The part of a unit that a warp computes: its tile of queries, and which of the WARPS_PER_TILE shares.
template <int QUERY_TILES> constexpr int WARPS_PER_TILE = WARPS / QUERY_TILES;
template <int QUERY_TILES> static __device__ inline int tile_of_warp(void)
{
    return (int)threadIdx.x / WARP / WARPS_PER_TILE<QUERY_TILES>;
}
template <int QUERY_TILES> static __device__ inline int share_of_warp(void)
{
    return (int)threadIdx.x / WARP % WARPS_PER_TILE<QUERY_TILES>;
}

// Whether the view has queries of the warp's tile.
template <int QUERY_TILES> static __device__ inline bool has_queries(const struct view &v)
{
    const int first = 16 * tile_of_warp<QUERY_TILES>();
    return first < v.first + v.m && first + 16 > v.first;
}

// Scores of the tile's queries with the warp's share of the keys, to scratch->weight.
template <int HD, int QUERY_TILES>
static __device__ inline void unit_scores(mma_scratch<HD, QUERY_TILES> *scratch, const struct view &v, int slot)
{
    constexpr int SIXTEENS = KEYS / 16 / WARPS_PER_TILE<QUERY_TILES>; // sixteens of keys
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    const int first = 16 * tile_of_warp<QUERY_TILES>(), from = 16 * SIXTEENS * share_of_warp<QUERY_TILES>();
    if (!has_queries<QUERY_TILES>(v))
        return;
    float s[PLANES][2 * SIXTEENS][4] = {};
    UNROLL
    for (int step = 0; step < HD / 16; step++) {
        uint32_t key[SIXTEENS][4];
        UNROLL
        for (int i = 0; i < SIXTEENS; i++)
            load_matrices(key[i], row_of_b(&scratch->ring[slot][from + 16 * i], 16 * step));
        UNROLL
        for (int plane = 0; plane < PLANES; plane++) {
            uint32_t q[4];
            load_matrices(q, row_of_a(&scratch->q[plane][first], 16 * step));
            UNROLL
            for (int i = 0; i < SIXTEENS; i++) {
                mma_bf16(s[plane][2 * i], q, key[i][0], key[i][1]);
                mma_bf16(s[plane][2 * i + 1], q, key[i][2], key[i][3]);
            }
        }
    }
    UNROLL
    for (int j = 0; j < 2 * SIXTEENS; j++) // the planes are added, the smallest first
        UNROLL
    for (int half = 0; half < 2; half++) {
        const int e = 2 * half;
        float *to = (float *)scratch->weight[first + g + 8 * half] + from + 8 * j + 2 * t;
        *(float2 *)to =
            make_float2(s[2][j][e] + s[1][j][e] + s[0][j][e], s[2][j][e + 1] + s[1][j][e + 1] + s[0][j][e + 1]);
    }
}

// ---- weights

// Replaces scores by the planes of weights. A warp has a quarter of the queries, eight lanes a query, and a lane eight
// keys.
template <int HD, int QUERY_TILES>
static __device__ inline void unit_weights(mma_scratch<HD, QUERY_TILES> *scratch, const struct view &v)
{
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, k = lane % 8 * 8;
    UNROLL_BY(1)
    for (int n = 0; n < QUERY_TILES; n++) {
        const int u = 16 * n + 4 * warp + lane / 8;
        const int seen = u >= v.first && u < v.first + v.m ? scratch->seen[u] - v.from : 0;
        const float4 *from = (const float4 *)((const float *)scratch->weight[u] + k);
        const float4 low = from[0], high = from[1];
        float x[8] = { low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w };
        float most = -INFINITY, total = 0;
        UNROLL
        for (int i = 0; i < 8; i++)
            if (k + i < seen)
                most = fmaxf(most, x[i]);
        UNROLL
        for (int step = 1; step < 8; step *= 2)
            most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, step));
        most = ceilf(most);
        UNROLL
        for (int i = 0; i < 8; i++) {
            x[i] = k + i < seen ? exp2f(x[i] - most) : 0;
            total += x[i];
        }
        UNROLL
        for (int step = 1; step < 8; step *= 2)
            total += __shfl_xor_sync(0xFFFFFFFF, total, step);
        __syncwarp(); // all scores of these queries have been read
        if (seen <= 0)
            continue;
        UNROLL
        for (int plane = 0; plane < PLANES; plane++) {
            uint4 part;
            part.x = split_plane(&x[0], &x[1]);
            part.y = split_plane(&x[2], &x[3]);
            part.z = split_plane(&x[4], &x[5]);
            part.w = split_plane(&x[6], &x[7]);
            *(uint4 *)&scratch->weight[u][plane * KEYS + k] = part;
        }
        if (lane % 8 == 0) {
            scratch->max[u] = most;
            scratch->total[u] = total;
        }
    }
}

// ---- values

// Eights of a head's elements per warp: its share, share + WARPS_PER_TILE, ..
template <int HD, int QUERY_TILES>
constexpr int EIGHTS = (HD / 8 + WARPS_PER_TILE<QUERY_TILES> - 1) / WARPS_PER_TILE<QUERY_TILES>;

// The first element of the warp's eight j; HD if it has no more.
template <int HD, int QUERY_TILES> static __device__ inline int eight_of_warp(int j)
{
    return min(8 * (share_of_warp<QUERY_TILES>() + WARPS_PER_TILE<QUERY_TILES> * j), HD);
}

// The pair of keys `key`, key + 1, without those from `limit` on.
static __device__ inline uint32_t pair_below(uint32_t pair, int key, int limit)
{
    return key + 1 < limit ? pair : key < limit ? pair & 0xFFFF : 0;
}

// sum = weights . values, of the tile's queries and the warp's elements. Values of keys from `limit` on are not used,
// whatever their weights.
template <int HD, int QUERY_TILES>
static __device__ inline void unit_values(float (&sum)[EIGHTS<HD, QUERY_TILES>][4],
                                          mma_scratch<HD, QUERY_TILES> *scratch, const struct view &v, int limit,
                                          int slot)
{
    constexpr int N = EIGHTS<HD, QUERY_TILES>,
                  AT_ONCE = N < 4 ? N : 4; // sums whose additions take turns: each waits for its last one
    const int lane = (int)threadIdx.x % WARP, t = lane % 4, first = 16 * tile_of_warp<QUERY_TILES>();
    UNROLL
    for (int j = 0; j < N; j++)
        UNROLL
    for (int e = 0; e < 4; e++)
        sum[j][e] = 0;
    if (!has_queries<QUERY_TILES>(v))
        return;
    UNROLL
    for (int keys = 0; keys < KEYS; keys += 32) {
        uint32_t weight[2][PLANES][4];
        UNROLL
        for (int step = 0; step < 2; step++)
            UNROLL
        for (int plane = 0; plane < PLANES; plane++)
            load_matrices(weight[step][plane], row_of_a(&scratch->weight[first], plane * KEYS + keys + 16 * step));
        UNROLL
        for (int from = 0; from < N; from += AT_ONCE) {
            uint32_t value[AT_ONCE][4] = {};
            UNROLL
            for (int j = 0; j < AT_ONCE && from + j < N; j++) {
                const int eight = eight_of_warp<HD, QUERY_TILES>(from + j);
                if (eight == HD)
                    continue;
                load_matrices<true>(value[j], &scratch->ring[slot][keys + lane][eight]);
                if (limit < KEYS)
                    UNROLL
                for (int i = 0; i < 4; i++)
                    value[j][i] = pair_below(value[j][i], keys + 8 * i + 2 * t, limit);
            }
            UNROLL
            for (int step = 0; step < 2; step++)
                UNROLL
            for (int plane = PLANES - 1; plane >= 0; plane--) // smallest first, to reduce rounding
                UNROLL
            for (int j = 0; j < AT_ONCE && from + j < N; j++)
                mma_bf16(sum[from + j], weight[step][plane], value[j][2 * step], value[j][2 * step + 1]);
        }
    }
}

} // namespace DEVICE_SPACE
