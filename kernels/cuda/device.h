// device.h - primitives for kernels: launches, conversions, reductions over warps, and the machine instructions that
// C++ does not expose. For .cu files only.
//
// The same sources are compiled twice: by nvcc for a GPU, and by g++ for an emulated GPU (tests/device/emulated/), on
// which tests run every kernel on the host. What is machine code here is C++ there, in primitives.h.
//
// Arithmetic: nvcc does not contract (--fmad=false in cmake/cuda.cmake), so fused operations are written fmaf. Nothing
// here may make an output depend on the number of rows of a pass.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "kernels/backend.h"
}

#if defined(EMULATED)
#include <primitives.h>
#else
#include <cuda_fp16.h>
#define DEVICE_SPACE cuda_device
// Kernel, grid, block, bytes of dynamic shared memory, stream, arguments. The kernel starts after everything that was
// queued before; QUEUE of cuda.h lets it start earlier.
#define LAUNCH(kernel, grid, block, shared, stream, ...) kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)
// Declares the dynamic shared memory of a kernel as an array of `type`.
#define DYNAMIC_SHARED(type, name) \
    extern __shared__ __align__(16) uint8_t shared_memory_[]; \
    type *const name = reinterpret_cast<type *>(shared_memory_)
#define NOT_INLINED static __noinline__ // a function whose code is there once
#define UNROLL _Pragma("unroll")
#define UNROLL_PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(n) UNROLL_PRAGMA(unroll(n)) // times
// Instructions of compute capability 9.0 and later; older devices do without, and launch no kernel that needs them.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define HAS_90 1
#define ASM_90(...) asm volatile(__VA_ARGS__)
#else
#define ASM_90(...) (void)0
#endif

namespace DEVICE_SPACE
{

__device__ inline float half_to_float(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}

__device__ inline uint16_t float_to_half(float x) // round to nearest even
{
    return __half_as_ushort(__float2half_rn(x));
}

// Each of `count` numbers becomes what combine() makes of those of the 32 lanes, by a tree: of lanes whose numbers
// differ in one bit, from the highest bit to the lowest.
template <int count, typename number, typename function> __device__ inline void warp_tree(number *x, function combine)
{
    UNROLL
    for (int i = 0; i < count; i++)
        for (int step = 16; step > 0; step /= 2)
            x[i] = combine(x[i], __shfl_xor_sync(0xFFFFFFFF, x[i], step));
}

// ---- instructions

// Tells the compiler, which cannot know it of an address that it loads.
__device__ inline void is_global(const void *p)
{
    __builtin_assume(__isGlobal(p));
}

__device__ inline uint32_t shared_address(const void *p) // the address that instructions take
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

// d (16, 8) += a (16, 16) b (16, 8), bfloat16 in, float out. Lane 4 g + t holds the pairs (g, 2t..), (g + 8, 2t..), (g,
// 2t + 8..), (g + 8, 2t + 8..) of a; (2t.., g), (2t + 8.., g) of b; (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
// of d. PTX ISA, mma.m16n8k16.
__device__ inline void mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// a + b of each half; the sums must be exact.
__device__ inline uint32_t pair_sum(uint32_t a, uint32_t b)
{
    uint32_t sum; // fma exists from compute capability 8.0 on, add only from 9.0
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3F803F80), "r"(b));
    return sum;
}

// a * b of each half; the products must be exact.
__device__ inline uint32_t pair_product(uint32_t a, uint32_t b)
{
    uint32_t product; // subnormal numbers have products, too
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0));
    return product;
}

// Loads four matrices of 8 by 8 numbers of 16 bits from shared memory, by all lanes of a warp. row: where row lane % 8
// of matrix lane / 8 begins, at a multiple of sixteen bytes. Lane 4 g + t receives numbers 2 t and 2 t + 1 of row g of
// each; TRANSPOSED: rows 2 t and 2 t + 1 of column g. PTX ISA, ldmatrix.
template <bool TRANSPOSED = false> __device__ inline void load_matrices(uint32_t to[4], const uint16_t *row)
{
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(shared_address(row))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(shared_address(row))
                     : "memory");
}

