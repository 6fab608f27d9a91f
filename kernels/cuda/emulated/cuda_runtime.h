// cuda_runtime.h - a GPU that is not there: what `#include <cuda_runtime.h>` finds when g++ compiles the kernels.
//
// The idea: a thread of a block is a fiber on the host, and the blocks of a launch run one after another
// (emulated.cpp). A fiber goes on until it comes to a barrier or an exchange within its warp, and then another has its
// turn; who is next differs from block to block, so that a barrier that is missing shows as a wrong result. Device
// memory is malloc's, so that AddressSanitizer knows it. Mistakes that a GPU would pass over in silence end the program
// with a sentence.
//
// Everything is done when the call returns; streams and events are there, and have nothing to wait for. Names and
// signatures are CUDA's; only what is needed is here. All of it lies in a namespace that needs no name, so that one
// program can hold this and the real runtime.
#pragma once
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

#pragma GCC diagnostic ignored "-Wunknown-pragmas" // #pragma unroll

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static // one block at a time: all its threads see the one variable

// As in device.h.
#define LAUNCH(kernel, grid, block, shared, stream, ...) \
    emulated_launch(#kernel, kernel, (grid), (block), (shared), (stream)__VA_OPT__(, ) __VA_ARGS__)
#define DYNAMIC_SHARED(type, name) type *const name = reinterpret_cast<type *>(emulated_shared)

// For tests.
extern "C" {
// cudaMalloc gives no more than this in all; 4 GB unless said otherwise.
void emulated_memory_limit(size_t bytes);
// The runtime call so many from now returns cudaErrorInvalidValue; 1: the next one; 0: none. A launch is a call too,
// and does nothing when it fails. What frees or destroys does so all the same.
void emulated_fail_next(int calls_from_now);
// Kernels launched so far.
int64_t emulated_launches(void);
}

inline namespace emulated_gpu
{

// ---- vectors

#define EMULATED_VECTORS(type, name, align2, align4) \
    struct __align__(align2) name##2 \
    { \
        type x, y; \
    }; \
    struct name##3 \
    { \
        type x, y, z; \
    }; \
    struct __align__(align4) name##4 \
    { \
        type x, y, z, w; \
    }; \
    inline name##2 make_##name##2(type x, type y) \
    { \
        return { x, y }; \
    } \
    inline name##3 make_##name##3(type x, type y, type z) \
    { \
        return { x, y, z }; \
    } \
    inline name##4 make_##name##4(type x, type y, type z, type w) \
    { \
        return { x, y, z, w }; \
    }
EMULATED_VECTORS(signed char, char, 2, 4)
EMULATED_VECTORS(unsigned char, uchar, 2, 4)
EMULATED_VECTORS(short, short, 4, 8)
EMULATED_VECTORS(unsigned short, ushort, 4, 8)
EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(unsigned, uint, 8, 16)
EMULATED_VECTORS(long long, longlong, 16, 16)
EMULATED_VECTORS(unsigned long long, ulonglong, 16, 16)
EMULATED_VECTORS(float, float, 8, 16)
EMULATED_VECTORS(double, double, 16, 16)
#undef EMULATED_VECTORS

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
    dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
    operator uint3() const
    {
        return { x, y, z };
    }
};

// ---- the thread that runs now; for kernels

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };
extern int emulated_lane;        // its place in its warp
extern uint8_t *emulated_shared; // its block's dynamic shared memory

// ---- the runtime

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidPitchValue = 12,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999,
};
const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    size_t reservedSharedMemPerBlock;
    int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor;
    int maxBlocksPerMultiProcessor, maxThreadsDim[3], maxGridSize[3];
    int major, minor, multiProcessorCount, l2CacheSize, memoryBusWidth, integrated, ECCEnabled, unifiedAddressing;
    int cooperativeLaunch, concurrentKernels, asyncEngineCount, pciDomainID, pciBusID, pciDeviceID;
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMaxRegistersPerBlock = 12,
    cudaDevAttrClockRate = 13, // kHz
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMemoryClockRate = 36,      // kHz
    cudaDevAttrGlobalMemoryBusWidth = 37, // bits
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDeviceSynchronize(void);

typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
cudaError_t cudaStreamCreate(cudaStream_t *s);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s = NULL);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4,
};
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
// Device memory starts as 0xFF bytes. A copy or a fill that leaves the memory it names, or names the wrong side, is
// cudaErrorInvalidValue.
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMallocHost(void **p, size_t bytes, unsigned flags = 0);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s = NULL);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t s = NULL);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s = NULL);
template <typename T> cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return cudaMalloc((void **)(void *)p, bytes);
}
template <typename T> cudaError_t cudaMallocHost(T **p, size_t bytes, unsigned flags = 0)
{
    return cudaMallocHost((void **)(void *)p, bytes, flags);
}
template <typename T> cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned flags)
{
    return cudaHostAlloc((void **)(void *)p, bytes, flags);
}

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute a, int value);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads, size_t shared);
template <typename T> cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute a, int value)
{
    return cudaFuncSetAttribute((const void *)kernel, a, value);
}
template <typename T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, T *kernel, int threads, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, (const void *)kernel, threads, shared);
}

// body is called once for every thread, with p.
void emulated_run(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t s,
                  void (*body)(void *p), void *p);

template <typename... P>
void emulated_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t s,
                     std::type_identity_t<P>... p)
{
    auto thread = [&] { kernel(p...); };
    emulated_run(
        name, (const void *)kernel, grid, block, shared, s, [](void *t) { (*(decltype(thread) *)t)(); }, &thread);
}

// ---- barriers, and exchanges within a warp

enum emulated_wait {
    EMULATED_NONE,
    EMULATED_BARRIER,
    EMULATED_BARRIER_OR,
    EMULATED_BARRIER_AND,
    EMULATED_BARRIER_COUNT,
    EMULATED_SYNC, // from here on within a warp
    EMULATED_SHUFFLE,
    EMULATED_SHUFFLE_XOR,
    EMULATED_SHUFFLE_DOWN,
    EMULATED_SHUFFLE_UP,
    EMULATED_BALLOT,
    EMULATED_ANY,
    EMULATED_ALL,
    EMULATED_MMA,
};
// Waits for the block; the answer is that of __syncthreads_or, _and or _count.
int emulated_barrier(enum emulated_wait what, bool x);
// Waits for the lanes in mask. Shuffles: the x of lane source. Votes: of all of them.
uint64_t emulated_exchange(enum emulated_wait what, unsigned mask, uint64_t x, int source);
// The lane to read from, given what is passed to a shuffle.
int emulated_source(enum emulated_wait what, int argument, int width);
// As mma_bf16 in device.h.
void emulated_mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
// As copy_ahead, close_copies and wait_for_copies in device.h. In every second block copies come at once, in the others no
// sooner than they must: what is overwritten too early shows in the ones, what is not waited for in the others.
void emulated_copy_ahead(void *to, const void *from);
void emulated_close_copies(void);
void emulated_wait_for_copies(int but);

inline void __syncthreads(void)
{
    emulated_barrier(EMULATED_BARRIER, false);
}
inline int __syncthreads_or(int x)
{
    return emulated_barrier(EMULATED_BARRIER_OR, x != 0);
}
inline int __syncthreads_and(int x)
{
    return emulated_barrier(EMULATED_BARRIER_AND, x != 0);
}
inline int __syncthreads_count(int x)
{
    return emulated_barrier(EMULATED_BARRIER_COUNT, x != 0);
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFF)
{
    emulated_exchange(EMULATED_SYNC, mask, 0, 0);
}
inline unsigned __ballot_sync(unsigned mask, int x)
{
    return (unsigned)emulated_exchange(EMULATED_BALLOT, mask, x != 0, 0);
}
inline int __any_sync(unsigned mask, int x)
{
    return (int)emulated_exchange(EMULATED_ANY, mask, x != 0, 0);
}
inline int __all_sync(unsigned mask, int x)
{
    return (int)emulated_exchange(EMULATED_ALL, mask, x != 0, 0);
}

