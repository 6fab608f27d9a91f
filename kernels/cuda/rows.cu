// rows.cu - operations on rows of floats: add, RMSNorm, SwiGLU, and copies of rows. Each row is computed by one block
// (or elementwise), independently of the other rows of the pass.
#include "kernels/cuda/norm.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };

static float *floats(struct tensor t)
{
    return (float *)t.data;
}

// ---- out += x

static __global__ void add_kernel(float *out, const float *x, int64_t n, int64_t width, bool one)
{
    kernel_prologue();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
        out[i] += x[one ? i % width : i];
}

static int grid_for(const struct cuda *c, int64_t n) // blocks of grid-stride loops
{
    const int64_t max_blocks = 8 * (int64_t)c->processors, blocks = (n + THREADS - 1) / THREADS;
    return (int)(blocks < max_blocks ? blocks : max_blocks);
}

void cuda_add(struct backend *b, struct tensor out, struct tensor x)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.width == x.width && (x.rows == out.rows || x.rows == 1) && out.type == F32 && x.type == F32);
    without_rounded(c, out);
    const int64_t n = out.rows * out.width;
    QUEUE(c, add_kernel, grid_for(c, n), THREADS, 0, floats(out), floats(x), n, out.width, x.rows == 1);
    cuda_launched(c, "add");
}

// ---- out = x / rms(x) * w

// A block per row. out may be x.
template <int ROUNDS, bool WIDE>
static __global__ void __launch_bounds__(NORM_THREADS)
    rmsnorm_kernel(float *out, const float *x, const float *w, int width, float eps, const struct rounding to,
                   int padded)
{
    launch_dependents();
    struct four weights[ROUNDS];
    load_weights_of_norm<WIDE>(weights, w, width);
    wait_for_previous(); // w is not written by kernels
    x += (int64_t)blockIdx.x * width;
    out += (int64_t)blockIdx.x * width;
    norm_row<ROUNDS, WIDE>(
        w, weights, width, padded, eps, [=](int k) { return load_four<WIDE, false>(x, k, width); },
        [&](int k, const struct four &, const struct four &y) {
            store_four<WIDE>(out, k, width, y);
            round_four(to, blockIdx.x, k, k < padded, y.x);
        });
}

struct tensor cuda_rmsnorm(struct backend *b, struct tensor out, struct tensor x, struct tensor w, float eps)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.width == x.width && out.rows == x.rows && w.rows == 1 && w.width == x.width && w.type == F32);
    struct rounding to;
    out = without_rounded(c, out);
    const bool rounds = rounding_for(c, -1, x.rows, x.width, &to);
    const int width = (int)x.width, padded = (int)round_width(width), threads = norm_threads(width);
    const bool wide = norm_is_wide(width, (uintptr_t)out.data | (uintptr_t)x.data | (uintptr_t)w.data);
    const auto norm_kernel = !wide                            ? rmsnorm_kernel<2, false>
                             : padded <= 2 * 4 * NORM_THREADS ? rmsnorm_kernel<2, true>
                                                              : rmsnorm_kernel<4, true>;
    QUEUE(c, norm_kernel, (int)x.rows, threads, 0, floats(out), floats(x), floats(w), width, eps, to, padded);
    cuda_launched(c, "rmsnorm");
    return rounds ? with_rounded(c, out) : out;
}

// ---- out = f(gate) * up, x = scale * x

static __global__ void glu_kernel(float *out, const float *gate, const float *up, int64_t n, enum gate_function f)
{
    kernel_prologue();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS) {
        const float g = passed(gate[i], f);
        out[i] = up != nullptr ? g * up[i] : g;
    }
}

void cuda_glu(struct backend *b, struct tensor out, struct tensor gate, struct tensor up, enum gate_function f)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.width == gate.width && out.rows == gate.rows);
    assert(up.data == NULL || (up.width == gate.width && up.rows == gate.rows));
    without_rounded(c, out);
    const int64_t n = out.rows * out.width;
    QUEUE(c, glu_kernel, grid_for(c, n), THREADS, 0, floats(out), floats(gate), floats(up), n, f);
    cuda_launched(c, "glu");
}

