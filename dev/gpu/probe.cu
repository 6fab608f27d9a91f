// probe.cu - memory bandwidth of this GPU, of a copy (bytes read and written) and of reading alone, and what launches,
// chains of kernels and small copies cost: the constants of predictions. Shares in gpu.py's table refer to the copy.
//
// Each result is the best of several launch configurations, and of each configuration the median of many runs. Prints
// JSON lines. nvcc -O3 -arch=sm_90 dev/gpu/probe.cu
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <vector>

enum { THREADS = 256, LOADS = 8, RUNS = 25, NODES = 1000 };

static void check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "probe: %s: %s (%s)\n", what, cudaGetErrorString(e), cudaGetErrorName(e));
    exit(e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver ? 77 : 1);
}

// n: a multiple of the words that all threads read in a round. The result is compared with a value that does not occur:
// so nothing is written, but the compiler cannot drop a load.
static __global__ void __launch_bounds__(THREADS) read_kernel(const uint4 *from, size_t n, uint32_t *never)
{
    uint32_t all = 0;
    const size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += LOADS * stride) {
        uint4 v[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(v[j].x), "=r"(v[j].y), "=r"(v[j].z), "=r"(v[j].w)
                         : "l"(from + i + j * stride));
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            all |= v[j].x | v[j].y | v[j].z | v[j].w;
    }
    if (all == 0x5EEC1AB5)
        *never = all;
}

static __global__ void __launch_bounds__(THREADS) copy_kernel(uint4 *to, const uint4 *from, size_t n)
{
    const size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += LOADS * stride) {
        uint4 v[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            v[j] = __ldcs(from + i + j * stride);
#pragma unroll
        for (int j = 0; j < LOADS; j++)
            __stcs(to + i + j * stride, v[j]);
    }
}

// A kernel of a chain: reads `bytes` of its own, which no other kernel writes, and waits for the previous one where
// `early` is set: before that it may load, as the products of weights do. 0 bytes: an empty kernel. The dynamic shared
// memory is not used: its size decides the carve-out.
struct link {
    const uint4 *from;
    size_t n;
    int early; // 0: it reads after the wait; 1: before it
};

static __global__ void __launch_bounds__(THREADS) link_kernel(const struct link l, uint32_t *never)
{
    extern __shared__ uint4 unused[];
    asm volatile("griddepcontrol.launch_dependents;");
    if (!l.early)
        asm volatile("griddepcontrol.wait;" ::: "memory");
    uint32_t all = 0;
    const size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < l.n; i += stride) {
        uint4 v;
        asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(l.from + i));
        all |= v.x | v.y | v.z | v.w;
    }
    if (l.early)
        asm volatile("griddepcontrol.wait;" ::: "memory");
    if (all == 0x5EEC1AB5)
        *never = all + unused[0].x;
}

static cudaStream_t stream;
static cudaEvent_t from_event, to_event;

template <typename work> static double median_seconds(work run)
{
    std::vector<float> ms(RUNS);
    for (int i = -3; i < RUNS; i++) {
        check(cudaEventRecord(from_event, stream), "an event");
        run();
        check(cudaGetLastError(), "a launch");
        check(cudaEventRecord(to_event, stream), "an event");
        check(cudaEventSynchronize(to_event), "a run");
        if (i >= 0)
            check(cudaEventElapsedTime(&ms[i], from_event, to_event), "a time");
    }
    std::sort(ms.begin(), ms.end());
    return ms[RUNS / 2] * 1e-3;
}

// Host's time of a piece of work, without waiting for the device or with it.
template <typename work> static double host_seconds(work run)
{
    std::vector<double> s(RUNS * 8);
    for (double &one : s) {
        check(cudaStreamSynchronize(stream), "a wait");
        const auto from = std::chrono::steady_clock::now();
        run();
        one = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
    }
    std::sort(s.begin(), s.end());
    return s[s.size() / 2];
}

struct chain {
    size_t bytes;     // that a kernel reads
    int grid, shared; // blocks; bytes of dynamic shared memory, of every second kernel
    bool overlap;     // programmatic dependent launch
    int early;
};

static void queue_chain(const struct chain &c, int nodes, const uint4 *x, size_t bytes, uint32_t *never)
{
    for (int i = 0; i < nodes; i++) {
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t l = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        l.gridDim = dim3((unsigned)c.grid);
        l.blockDim = dim3(THREADS);
        l.dynamicSmemBytes = i % 2 != 0 ? (size_t)c.shared : 0;
        l.stream = stream;
        l.attrs = &attribute;
        l.numAttrs = c.overlap ? 1 : 0;
        const struct link k = { c.bytes != 0 ? x + (i * c.bytes) % (bytes - c.bytes) / sizeof(uint4) : x,
                                c.bytes / sizeof(uint4), c.early };
        check(cudaLaunchKernelEx(&l, link_kernel, k, never), "a launch");
    }
}

