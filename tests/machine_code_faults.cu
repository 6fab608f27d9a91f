// machine_code_faults.cu - kernels that tests/machine_code.py compiles and checks before others: most have one seeded fault, which it must
// find.
#include "kernels/cuda/device.h"
using namespace DEVICE_SPACE;

__global__ void small_correct(float *out, const uint4 *w, const uint32_t *x, int k)
{
    float d[4] = {};
    uint4 next = load_weights(w + threadIdx.x);
    wait_for_previous();
    for (int i = threadIdx.x; i < k; i += 32) {
        const uint4 v = next;
        next = load_weights(w + i + 32);
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void small_waiting_first(float *out, const uint4 *w, const uint32_t *x, int k)
{
    float d[4] = {};
    wait_for_previous();
    for (int i = threadIdx.x; i < k; i += 32) {
        const uint4 v = load_weights(w + i);
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void small_by_words(float *out, const uint32_t *w, const uint32_t *x, int k)
{
    float d[4] = {};
    kernel_prologue();
    for (int i = threadIdx.x; i < k; i += 32) {
        const uint32_t a[4] = { w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3] };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void small_half_by_words(float *out, const uint4 *w, const uint32_t *x, int k)
{
    const uint4 first = load_weights(w);
    float d[4] = { __uint_as_float(first.x ^ first.y ^ first.z ^ first.w) };
    kernel_prologue();
    for (int i = threadIdx.x; i < k; i += 32) {
        const uint4 v = load_weights(w + 2 * i);
        uint32_t low, high;
        asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(low), "=r"(high) : "l"(w + 2 * i + 1));
        const uint32_t a[4] = { v.x ^ v.z, v.y ^ v.w, low, high };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void small_without_tensor_cores(float *out, const uint4 *w, const float *x, int k)
{
    const uint4 first = load_weights(w);
    float d = __uint_as_float(first.x ^ first.y ^ first.z ^ first.w);
    kernel_prologue();
    for (int i = threadIdx.x; i < k; i += 32) {
        const uint4 v = load_weights(w + i);
        d += (float)v.x * x[i] + (float)v.y + (float)v.z + (float)v.w;
    }
    out[threadIdx.x] = d;
}

__global__ void large_correct(float *out, const uint4 *w, const uint32_t *x, int k)
{
    __shared__ uint4 ring[2][32];
    float d[4] = {};
    copy_async(&ring[1][threadIdx.x], w + threadIdx.x);
    commit_copies();
    kernel_prologue();
    for (int i = 0; i < k; i++) {
        copy_async(&ring[i % 2][threadIdx.x], w + 32 * i + threadIdx.x);
        commit_copies();
        wait_for_copies<1>();
        const uint4 v = ring[(i + 1) % 2][threadIdx.x];
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void large_waiting_first(float *out, const uint4 *w, const uint32_t *x, int k)
{
    __shared__ uint4 ring[2][32];
    float d[4] = {};
    kernel_prologue();
    for (int i = 0; i < k; i++) {
        copy_async(&ring[i % 2][threadIdx.x], w + 32 * i + threadIdx.x);
        commit_copies();
        wait_for_copies<1>();
        const uint4 v = ring[(i + 1) % 2][threadIdx.x];
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void large_half_by_words(float *out, const uint4 *w, const uint32_t *x, int k)
{
    __shared__ uint4 ring[2][32];
    float d[4] = {};
    copy_async(&ring[0][threadIdx.x], w + threadIdx.x);
    kernel_prologue();
    for (int i = 0; i < k; i++) {
        copy_async(&ring[0][threadIdx.x], w + 32 * i + threadIdx.x);
        asm volatile(
            "cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((uint32_t)__cvta_generic_to_shared(&ring[1][threadIdx.x])),
            "l"(w + i)
            : "memory");
        commit_copies();
        wait_for_copies<0>();
        const uint4 v = ring[0][threadIdx.x], u = ring[1][threadIdx.x];
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], u.x);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void large_by_registers(float *out, const uint4 *w, const uint32_t *x, int k)
{
    __shared__ uint4 ring[2][32];
    float d[4] = {};
    kernel_prologue();
    for (int i = 0; i < k; i++) {
        ring[i % 2][threadIdx.x] = load_weights(w + 32 * i + threadIdx.x);
        __syncthreads();
        const uint4 v = ring[i % 2][threadIdx.x ^ 1];
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void __launch_bounds__(1024, 2) spilling(float *out, const float *x, int k)
{
    float d[96];
    kernel_prologue();
#pragma unroll
    for (int j = 0; j < 96; j++)
        d[j] = x[j * 32 + threadIdx.x];
    for (int i = 0; i < k; i++)
#pragma unroll
        for (int j = 0; j < 96; j++)
            d[j] = d[j] * d[(j + 7) % 96] + x[i];
#pragma unroll
    for (int j = 0; j < 96; j++)
        out[j * 32 + threadIdx.x] = d[j];
}

__global__ void stacked(float *out, const int *at, int k)
{
    float d[16] = {};
    kernel_prologue();
    for (int i = 0; i < k; i++)
        d[at[i] & 15] += 1;
    out[threadIdx.x] = d[at[threadIdx.x] & 15];
}

__global__ void reads_before_waiting(float *out, const float *x)
{
    const float early = x[threadIdx.x];
    kernel_prologue();
    out[threadIdx.x] = early;
}

__global__ void never_waiting(float *out, const float *x)
{
    out[threadIdx.x] = x[threadIdx.x];
}

__global__ void select_kernel(double *out, const double *x, const int *at) // adds doubles in shared memory
{
    __shared__ double sum[64];
    kernel_prologue();
    sum[threadIdx.x & 63] = 0;
    __syncthreads();
    atomicAdd(&sum[at[threadIdx.x] & 63], x[threadIdx.x]);
    __syncthreads();
    out[threadIdx.x] = sum[threadIdx.x & 63];
}

__global__ void traversal_kernel(float *out, const float *x) // long
{
    kernel_prologue();
    float y = x[threadIdx.x];
#pragma unroll
    for (int i = 0; i < 4000; i++)
        y = y * x[i] + i;
    out[threadIdx.x] = y;
}

// By bulk copies: on compute capability 9.0 only.
__global__ void ring_kernel_correct(float *out, const uint4 *w, const uint32_t *x, int k)
{
    __shared__ uint4 ring[2][32];
    __shared__ struct arrival a[2];
    float d[4] = {};
    if (threadIdx.x == 0) {
        arrival_init(&a[0], 1), arrival_init(&a[1], 1);
        arrivals_ready();
        arrival_expect(&a[0], sizeof(ring[0]));
        copy_bulk(ring[0], w, sizeof(ring[0]), &a[0], true);
    }
    kernel_prologue();
    for (int i = 0; i < k; i++) {
        arrival_wait(&a[i % 2], i / 2 % 2);
        const uint4 v = ring[i % 2][threadIdx.x];
        const uint32_t part[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, part, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void ring_kernel_waiting_first(float *out, const uint4 *w, const uint32_t *x, int k)
{
    __shared__ uint4 ring[32];
    __shared__ struct arrival a;
    float d[4] = {};
    kernel_prologue();
    for (int i = 0; i < k; i++) {
        if (threadIdx.x == 0) {
            arrival_expect(&a, sizeof(ring));
            copy_bulk(ring, w + 32 * i, sizeof(ring), &a, true);
        }
        arrival_wait(&a, i % 2);
        const uint4 v = ring[threadIdx.x];
        const uint32_t part[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, part, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void ring_kernel_by_registers(float *out, const uint4 *w, const uint32_t *x, int k)
{
    float d[4] = {};
    uint4 next = load_weights(w + threadIdx.x);
    wait_for_previous();
    for (int i = threadIdx.x; i < k; i += 32) {
        const uint4 v = next;
        next = load_weights(w + i + 32);
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
