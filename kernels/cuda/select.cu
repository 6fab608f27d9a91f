// select.cu - the most probable tokens of a row until they weigh enough, among equal ones those with the lowest ids:
// top_k and top_p as in sampling/stages.c. For probabilities.cu.
//
// A key orders tokens by logit and, among equals, by id (reduce.h), so the tokens that stay are those from one key on:
// the cut. A cluster has a row, each of its blocks a part of it. A round divides the tokens that may be the cut among
// buckets, finds the bucket in which enough is reached and lists its tokens. If they are few, they are ranked;
// otherwise the next round divides them. In the first round a bucket is a range of distances from the largest logit,
// which few tokens share; in later ones, which only rows of many nearly equal logits need, it is a value of the next
// bits of the key.
//
// Weights are integers, so sums are exact, and in words of 32 bits, which shared memory adds without a loop.
#include "kernels/cuda/probabilities.h"

namespace DEVICE_SPACE
{

enum { WARPS = CLUSTER_THREADS / (int)WARP, BUCKETS = 1 << 11, BUCKETS_EACH = BUCKETS / CLUSTER_THREADS, LISTED = 256 };

__extension__ typedef unsigned __int128 units; // multiples of 2^-65, as exact_sum has them

struct select_shared {           // dynamic
    uint32_t bucket[BUCKETS][3]; // weights: the part's, then the row's. The lowest word first
    units of_warp[WARPS], kept;  // weight of the tokens above those that may be the cut
    int found;
    int n_listed; // the part's
    uint64_t listed[LISTED];
    uint64_t key[LISTED], cut; // listed of the row
    units weight[LISTED];
};

// The search for a cut. The same in all threads of the cluster.
struct search {
    const float *x;
    int from, to;    // the block's part of the row
    float most, top; // the largest logit, and what temperature makes of it
    double by;
    bool by_count;  // top_k: each token weighs 1; top_p: e^x
    uint64_t least; // tokens with smaller keys were dropped before
    double enough;  // the most probable tokens stay until they weigh this much
    // Tokens that may be the cut: those of this band, -1: any, with these of the known bits of their keys.
    int round, band;
    uint64_t bits, known;
};

// ---- weights

// The integer that adding `shift`, 1.5 * 2^n, leaves in the last bits of the sum: x in units of 2^(n - 52).
__device__ inline int64_t last_bits(double x, double shift)
{
    const double shifted = x + shift;
    int64_t bits, from;
    memcpy(&bits, &shifted, sizeof(bits));
    memcpy(&from, &shift, sizeof(from));
    return bits - from;
}

__device__ inline units weight_of(const struct search &s, float x)
{
    if (s.by_count)
        return (units)1 << 65;
    const double w = grid_exp((double)x - (double)s.top);
    const struct exact_sum parts = grid_split(w);
    return ((units)last_bits(w, 0x1.8p20) << 33) + (units)last_bits(w - parts.whole, 0x1.8p-13);
}

__device__ inline double total_of(units u) // grid_total's
{
    const struct exact_sum s = { (double)(uint64_t)(u >> 33) * 0x1p-32,
                                 (double)((uint64_t)u & ((1ull << 33) - 1)) * 0x1p-65 };
    return grid_total(s);
}

// Adds w to the number in `word`; an addition that overflows carries to the next word, in whatever order threads add.
__device__ inline void add_weight(uint32_t word[3], units w)
{
    UNROLL
    for (int k = 0; k < 3; k++) {
        const uint32_t low = (uint32_t)w;
        w >>= 32;
        if (low != 0)
            w += atomicAdd(&word[k], low) + low < low;
    }
}

__device__ inline units weight_at(const uint32_t word[3])
{
    return (units)word[2] << 64 | (uint64_t)word[1] << 32 | word[0];
}

__device__ inline units shuffled(units u, int lane)
{
    return (units)__shfl_sync(0xFFFFFFFF, (unsigned long long)(u >> 64), lane) << 64 |
           __shfl_sync(0xFFFFFFFF, (unsigned long long)u, lane);
}

// ---- walks

__device__ inline int band_of(float x, float top) // larger for larger x
{
    const float depth = (top - x) * 128;
    return depth < BUCKETS - 1 ? BUCKETS - 1 - (int)depth : 0;
}

// The bits that a later round divides by: of the logit, then of the id, which has 20; those between are the same in all
// keys.
__device__ inline int shift_of(int round)
{
    return round < 4 ? 64 - 11 * round : round == 4 ? 9 : 0;
}

// Calls visit(x, key) for the tokens of the part that may be the cut.
template <typename visitor> __device__ inline void visit_tokens(const struct search &s, visitor visit)
{
    visit_share<CLUSTER_THREADS>(s.x, s.from, s.to, [&](int i, float logit) {
        const float x = scaled_logit(logit, s.most, s.by);
        const uint64_t key = key_of(x, i);
        if (x > -INFINITY && key >= s.least && (key & s.known) == s.bits && (s.band < 0 || band_of(x, s.top) == s.band))
            visit(x, key);
    });
}

// Weighs the buckets. Most tokens of the first round are in bucket 0, which each thread sums up for itself.
__device__ inline void fill_buckets(const struct search &s, struct select_shared *to)
{
    for (int b = (int)threadIdx.x; b < BUCKETS; b += CLUSTER_THREADS)
        to->bucket[b][0] = to->bucket[b][1] = to->bucket[b][2] = 0;
    __syncthreads();
    units lowest = 0;
    visit_tokens(s, [&](float x, uint64_t key) {
        const int b = s.round == 0 ? band_of(x, s.top) : (int)(key >> shift_of(s.round)) & (BUCKETS - 1);
        const units w = weight_of(s, x);
        lowest += b == 0 ? w : 0;
        if (b != 0)
            add_weight(to->bucket[b], w);
    });
    const int lane = (int)threadIdx.x % WARP;
    for (int step = WARP / 2; step > 0; step /= 2)
        lowest += shuffled(lowest, lane ^ step);
    if (lane == 0)
        add_weight(to->bucket[0], lowest);
    cluster_barrier();
    const int blocks = blocks_in_cluster(),
              each = blocks > 1 ? BUCKETS / CLUSTER : BUCKETS; // a block sums up its share of the buckets for all
    for (int i = (int)threadIdx.x; i < each; i += CLUSTER_THREADS) {
        const int b = block_in_cluster() * each + i;
        units sum = 0;
        for (int k = 0; k < blocks; k++)
            sum += weight_at(in_block(to, k)->bucket[b]);
        for (int k = 0; k < blocks; k++)
            for (int word = 0; word < 3; word++)
                in_block(to, k)->bucket[b][word] = (uint32_t)(sum >> 32 * word);
    }
    cluster_barrier();
}

// Returns the sum of `mine` over the threads after this one; *all: over all threads of the block.
__device__ inline units sum_after(units mine, units *all, units *of_warp)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    units sum = mine;
    for (int step = 1; step < WARP; step *= 2) {
        const units other = shuffled(sum, min(lane + step, WARP - 1));
        sum += lane + step < WARP ? other : 0;
    }
    if (lane == 0)
        of_warp[warp] = sum;
    __syncthreads();
    *all = 0;
    for (int w = 0; w < WARPS; w++) {
        *all += of_warp[w];
        sum += w > warp ? of_warp[w] : 0;
    }
    return sum - mine;
}

