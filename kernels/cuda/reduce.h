// reduce.h - walks over numbers by the threads of a block, and reductions over them with the same result in every
// thread. of_warp: shared memory, one element per warp, which calls may share. For .cu files only.
#pragma once
#include "core/grid.h"
#include "kernels/cuda/device.h"

namespace DEVICE_SPACE
{

// Calls visit(i, x[i]) for a thread's share of from .. to. The loads of a batch come before what visit() stores.
template <int THREADS, typename visitor>
__device__ inline void visit_share(const float *x, int from, int to, visitor visit)
{
    enum { BATCH = 8 };
    for (int first = from + (int)threadIdx.x; first < to; first += BATCH * THREADS) {
        float v[BATCH];
        UNROLL
        for (int k = 0; k < BATCH; k++)
            v[k] = x[min(first + k * THREADS, to - 1)];
        UNROLL
        for (int k = 0; k < BATCH; k++)
            if (first + k * THREADS < to)
                visit(first + k * THREADS, v[k]);
    }
}

// Key of a number and its id: larger for a larger number and, among equals, for a smaller id.
__device__ inline uint64_t key_of(float x, int id)
{
    return (uint64_t)grid_ordered(x) << 32 | (uint32_t)~id;
}

__device__ inline float number_of(uint64_t key)
{
    return grid_of_ordered((uint32_t)(key >> 32));
}

__device__ inline int id_of(uint64_t key)
{
    return (int)~(uint32_t)key;
}

template <int WARPS> __device__ inline uint64_t block_max(uint64_t key, uint64_t *of_warp)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        const uint64_t other = __shfl_xor_sync(0xFFFFFFFF, (unsigned long long)key, step);
        key = other > key ? other : key;
    }
    __syncthreads(); // a previous call may still be reading of_warp
    if (threadIdx.x % WARP == 0)
        of_warp[threadIdx.x / WARP] = key;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        key = of_warp[i] > key ? of_warp[i] : key;
    return key;
}

// Lanes by a tree, then warps in order.
template <int WARPS> __device__ inline double block_sum(double x, double *of_warp)
{
    x = warp_sum(x);
    __syncthreads(); // a previous call may still be reading of_warp
    if (threadIdx.x % WARP == 0)
        of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < WARPS; i++)
        x += of_warp[i];
    return x;
}

} // namespace DEVICE_SPACE
