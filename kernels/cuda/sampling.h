// sampling.h - rows of probabilities and draws from them, by the threads of a block or of a cluster: sampling/dist.c
// and sampling/rng.c for a device, with the same results to the bit. For .cu files only.
//
// The results are the same because single numbers go through core/grid.h and core/acceptance.h on both sides, sums are
// exact, so their order does not matter, and every draw has an address. All threads of a block, or of a cluster, call
// these functions together, with the same arguments, and return the same results. Callers put a barrier between writing
// what these functions read and the call.
//
// A walk over a row costs the latency of its loads. So each thread loads entries well before it uses them, and the
// blocks of a cluster divide the row. Code that runs once costs its own loading, so a walk is not unrolled, and what
// many walks share is a function.
#pragma once
#include <math.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/reduce.h"
#include "core/acceptance.h"
#include "core/philox.h"

namespace DEVICE_SPACE
{

// What a walk finds in a row: the sum of its entries, the largest and the first index that has it; -1: there is none.
struct tally {
    double sum, largest;
    int at;
};

template <int THREADS, int BLOCKS = 1> struct sampling_scratch { // shared memory of a block; dynamic if BLOCKS > 1
    struct tally of_warp[THREADS / WARP];
    double sum_of_warp[THREADS / WARP];
    struct tally of_block[2][BLOCKS]; // the cluster's blocks', from the last two walks
    int turn;                         // which of the two is next. Initially 0
};

struct random_source { // Philox's stream, and the root's position (sampling/rng.h)
    uint64_t seed, sequence;
    int32_t root;
    const double
        *uniforms; // they replace Philox's (kernels/device_step/verification.h), for a draft of `nodes` nodes; NULL
    int nodes;
};

// ---- entries

// An entry of a row as it comes.
__device__ inline double entry_of(const float *row, int i)
{
    return grid_round((double)row[i]);
}

// ---- walks

__device__ inline void add_entry(struct tally &t, int i, double x) // i: larger than before
{
    t.sum += x;
    if (t.at < 0 || x > t.largest)
        t.largest = x, t.at = i;
}

__device__ inline struct tally combined(struct tally a, const struct tally &b)
{
    a.sum += b.sum;
    if (b.at >= 0 && (a.at < 0 || b.largest > a.largest || (b.largest == a.largest && b.at < a.at)))
        a.largest = b.largest, a.at = b.at;
    return a;
}

// Combines the tallies of all threads. of_block (BLOCKS), in shared memory, gets the sum of each block; NULL: not
// wanted.
template <int THREADS, int BLOCKS>
__device__ NOT_INLINED struct tally combine(struct tally t, struct sampling_scratch<THREADS, BLOCKS> &scratch,
                                            double *of_block = NULL)
{
    GRID_ROLLED
    for (int step = WARP / 2; step > 0; step /= 2) {
        struct tally other;
        other.sum = __shfl_xor_sync(0xFFFFFFFF, t.sum, step);
        other.largest = __shfl_xor_sync(0xFFFFFFFF, t.largest, step);
        other.at = __shfl_xor_sync(0xFFFFFFFF, t.at, step);
        t = combined(t, other);
    }
    __syncthreads(); // scratch may still be read
    if (threadIdx.x % WARP == 0)
        scratch.of_warp[threadIdx.x / WARP] = t;
    __syncthreads();
    t = scratch.of_warp[0];
    GRID_ROLLED
    for (int w = 1; w < THREADS / WARP; w++)
        t = combined(t, scratch.of_warp[w]);
    if constexpr (BLOCKS > 1) {
        // Nobody writes the tallies of this turn again before all threads have passed the next turn's barrier.
        const int turn = scratch.turn, blocks = blocks_in_cluster();
        if ((int)threadIdx.x < blocks)
            in_block(&scratch, (int)threadIdx.x)->of_block[turn][block_in_cluster()] = t;
        cluster_barrier();
        if (threadIdx.x == 0)
            scratch.turn = 1 - turn;
        t = scratch.of_block[turn][0];
        GRID_ROLLED
        for (int b = 1; b < blocks; b++)
            t = combined(t, scratch.of_block[turn][b]);
        if (of_block != NULL && (int)threadIdx.x < blocks)
            of_block[threadIdx.x] = scratch.of_block[turn][threadIdx.x].sum;
    }
    return t;
}

// The part of a row that a block walks over. The pairs of a race are not divided.
struct row_span {
    int each, from, to;
};

template <int BLOCKS> __device__ inline struct row_span span_of_block(int vocab)
{
    struct row_span s = { vocab, 0, vocab };
    if constexpr (BLOCKS > 1) {
        const int blocks = blocks_in_cluster();
        s.each = ((vocab + blocks - 1) / blocks + WARP - 1) / WARP * WARP;
        s.from = min(block_in_cluster() * s.each, vocab);
        s.to = min(s.from + s.each, vocab);
    }
    return s;
}

// Calls visit(i, load(i)) for all i of the block's part, each by the same thread in every walk. Loads are AHEAD entries
// ahead.
template <int THREADS, int BLOCKS, typename loader, typename visitor>
__device__ inline void walk(int vocab, const struct sampling_scratch<THREADS, BLOCKS> &, loader load, visitor visit)
{
    enum { AHEAD = 8 };
    const struct row_span s = span_of_block<BLOCKS>(vocab);
    decltype(load(0)) x[AHEAD];
    const int first = s.from + (int)threadIdx.x;
    if (first >= s.to)
        return;
    UNROLL
    for (int k = 0; k < AHEAD; k++)
        x[k] = load(min(first + k * THREADS, s.to - 1));
    GRID_ROLLED
    for (int i = first; i < s.to; i += THREADS) {
        const auto current = x[0];
        UNROLL
        for (int k = 1; k < AHEAD; k++)
            x[k - 1] = x[k];
        x[AHEAD - 1] = load(min(i + AHEAD * THREADS, s.to - 1));
        visit(i, current);
    }
}

// ---- normalized rows

// Entry x of a row becomes x / whole, rounded down to the grid; what is then missing to a sum of 1 is added to the
// first of the largest. A row that adds up to 1, or to 0, stays as it is: whole 1, nothing missing.
struct normalizer {
    double whole, by, missing; // by: 1 / whole
    int argmax;
};

__device__ inline struct normalizer identity()
{
    const struct normalizer n = { 1, 1, 0, -1 };
    return n;
}

__device__ inline double normalized(const struct normalizer &n, int i, double entry)
{
    return grid_share(entry, n.whole, n.by) + (i == n.argmax ? n.missing : 0);
}

// The normalizer of a row whose entries are entry(i, load(i)) and add up to `whole`. store(i, x) gets its shares, which
// lack what is missing: normalized(stored(n), i, x) are the entries.
template <int THREADS, int BLOCKS, typename loader, typename entries, typename storer>
__device__ inline struct normalizer divide(int vocab, double whole, struct sampling_scratch<THREADS, BLOCKS> &scratch,
                                           loader load, entries entry, storer store, double *of_block = NULL)
{
    struct normalizer n = identity();
    if (whole > 0 && whole != 1)
        n.whole = whole, n.by = 1 / whole;
    struct tally t = { 0, 0, -1 };
    walk(vocab, scratch, load, [&](int i, auto x) {
        const double y = grid_share(entry(i, x), n.whole, n.by);
        store(i, y);
        add_entry(t, i, y);
    });
    t = combine(t, scratch, of_block);
    if (n.whole != 1) {
        n.missing = 1 - t.sum;
        n.argmax = t.at;
    }
    return n;
}

// ---- draws: sampling/rng.c

__device__ inline double uniform(const struct random_source &c, enum purpose purpose, int node)
{
    if (c.uniforms != NULL)
        return c.uniforms[(purpose == FOR_ACCEPT ? 0 : purpose == FOR_RESIDUAL ? 1 : 2) * c.nodes + node];
    return uniform_of_bits(philox_bits53(philox_block(c.seed, grid_word0(purpose, node, 0), c.root, c.sequence), 0));
}

__device__ inline bool accept(double num, double den, const struct random_source &c, enum purpose purpose, int node)
{
    return acceptance_of(acceptance_is_certain(num, den) ? 0 : uniform(c, purpose, node), num, den);
}

// The token of from .. to at which the cumulative sum, `below` before them, exceeds target. Each warp sums a part; the
// part with the token is divided among the warps in turn.
template <int THREADS, int BLOCKS, typename entries>
__device__ inline int pick_between(entries entry, int from, int to, double target, double below,
                                   struct sampling_scratch<THREADS, BLOCKS> &scratch)
{
    enum { WARPS = THREADS / WARP };
    static_assert(WARPS > 1, "a part must be smaller than the whole");
    while (to - from > 1) {
        const int each = (to - from + WARPS - 1) / WARPS, warp = (int)threadIdx.x / WARP;
        const int first = from + warp * each, last = min(first + each, to);
        double part = 0;
        UNROLL_BY(8)
        for (int i = first + (int)threadIdx.x % WARP; i < last; i += WARP)
            part += entry(i);
        GRID_ROLLED
        for (int step = WARP / 2; step > 0; step /= 2)
            part += __shfl_xor_sync(0xFFFFFFFF, part, step);
        __syncthreads(); // scratch may still be read
        if (threadIdx.x % WARP == 0)
            scratch.sum_of_warp[warp] = part;
        __syncthreads();
        from += max(pick_cumulative(scratch.sum_of_warp, WARPS, target, &below), 0) * each;
        to = min(from + each, to);
    }
    return from;
}

// The race for the token at a position of the text. Two neighbours share a block of Philox's. *sum: of the row; NULL:
// not wanted.
template <int THREADS, int BLOCKS>
__device__ inline int race(const float *row, int vocab, const struct random_source &c, int position,
                           struct sampling_scratch<THREADS, BLOCKS> &scratch, double *sum = NULL)
{
    enum { BATCH = 4 }; // pairs
    const struct row_span s = span_of_block<BLOCKS>(vocab);
    double best = INFINITY;
    struct tally t = { 0, 0, -1 };
    for (int first = s.from + 2 * (int)threadIdx.x; first < s.to; first += 2 * BATCH * THREADS) {
        double w[BATCH][2];
        UNROLL
        for (int k = 0; k < 2 * BATCH; k++) {
            const int i = first + k / 2 * 2 * THREADS + k % 2;
            w[k / 2][k % 2] = i < s.to ? entry_of(row, i) : 0;
        }
        UNROLL
        for (int k = 0; k < BATCH; k++) {
            t.sum += w[k][0] + w[k][1];
            if (!(w[k][0] > 0) && !(w[k][1] > 0))
                continue;
            const int pair = first / 2 + k * THREADS;
            const uint32_t word0 = grid_word0(FOR_TOKEN, 0, (uint32_t)pair);
            UNROLL
            for (int half = 0; half < 2; half++) {
                const int i = 2 * pair + half;
                const double u =
                    c.uniforms == NULL
                        ? race_uniform_of_bits(philox_bits53(philox_block(c.seed, word0, position, c.sequence), half))
                    : i < vocab ? c.uniforms[(int64_t)(position - c.root - 1) * vocab + i] + 0x1p-54
                                : 1;
                if (!race_may_win(u, w[k][half], best))
                    continue;
                const double time = race_time(u, w[k][half]);
                if (t.at < 0 || time < best)
                    best = time, t.largest = -time, t.at = i;
            }
        }
    }
    t = combine(t, scratch);
    if (sum != NULL)
        *sum = t.sum;
    return t.at;
}

} // namespace DEVICE_SPACE
