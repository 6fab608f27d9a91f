// attention_mma.cu - attention on tensor cores, for BF16 caches and common head sizes.
//
// A split of a block is TILES tiles; each warp computes one tile at a time (attention_tile.h). Where rows of the block have
// different cache rows at the same position, the tile is computed once per row, with places from the row's ancestor mask.
//
// An element of an MMA's result depends on its own row and column only (true on the known devices, and checked by tests), and
// the tiles of a query are combined in order: neither neighbours nor the tree change its bits.
#include "kernels/cuda/attention_tile.h"

namespace DEVICE_SPACE
{

// ---- the kernel

// Computes a tile for one row of the block, or for ALL. Returns whether it has to be repeated row by row: a value that is not
// finite and that some row does not attend to would contribute 0 * infinity to that row.
template <int HD, int QUERY_TILES>
static __device__ inline bool load_tile(const struct attend_call &c, mma_scratch<HD, QUERY_TILES> *scratch, int tile,
                                        int row)
{
    const struct share &a = scratch->share;
    const int lane = (int)threadIdx.x % WARP;
    int32_t *place = scratch->place[threadIdx.x / WARP];
    int longest = 0, shortest = INT32_MAX;
    for (int i = row == ALL ? 0 : row; i < (row == ALL ? a.rows : row + 1); i++) {
        longest = max(longest, scratch->positions[i]);
        shortest = min(shortest, scratch->positions[i]);
    }
    struct view v;
    v.tile = tile;
    v.from = a.start + tile * KEYS;
    v.count = min(longest - v.from, KEYS);
    v.first = row == ALL ? 0 : row * a.heads;
    v.m = row == ALL ? a.rows * a.heads : a.heads;
    v.shared = shortest - v.from < v.count;
    if (v.count <= 0)
        return false;
    __syncwarp();
    if (row != ALL)
        find_places(c, a.first + row, v.from, v.count, place, lane, WARP);
    else
        for (int k = lane; k < v.count; k += WARP)
            place[k] = v.from + k;
    __syncwarp();
    for (int k = v.count + lane; k < KEYS; k += WARP) // missing keys repeat a valid one; their weight is 0
        place[k] = place[v.count - 1];
    __syncwarp();
    const size_t offset = (size_t)a.base * c.row_bytes + (size_t)a.kv_head * HD * sizeof(uint16_t);
    const uint8_t *values = c.values + offset;
    float s[QUERY_TILES][2 * STEPS][4];
    tile_scores<HD, QUERY_TILES>(s, c.keys + offset, (uint32_t)c.row_bytes, scratch, place, v);
    UNROLL
    for (int n = 0; n < QUERY_TILES; n++)
        if (16 * n < v.m)
            tile_exponents<HD, QUERY_TILES>(s[n], scratch, a.heads, n, v);
    bool nonfinite = false;
    // Loops, although only one of them has two iterations: they keep registers of one step from living into the next.
    int column = 0;
    UNROLL_BY(1)
    for (; column + 64 <= c.head_dim; column += 64)
        nonfinite |= tile_values<8, HD, QUERY_TILES>(s, values, (uint32_t)c.row_bytes, scratch, place, v, column);
    UNROLL_BY(1)
    for (; HD % 64 >= 32 && column + 32 <= c.head_dim; column += 32)
        nonfinite |= tile_values<4, HD, QUERY_TILES>(s, values, (uint32_t)c.row_bytes, scratch, place, v, column);
    UNROLL_BY(1)
    for (; HD % 32 >= 16 && column + 16 <= c.head_dim; column += 16)
        nonfinite |= tile_values<2, HD, QUERY_TILES>(s, values, (uint32_t)c.row_bytes, scratch, place, v, column);
    return __any_sync(0xFFFFFFFF, nonfinite && row == ALL && v.shared) != 0;
}

// Combines the tiles of each query in order, rescaled to the maximum score.
template <int HD, int QUERY_TILES>
static __device__ inline void combine_tiles(const struct attend_call &c, const struct share &a,
                                            mma_scratch<HD, QUERY_TILES> *scratch)
{
    const int queries = a.rows * a.heads;
    float(*const by)[mma_scratch<HD, QUERY_TILES>::QUERIES] =
        scratch->max_score; // (TILES, QUERIES): overwrites the maximum scores
    for (int u = (int)threadIdx.x; u < queries; u += THREADS) {
        const int seen = min(scratch->positions[u / a.heads] - a.start, SPLIT);
        float max_score = -INFINITY, total = 0;
        for (int tile = 0; tile * KEYS < seen; tile++)
            max_score = fmaxf(max_score, scratch->max_score[tile][u]);
        for (int tile = 0; tile * KEYS < seen; tile++) {
            by[tile][u] = expf(scratch->max_score[tile][u] - max_score);
            total = fmaf(by[tile][u], scratch->total[tile][u], total);
        }
        scratch->total[0][u] = total;
        scratch->total[1][u] = max_score;
    }
    __syncthreads();
    for (int at = (int)threadIdx.x; at < queries * HD; at += THREADS) {
        const int u = at / HD, d = at % HD, row = u / a.heads, seen = min(scratch->positions[row] - a.start, SPLIT);
        float sum = 0;
        for (int tile = 0; tile * KEYS < seen; tile++)
            sum = fmaf(by[tile][u], scratch->sums[tile][u][d], sum);
        if (seen > 0 || a.start == 0)
            write_sum(c, a.first + row, a.head + u % a.heads, d, scratch->positions[row], sum, scratch->total[1][u],
                      scratch->total[0][u]);
    }
}

template <int HD, int QUERY_TILES>
static __global__ void __launch_bounds__(THREADS, 2) mma_kernel(const struct attend_call c)
{
    kernel_prologue();
    typedef mma_scratch<HD, QUERY_TILES> scratch_type;
    DYNAMIC_SHARED(scratch_type, scratch);
    const int warp = (int)threadIdx.x / WARP;
    const struct share a = share_of(c);
    if (a.rows == 0)
        return;
    if (threadIdx.x == 0)
        scratch->share = a;
    int longest = 0;
    for (int i = (int)threadIdx.x; i < a.rows; i += THREADS) {
        scratch->positions[i] = positions_of(c, a.first + i);
        scratch->dense[i] = dense_of(c, a.first + i);
    }
    for (int at = (int)threadIdx.x; at < a.rows * a.heads * (HD / 2); at += THREADS) {
        const int u = at / (HD / 2), d = at % (HD / 2) * 2;
        const float *q = c.q + ((int64_t)(a.first + u / a.heads) * c.heads + a.head + u % a.heads) * HD + d;
        float x = q[0] * c.scale, y = q[1] * c.scale;
        for (int plane = 0; plane < PLANES; plane++)
            *(uint32_t *)&scratch->q[plane][u][d] = split_plane(&x, &y);
    }
    __syncthreads();
    for (int i = 0; i < a.rows; i++)
        longest = max(longest, scratch->positions[i]);
    if (longest <= a.start && a.start > 0)
        return;
    // Tiles, or (tile, row) pairs where rows differ, are assigned to the warps round robin.
    for (int tile = 0, assigned = 0; tile < TILES && scratch->share.start + tile * KEYS < longest; tile++) {
        const int from = scratch->share.start + tile * KEYS, end = from + KEYS, rows = scratch->share.rows;
        bool uniform = true;
        for (int i = 0; i < rows; i++)
            uniform = uniform && min(scratch->positions[i], end) <= max(scratch->dense[i], from);
        for (int i = uniform ? ALL : 0, until = uniform ? 0 : rows; i < until; i++)
            if ((assigned + (uniform ? 0 : i)) % WARPS == warp && load_tile<HD, QUERY_TILES>(c, scratch, tile, i))
                until = scratch->share.rows;
        assigned += uniform ? 1 : scratch->share.rows;
    }
    __syncthreads();
    combine_tiles<HD, QUERY_TILES>(c, a, scratch);
}

// ---- launches

template <int HD, int QUERY_TILES> static void set_shared_memory(struct cuda *c)
{
    static_assert(sizeof(mma_scratch<HD, QUERY_TILES>) <= 99 << 10,
                  "available on every device from compute capability 8.0");
    cuda_note(c,
              cudaFuncSetAttribute(mma_kernel<HD, QUERY_TILES>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)sizeof(mma_scratch<HD, QUERY_TILES>)),
              "shared memory for attention");
}

