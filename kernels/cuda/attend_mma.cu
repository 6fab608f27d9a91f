// attend_mma.cu - attention on tensor cores, for caches of BF16 and the head widths that models mostly have.
//
// A block's split is TILES tiles, and a warp takes one at a time (attend_tile.h). Where rows of the block see different
// cache rows at the same position, a tile is done once for each of them, its places found by the row's bits.
//
// An element of an MMA's result depends on its own row and column alone (so it is on the devices known, and tests hold
// them to it), and what comes to a query is joined by tiles in order: neither neighbours nor the tree show in its bits.
#include "kernels/cuda/attend_tile.h"

namespace DEVICE_SPACE
{

// ---- the kernel

// A tile for a row of the block, or ALL. Returns whether it has to be done again row by row: a value that is not finite
// and that some row does not see would be 0 times that for it.
template <int HD, int SIXTEENS>
static __device__ inline bool take_tile(const struct attend_call &c, mma_scratch<HD, SIXTEENS> *capacity, int tile,
                                        int row)
{
    const struct share &a = capacity->share;
    const int lane = (int)threadIdx.x % WARP;
    int32_t *place = capacity->place[threadIdx.x / WARP];
    int longest = 0, least = INT32_MAX;
    for (int i = row == ALL ? 0 : row; i < (row == ALL ? a.rows : row + 1); i++) {
        longest = max(longest, capacity->positions[i]);
        least = min(least, capacity->positions[i]);
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
    take_scores<HD, SIXTEENS>(s, c.keys + offset, (uint32_t)c.row_bytes, capacity, place, v);
    UNROLL
    for (int n = 0; n < SIXTEENS; n++)
        if (16 * n < v.m)
            take_exponents<HD, SIXTEENS>(s[n], capacity, a.heads, n, v);
    bool strange = false;
    // Loops, though but one of them goes round twice: what is left of one is not to be in registers in the next.
    int column = 0;
    UNROLL_BY(1)
    for (; column + 64 <= c.head_dim; column += 64)
        strange |= take_values<8, HD, SIXTEENS>(s, values, (uint32_t)c.row_bytes, capacity, place, v, column);
    UNROLL_BY(1)
    for (; HD % 64 >= 32 && column + 32 <= c.head_dim; column += 32)
        strange |= take_values<4, HD, SIXTEENS>(s, values, (uint32_t)c.row_bytes, capacity, place, v, column);
    UNROLL_BY(1)
    for (; HD % 32 >= 16 && column + 16 <= c.head_dim; column += 16)
        strange |= take_values<2, HD, SIXTEENS>(s, values, (uint32_t)c.row_bytes, capacity, place, v, column);
    return __any_sync(0xFFFFFFFF, strange && row == ALL && v.shared) != 0;
}

// The tiles of each query, joined in order: the largest score decides the scale.
template <int HD, int SIXTEENS>
static __device__ inline void join_tiles(const struct attend_call &c, const struct share &a,
                                         mma_scratch<HD, SIXTEENS> *capacity)
{
    const int queries = a.rows * a.heads;
    float(*const by)[mma_scratch<HD, SIXTEENS>::QUERIES] =
        capacity->most; // (TILES, QUERIES): in the places of the largest
    for (int u = (int)threadIdx.x; u < queries; u += THREADS) {
        const int seen = min(capacity->positions[u / a.heads] - a.start, SPLIT);
        float most = -INFINITY, total = 0;
        for (int tile = 0; tile * KEYS < seen; tile++)
            most = fmaxf(most, capacity->most[tile][u]);
        for (int tile = 0; tile * KEYS < seen; tile++) {
            by[tile][u] = expf(capacity->most[tile][u] - most);
            total = fmaf(by[tile][u], capacity->total[tile][u], total);
        }
        capacity->total[0][u] = total;
        capacity->total[1][u] = most;
    }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < queries * HD; at += THREADS) {
        const int u = at / HD, d = at % HD, row = u / a.heads, seen = min(capacity->positions[row] - a.start, SPLIT);
        float sum = 0;
        for (int tile = 0; tile * KEYS < seen; tile++)
            sum = fmaf(by[tile][u], capacity->sums[tile][u][d], sum);
        if (seen > 0 || a.start == 0)
            put_sum(c, a.first + row, a.head + u % a.heads, d, capacity->positions[row], sum, capacity->total[1][u],
                    capacity->total[0][u]);
    }
}

template <int HD, int SIXTEENS>
static __global__ void __launch_bounds__(THREADS, 2) mma_kernel(const struct attend_call c)
{
    in_turn();
    typedef mma_scratch<HD, SIXTEENS> capacity_type;
    DYNAMIC_SHARED(capacity_type, capacity);
    const int warp = (int)threadIdx.x / WARP;
    const struct share a = share_of(c);
    if (a.rows == 0)
        return;
    if (threadIdx.x == 0)
        capacity->share = a;
    int longest = 0;
    for (int i = (int)threadIdx.x; i < a.rows; i += THREADS) {
        capacity->positions[i] = positions_of(c, a.first + i);
        capacity->dense[i] = dense_of(c, a.first + i);
    }
    for (int at = (int)threadIdx.x; at < a.rows * a.heads * (HD / 2); at += THREADS) {
        const int u = at / (HD / 2), d = at % (HD / 2) * 2;
        const float *q = c.q + ((int64_t)(a.first + u / a.heads) * c.heads + a.head + u % a.heads) * HD + d;
        float x = q[0] * c.scale, y = q[1] * c.scale;
        for (int plane = 0; plane < PLANES; plane++)
            *(uint32_t *)&capacity->q[plane][u][d] = take_plane(&x, &y);
    }
    __syncthreads();
    for (int i = 0; i < a.rows; i++)
        longest = max(longest, capacity->positions[i]);
    if (longest <= a.start && a.start > 0)
        return;
    // Tiles, or where rows differ their rows, are dealt to the warps in turn.
    for (int tile = 0, dealt = 0; tile < TILES && capacity->share.start + tile * KEYS < longest; tile++) {
        const int from = capacity->share.start + tile * KEYS, end = from + KEYS, rows = capacity->share.rows;
        bool together = true;
        for (int i = 0; i < rows; i++)
            together = together && min(capacity->positions[i], end) <= max(capacity->dense[i], from);
        for (int i = together ? ALL : 0, until = together ? 0 : rows; i < until; i++)
            if ((dealt + (together ? 0 : i)) % WARPS == warp && take_tile<HD, SIXTEENS>(c, capacity, tile, i))
                until = capacity->share.rows;
        dealt += together ? 1 : capacity->share.rows;
    }
    __syncthreads();
    join_tiles<HD, SIXTEENS>(c, a, capacity);
}

// ---- launches

template <int HD, int SIXTEENS> static void grant(struct cuda *c)
{
    static_assert(sizeof(mma_scratch<HD, SIXTEENS>) <= 99 << 10, "what every device from 8.0 on has");
    cuda_note(c,
              cudaFuncSetAttribute(mma_kernel<HD, SIXTEENS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)sizeof(mma_scratch<HD, SIXTEENS>)),
              "shared memory for attention");
}