template <typename T> T emulated_shuffle(enum emulated_wait what, unsigned mask, T x, int argument, int width)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof(x));
    bits = emulated_exchange(what, mask, bits, emulated_source(what, argument, width));
    memcpy(&x, &bits, sizeof(x));
    return x;
}
#define EMULATED_SHUFFLES(type) \
    inline type __shfl_sync(unsigned mask, type x, int source, int width = 32) \
    { \
        return emulated_shuffle(EMULATED_SHUFFLE, mask, x, source, width); \
    } \
    inline type __shfl_xor_sync(unsigned mask, type x, int bits, int width = 32) \
    { \
        return emulated_shuffle(EMULATED_SHUFFLE_XOR, mask, x, bits, width); \
    } \
    inline type __shfl_down_sync(unsigned mask, type x, unsigned step, int width = 32) \
    { \
        return emulated_shuffle(EMULATED_SHUFFLE_DOWN, mask, x, (int)step, width); \
    } \
    inline type __shfl_up_sync(unsigned mask, type x, unsigned step, int width = 32) \
    { \
        return emulated_shuffle(EMULATED_SHUFFLE_UP, mask, x, (int)step, width); \
    }
EMULATED_SHUFFLES(int)
EMULATED_SHUFFLES(unsigned)
EMULATED_SHUFFLES(long)
EMULATED_SHUFFLES(unsigned long)
EMULATED_SHUFFLES(long long)
EMULATED_SHUFFLES(unsigned long long)
EMULATED_SHUFFLES(float)
EMULATED_SHUFFLES(double)
#undef EMULATED_SHUFFLES

// ---- atomics: nobody else runs meanwhile

#define EMULATED_ATOMIC(name, type, expression) \
    inline type name(type *at, type x) \
    { \
        const type old = *at; \
        *at = (expression); \
        return old; \
    }
EMULATED_ATOMIC(atomicAdd, int, (int)((unsigned)old + (unsigned)x))
EMULATED_ATOMIC(atomicAdd, unsigned, old + x)
EMULATED_ATOMIC(atomicAdd, unsigned long long, old + x)
EMULATED_ATOMIC(atomicAdd, float, old + x)
EMULATED_ATOMIC(atomicAdd, double, old + x)
EMULATED_ATOMIC(atomicSub, int, (int)((unsigned)old - (unsigned)x))
EMULATED_ATOMIC(atomicSub, unsigned, old - x)
EMULATED_ATOMIC(atomicMax, int, old > x ? old : x)
EMULATED_ATOMIC(atomicMax, unsigned, old > x ? old : x)
EMULATED_ATOMIC(atomicMax, long long, old > x ? old : x)
EMULATED_ATOMIC(atomicMax, unsigned long long, old > x ? old : x)
EMULATED_ATOMIC(atomicMin, int, old < x ? old : x)
EMULATED_ATOMIC(atomicMin, unsigned, old < x ? old : x)
EMULATED_ATOMIC(atomicMin, long long, old < x ? old : x)
EMULATED_ATOMIC(atomicMin, unsigned long long, old < x ? old : x)
EMULATED_ATOMIC(atomicAnd, int, (old & x))
EMULATED_ATOMIC(atomicAnd, unsigned, (old & x))
EMULATED_ATOMIC(atomicOr, int, old | x)
EMULATED_ATOMIC(atomicOr, unsigned, old | x)
EMULATED_ATOMIC(atomicInc, unsigned, old >= x ? 0 : old + 1)
EMULATED_ATOMIC(atomicExch, int, x)
EMULATED_ATOMIC(atomicExch, unsigned, x)
EMULATED_ATOMIC(atomicExch, unsigned long long, x)
EMULATED_ATOMIC(atomicExch, float, x)
#undef EMULATED_ATOMIC
#define EMULATED_CAS(type) \
    inline type atomicCAS(type *at, type expected, type x) \
    { \
        const type old = *at; \
        if (old == expected) \
            *at = x; \
        return old; \
    }
