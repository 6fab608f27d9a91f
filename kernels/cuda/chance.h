// chance.h - rows of probabilities and draws from them, by the threads of a block: sampling/dist.c and sampling/rng.c
// once more, with their answers bit for bit. For .cu files alone.
//
// Why they are the same: what is done to single numbers is core/grid.h's, sums are exact, so their order does not
// matter, and a draw has an address. All threads of a block call these functions together, with the same arguments, and
// have the same answers. What they read was written before a barrier; what they write can be read by all when they
// return.
#pragma once
#include <math.h>

#include "kernels/cuda/device.h"
#include "kernels/cuda/reduce.h"

namespace DEVICE_SPACE
{

template <int THREADS> struct sampling_scratch { // shared memory of a block
    double of_warp[THREADS / WARP];
    int place_of_warp[THREADS / WARP];
};

struct chance { // Philox's stream, and the root's place (sampling/rng.h)
    uint64_t seed, sequence;
    int32_t root;
    const double *given; // uniforms in its place (core/device_verification.h), of a draft of so many nodes; NULL
    int nodes;
};

// An entry of a row as rows come, or as they are worked on.
__device__ inline double entry_of(const float *row, int i)
{
    return grid_of((double)row[i]);
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

// The least number's place, the first of equals; -1: nobody has one. place: -1: this thread has none.
template <int THREADS>
__device__ inline int first_of_least(double x, int place, struct sampling_scratch<THREADS> &capacity)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        const double y = __shfl_xor_sync(0xFFFFFFFF, x, step);
        const int other = __shfl_xor_sync(0xFFFFFFFF, place, step);
        if (other >= 0 && (place < 0 || y < x || (y == x && other < place)))
            x = y, place = other;
    }
    __syncthreads(); // room may still be read
    if (threadIdx.x % WARP == 0) {
        capacity.of_warp[threadIdx.x / WARP] = x;
        capacity.place_of_warp[threadIdx.x / WARP] = place;
    }
    __syncthreads();
    place = -1;
    for (int i = 0; i < THREADS / WARP; i++) {
        const double y = capacity.of_warp[i];
        const int other = capacity.place_of_warp[i];
        if (other >= 0 && (place < 0 || y < x || (y == x && other < place)))
            x = y, place = other;
    }
    return place;
}

// ---- rows: sampling/dist.c. w, p, q: (vocab)

template <int THREADS, typename number>
__device__ inline double row_sum(const number *row, int vocab, struct sampling_scratch<THREADS> &capacity)
{
    double sum = 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS)
        sum += entry_of(row, i);
    return block_sum<THREADS / WARP>(sum, capacity.of_warp);
}

__device__ inline double share(double entry, double whole, double by) // by: 1 / whole
{
    return entry == whole ? 1 : grid_below(entry * by);
}

// w := w / whole; what is missing of 1 goes to the first of the largest.
template <int THREADS>
__device__ inline void share_out(double *w, int vocab, double whole, struct sampling_scratch<THREADS> &capacity)
{
    const double by = 1 / whole;
    double sum = 0, least = 1;
    int place = -1;
    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        const double x = share(w[i], whole, by);
        w[i] = x;
        sum += x;
        if (place < 0 || -x < least)
            least = -x, place = i;
    }
    const double missing = 1 - block_sum<THREADS / WARP>(sum, capacity.of_warp);
    place = first_of_least(least, place, capacity);
    if (threadIdx.x == 0 && missing != 0)
        w[place] += missing;
    __syncthreads();
}

template <int THREADS>
__device__ inline void from_row(double *to, const float *row, int vocab, struct sampling_scratch<THREADS> &capacity)
{
    double sum = 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS)
        sum += to[i] = entry_of(row, i);
    sum = block_sum<THREADS / WARP>(sum, capacity.of_warp);
    if (sum > 0 && sum != 1)
        share_out(to, vocab, sum, capacity);
}

// What from_row would make of entry x.
template <int THREADS>
__device__ inline double from_row_at(const float *row, int vocab, int x, struct sampling_scratch<THREADS> &capacity)
{
    const double whole = row_sum(row, vocab, capacity), by = 1 / whole;
    if (!(whole > 0) || whole == 1)
        return entry_of(row, x);
    double sum = 0, least = 1;
    int place = -1;
    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        const double w = share(entry_of(row, i), whole, by);
        sum += w;
        if (place < 0 || -w < least)
            least = -w, place = i;
    }
    const double missing = 1 - block_sum<THREADS / WARP>(sum, capacity.of_warp);
    place = first_of_least(least, place, capacity);
    return share(entry_of(row, x), whole, by) + (x == place ? missing : 0);
}

