// cluster.h - clusters of blocks, which run at the same time on neighbouring multiprocessors and reach each other's shared memory. For
// .cu files only.
//
// Compute capability 9.0 has them; before that a cluster is one block. Shared memory that other blocks reach must be dynamic
// (DYNAMIC_SHARED). A block may touch that of another one only between the first and the last cluster_barrier() of the kernel, since
// the other one must have begun and not have ended. PTX ISA: barrier.cluster, mapa.
#pragma once
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"

namespace DEVICE_SPACE
{

#if defined(EMULATED)
enum { CLUSTER = 4, CLUSTER_THREADS = 64 }; // maximum number of blocks; threads of each. Threads are slow here
#else
enum { CLUSTER = 8, CLUSTER_THREADS = 512 }; // every device with clusters can run this size
#endif

// Whether this file was compiled for a compute capability that has clusters; else such a device runs the code of an older one.
static inline bool compiled_with_clusters()
{
#if defined(__CUDA_ARCH_LIST__)
    for (int capability : { __CUDA_ARCH_LIST__ })
        if (capability >= 900)
            return true;
    return false;
#else
    return true;
#endif
}

static inline int cluster_blocks(const struct cuda *c)
{
    return c->overlaps && compiled_with_clusters() ? CLUSTER : 1; // overlaps: from compute capability 9.0 on
}

__device__ inline int blocks_in_cluster()
{
#if defined(EMULATED)
    return emulated_blocks_in_cluster();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    int n;
    asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
    return n;
#else
    return 1;
#endif
}

__device__ inline int block_in_cluster()
{
#if defined(EMULATED)
    return emulated_block_in_cluster();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    int n;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(n));
    return n;
#else
    return 0;
#endif
}

// Number of the cluster in a grid of one dimension.
__device__ inline int cluster_of_block()
{
    return (int)blockIdx.x / blocks_in_cluster();
}

// Waits for all threads of the cluster. What they have written, to any memory, is visible to all.
__device__ inline void cluster_barrier()
{
#if defined(EMULATED)
    emulated_cluster_barrier();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#else
    __syncthreads();
#endif
}

// The object in another block's shared memory that corresponds to *shared in the caller's.
template <typename T> __device__ inline T *in_block(T *shared, int block)
{
#if defined(EMULATED)
    return (T *)emulated_in_block(shared, block);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    T *at;
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(at) : "l"(shared), "r"(block));
    return at;
#else
    (void)block;
    return shared;
#endif
}

} // namespace DEVICE_SPACE
