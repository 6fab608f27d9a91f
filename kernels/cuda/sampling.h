// sampling.h - rows of probabilities and draws from them, by the threads of a block: sampling/dist.c and sampling/rng.c for a
// device, with the same results to the bit. For .cu files only.
//
// The results are the same because single numbers go through core/grid.h on both sides, sums are exact, so their order does not
// matter, and every draw has an address. All threads of a block call these functions together, with the same arguments, and
// return the same results. Callers put a barrier between writing what these functions read and the call; what the functions write
// is visible to all threads when they return.
#pragma once
#include <math.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/reduce.h"

namespace DEVICE_SPACE
{

template <int THREADS> struct sampling_scratch { // shared memory of a block
    double of_warp[THREADS / WARP];
    int index_of_warp[THREADS / WARP];
};

struct random_source { // Philox's stream, and the root's position (sampling/rng.h)
    uint64_t seed, sequence;
    int32_t root;
    const double *uniforms; // in place of Philox's (device_step/verification.h), for a draft of `nodes` nodes; NULL
    int nodes;
};

// An entry of a row of floats, as it comes, or of doubles, as it is worked on.
__device__ inline double entry_of(const float *row, int i)
{
    return grid_round((double)row[i]);
}

__device__ inline double entry_of(const double *row, int i)
{
    return row[i];
}

// A row without some of its tokens.
struct row_without {
    const float *row;
    const int32_t *out; // (n)
    int n;
};

__device__ inline double entry_of(const struct row_without *r, int i)
{
    for (int k = 0; k < r->n; k++)
        if (r->out[k] == i)
            return 0;
    return entry_of(r->row, i);
}

// The index of the smallest number, the first of equals; -1: no thread has one. index -1: this thread has none.
template <int THREADS> __device__ inline int argmin(double x, int index, struct sampling_scratch<THREADS> &scratch)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        const double y = __shfl_xor_sync(0xFFFFFFFF, x, step);
        const int other = __shfl_xor_sync(0xFFFFFFFF, index, step);
        if (other >= 0 && (index < 0 || y < x || (y == x && other < index)))
            x = y, index = other;
    }
    __syncthreads(); // scratch may still be read
    if (threadIdx.x % WARP == 0) {
        scratch.of_warp[threadIdx.x / WARP] = x;
        scratch.index_of_warp[threadIdx.x / WARP] = index;
    }
    __syncthreads();
    index = -1;
    for (int i = 0; i < THREADS / WARP; i++) {
        const double y = scratch.of_warp[i];
        const int other = scratch.index_of_warp[i];
        if (other >= 0 && (index < 0 || y < x || (y == x && other < index)))
            x = y, index = other;
    }
    return index;
}

// ---- rows: sampling/dist.c. w, p, q: (vocab)

template <int THREADS, typename number>
__device__ inline double row_sum(const number *row, int vocab, struct sampling_scratch<THREADS> &scratch)
{
    double sum = 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS)
        sum += entry_of(row, i);
    return block_sum<THREADS / WARP>(sum, scratch.of_warp);
}

__device__ inline double share(double entry, double whole, double by) // by: 1 / whole
{
    return entry == whole ? 1 : grid_round_down(entry * by);
}

// w := w / whole; the first of the largest entries gets what is missing to 1.
template <int THREADS>
__device__ inline void normalize(double *w, int vocab, double whole, struct sampling_scratch<THREADS> &scratch)
{
    const double by = 1 / whole;
    double sum = 0, smallest = 1;
    int argmax = -1;
    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        const double x = share(w[i], whole, by);
        w[i] = x;
        sum += x;
        if (argmax < 0 || -x < smallest)
            smallest = -x, argmax = i;
    }
    const double missing = 1 - block_sum<THREADS / WARP>(sum, scratch.of_warp);
    argmax = argmin(smallest, argmax, scratch);
    if (threadIdx.x == 0 && missing != 0)
        w[argmax] += missing;
    __syncthreads();
}

template <int THREADS>
__device__ inline void from_row(double *to, const float *row, int vocab, struct sampling_scratch<THREADS> &scratch)
{
    double sum = 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS)
        sum += to[i] = entry_of(row, i);
    sum = block_sum<THREADS / WARP>(sum, scratch.of_warp);
    if (sum > 0 && sum != 1)
        normalize(to, vocab, sum, scratch);
}

// Entry x of the result of from_row.
template <int THREADS>
__device__ inline double from_row_at(const float *row, int vocab, int x, struct sampling_scratch<THREADS> &scratch)
{
    const double whole = row_sum(row, vocab, scratch), by = 1 / whole;
    if (!(whole > 0) || whole == 1)
        return entry_of(row, x);
    double sum = 0, smallest = 1;
    int argmax = -1;
    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        const double w = share(entry_of(row, i), whole, by);
        sum += w;
        if (argmax < 0 || -w < smallest)
            smallest = -w, argmax = i;
    }
    const double missing = 1 - block_sum<THREADS / WARP>(sum, scratch.of_warp);
    argmax = argmin(smallest, argmax, scratch);
    return share(entry_of(row, x), whole, by) + (x == argmax ? missing : 0);
}