// Finds the bucket in which enough is reached from the last one down. Returns false if that is not reached.
__device__ inline bool find_bucket(struct search &s, struct select_shared *in, const struct row_stages &wanted)
{
    const int first = (int)threadIdx.x * BUCKETS_EACH;
    units bucket[BUCKETS_EACH], mine = 0, all;
    UNROLL
    for (int i = 0; i < BUCKETS_EACH; i++)
        mine += bucket[i] = weight_at(in->bucket[first + i]);
    const units kept = in->kept;
    units above = kept + sum_after(mine, &all, in->of_warp);
    if (s.round == 0)
        s.enough = s.by_count ? wanted.top_k : fmax(1.0, wanted.top_p * total_of(all)); // the argmax weighs 1
    if (!(total_of(kept + all) >= s.enough))
        return false;
    UNROLL
    for (int i = BUCKETS_EACH - 1; i >= 0; i--) {
        if (total_of(above) < s.enough && total_of(above + bucket[i]) >= s.enough) {
            in->found = first + i;
            in->kept = above;
        }
        above += bucket[i];
    }
    __syncthreads();
    if (s.round == 0) {
        s.band = in->found;
    } else {
        s.bits |= (uint64_t)in->found << shift_of(s.round);
        s.known |= (uint64_t)(BUCKETS - 1) << shift_of(s.round);
    }
    return true;
}

