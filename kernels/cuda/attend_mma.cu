// attend_mma.cu - attention on tensor cores, for caches of BF16 and the head widths that models mostly have.
//
// A float is three BF16 numbers, each what the one before left over, so products of queries with keys and of weights with
// values are exact, as the sums are the MMA's. Sixteen queries are the rows of an MMA: rows of the pass times the heads that share a kv head.
// A warp takes KEYS positions of the block's split, and loads keys and values from the cache straight into the registers
// where the MMA wants them: which element of a head is which of the MMA's columns is free, so every lane loads whole
// vectors. Nothing is staged, and a key is read once for all queries of the block.
//
// Where rows of the block see different cache rows at the same position, the tile is done once for each of them, its
// places found by the row's bits. An element of an MMA's result depends on its own row and column alone (it is so on
// the devices at hand, and tests hold the device to it), and what comes to a query is summed by tiles in order: so neither
// neighbours nor the tree show in its bits.
#include "kernels/cuda/attend.h"

#include <math.h>

namespace DEVICE_SPACE {

// ALL: every row of the block, in place of one of them.
constexpr int THREADS = 128, WARPS = THREADS / WARP, KEYS = 64, TILES = SPLIT / KEYS, STEPS = KEYS / 16, ALL = -1, PLANES = 3;

// A block's shared memory; SIXTEENS of queries. Rows are padded to keep lanes in different banks.
template <int HD, int SIXTEENS> struct mma_room {
    static constexpr int QUERIES = 16 * SIXTEENS, Q_WIDTH = HD == 128 ? 160 : 96, SUM_WIDTH = HD + 8;
    alignas(16) uint16_t q[PLANES][QUERIES][Q_WIDTH]; // scaled
    alignas(16) float sums[TILES][QUERIES][SUM_WIDTH];
    float most[TILES][QUERIES], total[TILES][QUERIES];
    int32_t place[WARPS][KEYS];
    int positions[QUERIES], dense[QUERIES]; // (rows)
    struct share share;
};

struct view { // what a warp does at a time: a tile for some queries
    int tile, from, count; // first position, positions that anyone sees
    int first, m;          // queries
    bool shared;           // some query does not see all of them
};

// The leading halves of two floats, as BF16, and what is left of them: three times, and nothing is left.
static __device__ inline uint32_t take_plane(float *x, float *y)
{
    const uint32_t a = __float_as_uint(*x) & 0xFFFF0000, b = __float_as_uint(*y) & 0xFFFF0000;
    *x -= __uint_as_float(a);
    *y -= __uint_as_float(b);
    return a >> 16 | b;
}

// So that what is worked out of x, or read from memory, is not kept in registers from before: they are few.
static __device__ inline void forget(float &x)
{
#if !defined(EMULATED)
    asm volatile("" : "+f"(x)::"memory");
#else
    (void)x;
#endif
}

// ---- scores

// s (SIXTEENS of m queries, KEYS) = q . keys. Lane (g, t) loads of a chunk of 32 elements those from 8 t on, of key g: two
// steps of the MMA, with queries in the same order.
template <int HD, int SIXTEENS>
static __device__ inline void take_scores(float (&s)[SIXTEENS][2 * STEPS][4], const uint8_t *keys, uint32_t row_bytes,
                                          const mma_room<HD, SIXTEENS> *room, const int32_t *place, const struct view &v)
{
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        uint4 key[2][HD / 32];
        uint2 rest[2] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint8_t *row = keys + (uint64_t)(uint32_t)place[16 * step + 8 * i + g] * row_bytes;
#pragma unroll
            for (int chunk = 0; chunk < HD / 32; chunk++)
                key[i][chunk] = *(const uint4 *)(row + 64 * chunk + 16 * t);
            if (HD % 32 != 0)
                rest[i] = *(const uint2 *)(row + 64 * (HD / 32) + 8 * t);
        }
#pragma unroll
        for (int n = 0; n < SIXTEENS; n++) {
            if (n > 0 && 16 * n >= v.m)
                continue;
            const int last = v.first + v.m - 1, u = min(v.first + 16 * n + g, last), w = min(v.first + 16 * n + g + 8, last);
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    s[n][2 * step + i][e] = 0;
#pragma unroll
            for (int plane = PLANES - 1; plane >= 0; plane--) { // the small ones first: they round little
#pragma unroll
                for (int chunk = 0; chunk < HD / 32; chunk++) {
                    const uint4 x = *(const uint4 *)&room->q[plane][u][32 * chunk + 8 * t];
                    const uint4 y = *(const uint4 *)&room->q[plane][w][32 * chunk + 8 * t];
                    const uint32_t one[4] = { x.x, y.x, x.y, y.y }, two[4] = { x.z, y.z, x.w, y.w };
                    mma_bf16(s[n][2 * step], one, key[0][chunk].x, key[0][chunk].y);
                    mma_bf16(s[n][2 * step + 1], one, key[1][chunk].x, key[1][chunk].y);
                    mma_bf16(s[n][2 * step], two, key[0][chunk].z, key[0][chunk].w);
                    mma_bf16(s[n][2 * step + 1], two, key[1][chunk].z, key[1][chunk].w);
                }
                if (HD % 32 == 0)
                    continue;
                const uint2 x = *(const uint2 *)&room->q[plane][u][HD / 32 * 32 + 4 * t];
                const uint2 y = *(const uint2 *)&room->q[plane][w][HD / 32 * 32 + 4 * t];
                const uint32_t one[4] = { x.x, y.x, x.y, y.y };
                mma_bf16(s[n][2 * step], one, rest[0].x, rest[0].y);
                mma_bf16(s[n][2 * step + 1], one, rest[1].x, rest[1].y);
            }
        }
    }
}

