// select.h - the most probable tokens of a row until they weigh enough, among equal ones those with the lowest ids: top_k and top_p as
// in sampling/stages.c. For probabilities.cu.
//
// A radix selection finds the logit to cut at. Each of three walks over the row weighs the tokens whose leading bits are those of the
// cut as far as known, in one bucket per value of the next bits; the next launch finds the bucket in which enough is reached. Walks are
// launches; all blocks of a row compute the same cut. In the last walk the tokens of a bucket are equal and are counted by chunk, which
// tells which of them have the lowest ids.
#pragma once
#include "kernels/cuda/probabilities.h"

namespace DEVICE_SPACE
{

struct select_scratch { // shared memory of a block
    struct exact_sum bucket[BUCKETS];
    struct exact_sum of_warp[ROW_WARPS], kept;
    int lowest[ROW_WARPS], found;
};

struct cut {
    uint32_t bits, known;  // of the logit in grid_ordered's order; mask of the known bits
    struct exact_sum kept; // weight above it
    double enough;
};

__device__ inline int walk_shift(int walk)
{
    return walk == 0 ? 21 : walk == 1 ? 10 : 0;
}

__device__ inline int walk_buckets(int walk)
{
    return walk == WALKS - 1 ? LAST_BUCKETS : BUCKETS;
}

__device__ inline struct exact_sum weight_of(float x, float most, bool by_count)
{
    const struct exact_sum one = { 1, 0 };
    return by_count ? one : grid_split(grid_exp((double)x - (double)most));
}

__device__ inline struct exact_sum times(struct exact_sum s, int n) // exact
{
    s.whole *= n;
    s.rest *= n;
    return s;
}

__device__ inline bool is_something(struct exact_sum s)
{
    return s.whole != 0 || s.rest != 0;
}

__device__ inline struct exact_sum *buckets_of(const struct selection &s, int walk)
{
    return s.bucket + ((int64_t)blockIdx.x * (WALKS - 1) + walk) * BUCKETS;
}

__device__ inline uint32_t *counts_of(const struct rows_call &c, const struct selection &s, int chunk)
{
    return s.count + ((int64_t)blockIdx.x * c.chunks + chunk) * LAST_BUCKETS;
}

// The weight of bucket b of the row after a walk.
__device__ inline struct exact_sum bucket_of(const struct rows_call &c, const struct selection &s, int walk, int b,
                                             const struct cut &cut, float most)
{
    if (walk < WALKS - 1)
        return buckets_of(s, walk)[b];
    int n = 0;
    for (int i = 0; i < c.chunks; i++)
        n += (int)counts_of(c, s, i)[b];
    const struct exact_sum none = { 0, 0 };
    return n > 0 ? times(weight_of(grid_of_ordered(cut.bits | (uint32_t)b), most, s.by_count), n) : none;
}

// Returns the sum of `mine` over the threads after this one; *all: over all threads.
__device__ inline struct exact_sum sum_after(struct exact_sum mine, struct exact_sum *all,
                                             struct select_scratch &scratch)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    struct exact_sum s = mine, after = { 0, 0 };
    for (int step = 1; step < WARP; step *= 2) {
        const int from = min(lane + step, WARP - 1);
        const double whole = __shfl_sync(0xFFFFFFFF, s.whole, from), rest = __shfl_sync(0xFFFFFFFF, s.rest, from);
        s.whole += lane + step < WARP ? whole : 0;
        s.rest += lane + step < WARP ? rest : 0;
    }
    __syncthreads(); // scratch may still be read
    if (lane == 0)
        scratch.of_warp[warp] = s;
    __syncthreads();
    for (int w = warp + 1; w < ROW_WARPS; w++)
        after = grid_sum(after, scratch.of_warp[w]);
    *all = scratch.of_warp[0];
    for (int w = 1; w < ROW_WARPS; w++)
        *all = grid_sum(*all, scratch.of_warp[w]);
    s.whole += after.whole - mine.whole;
    s.rest += after.rest - mine.rest;
    return s;
}

// Finds the bucket in which enough is reached from the last one down, or, if it never is, the lowest one that is not empty; adds the
// weight above it to cut->kept.
__device__ inline void find_bucket(const struct rows_call &c, const struct selection &s, int walk, float most,
                                   struct cut *cut, struct select_scratch &scratch)
{
    enum { MOST_EACH = BUCKETS / ROW_THREADS };
    const int each = walk_buckets(walk) / ROW_THREADS, first = (int)threadIdx.x * each;
    struct exact_sum bucket[MOST_EACH], mine = { 0, 0 }, all;
    int lowest = BUCKETS;
    UNROLL
    for (int i = MOST_EACH - 1; i >= 0; i--) {
        const struct exact_sum none = { 0, 0 };
        bucket[i] = i < each ? bucket_of(c, s, walk, first + i, *cut, most) : none;
        mine = grid_sum(mine, bucket[i]);
        lowest = is_something(bucket[i]) ? first + i : lowest;
    }
    struct exact_sum above = grid_sum(cut->kept, sum_after(mine, &all, scratch));
    if (walk == 0)
        cut->enough = s.by_count ? s.enough : fmax(1.0, s.enough * grid_total(all)); // the argmax weighs 1
    for (int step = WARP / 2; step > 0; step /= 2)
        lowest = min(lowest, __shfl_xor_sync(0xFFFFFFFF, lowest, step));
    if (threadIdx.x % WARP == 0)
        scratch.lowest[threadIdx.x / WARP] = lowest;
    __syncthreads();
    for (int w = 0; w < ROW_WARPS; w++)
        lowest = min(lowest, scratch.lowest[w]);
    const bool reached = grid_total(grid_sum(cut->kept, all)) >= cut->enough;
    bool in_thread = reached ? grid_total(above) < cut->enough && grid_total(grid_sum(above, mine)) >= cut->enough
                             : lowest >= first && lowest < first + each;
    UNROLL
    for (int i = MOST_EACH - 1; i >= 0; i--) {
        const bool last = reached ? grid_total(grid_sum(above, bucket[i])) >= cut->enough : first + i == lowest;
        if (in_thread && last && i < each) {
            scratch.found = first + i;
            scratch.kept = above;
            in_thread = false;
        }
        above = grid_sum(above, bucket[i]);
    }
    __syncthreads();
    cut->bits |= (uint32_t)scratch.found << walk_shift(walk);
    cut->known |= (uint32_t)(walk_buckets(walk) - 1) << walk_shift(walk);
    cut->kept = scratch.kept;
    __syncthreads();
}