// Lists the tokens that may be the cut. Returns false if they are too many, otherwise ranks them: in->cut is the cut.
__device__ inline bool rank_tokens(const struct search &s, struct select_shared *in)
{
    if (threadIdx.x == 0)
        in->n_listed = 0;
    __syncthreads();
    visit_tokens(s, [&](float, uint64_t key) {
        const int at = atomicAdd(&in->n_listed, 1);
        if (at < LISTED)
            in->listed[at] = key;
    });
    cluster_barrier();
    const int blocks = blocks_in_cluster(), lane = (int)threadIdx.x % WARP;
    int n = 0;
    for (int k = 0; k < blocks; k++)
        n += in_block(in, k)->n_listed;
    if (n > LISTED)
        return false;
    for (int k = 0, at = 0; k < blocks; k++) { // a warp copies a part's list
        const struct select_shared *from = in_block(in, k);
        const int length = from->n_listed;
        for (int i = lane; i < length && k % WARPS == (int)threadIdx.x / WARP; i += WARP)
            in->key[at + i] = from->listed[i];
        at += length;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += CLUSTER_THREADS)
        in->weight[i] = weight_of(s, number_of(in->key[i]));
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += CLUSTER_THREADS) {
        const uint64_t key = in->key[i];
        units above = in->kept;
        for (int k = 0; k < n; k++)
            above += in->key[k] > key ? in->weight[k] : 0;
        if (total_of(above) < s.enough && total_of(above + in->weight[i]) >= s.enough)
            in->cut = key;
    }
    __syncthreads();
    return true;
}

// The smallest key that stays of a row with keys from s.least on. If the row weighs less than enough, all stay,
// including tokens that the host drops, as they weigh nothing: their probability is 0 all the same.
__device__ inline uint64_t find_cut(struct search s, const struct row_stages &wanted, struct select_shared *shared)
{
    s.band = -1;
    s.bits = s.known = 0;
    if (threadIdx.x == 0)
        shared->kept = 0;
    for (s.round = 0;; s.round++) { // ends: after all bits one token may be the cut
        fill_buckets(s, shared);
        if (!find_bucket(s, shared, wanted))
            return s.least;
        if (rank_tokens(s, shared))
            return shared->cut;
    }
}

static __global__ void __launch_bounds__(CLUSTER_THREADS, 2) select_kernel(const __grid_constant__ struct rows_call c)
{
    DYNAMIC_SHARED(struct select_shared, shared);
    kernel_prologue();
    const int row = cluster_of_block(), blocks = blocks_in_cluster(), each = (c.n + blocks - 1) / blocks;
    struct search s = {};
    s.x = c.x + (int64_t)row * c.n;
    s.from = min(block_in_cluster() * each, c.n);
    s.to = min(s.from + each, c.n);
    s.most = number_of(argmax_of(c, row));
    s.by = c.s.inverse_temperature;
    s.top = scaled_logit(s.most, s.most, s.by);
    if (is_certain(s.most, c.s))
        return;
    GRID_ROLLED
    for (int top_k = 1; top_k >= 0; top_k--) {
        s.by_count = top_k;
        if (selects(c, s.by_count))
            s.least = find_cut(s, c.s, shared);
    }
    if (threadIdx.x == 0 && block_in_cluster() == 0)
        c.cut[row] = s.least;
    cluster_end();
}

void select_queue(struct cuda *c, const struct rows_call &call, int rows)
{
    const int blocks = cluster_blocks(c);
    QUEUE_CLUSTERS(c, select_kernel, blocks, rows * blocks, CLUSTER_THREADS, sizeof(struct select_shared), call);
}

} // namespace DEVICE_SPACE