// ---- exponents

// Scores of sixteen queries to exponents, in their place. A lane has two queries' and a quarter of the keys.
template <int HD, int SIXTEENS>
static __device__ inline void take_exponents(float (&s)[2 * STEPS][4], mma_room<HD, SIXTEENS> *room, int heads, int sixteen,
                                             const struct view &v)
{
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int u = 16 * sixteen + g + 8 * half;
        const int seen = u < v.m ? room->positions[(v.first + u) / heads] - v.from : 0;
        float most = -INFINITY, total = 0;
#pragma unroll
        for (int k = 0; k < 4 * STEPS; k++)
            if (k / 2 * 8 + 2 * t + k % 2 < seen)
                most = fmaxf(most, s[k / 2][2 * half + k % 2]);
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 2));
#pragma unroll
        for (int k = 0; k < 4 * STEPS; k++) {
            float &x = s[k / 2][2 * half + k % 2];
            x = expf(k / 2 * 8 + 2 * t + k % 2 < seen ? x - most : -INFINITY);
            total += x;
        }
        total += __shfl_xor_sync(0xFFFFFFFF, total, 1);
        total += __shfl_xor_sync(0xFFFFFFFF, total, 2);
        if (t == 0 && u < v.m) {
            room->most[v.tile][v.first + u] = most;
            room->total[v.tile][v.first + u] = total;
        }
    }
}

// ---- values

template <int E> struct of_lane; // E elements of BF16
template <> struct of_lane<8> {
    typedef uint4 vector;
};
template <> struct of_lane<4> {
    typedef uint2 vector;
};
template <> struct of_lane<2> {
    typedef uint32_t vector;
};

// sums = weights . values, columns `column` to column + 8 E. Lane (g, t) loads of four values of a step the elements from
// E g on: one for each of E MMAs, whose columns 2 t and 2 t + 1 it then has. Returns whether a number is not finite.
template <int E, int HD, int SIXTEENS>
static __device__ inline bool take_values(float (&weight)[SIXTEENS][2 * STEPS][4], const uint8_t *values,
                                          uint32_t row_bytes, mma_room<HD, SIXTEENS> *room, const int32_t *place,
                                          const struct view &v, int column)
{
    typedef typename of_lane<E>::vector vector;
    union {
        vector all;
        uint32_t pair[E / 2];
    } value[4];
    const int g = (int)threadIdx.x % WARP / 4, t = (int)threadIdx.x % 4;
    float sum[SIXTEENS][E][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            value[i].all = *(const vector *)(values + 2 * (column + E * g) +
                                             (uint64_t)(uint32_t)place[16 * step + 2 * t + i % 2 + i / 2 * 8] * row_bytes);
        uint32_t part[SIXTEENS][PLANES][4];
#pragma unroll
        for (int n = 0; n < SIXTEENS; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &x_was = weight[n][2 * step + i / 2][i % 2 * 2], &y_was = weight[n][2 * step + i / 2][i % 2 * 2 + 1];
                forget(x_was);
                forget(y_was);
                float x = x_was, y = y_was;
#pragma unroll
                for (int plane = 0; plane < PLANES; plane++)
                    part[n][plane][i] = take_plane(&x, &y);
            }
#pragma unroll
        for (int j = 0; j < E; j++) {
            const int p = j / 2;
            uint32_t b[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t x = value[2 * i].pair[p], y = value[2 * i + 1].pair[p];
                b[i] = j % 2 == 0 ? (x & 0xFFFF) | y << 16 : x >> 16 | (y & 0xFFFF0000);
            }
#pragma unroll
            for (int n = 0; n < SIXTEENS; n++)
#pragma unroll
                for (int plane = PLANES - 1; plane >= 0; plane--)
                    if (n == 0 || 16 * n < v.m)
                        mma_bf16(sum[n][j], part[n][plane], b[0], b[1]);
        }
    }
    bool strange = false;
#pragma unroll
    for (int n = 0; n < SIXTEENS; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int u = 16 * n + g + 8 * half;
            if (u >= v.m)
                continue;
            float4 *to = (float4 *)&room->sums[v.tile][v.first + u][column + 2 * E * t];
#pragma unroll
            for (int j = 0; j < 2 * E; j += 4) {
                float x[4];
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    x[e] = sum[n][(j + e) % E][2 * half + (j + e) / E];
                    strange = strange || !(fabsf(x[e]) < INFINITY);
                }
                to[j / 4] = make_float4(x[0], x[1], x[2], x[3]);
            }
        }
    return strange;
}

