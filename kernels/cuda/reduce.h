// reduce.h - what the threads of a block have, put together: the same in every thread. of_warp: shared memory, a place for
// each warp, which may be another call's as well. For .cu files alone.
#pragma once
#include "core/grid.h"
#include "kernels/cuda/device.h"

namespace DEVICE_SPACE
{

// A number and its id: larger as the number is and, among equals, as the id is less.
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

template <int WARPS> __device__ inline uint64_t block_most(uint64_t key, uint64_t *of_warp)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        const uint64_t other = __shfl_xor_sync(0xFFFFFFFF, (unsigned long long)key, step);
        key = other > key ? other : key;
    }
    __syncthreads(); // of_warp may still be read
    if (threadIdx.x % WARP == 0)
        of_warp[threadIdx.x / WARP] = key;
    __syncthreads();
    for (int i = 0; i < WARPS; i++)
        key = of_warp[i] > key ? of_warp[i] : key;
    return key;
}

// Lanes by a tree, then warps in their order.
template <int WARPS> __device__ inline double block_sum(double x, double *of_warp)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xFFFFFFFF, x, step);
    __syncthreads(); // of_warp may still be read
    if (threadIdx.x % WARP == 0)
        of_warp[threadIdx.x / WARP] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < WARPS; i++)
        x += of_warp[i];
    return x;
}

} // namespace DEVICE_SPACE