void attention_set_shared_memory(struct cuda *c)
{
    set_shared_memory<64, 1>(c), set_shared_memory<64, 2>(c);
    set_shared_memory<80, 1>(c), set_shared_memory<80, 2>(c);
    set_shared_memory<96, 1>(c), set_shared_memory<96, 2>(c);
    set_shared_memory<128, 1>(c), set_shared_memory<128, 2>(c);
}

bool attention_has_mma(enum type type, int head_dim)
{
    return type == BF16 && (head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128);
}

template <int HD, int QUERY_TILES> static void launch(struct cuda *c, const struct attend_call &call)
{
    const size_t bytes = sizeof(mma_scratch<HD, QUERY_TILES>);
    const dim3 grid((unsigned)call.row_blocks, (unsigned)(call.kv_heads * call.head_blocks), (unsigned)call.splits);
    QUEUE(c, (mma_kernel<HD, QUERY_TILES>), grid, THREADS, bytes, call);
    cuda_launched(c, "attend");
}

// More queries per block read keys less often; fewer leave fewer processors idle. The choice does not change the result.
template <int HD> static void choose_queries(struct cuda *c, struct attend_call call, int runs)
{
    attention_divide(&call, runs, 32);
    if (call.row_blocks * call.kv_heads * call.head_blocks * call.splits >= 2 * c->processors) {
        launch<HD, 2>(c, call);
        return;
    }
    attention_divide(&call, runs, 16);
    launch<HD, 1>(c, call);
}

void attention_mma(struct cuda *c, struct attend_call call, int runs)
{
    assert(((uintptr_t)call.keys | (uintptr_t)call.values | call.row_bytes) % 16 == 0);
    if (call.head_dim == 64)
        choose_queries<64>(c, call, runs);
    else if (call.head_dim == 80)
        choose_queries<80>(c, call, runs);
    else if (call.head_dim == 96)
        choose_queries<96>(c, call, runs);
    else
        choose_queries<128>(c, call, runs);
}

} // namespace DEVICE_SPACE
