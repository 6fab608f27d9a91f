// probe.cu - memory bandwidth of this GPU, of a copy (bytes read and written) and of reading alone, and the cost of an empty
// kernel in a graph. Shares in gpu.py's table refer to the copy.
//
// Each result is the best of several launch configurations, and of each configuration the median of many runs. Prints JSON lines.
// nvcc -O3 -arch=sm_90 gpu/probe.cu
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <vector>

enum { THREADS = 256, LOADS = 8, RUNS = 25, NODES = 1000 };

static void check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "probe: %s: %s (%s)\n", what, cudaGetErrorString(e), cudaGetErrorName(e));
    exit(e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver ? 77 : 1);
}

// n: a multiple of the words that all threads read in a round. The result is compared with a value that does not occur: so
// nothing is written, but the compiler cannot drop a load.
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

static __global__ void empty_kernel()
{
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

static void queue_empty(void)
{
    for (int i = 0; i < NODES; i++)
        empty_kernel<<<1, 32, 0, stream>>>();
}

static double seconds_in_a_graph(void)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "a graph");
    queue_empty();
    check(cudaStreamEndCapture(stream, &graph), "a graph");
    check(cudaGraphInstantiate(&exec, graph, 0), "a graph");
    return median_seconds([&] { check(cudaGraphLaunch(exec, stream), "a graph"); }) / NODES;
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
    for (int blocks = 1; blocks <= 32; blocks *= 2) { // of each multiprocessor
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
    printf("{\"engine\": \"probe\", \"what\": \"empty kernel\", \"seconds\": %.4g}\n",
           median_seconds(queue_empty) / NODES);
    printf("{\"engine\": \"probe\", \"what\": \"empty kernel of a graph\", \"seconds\": %.4g}\n", seconds_in_a_graph());
    return 0;
}
