// matmul_plain.cu - products with unpacked weights, in the checkpoint's layout: of f32 weights, which have no smaller
// exact form, and of every type with f32 activations, as a reference for the packed products.
//
// One warp per row of weights: its lanes are over k, followed by a tree over the lanes. The columns (rows of x) that a
// warp computes together share the weights only.
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
    enum type type;
};

// KNOWN: the type is f32. Others are read one number at a time, whatever they are.
template <bool KNOWN, int C>
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
    UNROLL_BY(C == 1 && KNOWN ? 8 : 2)
    for (int64_t k = lane; k < p.k; k += WARP) {
        const float w = KNOWN ? ((const float *)row)[k] : value_at(p.type, row, k);
        UNROLL
        for (int i = 0; i < C; i++)
            sum[i] = fmaf(w, x[i][k], sum[i]);
    }
    warp_sum_each<C>(sum);
    UNROLL
    for (int i = 0; i < C; i++)
        if (lane == 0 && first + i < p.n)
            write_output(p.out + (first + i) * p.m + r, sum[i], p.bias != NULL ? p.bias + r : NULL, p.add);
}

void matmul_plain_run(struct cuda *c, float *out, const float *x, int n, const uint8_t *rows, enum type type, int64_t m,
                      int64_t k, const float *bias, bool add)
{
    const struct plain_matmul p = { out, x, rows, bias, m, k, (int64_t)type_row_bytes(type, k), n, add, type };
    const auto product_kernel = type == F32 ? (n == 1 ? plain_kernel<true, 1> : plain_kernel<true, COLUMNS>)
                                : n == 1    ? plain_kernel<false, 1>
                                            : plain_kernel<false, COLUMNS>;
    const dim3 grid((unsigned)blocks_for(n, n == 1 ? 1 : (int)COLUMNS), (unsigned)blocks_for(m, ROWS));
    QUEUE(c, product_kernel, grid, THREADS, 0, p);
    cuda_launched(c, "matmul");
}

} // namespace DEVICE_SPACE