static __global__ void rescale_kernel(float *x, int64_t n, float scale, float cap)
{
    kernel_prologue();
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (int64_t)gridDim.x * THREADS)
        x[i] = cap > 0 ? cap * tanhf(scale * x[i] / cap) : scale * x[i];
}

void cuda_rescale(struct backend *b, struct tensor x, float scale, float cap)
{
    struct cuda *c = (struct cuda *)b;
    const int64_t n = x.rows * x.width;
    without_rounded(c, x);
    QUEUE(c, rescale_kernel, grid_for(c, n), THREADS, 0, floats(x), n, scale, cap);
    cuda_launched(c, "rescale");
}

// ---- sums of weighted rows

enum { MIXED_ROWS = 256 }; // rows of x in a launch
static_assert((int)MIXED_ROWS >= (int)MAX_MIXED, "a row of the result in one launch");
struct mixture {
    float *out;
    const float *x;
    int64_t width;
    int k;
    int32_t row[MIXED_ROWS];
    float weight[MIXED_ROWS];
};
static_assert(sizeof(struct mixture) < 4096, "limit of kernel parameters");

static __global__ void mix_kernel(const __grid_constant__ struct mixture m)
{
    kernel_prologue();
    const int64_t d = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int first = (int)blockIdx.y * m.k;
    if (d >= m.width)
        return;
    float sum = m.weight[first] * m.x[m.row[first] * m.width + d];
    for (int j = 1; j < m.k; j++)
        sum = sum + m.weight[first + j] * m.x[m.row[first + j] * m.width + d];
    m.out[blockIdx.y * m.width + d] = sum;
}

void cuda_mix(struct backend *b, struct tensor out, struct tensor x, const int32_t *row, const float *weight, int k)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.width == x.width && k >= 1 && k <= MAX_MIXED && out.type == F32 && x.type == F32);
    without_rounded(c, out);
    const int64_t rows = MIXED_ROWS / k;
    for (int64_t first = 0; first < out.rows; first += rows) {
        const int64_t n = out.rows - first < rows ? out.rows - first : rows;
        struct mixture m = {};
        m.out = floats(out) + first * out.width;
        m.x = floats(x);
        m.width = out.width;
        m.k = k;
        for (int64_t i = 0; i < n * k; i++) {
            assert(row[first * k + i] >= 0 && row[first * k + i] < x.rows);
            m.row[i] = row[first * k + i];
            m.weight[i] = weight[first * k + i];
        }
        QUEUE(c, mix_kernel, dim3((unsigned)blocks_for(out.width, THREADS), (unsigned)n), THREADS, 0, m);
    }
    cuda_launched(c, "mix");
}

// ---- copies of rows

// Copies from[i][from_column + k] to to[i][to_column + k].
static __global__ void columns_kernel(float *to, int64_t to_width, int to_column, const float *from, int64_t from_width,
                                      int from_column, int64_t width)
{
    kernel_prologue();
    for (int64_t k = threadIdx.x; k < width; k += THREADS)
        to[blockIdx.x * to_width + to_column + k] = from[blockIdx.x * from_width + from_column + k];
}

void cuda_place(struct backend *b, struct tensor out, int column, struct tensor x)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.rows == x.rows && column + x.width <= out.width);
    without_rounded(c, out);
    QUEUE(c, columns_kernel, (int)x.rows, THREADS, 0, floats(out), out.width, column, floats(x), x.width, 0, x.width);
    cuda_launched(c, "place");
}

void cuda_cut(struct backend *b, struct tensor out, struct tensor x, int column)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.rows == x.rows && column + out.width <= x.width);
    without_rounded(c, out);
    QUEUE(c, columns_kernel, (int)out.rows, THREADS, 0, floats(out), out.width, 0, floats(x), x.width, column,
          out.width);
    cuda_launched(c, "cut");
}

} // namespace DEVICE_SPACE