static double chain_in_a_graph(const struct chain &c, int nodes, const uint4 *x, size_t bytes, uint32_t *never)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "a graph");
    queue_chain(c, nodes, x, bytes, never);
    check(cudaStreamEndCapture(stream, &graph), "a graph");
    check(cudaGraphInstantiate(&exec, graph, 0), "a graph");
    const double seconds = median_seconds([&] { check(cudaGraphLaunch(exec, stream), "a graph"); }) / nodes;
    check(cudaGraphExecDestroy(exec), "a graph");
    check(cudaGraphDestroy(graph), "a graph");
    return seconds;
}

static void print(const char *what, double seconds)
{
    printf("{\"engine\": \"probe\", \"what\": \"%s\", \"seconds\": %.4g}\n", what, seconds);
    fflush(stdout);
}

int main(void)
{
    cudaDeviceProp device;
    size_t free_bytes, all;
    check(cudaGetDeviceProperties(&device, 0), "the GPU");
    check(cudaMemGetInfo(&free_bytes, &all), "memory");
    check(cudaStreamCreate(&stream), "a stream");
    check(cudaEventCreate(&from_event), "an event");
    check(cudaEventCreate(&to_event), "an event");
    const size_t bytes = std::min((size_t)4 << 30, free_bytes / 3) >> 24 << 24, n = bytes / sizeof(uint4);
    uint4 *x, *y;
    check(cudaMalloc(&x, bytes), "memory");
    check(cudaMalloc(&y, bytes), "memory");
    check(cudaMemset(x, 0x11, bytes), "memory");
    check(cudaMemset(y, 0x22, bytes), "memory");

    double read = 0, copy = 2 * (double)bytes / median_seconds([&] {
                                check(cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, stream), "a copy");
                            });
    for (int blocks = 1; blocks <= 32; blocks *= 2) { // blocks of each multiprocessor
        const int grid = blocks * device.multiProcessorCount;
        const size_t round = (size_t)grid * THREADS * LOADS, m = n / round * round; // the kernels need complete rounds
        const double b = (double)(m * sizeof(uint4));
        if (m == 0)
            break;
        read =
            std::max(read, b / median_seconds([&] { read_kernel<<<grid, THREADS, 0, stream>>>(x, m, (uint32_t *)y); }));
        copy = std::max(copy, 2 * b / median_seconds([&] { copy_kernel<<<grid, THREADS, 0, stream>>>(y, x, m); }));
    }
    printf(
        "{\"engine\": \"probe\", \"what\": \"bandwidth\", \"device\": \"%s\", \"processors\": %d, \"l2\": %d, \"copy\": %.6g, "
        "\"read\": %.6g, \"bytes\": %zu}\n",
        device.name, device.multiProcessorCount, device.l2CacheSize, copy, read, bytes);
    fflush(stdout);
    const int one = device.multiProcessorCount;
    uint32_t *never = (uint32_t *)y;
    check(cudaFuncSetAttribute(link_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 88 << 10), "shared memory");
    print("empty kernel", median_seconds([&] { queue_chain({ 0, 1, 0, false, 0 }, NODES, x, bytes, never); }) / NODES);
    print("empty kernel of a graph", chain_in_a_graph({ 0, 1, 0, false, 0 }, NODES, x, bytes, never));
    print("empty kernel of a graph, PDL", chain_in_a_graph({ 0, 1, 0, true, 0 }, NODES, x, bytes, never));
    print("empty kernel of a graph, 264 blocks", chain_in_a_graph({ 0, 2 * one, 0, false, 0 }, NODES, x, bytes, never));
    print("empty kernel of a graph, 264 blocks, PDL",
          chain_in_a_graph({ 0, 2 * one, 0, true, 0 }, NODES, x, bytes, never));
    for (int kb = 0; kb <= 88; kb += 88)
        for (int how = 0; how < 3; how++) {
            char what[96];
            const double s = chain_in_a_graph({ 8 << 20, 4 * one, kb << 10, how > 0, how > 1 }, 128, x, bytes, never);
            snprintf(what, sizeof(what), "reading 8 MiB, every second kernel with %d KB shared%s%s: beyond the bytes",
                     kb, how > 0 ? ", PDL" : "", how > 1 ? ", before the wait" : "");
            print(what, s - (8 << 20) / read);
        }
    print("L2 read of 16 MiB", median_seconds([&] {
              link_kernel<<<8 * one, THREADS, 0, stream>>>({ x, (16 << 20) / sizeof(uint4), 0 }, never);
          }));
    void *pinned;
    check(cudaMallocHost(&pinned, 1 << 20), "pinned memory");
    print("host: a launch", host_seconds([&] { queue_chain({ 0, 1, 0, true, 0 }, 16, x, bytes, never); }) / 16);
    print("host: a launch and a wait", host_seconds([&] {
              queue_chain({ 0, 1, 0, true, 0 }, 1, x, bytes, never);
              check(cudaStreamSynchronize(stream), "a wait");
          }));
    print("host: 4 KB to the device",
          host_seconds([&] { check(cudaMemcpyAsync(y, pinned, 4096, cudaMemcpyHostToDevice, stream), "a copy"); }));
    print("host: 4 KB to the host and a wait", host_seconds([&] {
              check(cudaMemcpyAsync(pinned, x, 4096, cudaMemcpyDeviceToHost, stream), "a copy");
              check(cudaStreamSynchronize(stream), "a wait");
          }));
    return 0;
}
