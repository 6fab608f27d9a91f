// device.h - what kernels are written with: a launch, loads and conversions, sums over warps and blocks, and the few
// machine instructions that C++ has no name for. For .cu files alone.
//
// The same sources are compiled twice: by nvcc for a GPU, and by g++ for a GPU that is not there
// (tests/device/emulated/), in which tests run every kernel on the host. What is machine code in the one is plain C++ in
// the other, and only here.
//
// Arithmetic: nvcc is told not to contract (CMakeLists.txt), so what is one rounding is written fmaf. Nothing here may
// make an output depend on how many rows a pass has.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>

#if defined(EMULATED)
#define DEVICE_SPACE emulated_device
#if !defined(__grid_constant__)
#define __grid_constant__
#endif
#else
#define DEVICE_SPACE cuda_device
#include <cuda_fp16.h>
// Kernel, grid, block, bytes of dynamic shared memory, stream, arguments: begins when all that was queued before is done.
// cuda.h has QUEUE, which lets it begin sooner.
#define LAUNCH(kernel, grid, block, shared, stream, ...) kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
// The dynamic shared memory of a kernel, as an array of this type.
#define DYNAMIC_SHARED(type, name) \
    extern __shared__ __align__(16) uint8_t shared_memory_[]; \
    type *const name = reinterpret_cast<type *>(shared_memory_)
#endif

// Loops whose turns are to be written out; the compiler for the host is left alone.
#if defined(EMULATED)
#define UNROLL
#define UNROLL_BY(n)
#else
#define UNROLL _Pragma("unroll")
#define UNROLL_PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(n) UNROLL_PRAGMA(unroll(n)) // times
#endif

namespace DEVICE_SPACE
{

enum { WARP = 32 };

// ---- numbers

__device__ inline float half_to_float(uint16_t h)
{
#if defined(EMULATED)
    return emulated_half_to_float(h);
#else
    return __half2float(__ushort_as_half(h));
#endif
}

__device__ inline uint16_t float_to_half(float x) // to the nearest, ties to even
{
#if defined(EMULATED)
    return emulated_float_to_half(x);
#else
    return __half_as_ushort(__float2half_rn(x));
#endif
}

__device__ inline float bf16_to_float(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}

__device__ inline uint16_t float_to_bf16(float x) // to the nearest, ties to even; a NaN stays one
{
    const uint32_t u = __float_as_uint(x);
    return (uint16_t)((u & 0x7FFFFFFF) > 0x7F800000 ? u >> 16 | 0x40 : (u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

__device__ inline float silu(float x)
{
    return x / (1.0f + expf(-x));
}

// ---- sums that come out the same in every lane

__device__ inline float warp_sum(float x)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xFFFFFFFF, x, step);
    return x;
}

__device__ inline float warp_most(float x)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, step));
    return x;
}

// ---- instructions

// d (16, 8) += a (16, 16) b (16, 8), bfloat16 in, float out. Lane l = 4 g + t holds of a the pairs (g, 2t..), (g + 8,
// 2t..), (g, 2t + 8..), (g + 8, 2t + 8..); of b the pairs (2t.., g), (2t + 8.., g); of d (g, 2t), (g, 2t + 1), (g + 8, 2t),
// (g + 8, 2t + 1). PTX ISA, mma.m16n8k16.
__device__ inline void mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
#if defined(EMULATED)
    emulated_mma_bf16(d, a, b0, b1);
#else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// Sixteen bytes of weights, which are read once a pass: past the first cache.
__device__ inline uint4 load_weights(const uint4 *at)
{
#if defined(EMULATED)
    return *at;
#else
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
#endif
}

// Kernels that are queued with QUEUE begin while the one before is still at work: its last blocks leave processors idle, and
// the first weights take a while to come. So before it reads or writes anything that another kernel writes, and be it only
// to overwrite it, every such kernel waits until the one before is done and all it wrote can be seen; that one had waited
// likewise, so everything before it is done, too. PTX ISA, griddepcontrol; CUDA programming guide, "programmatic dependent
// launch".
__device__ inline void let_next_begin()
{
#if !defined(EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ inline void wait_for_previous()
{
#if !defined(EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The first statement of a kernel that has nothing to do beforehand.
__device__ inline void in_turn()
{
    let_next_begin();
    wait_for_previous();
}

// Sixteen bytes of the device's memory on their way to shared memory, past registers and the first cache. They have come,
// for the thread that sent them, when it has waited; for others after a barrier.
__device__ inline void copy_ahead(void *to, const void *from)
{
#if defined(EMULATED)
    emulated_copy_ahead(to, from);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#endif
}

// What was sent since the last call, perhaps nothing, is a group.
__device__ inline void close_copies()
{
#if defined(EMULATED)
    emulated_close_copies();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of this thread's but the last N.
template <int N> __device__ inline void wait_for_copies()
{
#if defined(EMULATED)
    emulated_wait_for_copies(N);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// The compiler is to think x and memory anew here: what it would keep of them for the next columns is more than there
// are registers.
__device__ inline void forget(float &x)
{
#if !defined(EMULATED)
    asm volatile("" : "+f"(x)::"memory");
#else
    (void)x;
#endif
}

__device__ inline void forget(int &x)
{
#if !defined(EMULATED)
    asm volatile("" : "+r"(x)::"memory");
#else
    (void)x;
#endif
}

} // namespace DEVICE_SPACE