// ---- the kernel

// A tile for a row of the block, or ALL. Returns whether it has to be done again row by row: a value that is not finite
// and that some row does not see would be 0 times that for it.
template <int HD, int SIXTEENS>
static __device__ inline bool take_tile(const struct attend_call &c, mma_room<HD, SIXTEENS> *room, int tile, int row)
{
    const struct share &a = room->share;
    const int lane = (int)threadIdx.x % WARP;
    int32_t *place = room->place[threadIdx.x / WARP];
    int longest = 0, least = INT32_MAX;
    for (int i = row == ALL ? 0 : row; i < (row == ALL ? a.rows : row + 1); i++) {
        longest = max(longest, room->positions[i]);
        least = min(least, room->positions[i]);
    }
    struct view v;
    v.tile = tile;
    v.from = a.start + tile * KEYS;
    v.count = min(longest - v.from, KEYS);
    v.first = row == ALL ? 0 : row * a.heads;
    v.m = row == ALL ? a.rows * a.heads : a.heads;
    v.shared = least - v.from < v.count;
    if (v.count <= 0)
        return false;
    __syncwarp();
    if (row != ALL)
        find_places(c, a.first + row, v.from, v.count, place, lane, WARP);
    else
        for (int k = lane; k < v.count; k += WARP)
            place[k] = v.from + k;
    __syncwarp();
    for (int k = v.count + lane; k < KEYS; k += WARP) // a key that is seen stands in for none: its weight is 0
        place[k] = place[v.count - 1];
    __syncwarp();
    const size_t offset = (size_t)a.base * c.row_bytes + (size_t)a.kv_head * HD * sizeof(uint16_t);
    const uint8_t *values = c.values + offset;
    float s[SIXTEENS][2 * STEPS][4];
    take_scores<HD, SIXTEENS>(s, c.keys + offset, (uint32_t)c.row_bytes, room, place, v);
#pragma unroll
    for (int n = 0; n < SIXTEENS; n++)
        if (16 * n < v.m)
            take_exponents<HD, SIXTEENS>(s[n], room, a.heads, n, v);
    bool strange = false;
    // Loops, though but one of them goes round twice: what is left of one is not to be in registers in the next.
    int column = 0;
#pragma unroll 1
    for (; column + 64 <= c.head_dim; column += 64)
        strange |= take_values<8, HD, SIXTEENS>(s, values, (uint32_t)c.row_bytes, room, place, v, column);
#pragma unroll 1
    for (; HD % 64 >= 32 && column + 32 <= c.head_dim; column += 32)
        strange |= take_values<4, HD, SIXTEENS>(s, values, (uint32_t)c.row_bytes, room, place, v, column);
#pragma unroll 1
    for (; HD % 32 >= 16 && column + 16 <= c.head_dim; column += 16)
        strange |= take_values<2, HD, SIXTEENS>(s, values, (uint32_t)c.row_bytes, room, place, v, column);
    return __any_sync(0xFFFFFFFF, strange && row == ALL && v.shared) != 0;
}

// The tiles of each query, joined in order: the largest score decides the scale.
template <int HD, int SIXTEENS>
static __device__ inline void join_tiles(const struct attend_call &c, const struct share &a, mma_room<HD, SIXTEENS> *room)
{
    const int queries = a.rows * a.heads;
    float(*const by)[mma_room<HD, SIXTEENS>::QUERIES] = room->most; // (TILES, QUERIES): in the places of the largest
    for (int u = (int)threadIdx.x; u < queries; u += THREADS) {
        const int seen = min(room->positions[u / a.heads] - a.start, SPLIT);
        float most = -INFINITY, total = 0;
        for (int tile = 0; tile * KEYS < seen; tile++)
            most = fmaxf(most, room->most[tile][u]);
        for (int tile = 0; tile * KEYS < seen; tile++) {
            by[tile][u] = expf(room->most[tile][u] - most);
            total = fmaf(by[tile][u], room->total[tile][u], total);
        }
        room->total[0][u] = total;
        room->total[1][u] = most;
    }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < queries * HD; at += THREADS) {
        const int u = at / HD, d = at % HD, row = u / a.heads, seen = min(room->positions[row] - a.start, SPLIT);
        float sum = 0;
        for (int tile = 0; tile * KEYS < seen; tile++)
            sum = fmaf(by[tile][u], room->sums[tile][u][d], sum);
        if (seen > 0)
            put_sum(c, a.first + row, a.head + u % a.heads, d, room->positions[row], sum, room->total[1][u],
                    room->total[0][u]);
    }
}