// The cut after this many walks. most: the row's largest logit.
__device__ inline struct cut find_cut(const struct rows_call &c, const struct selection &s, int walks, float most,
                                      struct select_scratch &scratch)
{
    struct cut cut = { 0, 0, { 0, 0 }, 0 };
    for (int walk = 0; walk < walks; walk++)
        find_bucket(c, s, walk, most, &cut, scratch);
    return cut;
}

// The walk over a chunk.
__device__ inline void walk_chunk(const struct rows_call &c, const struct selection &s, int walk,
                                  const struct chunk &at, float most, struct select_scratch &scratch)
{
    const struct cut cut = find_cut(c, s, walk, most, scratch);
    const bool counts = walk == WALKS - 1;
    for (int b = (int)threadIdx.x; b < walk_buckets(walk); b += ROW_THREADS)
        scratch.bucket[b].whole = scratch.bucket[b].rest = 0;
    __syncthreads();
    for (int i = at.from + (int)threadIdx.x; i < at.to; i += ROW_THREADS) {
        const uint32_t bits = grid_ordered(at.x[i]);
        if ((bits & cut.known) != cut.bits || !(at.x[i] > -INFINITY))
            continue;
        struct exact_sum *b = &scratch.bucket[bits >> walk_shift(walk) & (uint32_t)(walk_buckets(walk) - 1)];
        const struct exact_sum w = weight_of(at.x[i], most, s.by_count || counts);
        atomicAdd(&b->whole, w.whole);
        if (w.rest != 0)
            atomicAdd(&b->rest, w.rest);
    }
    __syncthreads();
    for (int b = (int)threadIdx.x; b < walk_buckets(walk); b += ROW_THREADS) {
        if (counts) {
            counts_of(c, s, (int)blockIdx.y)[b] = (uint32_t)scratch.bucket[b].whole;
        } else if (is_something(scratch.bucket[b])) {
            atomicAdd(&buckets_of(s, walk)[b].whole, scratch.bucket[b].whole);
            atomicAdd(&buckets_of(s, walk)[b].rest, scratch.bucket[b].rest);
        }
    }
}

// The number of tokens at the cut that stay: the smallest that reaches enough, at most n.
__device__ inline int ties_kept(const struct cut &cut, struct exact_sum one, int n)
{
    int few = 0, many = n; // `many` are enough, or all
    while (few < many) {
        const int middle = few + (many - few) / 2;
        if (grid_total(grid_sum(cut.kept, times(one, middle))) >= cut.enough)
            many = middle;
        else
            few = middle + 1;
    }
    return many;
}

// After the last walk: tokens below the cut become -inf, and of those at the cut all but the first.
__device__ inline void apply_cut(const struct rows_call &c, const struct selection &s, const struct chunk &at,
                                 float most, struct select_scratch &scratch)
{
    const struct cut cut = find_cut(c, s, WALKS, most, scratch);
    const float least = grid_of_ordered(cut.bits);
    const int stay = ties_kept(cut, weight_of(least, most, s.by_count), c.n);
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int before = 0;
    for (int i = 0; i < (int)blockIdx.y; i++)
        before += (int)counts_of(c, s, i)[cut.bits & (LAST_BUCKETS - 1)];
    for (int first = at.from; first < at.to; first += ROW_THREADS) {
        const int i = first + (int)threadIdx.x;
        const float x = i < at.to ? at.x[i] : INFINITY;
        const uint32_t ties = __ballot_sync(0xFFFFFFFF, x == least);
        __syncthreads(); // scratch may still be read
        if (lane == 0)
            scratch.lowest[warp] = __popc(ties);
        __syncthreads();
        int number = before + __popc(ties & ((1u << lane) - 1));
        for (int w = 0; w < ROW_WARPS; w++) {
            number += w < warp ? scratch.lowest[w] : 0;
            before += scratch.lowest[w];
        }
        if (x < least || (x == least && number >= stay))
            at.x[i] = -INFINITY;
    }
    __syncthreads();
}

} // namespace DEVICE_SPACE