void attend_grant(struct cuda *c)
{
    grant<64, 1>(c), grant<64, 2>(c);
    grant<80, 1>(c), grant<80, 2>(c);
    grant<96, 1>(c), grant<96, 2>(c);
    grant<128, 1>(c), grant<128, 2>(c);
}

bool attend_has_mma(enum type type, int head_dim)
{
    return type == BF16 && (head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128);
}

template <int HD, int SIXTEENS> static void launch(struct cuda *c, const struct attend_call &call)
{
    const size_t bytes = sizeof(mma_scratch<HD, SIXTEENS>);
    const dim3 grid((unsigned)call.row_blocks, (unsigned)(call.kv_heads * call.portions), (unsigned)call.splits);
    QUEUE(c, (mma_kernel<HD, SIXTEENS>), grid, THREADS, bytes, call);
    cuda_launched(c, "attend");
}

// More queries to a block read a key less often; fewer leave fewer processors idle. No bit depends on it.
template <int HD> static void choose(struct cuda *c, struct attend_call call, int runs)
{
    attend_divide(&call, runs, 32);
    if (call.row_blocks * call.kv_heads * call.portions * call.splits >= 2 * c->processors) {
        launch<HD, 2>(c, call);
        return;
    }
    attend_divide(&call, runs, 16);
    launch<HD, 1>(c, call);
}

void attend_mma(struct cuda *c, struct attend_call call, int runs)
{
    assert(((uintptr_t)call.keys | (uintptr_t)call.values | call.row_bytes) % 16 == 0);
    if (call.head_dim == 64)
        choose<64>(c, call, runs);
    else if (call.head_dim == 80)
        choose<80>(c, call, runs);
    else if (call.head_dim == 96)
        choose<96>(c, call, runs);
    else
        choose<128>(c, call, runs);
}

} // namespace DEVICE_SPACE
