// matmul_plain.cu - products with unpacked weights, in the checkpoint's layout, for every type: the reference for the packed
// products, and the kernel for f32 weights, which have no smaller exact form.
//
// One warp per row of weights: its lanes are over k, followed by a tree over the lanes. The columns (rows of x) that a warp
// computes together share the weights only.
#include "kernels/cuda/packed.h"
#include "kernels/cuda/unpack.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256, ROWS = THREADS / 32, COLUMNS = 8 };

struct plain_matmul {
    float *out;          // (n, m)
    const float *x;      // (n, k)
    const uint8_t *rows; // (m, row bytes)
    const float *bias;   // (m) or NULL
    int64_t m, k, row_bytes;
    int n;
    bool add;
};

template <enum type T, int C>
static __global__ void __launch_bounds__(THREADS) plain_kernel(const __grid_constant__ struct plain_matmul p)
{
    kernel_prologue();
    const int lane = threadIdx.x % WARP, first = blockIdx.x * C;
    const int64_t r = (int64_t)blockIdx.y * ROWS + threadIdx.x / WARP;
    if (r >= p.m)
        return;
    const uint8_t *row = p.rows + r * p.row_bytes;
    const float *x[C];
    UNROLL
    for (int i = 0; i < C; i++) // missing columns repeat the last one
        x[i] = p.x + (first + i < p.n ? first + i : p.n - 1) * p.k;
    float sum[C] = {};
    UNROLL_BY(C == 1 ? 8 : 2)
    for (int64_t k = lane; k < p.k; k += WARP) {
        const float w = value_at(T, row, k);
        UNROLL
        for (int i = 0; i < C; i++)
            sum[i] = fmaf(w, x[i][k], sum[i]);
    }
    UNROLL
    for (int i = 0; i < C; i++) {
        const float all = warp_sum(sum[i]);
        if (lane == 0 && first + i < p.n)
            write_output(p.out + (first + i) * p.m + r, all, p.bias != NULL ? p.bias + r : NULL, p.add);
    }
}

template <enum type T> static void run(struct cuda *c, const struct plain_matmul &p)
{
    const dim3 one(1, (unsigned)blocks_for(p.m, ROWS)), many((unsigned)blocks_for(p.n, COLUMNS), one.y);
    if (p.n == 1) {
        QUEUE(c, (plain_kernel<T, 1>), one, THREADS, 0, p);
    } else {
        QUEUE(c, (plain_kernel<T, COLUMNS>), many, THREADS, 0, p);
    }
    cuda_launched(c, "matmul");
}

void matmul_plain_run(struct cuda *c, float *out, const float *x, int n, const uint8_t *rows, enum type type, int64_t m,
                      int64_t k, const float *bias, bool add)
{
    const struct plain_matmul p = { out, x, rows, bias, m, k, (int64_t)type_row_bytes(type, k), n, add };
    switch (type) {
#define RUN(T) \
    case T: \
        run<T>(c, p); \
        break;
        RUN(F32)
        RUN(F16)
        RUN(BF16)
        RUN(Q8_0)
        RUN(Q4_0)
        RUN(Q4_1)
        RUN(Q5_0)
        RUN(Q5_1)
        RUN(Q4_K)
        RUN(Q5_K)
        RUN(Q6_K)
        RUN(IQ4_NL)
        RUN(IQ4_XS)
        RUN(MXFP4)
        RUN(F8_E4M3)
#undef RUN
    case TYPES:
        break;
    }
}

} // namespace DEVICE_SPACE
