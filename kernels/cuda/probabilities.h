// probabilities.h - rows of logits on their way to probabilities: what their kernels share. For .cu files alone.
//
// A row is dealt out to several blocks, as there are fewer rows than processors; what they find in their stretches of it is
// put together exactly, so it does not matter how many they are.
#pragma once
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
extern "C" {
#include "core/row_stages.h"
}

#include <float.h>
#include <math.h>

namespace DEVICE_SPACE
{

enum { ROW_THREADS = 256, ROW_WARPS = ROW_THREADS / WARP }; // of a block

// Tokens that are ruled out by their order: top_k, top_p. select.h says how they are found.
enum { WALKS = 3, BUCKETS = 1 << 11, LAST_BUCKETS = 1 << 10 };
struct selection {
    bool by_count;            // a token weighs 1; else e^x
    double enough;            // the likeliest stay until they weigh so much: as much in all, or as a share of the whole
    struct exact_sum *bucket; // (rows, WALKS - 1, BUCKETS)
    uint32_t *count;          // (rows, stretches, LAST_BUCKETS)
};

struct rows_call {
    float *x; // (rows, n)
    int n, used_vocab, chunks, each;
    struct row_stages s;
    uint64_t *key;         // (rows, stretches) of the largest
    struct exact_sum *sum; // (rows, stretches) of e^x
    int selections;        // in this order
    struct selection selection[2];
};

struct chunk { // of its row, a block's
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

__device__ inline uint64_t argmax_of(const struct rows_call &c)
{
    uint64_t key = 0;
    for (int i = 0; i < c.chunks; i++)
        key = max((unsigned long long)key, (unsigned long long)c.key[(int64_t)blockIdx.x * c.chunks + i]);
    return key;
}

// ---- what becomes of single logits (sampling/stages.c)

// What is no number or no token is ruled out, INFINITY is as large as a number can be.
__device__ inline float tidied(float x, bool used_vocab)
{
    return !used_vocab || !(x == x) ? -INFINITY : x > FLT_MAX ? FLT_MAX : x;
}

__device__ inline float heated(float x, float most, double by)
{
    return by == 1 ? x : (float)(((double)x - (double)most) * by);
}

__device__ inline bool is_below(float x, float most, const struct row_stages &s)
{
    return (double)x < (double)most + s.below;
}

// Nothing to choose from: at temperature 0 the likeliest is certain, and token 0 where all are ruled out.
__device__ inline bool is_certain(float most, const struct row_stages &s)
{
    return most == -INFINITY || s.inverse_temperature == 0;
}

__device__ inline int certain_token(uint64_t argmax)
{
    return number_of(argmax) == -INFINITY ? 0 : id_of(argmax);
}

} // namespace DEVICE_SPACE