// p without token x. Answers how much is left; 0: nothing is, and p stays as it was.
template <int THREADS>
__device__ inline double strike(double *p, int vocab, int x, struct sampling_scratch<THREADS> &capacity)
{
    double left = 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS)
        left += i != x ? p[i] : 0;
    left = block_sum<THREADS / WARP>(left, capacity.of_warp);
    if (!(left > 0))
        return 0;
    if (threadIdx.x == 0)
        p[x] = 0;
    __syncthreads();
    share_out(p, vocab, left, capacity);
    return left;
}

// p := (a p - q)+, 0 <= a <= 1. Answers how much that was; 0: nothing, and p stays as it was.
template <int THREADS>
__device__ inline double scaled_residual(double *p, double a, const double *q, int vocab,
                                         struct sampling_scratch<THREADS> &capacity)
{
    double left = 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        const double x = a != 1 ? grid_of(p[i] * a) : p[i];
        left += x > q[i] ? x - q[i] : 0;
    }
    left = block_sum<THREADS / WARP>(left, capacity.of_warp);
    if (!(left > 0))
        return 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        const double x = a != 1 ? grid_of(p[i] * a) : p[i];
        p[i] = x > q[i] ? x - q[i] : 0;
    }
    share_out(p, vocab, left, capacity);
    return left;
}

// ---- chance: sampling/rng.c

__device__ inline double uniform(const struct chance &c, enum purpose purpose, int node)
{
    if (c.given != NULL)
        return c.given[(purpose == FOR_ACCEPT ? 0 : purpose == FOR_RESIDUAL ? 1 : 2) * c.nodes + node];
    return grid_bits53(c.seed, grid_word0(purpose, node, 0), c.root, c.sequence, 0) * 0x1p-53;
}

__device__ inline bool accept(double num, double den, const struct chance &c, enum purpose purpose, int node)
{
    if (num <= 0 || num >= den)
        return num > 0;
    return uniform(c, purpose, node) * den < num;
}

// The first token that the sum up to and with it takes beyond u of all; where rounding would lead past all of them, the
// last that has any weight. Each warp sums a stretch; the one in which it lies is dealt out among the warps in turn.
template <int THREADS, typename number>
__device__ inline int pick(const number *row, int vocab, const struct chance &c, enum purpose purpose, int node,
                           struct sampling_scratch<THREADS> &capacity)
{
    static_assert(THREADS > WARP, "a stretch must be less than the whole");
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
        __syncthreads(); // room may still be read
        if (lane == 0)
            capacity.of_warp[warp] = part;
        __syncthreads();
        if (to - from == vocab) {
            for (int w = 0; w < THREADS / WARP; w++)
                target += capacity.of_warp[w];
            target *= uniform(c, purpose, node);
        }
        double sum = below;
        int there = 0;
        for (int w = 0; w < THREADS / WARP && sum <= target; w++)
            if (capacity.of_warp[w] > 0) {
                there = w;
                below = sum;
                sum += capacity.of_warp[w];
            }
        from += there * each;
        to = min(from + each, to);
    }
}

// The race for a token's place in the text. Two neighbours share a block of Philox's.
template <int THREADS, typename number>
__device__ inline int race(const number *row, int vocab, const struct chance &c, int place,
                           struct sampling_scratch<THREADS> &capacity)
{
    double best = INFINITY;
    int winner = -1;
    for (int pair = threadIdx.x; 2 * pair < vocab; pair += THREADS) {
        const uint32_t word0 = grid_word0(FOR_TOKEN, 0, (uint32_t)pair);
        UNROLL
        for (int half = 0; half < 2; half++) {
            const int i = 2 * pair + half;
            const double w = i < vocab ? entry_of(row, i) : 0;
            const double u = c.given == NULL ? (grid_bits53(c.seed, word0, place, c.sequence, half) + 0.5) * 0x1p-53
                             : i < vocab     ? c.given[(int64_t)(place - c.root - 1) * vocab + i] + 0x1p-54
                                             : 1;
            if (!(u < best * w)) // -log(1 - u) >= u: too late, or w is 0
                continue;
            const double time = grid_wait(u) / w;
            if (winner < 0 || time < best)
                best = time, winner = i;
        }
    }
    return first_of_least(best, winner, capacity);
}

} // namespace DEVICE_SPACE
