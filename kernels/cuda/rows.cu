// rows.cu - operations on rows of floats: add, RMSNorm, SwiGLU, and copies of rows. Each row is computed by one block (or
// elementwise), independently of the other rows of the pass.
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256, LINE = 128 / sizeof(float) };

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

static int grid_for(const struct cuda *c, int64_t n) // of grid-stride loops
{
    const int64_t max_blocks = 8 * (int64_t)c->processors, blocks = (n + THREADS - 1) / THREADS;
    return (int)(blocks < max_blocks ? blocks : max_blocks);
}

void cuda_add(struct backend *b, struct tensor out, struct tensor x)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.width == x.width && (x.rows == out.rows || x.rows == 1) && out.type == F32 && x.type == F32);
    without_planes(c, out);
    const int64_t n = out.rows * out.width;
    QUEUE(c, add_kernel, grid_for(c, n), THREADS, 0, floats(out), floats(x), n, out.width, x.rows == 1);
    cuda_launched(c, "add");
}

// ---- out = x / rms(x) * w

// The sum of squares: per thread (k = thread, thread + 256, ..), then a tree over lanes and a sum over warps. Numbers beyond the
// width are only written to the planes.
static __global__ void rmsnorm_kernel(float *out, const float *x, const float *w, int64_t width, float eps,
                                      const struct rounding planes, int64_t padded)
{
    launch_dependents();
    for (int64_t k = (int64_t)threadIdx.x * LINE; k < width; k += THREADS * LINE)
        prefetch_line(w + k);
    wait_for_previous(); // w is not written by kernels
    __shared__ float of_warp[THREADS / WARP];
    const float *row = x + blockIdx.x * width;
    float squares = 0, total = 0;
    for (int64_t k = threadIdx.x; k < width; k += THREADS)
        squares = fmaf(row[k], row[k], squares);
    squares = warp_sum(squares);
    if (threadIdx.x % WARP == 0)
        of_warp[threadIdx.x / WARP] = squares;
    __syncthreads();
    for (int i = 0; i < THREADS / WARP; i++)
        total += of_warp[i];
    const float scale = 1.0f / sqrtf(total / (float)width + eps);
    for (int64_t first = 0; first < padded; first += THREADS) {
        const int64_t k = first + threadIdx.x;
        float y = 0;
        if (k < width)
            out[blockIdx.x * width + k] = y = row[k] * scale * w[k];
        if (k / WARP * WARP < padded)
            round_number(planes, blockIdx.x, k, y);
    }
}

struct tensor cuda_rmsnorm(struct backend *b, struct tensor out, struct tensor x, struct tensor w, float eps)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.width == x.width && out.rows == x.rows && w.rows == 1 && w.width == x.width && w.type == F32);
    struct rounding planes;
    out = without_planes(c, out);
    const bool has_planes = rounding_for(c, -1, x.rows, x.width, &planes);
    QUEUE(c, rmsnorm_kernel, (int)x.rows, THREADS, 0, floats(out), floats(x), floats(w), x.width, eps, planes,
          has_planes ? round_width(x.width) : x.width);
    cuda_launched(c, "rmsnorm");
    return has_planes ? with_planes(c, out) : out;
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
    without_planes(c, out);
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
    without_planes(c, x);
    QUEUE(c, rescale_kernel, grid_for(c, n), THREADS, 0, floats(x), n, scale, cap);
    cuda_launched(c, "rescale");
}

// ---- sums of weighted rows

enum { MIXED_ROWS = 256 }; // of x, in a launch
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
    without_planes(c, out);
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

// to[i][to_column + k] = from[i][from_column + k]
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
    without_planes(c, out);
    QUEUE(c, columns_kernel, (int)x.rows, THREADS, 0, floats(out), out.width, column, floats(x), x.width, 0, x.width);
    cuda_launched(c, "place");
}

void cuda_cut(struct backend *b, struct tensor out, struct tensor x, int column)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.rows == x.rows && column + out.width <= x.width);
    without_planes(c, out);
    QUEUE(c, columns_kernel, (int)out.rows, THREADS, 0, floats(out), out.width, 0, floats(x), x.width, column,
          out.width);
    cuda_launched(c, "cut");
}

struct row_numbers row_numbers_of(const int32_t *row, int64_t n)
{
    struct row_numbers to;
    to.n = (int)(n < ROW_NUMBERS ? n : (int64_t)ROW_NUMBERS);
    for (int i = 0; i < to.n; i++)
        to.row[i] = row[i];
    return to;
}

// Tensors per launch: the kernel's parameters must stay below 4 KiB.
enum { TENSORS = 192 };
struct rows_to_move {
    int64_t units; // of a row
    int to;
    struct row_numbers numbers;
    void *x[TENSORS];
};
static_assert(sizeof(struct rows_to_move) < 4096, "limit of kernel parameters");

// Rows move down and may overlap, so each thread copies its bytes row by row in order.
template <typename unit> static __global__ void move_kernel(const __grid_constant__ struct rows_to_move m)
{
    kernel_prologue();
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    unit *const x = (unit *)m.x[blockIdx.y];
    for (int i = 0; i < m.numbers.n && k < m.units; i++)
        x[(m.to + i) * m.units + k] = x[m.numbers.row[i] * m.units + k];
}

// Fills m->x with tensors from `first` on; returns their number.
static int tensors_to_move(struct rows_to_move *m, const struct tensor *x, int first, int count)
{
    int n = 0;
    for (; n < TENSORS && first + n < count; n++) {
        assert(x[first + n].type == x[0].type && x[first + n].width == x[0].width);
        m->x[n] = x[first + n].data;
    }
    return n;
}

void cuda_move(struct backend *b, const struct tensor *x, int count, int to, const int32_t *row, int n)
{
    struct cuda *c = (struct cuda *)b;
    const int64_t bytes = (int64_t)type_row_bytes(x[0].type, x[0].width), unit = bytes % 16 == 0 ? 16 : 2;
    struct rows_to_move m;
    for (int i = 0; i < count; i++)
        without_planes(c, x[i]);
    m.units = bytes / unit;
    for (int i = 0; i < n; i++)
        assert(row[i] >= to + i && (i == 0 || row[i] > row[i - 1]));
    for (int first = 0; first < n; first += ROW_NUMBERS) {
        m.to = to + first;
        m.numbers = row_numbers_of(row + first, n - first);
        for (int at = 0; at < count; at += TENSORS) {
            const dim3 grid((unsigned)blocks_for(m.units, THREADS), (unsigned)tensors_to_move(&m, x, at, count));
            if (unit == 16)
                QUEUE(c, move_kernel<uint4>, grid, THREADS, 0, m);
            else
                QUEUE(c, move_kernel<uint16_t>, grid, THREADS, 0, m);
        }
    }
    cuda_launched(c, "move");
}

} // namespace DEVICE_SPACE
