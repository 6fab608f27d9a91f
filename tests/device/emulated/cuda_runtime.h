// cuda_runtime.h - an emulated GPU: replaces <cuda_runtime.h> when g++ compiles the kernels.
//
// A thread of a block is a fiber on the host, and the blocks of a launch run one after another (threads.cpp), except for those of a
// cluster, which run together. A fiber runs until it reaches a barrier or a warp exchange; then another one runs. The order of
// fibers differs from block to block, so that a missing barrier shows as a wrong result. The host cannot touch device memory, and
// AddressSanitizer checks it (addresses.cpp). Errors that a GPU would ignore end the program with a message.
//
// Every call is complete when it returns, except what a stream captures; streams and events exist but never wait. Names and
// signatures are CUDA's; only what is used is declared here, and more can be added. Everything is in an inline namespace, so that
// one program can contain this and the real runtime.
#pragma once
#include <bit>
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
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static // blocks run one at a time, so all threads of the block share one variable; not in a cluster

// As in device.h.
#define LAUNCH(kernel, grid, block, shared, stream, ...) \
    emulated_launch(#kernel, kernel, 1, (grid), (block), (shared), (stream)__VA_OPT__(, ) __VA_ARGS__)
// In clusters of so many blocks that follow each other in x.
#define LAUNCH_CLUSTERS(kernel, cluster, grid, block, shared, stream, ...) \
    emulated_launch(#kernel, kernel, (cluster), (grid), (block), (shared), (stream)__VA_OPT__(, ) __VA_ARGS__)
#define DYNAMIC_SHARED(type, name) type *const name = reinterpret_cast<type *>(emulated_shared)

// What tests set and ask. Failing calls: a launch is a call too, and does nothing when it fails; calls that free or destroy do so even when they
// fail. A failing launch: the next wait for a stream returns the error, as if the kernel used a wrong address.
extern "C" {
#include "tests/device/emulated.h"
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
EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(unsigned, uint, 8, 16)
EMULATED_VECTORS(float, float, 8, 16)
#undef EMULATED_VECTORS

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

// ---- the current thread; for kernels

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
enum { warpSize = 32 };
extern int emulated_lane;        // lane in its warp
extern uint8_t *emulated_shared; // dynamic shared memory of its block

// ---- the runtime

#define EMULATED_ERRORS(ERROR) \
    ERROR(cudaSuccess, 0, "no error") \
    ERROR(cudaErrorInvalidValue, 1, "invalid argument") \
    ERROR(cudaErrorMemoryAllocation, 2, "out of memory") \
    ERROR(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy") \
    ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal") \
    ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle") \
    ERROR(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state") \
    ERROR(cudaErrorNotReady, 600, "device not ready") \
    ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
    ERROR(cudaErrorStreamCaptureUnsupported, 900, "operation not permitted when stream is capturing") \
    ERROR(cudaErrorStreamCaptureInvalidated, 901, "operation failed due to a previous error during capture") \
    ERROR(cudaErrorStreamCaptureWrongThread, 908, "attempt to end a thread-local capture from another thread")
#define EMULATED_ERROR(name, value, text) name = value,
enum cudaError_t { EMULATED_ERRORS(EMULATED_ERROR) };
#undef EMULATED_ERROR
const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError(void);

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    size_t reservedSharedMemPerBlock;
    int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsPerMultiProcessor;
    int maxBlocksPerMultiProcessor, major, minor, multiProcessorCount, l2CacheSize;
};
// There are two devices. A stream or event belongs to the device that was set when it was created; queueing on it while another
// device is set returns cudaErrorInvalidResourceHandle.
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device);

typedef struct emulated_stream *cudaStream_t;
typedef struct emulated_event *cudaEvent_t;
enum { cudaStreamNonBlocking = 1 };
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaDeviceSynchronize(void); // the work of others, of which there is none
cudaError_t cudaEventCreate(cudaEvent_t *e);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s = NULL);
// Returns cudaErrorNotReady if the host has not waited for the stream since one of them was recorded, as a device might.
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

// Between BeginCapture and EndCapture, launches on the stream are recorded with their arguments and not run. Allocating and
// freeing device memory, waiting, and copies from or to the host return cudaErrorStreamCaptureUnsupported in the capturing thread
// and invalidate the capture. A thread captures one stream at a time.
typedef struct emulated_graph *cudaGraph_t;
typedef struct emulated_graph_exec *cudaGraphExec_t;
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeThreadLocal = 1,
};
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g);
cudaError_t cudaGraphDestroy(cudaGraph_t g);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long flags);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e);
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s);

enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
};
// Device memory is initialised to 0xFF bytes. A copy or fill beyond an allocation, or with the wrong direction, returns
// cudaErrorInvalidValue.
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
// Pinned host memory.
cudaError_t cudaMallocHost(void **p, size_t bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemGetInfo(size_t *free, size_t *total);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s = NULL);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s = NULL);
template <typename T> cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return cudaMalloc((void **)(void *)p, bytes);
}

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
};
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute a, int value);
template <typename T> cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute a, int value)
{
    return cudaFuncSetAttribute((const void *)kernel, a, value);
}
// A launch. body(p) is called once per thread; p: the arguments, `bytes` bytes.
struct emulated_work {
    const char *name;
    const void *kernel;
    int cluster; // blocks
    dim3 grid, block;
    size_t shared;
    void (*body)(void *p);
    void *p;
    size_t bytes;
};
void emulated_run(const struct emulated_work &w, cudaStream_t s);