// Loads sixteen bytes of weights without allocating in L1, since they are read once per pass. Not ld.global.nc: ptxas
// moves such loads past griddepcontrol.wait, and nothing is in flight during the wait (tests/machine_code.py).
__device__ inline uint4 load_weights(const uint4 *at)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

// Programmatic dependent launch. A kernel queued with QUEUE starts while the previous one is still running: the last
// blocks of that leave processors idle, and the first weights take a while to arrive. Before a kernel reads or writes
// (even overwrites) anything that another kernel writes, it must wait until the previous kernel has finished and its
// writes are visible; since that kernel has waited as well, everything before it has finished too. PTX ISA,
// griddepcontrol; CUDA programming guide, "programmatic dependent launch".
__device__ inline void launch_dependents()
{
    ASM_90("griddepcontrol.launch_dependents;");
}

__device__ inline void wait_for_previous()
{
    ASM_90("griddepcontrol.wait;" ::: "memory");
}

// *count = *count < last ? *count + 1 : 0; returns what it was. What the calling thread has written, and before a
// barrier the other threads of its block, is visible to the threads that go on behind a later call. PTX ISA, memory
// consistency model: release and acquire patterns.
__device__ inline unsigned count_arrival(unsigned *count, unsigned last)
{
    unsigned was;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(was) : "l"(count), "r"(last) : "memory");
    return was;
}

// Asynchronous copy of sixteen bytes from global to shared memory, bypassing registers and L1. Complete for the issuing
// thread after wait_for_copies, for others after a barrier.
__device__ inline void copy_async(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(shared_address(to)), "l"(from) : "memory");
}