template <int HD, int SIXTEENS>
static __global__ void __launch_bounds__(THREADS, 2) mma_kernel(const struct attend_call c)
{
    typedef mma_room<HD, SIXTEENS> room_type;
    DYNAMIC_SHARED(room_type, room);
    const int warp = (int)threadIdx.x / WARP;
    const struct share a = share_of(c);
    if (threadIdx.x == 0)
        room->share = a;
    int longest = 0;
    for (int i = (int)threadIdx.x; i < a.rows; i += THREADS) {
        room->positions[i] = positions_of(c, a.first + i);
        room->dense[i] = dense_of(c, a.first + i);
    }
    for (int at = (int)threadIdx.x; at < a.rows * a.heads * (HD / 2); at += THREADS) {
        const int u = at / (HD / 2), d = at % (HD / 2) * 2;
        const float *q = c.q + ((int64_t)(a.first + u / a.heads) * c.heads + a.head + u % a.heads) * HD + d;
        float x = q[0] * c.scale, y = q[1] * c.scale;
        for (int plane = 0; plane < PLANES; plane++)
            *(uint32_t *)&room->q[plane][u][d] = take_plane(&x, &y);
    }
    __syncthreads();
    for (int i = 0; i < a.rows; i++)
        longest = max(longest, room->positions[i]);
    if (longest <= a.start)
        return;
    // Tiles, or where rows differ their rows, are dealt to the warps in turn.
    for (int tile = 0, dealt = 0; tile < TILES && room->share.start + tile * KEYS < longest; tile++) {
        const int from = room->share.start + tile * KEYS, end = from + KEYS, rows = room->share.rows;
        bool together = true;
        for (int i = 0; i < rows; i++)
            together = together && min(room->positions[i], end) <= max(room->dense[i], from);
        for (int i = together ? ALL : 0, until = together ? 0 : rows; i < until; i++)
            if ((dealt + (together ? 0 : i)) % WARPS == warp && take_tile<HD, SIXTEENS>(c, room, tile, i))
                until = room->share.rows;
        dealt += together ? 1 : room->share.rows;
    }
    __syncthreads();
    join_tiles<HD, SIXTEENS>(c, a, room);
}

// ---- launches

bool attend_has_mma(enum type type, int head_dim)
{
    return type == BF16 && (head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128);
}

template <int HD, int SIXTEENS>
static void launch(struct cuda *c, const struct attend_call &call)
{
    const size_t bytes = sizeof(mma_room<HD, SIXTEENS>);
    const dim3 grid((unsigned)call.row_blocks, (unsigned)(call.kv_heads * call.portions), (unsigned)call.splits);
    if (bytes > 48 << 10)
        cuda_note(c,
                  cudaFuncSetAttribute(mma_kernel<HD, SIXTEENS>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                  "attend");
    LAUNCH((mma_kernel<HD, SIXTEENS>), grid, THREADS, bytes, c->stream, call);
    cuda_launched(c, "attend");
}

// More queries to a block read a key less often; fewer leave fewer processors idle. No bit depends on it.
template <int HD> static void choose(struct cuda *c, struct attend_call call, const struct layout *s)
{
    attend_divide(&call, s, 32);
    if (call.row_blocks * call.kv_heads * call.portions * call.splits >= 2 * c->processors) {
        launch<HD, 2>(c, call);
        return;
    }
    attend_divide(&call, s, 16);
    launch<HD, 1>(c, call);
}

void attend_mma(struct cuda *c, struct attend_call call, const struct layout *s)
{
    assert(((uintptr_t)call.keys | (uintptr_t)call.values | call.row_bytes) % 16 == 0);
    if (call.head_dim == 64)
        choose<64>(c, call, s);
    else if (call.head_dim == 80)
        choose<80>(c, call, s);
    else if (call.head_dim == 96)
        choose<96>(c, call, s);
    else
        choose<128>(c, call, s);
}

} // namespace DEVICE_SPACE
