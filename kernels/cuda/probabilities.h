// probabilities.h - rows of logits that become probabilities: what their kernels share. For .cu files only.
//
// A row is divided among several blocks, as there are fewer rows than multiprocessors. The results of its chunks are
// combined exactly, so their number does not matter.
#pragma once
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
extern "C" {
#include "core/row_stages.h"
#include "kernels/device_step/device_step.h"
}

#include <float.h>
#include <math.h>

namespace DEVICE_SPACE
{

enum { ROW_THREADS = 256, ROW_WARPS = ROW_THREADS / WARP }; // a block's

struct rows_call {
    float *x;                        // (rows, n)
    int n, used_vocab, chunks, each; // each: a multiple of row_part(n)
    struct row_stages s;
    struct part_sum *row_sum; // (rows, ROW_PARTS) of the probabilities (device_step.h); NULL: not wanted
    uint64_t *key;            // (rows, chunks) of the largest
    struct exact_sum *sum;    // (rows, chunks) of e^x
    uint64_t *cut; // (rows) the smallest key of a token that top_k and top_p keep (reduce.h); NULL: they keep all
};

__host__ __device__ inline bool selects(const struct rows_call &c, bool top_k) // or top_p
{
    return top_k ? c.s.top_k > 0 && c.s.top_k < c.n : c.s.top_p < 1;
}

struct chunk { // the part of a row that a block works on
    float *x;
    int from, to;
};

__device__ inline struct chunk chunk_of_block(const struct rows_call &c)
{
    struct chunk s;
    s.x = c.x + (int64_t)blockIdx.x * c.n;
    s.from = (int)blockIdx.y * c.each;
    s.to = min(s.from + c.each, c.n);
    return s;
}

__device__ inline struct part_sum *row_sums(const struct rows_call &c)
{
    return c.row_sum + (int64_t)blockIdx.x * ROW_PARTS;
}

// Calls visit(i, x[i]) for a chunk.
template <typename visitor> __device__ inline void visit_chunk(const struct chunk &s, visitor visit)
{
    visit_share<ROW_THREADS>(s.x, s.from, s.to, visit);
}

__device__ inline uint64_t argmax_of(const struct rows_call &c, int row)
{
    uint64_t key = 0;
    for (int i = 0; i < c.chunks; i++)
        key = max((unsigned long long)key, (unsigned long long)c.key[(int64_t)row * c.chunks + i]);
    return key;
}

// ---- single logits (sampling/stages.c)

// NaN and padding become -inf; infinity becomes the largest number.
__device__ inline float cleaned(float x, bool used_vocab)
{
    return !used_vocab || !(x == x) ? -INFINITY : x > FLT_MAX ? FLT_MAX : x;
}

__device__ inline float scaled_logit(float x, float most, double by)
{
    return by == 1 ? x : (float)(((double)x - (double)most) * by);
}

__device__ inline bool is_below(float x, float most, const struct row_stages &s)
{
    return (double)x < (double)most + s.below;
}

// One token is certain: at temperature 0 the argmax, and token 0 if all logits are -inf.
__device__ inline bool is_certain(float most, const struct row_stages &s)
{
    return most == -INFINITY || s.inverse_temperature == 0;
}

__device__ inline int certain_token(uint64_t argmax)
{
    return number_of(argmax) == -INFINITY ? 0 : id_of(argmax);
}

void select_queue(struct cuda *c, const struct rows_call &call, int rows); // finds the cuts

} // namespace DEVICE_SPACE