// 2^x with an error of two units in the last place; 0 below 2^-126. PTX ISA, ex2.approx.
__device__ inline float exp2_flushed(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ---- bulk copies from global to shared memory, which complete on a barrier there

// A barrier of threads that arrive, and of the bytes that they expect. PTX ISA: mbarrier, cp.async.bulk. Compute
// capability 9.0.
struct arrival {
    uint64_t barrier;
};

// count: of arrivals.
__device__ inline void arrival_init(struct arrival *a, int count)
{
    ASM_90("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(shared_address(&a->barrier)), "r"(count) : "memory");
}

// After the last arrival_init, before others use the barriers; then a barrier of the threads.
__device__ inline void arrivals_ready()
{
    ASM_90("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

// The thread arrives, and announces so many bytes of copies.
__device__ inline void arrival_expect(struct arrival *a, int bytes)
{
    ASM_90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
           :
           : "r"(shared_address(&a->barrier)), "r"(bytes)
           : "memory");
}

__device__ inline void arrival_arrive(struct arrival *a)
{
    ASM_90("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(shared_address(&a->barrier)) : "memory");
}

// Waits for the arrivals and their copies. phase: 0 the first time, then 1, 0, ..
__device__ inline void arrival_wait(struct arrival *a, int phase)
{
    ASM_90("{\n\t.reg .pred done;\n\tagain:\n\t"
           "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t@!done bra again;\n\t}"
           :
           : "r"(shared_address(&a->barrier)), "r"(phase)
           : "memory");
}

// bytes: a multiple of sixteen, as are the addresses. once: a pass reads it once, so it leaves L2 first and what is
// read again stays: keys, the input of products, and the machine code of kernels (worth 6 % of a pass of an 8B model on
// an H200).
__device__ inline void copy_bulk(void *to, const void *from, int bytes, struct arrival *a, bool once)
{
#if defined(HAS_90)
    if (once) {
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
            :
            : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(&a->barrier)), "l"(policy)
            : "memory");
    } else
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :
                     : "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(&a->barrier))
                     : "memory");
#endif
}

// Commits the copies issued since the last call (possibly none) as a group.
__device__ inline void commit_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits for all but the last N groups of this thread.
template <int N> __device__ inline void wait_for_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Makes the compiler forget the value of x and the contents of memory. It would otherwise keep more values for the next
// columns than there are registers.
__device__ inline void forget(int &x)
{
    asm volatile("" : "+r"(x)::"memory");
}

// ---- clusters of blocks, which run at the same time and reach each other's shared memory

// Compute capability 9.0 has them; before that a cluster is one block. Shared memory that other blocks reach must be
// dynamic (DYNAMIC_SHARED). A block may touch that of another one only between two barriers of the cluster, since the
// other one must have begun and not have ended. PTX ISA: barrier.cluster, mapa. QUEUE_CLUSTERS of cuda.h launches them.
// Maximum number of blocks, and threads of each: every device with clusters can run this size.
enum { CLUSTER = 8, CLUSTER_THREADS = 512 };

__device__ inline int blocks_in_cluster()
{
    int n = 1;
    ASM_90("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
    return n;
}

__device__ inline int block_in_cluster()
{
    int n = 0;
    ASM_90("mov.u32 %0, %%cluster_ctarank;" : "=r"(n));
    return n;
}

// Waits for all threads of the cluster. What they have written, to any memory, is visible to all.
__device__ inline void cluster_barrier()
{
#if defined(HAS_90)
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#else
    __syncthreads();
#endif
}

// A barrier at the end of a kernel, after the last reads of other blocks' memory, which then may end: nothing need be
// visible.
__device__ inline void cluster_end()
{
    ASM_90("barrier.cluster.arrive.relaxed;\n\tbarrier.cluster.wait;" ::: "memory");
}

// The object in another block's shared memory that corresponds to *shared in the caller's.
template <typename T> __device__ inline T *in_block(T *shared, int block)
{
    T *at = shared;
    ASM_90("mapa.u64 %0, %1, %2;" : "=l"(at) : "l"(shared), "r"(block));
    return at;
}

} // namespace DEVICE_SPACE
#endif

namespace DEVICE_SPACE
{

enum { WARP = 32 };

// First statement of a kernel that has no work to do before it waits.
__device__ inline void kernel_prologue()
{
    launch_dependents();
    wait_for_previous();
}

// Number of the cluster in a grid of one dimension.
__device__ inline int cluster_of_block()
{
    return (int)blockIdx.x / blocks_in_cluster();
}

// ---- numbers

__device__ inline float bf16_to_float(uint16_t h)
{
    return __uint_as_float((uint32_t)h << 16);
}

__device__ inline uint16_t float_to_bf16(float x) // round to nearest even; NaN stays NaN
{
    const uint32_t u = __float_as_uint(x);
    return (uint16_t)((u & 0x7FFFFFFF) > 0x7F800000 ? u >> 16 | 0x40 : (u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

__device__ inline float silu(float x)
{
    return x / (1.0f + expf(-x));
}

// x / 2 (1 + tanh(u)) is x / (1 + e^(-2 u)), with u = sqrt(2 / pi) (x + 0.044715 x^3).
__device__ inline float gelu(float x)
{
    return x / (1.0f + expf(-x * fmaf(x * x, 0.07135481627f, 1.595769122f)));
}

__device__ inline float passed(float gate, enum gate_function f)
{
    return f == GATE_GELU ? gelu(gate) : silu(gate);
}

// ---- reductions, with the same result in every lane

template <int count, typename number> __device__ inline void warp_sum_each(number *x)
{
    warp_tree<count>(x, [](number a, number b) { return a + b; });
}

template <typename number> __device__ inline number warp_sum(number x)
{
    warp_sum_each<1>(&x);
    return x;
}

__device__ inline float warp_max(float x)
{
    warp_tree<1>(&x, [](float a, float b) { return fmaxf(a, b); });
    return x;
}

} // namespace DEVICE_SPACE