// Removes token x from p and normalizes. Returns the mass before normalizing; 0: none is left, and p is unchanged.
template <int THREADS>
__device__ inline double row_remove(double *p, int vocab, int x, struct sampling_scratch<THREADS> &scratch)
{
    double left = 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS)
        left += i != x ? p[i] : 0;
    left = block_sum<THREADS / WARP>(left, scratch.of_warp);
    if (!(left > 0))
        return 0;
    if (threadIdx.x == 0)
        p[x] = 0;
    __syncthreads();
    normalize(p, vocab, left, scratch);
    return left;
}

// p := (a p - q)+ normalized, 0 <= a <= 1. Returns the mass before normalizing; 0: p is unchanged.
template <int THREADS>
__device__ inline double scaled_residual(double *p, double a, const double *q, int vocab,
                                         struct sampling_scratch<THREADS> &scratch)
{
    double left = 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        const double x = a != 1 ? grid_round(p[i] * a) : p[i];
        left += x > q[i] ? x - q[i] : 0;
    }
    left = block_sum<THREADS / WARP>(left, scratch.of_warp);
    if (!(left > 0))
        return 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        const double x = a != 1 ? grid_round(p[i] * a) : p[i];
        p[i] = x > q[i] ? x - q[i] : 0;
    }
    normalize(p, vocab, left, scratch);
    return left;
}

// ---- draws: sampling/rng.c

__device__ inline double uniform(const struct random_source &c, enum purpose purpose, int node)
{
    if (c.uniforms != NULL)
        return c.uniforms[(purpose == FOR_ACCEPT ? 0 : purpose == FOR_RESIDUAL ? 1 : 2) * c.nodes + node];
    return grid_bits53(c.seed, grid_word0(purpose, node, 0), c.root, c.sequence, 0) * 0x1p-53;
}

__device__ inline bool accept(double num, double den, const struct random_source &c, enum purpose purpose, int node)
{
    if (num <= 0 || num >= den)
        return num > 0;
    return uniform(c, purpose, node) * den < num;
}

// The first token at which the cumulative sum exceeds u times the total; if rounding would lead past all of them, the last token of
// positive weight. Each warp sums a chunk; the chunk with the token is divided among the warps in turn.
template <int THREADS, typename number>
__device__ inline int pick(const number *row, int vocab, const struct random_source &c, enum purpose purpose, int node,
                           struct sampling_scratch<THREADS> &scratch)
{
    static_assert(THREADS > WARP, "a chunk must be smaller than the row");
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    double target = 0, below = 0;
    for (int from = 0, to = vocab;;) {
        if (to - from == 1)
            return from;
        const int each = (to - from + THREADS / WARP - 1) / (THREADS / WARP), first = from + warp * each;
        double part = 0;
        for (int i = first + lane; i < first + each && i < to; i += WARP)
            part += entry_of(row, i);
        for (int step = WARP / 2; step > 0; step /= 2)
            part += __shfl_xor_sync(0xFFFFFFFF, part, step);
        __syncthreads(); // scratch may still be read
        if (lane == 0)
            scratch.of_warp[warp] = part;
        __syncthreads();
        if (to - from == vocab) {
            for (int w = 0; w < THREADS / WARP; w++)
                target += scratch.of_warp[w];
            target *= uniform(c, purpose, node);
        }
        double sum = below;
        int chunk = 0;
        for (int w = 0; w < THREADS / WARP && sum <= target; w++)
            if (scratch.of_warp[w] > 0) {
                chunk = w;
                below = sum;
                sum += scratch.of_warp[w];
            }
        from += chunk * each;
        to = min(from + each, to);
    }
}

// The race for the token at a position of the text. Two neighbours share a block of Philox's.
template <int THREADS, typename number>
__device__ inline int race(const number *row, int vocab, const struct random_source &c, int position,
                           struct sampling_scratch<THREADS> &scratch)
{
    double best = INFINITY;
    int winner = -1;
    for (int pair = threadIdx.x; 2 * pair < vocab; pair += THREADS) {
        const uint32_t word0 = grid_word0(FOR_TOKEN, 0, (uint32_t)pair);
        UNROLL
        for (int half = 0; half < 2; half++) {
            const int i = 2 * pair + half;
            const double w = i < vocab ? entry_of(row, i) : 0;
            const double u = c.uniforms == NULL
                                 ? (grid_bits53(c.seed, word0, position, c.sequence, half) + 0.5) * 0x1p-53
                             : i < vocab ? c.uniforms[(int64_t)(position - c.root - 1) * vocab + i] + 0x1p-54
                                         : 1;
            if (!(u < best * w)) // -log(1 - u) >= u: it cannot win, or w is 0
                continue;
            const double time = grid_exponential(u) / w;
            if (winner < 0 || time < best)
                best = time, winner = i;
        }
    }
    return argmin(best, winner, scratch);
}

} // namespace DEVICE_SPACE
