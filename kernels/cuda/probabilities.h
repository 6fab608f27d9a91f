// probabilities.h - what becomes of single logits (sampling/stages.c), for the kernels that make probabilities of rows.
// For .cu files alone.
#pragma once
#include "kernels/cuda/reduce.h"
extern "C" {
#include "core/row_stages.h"
}

#include <float.h>
#include <math.h>

namespace DEVICE_SPACE
{

// What is no number or no token is ruled out, INFINITY is as large as a number can be.
__device__ inline float tidied(float x, bool live)
{
    return !live || !(x == x) ? -INFINITY : x > FLT_MAX ? FLT_MAX : x;
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
    return most == -INFINITY || s.heat == 0;
}

__device__ inline int certain_token(uint64_t likeliest)
{
    return number_of(likeliest) == -INFINITY ? 0 : id_of(likeliest);
}

} // namespace DEVICE_SPACE
