// philox.h - Philox4x32-10 (Salmon et al. 2011) from Random123, with the same code on a CPU and on a GPU.
// sampling/rng.h has the fields of key and counter.
#pragma once
#include <stdint.h>

#include "core/grid.h"

#if defined(__CUDACC__) // Random123 leaves out __host__, which nvcc misses in functions of both
#define R123_CUDA_DEVICE __host__ __device__
#endif
#if defined(EMULATED) // compiled without exceptions
#define R123_USE_SSE 0
#define R123_THROW(x) __builtin_trap()
#endif
#include <Random123/philox.h>

GRID_FUNCTION uint32_t grid_word0(enum purpose purpose, int node, uint32_t block)
{
    return (uint32_t)purpose << GRID_PURPOSE_SHIFT | (uint32_t)node << GRID_NODE_SHIFT | block;
}

// Returns the block of random bits with this key and counter.
GRID_FUNCTION philox4x32_ctr_t philox_block(uint64_t key, uint32_t word0, int32_t position, uint64_t sequence)
{
    const philox4x32_ctr_t counter = { { word0, (uint32_t)position, (uint32_t)sequence, (uint32_t)(sequence >> 32) } };
    const philox4x32_key_t key_words = { { (uint32_t)key, (uint32_t)(key >> 32) } };
    return philox4x32_R(10, counter, key_words);
}

// Returns the upper 53 bits of half `half` (0 or 1) of a block, as an integer, which is exact in a double.
GRID_FUNCTION double philox_bits53(philox4x32_ctr_t block, int half)
{
    const uint64_t word = half == 0 ? (uint64_t)block.v[1] << 32 | block.v[0] : (uint64_t)block.v[3] << 32 | block.v[2];
    return (double)(word >> 11);
}