EMULATED_CAS(int)
EMULATED_CAS(unsigned)
EMULATED_CAS(unsigned short)
EMULATED_CAS(unsigned long long)
#undef EMULATED_CAS

inline void __threadfence(void)
{
}
inline void __threadfence_block(void)
{
}
inline void __threadfence_system(void)
{
}
inline void __nanosleep(unsigned)
{
}

// ---- numbers

// The pairs that nvcc has, and no others: what is ambiguous there is ambiguous here.
#define EMULATED_MIN_MAX(result, a, b) \
    inline result min(a x, b y) \
    { \
        return (result)x < (result)y ? (result)x : (result)y; \
    } \
    inline result max(a x, b y) \
    { \
        return (result)x > (result)y ? (result)x : (result)y; \
    }
#define EMULATED_INTEGERS(type) \
    EMULATED_MIN_MAX(type, type, type) \
    EMULATED_MIN_MAX(unsigned type, unsigned type, unsigned type) \
    EMULATED_MIN_MAX(unsigned type, type, unsigned type) \
    EMULATED_MIN_MAX(unsigned type, unsigned type, type)
EMULATED_INTEGERS(int)
EMULATED_INTEGERS(long)
EMULATED_INTEGERS(long long)
#undef EMULATED_INTEGERS
#undef EMULATED_MIN_MAX
#define EMULATED_MIN_MAX(result, a, b) \
    inline result min(a x, b y) \
    { \
        return fmin((result)x, (result)y); \
    } \
    inline result max(a x, b y) \
    { \
        return fmax((result)x, (result)y); \
    }
EMULATED_MIN_MAX(float, float, float)
EMULATED_MIN_MAX(double, double, double)
EMULATED_MIN_MAX(double, float, double)
EMULATED_MIN_MAX(double, double, float)
#undef EMULATED_MIN_MAX

#define EMULATED_BITS(name, from, to) \
    inline to name(from x) \
    { \
        to y; \
        static_assert(sizeof(x) == sizeof(y), "the same bits"); \
        memcpy(&y, &x, sizeof(y)); \
        return y; \
    }
EMULATED_BITS(__float_as_uint, float, unsigned)
EMULATED_BITS(__float_as_int, float, int)
EMULATED_BITS(__uint_as_float, unsigned, float)
EMULATED_BITS(__int_as_float, int, float)
EMULATED_BITS(__double_as_longlong, double, long long)
EMULATED_BITS(__longlong_as_double, long long, double)
#undef EMULATED_BITS

inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline unsigned __brev(unsigned x)
{
    unsigned y = 0;
    for (int i = 0; i < 32; i++)
        y |= (x >> i & 1) << (31 - i);
    return y;
}

template <typename T> T __ldg(const T *at)
{
    return *at;
}

inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
// Through volatile: so that the compiler cannot fuse what is rounded by itself.
inline float __fadd_rn(float x, float y)
{
    volatile float z = x + y;
    return z;
}
inline float __fsub_rn(float x, float y)
{
    volatile float z = x - y;
    return z;
}
inline float __fmul_rn(float x, float y)
{
    volatile float z = x * y;
    return z;
}
inline float __fdiv_rn(float x, float y)
{
    return x / y;
}
inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
inline float __fdividef(float x, float y)
{
    return x / y;
}
inline int __float2int_rn(float x)
{
    return (int)rintf(x);
}
inline int __float2int_rz(float x)
{
    return (int)x;
}
// Macros, since the C library declares some of these names too.
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)
#define rsqrtf(x) (1.0f / sqrtf(x))

// A half's bits.
float emulated_half_to_float(uint16_t h);
uint16_t emulated_float_to_half(float x); // to the nearest, ties to even

} // namespace emulated_gpu