template <typename... P>
void emulated_launch(const char *name, void (*kernel)(P...), int cluster, dim3 grid, dim3 block, size_t shared,
                     cudaStream_t s, std::type_identity_t<P>... p)
{
    auto thread = [=] { kernel(p...); };
    using T = decltype(thread);
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 16, "arguments are copied as bytes");
    const struct emulated_work w = { name,   (const void *)kernel,         cluster, grid,          block,
                                     shared, [](void *t) { (*(T *)t)(); }, &thread, sizeof(thread) };
    emulated_run(w, s);
}

// ---- barriers, and exchanges within a warp

enum emulated_wait {
    EMULATED_NONE,
    EMULATED_BARRIER,
    EMULATED_CLUSTER_BARRIER,
    EMULATED_ARRIVAL,
    EMULATED_SYNC, // this and the following: within a warp
    EMULATED_SHUFFLE,
    EMULATED_SHUFFLE_XOR,
    EMULATED_BALLOT,
    EMULATED_ANY,
    EMULATED_MMA,
    EMULATED_TREE,
    EMULATED_MATRICES,
};
// Waits for the block.
void emulated_barrier(void);
// Waits for the cluster.
void cluster_barrier(void);
int block_in_cluster(void), blocks_in_cluster(void);
// The address in another block's dynamic shared memory that corresponds to one in the caller's.
void *emulated_in_block(void *shared, int block);
// Waits for the lanes in mask. Returns: shuffles: x of lane `source`; votes: the vote of all lanes.
uint64_t emulated_exchange(enum emulated_wait what, unsigned mask, uint64_t x, int source);
// The lane that a shuffle with this argument reads from.
int emulated_source(enum emulated_wait what, int argument, int width);
// As mma_bf16 in device.h.
void mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
// Waits for the warp. The last lane calls combine() with the addresses of the 32 lanes' numbers, which it changes.
void emulated_tree(void *number, void (*combine)(void *const numbers[32]));
// As load_matrices in device.h.
void emulated_load_matrices(uint32_t to[4], const uint16_t *row, bool transposed);
// As copy_async, commit_copies and wait_for_copies in device.h. In every second block copies complete at once, which shows
// data that is overwritten too early; in the others as late as possible, which shows missing waits.
void copy_async(void *to, const void *from);
void commit_copies(void);
void emulated_wait_for_copies(int n_pending);
// As struct arrival, its functions and copy_bulk in device.h, with copies that complete as those above do.
struct arrival {
    int count, missing, bytes, phase; // arrivals of a phase; those that are missing, and bytes; the current phase
};
void arrival_init(struct arrival *a, int count);
void arrival_expect(struct arrival *a, int bytes);
void arrival_wait(struct arrival *a, int phase);
void copy_bulk(void *to, const void *from, int bytes, struct arrival *a, bool);

inline void __syncthreads(void)
{
    emulated_barrier();
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
template <typename T> T emulated_shuffle(enum emulated_wait what, unsigned mask, T x, int argument, int width)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof(x));
    bits = emulated_exchange(what, mask, bits, emulated_source(what, argument, width));
    memcpy(&x, &bits, sizeof(x));
    return x;
}
template <typename T> T __shfl_sync(unsigned mask, T x, int source, int width = 32)
{
    return emulated_shuffle(EMULATED_SHUFFLE, mask, x, source, width);
}
template <typename T> T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32)
{
    return emulated_shuffle(EMULATED_SHUFFLE_XOR, mask, x, bits, width);
}

// ---- numbers

// Exactly the overloads of nvcc, so that calls that are ambiguous there are ambiguous here.
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
EMULATED_INTEGERS(long long)
#undef EMULATED_INTEGERS
#undef EMULATED_MIN_MAX
inline float min(float x, float y)
{
    return fminf(x, y);
}
inline float max(float x, float y)
{
    return fmaxf(x, y);
}
inline unsigned __float_as_uint(float x)
{
    return std::bit_cast<unsigned>(x);
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned from)
{
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned to = 0;
    for (int i = 0; i < 4; i++)
        to |= (unsigned)(both >> 8 * (from >> 4 * i & 7) & 0xFF) << 8 * i;
    return to;
}

inline float __uint_as_float(unsigned x)
{
    return std::bit_cast<float>(x);
}

// Threads run one at a time, so this is atomic.
template <typename T> T atomicAdd(T *to, std::type_identity_t<T> x)
{
    const T old = *to;
    *to = old + x;
    return old;
}
inline unsigned atomicInc(unsigned *to, unsigned last)
{
    const unsigned old = *to;
    *to = old >= last ? 0 : old + 1;
    return old;
}
inline void __threadfence(void)
{
}
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
// A half's bits.
float half_to_float(uint16_t h);
uint16_t float_to_half(float x); // round to nearest even

} // namespace emulated_gpu
