// round.cu - the rounded rows that products read (round.h), and their two buffers.
//
// The input of a product is mostly what the operation before it made, and that one has written it rounded: the tensor's
// value has a number for it. Any other input is rounded here.
//
// Rows that fill the last tiles may have any numbers. Products read them, but an output depends on its own row only,
// and outputs of these rows are not kept. Memory is cleared when it is reserved, so that nothing reads what was never
// written.
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };
static const char *const what = "the input of products", *const rounds = "rounding the input of products";

// A thread per number of rows first .. of what is written; zeros beyond the width. numbers: of x's rows, -1: none; n 0:
// in order.
static __global__ void round_kernel(const struct rounding to, int first,
                                    const __grid_constant__ struct row_numbers numbers, const float *x, int64_t width,
                                    int64_t padded)
{
    kernel_prologue();
    const int64_t row = numbers.n > 0 ? numbers.row[blockIdx.y] : (int)blockIdx.y;
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= 0 && k / WARP * WARP < padded)
        round_number(to, first + (int)blockIdx.y, k, k < width ? x[row * width + k] : 0);
}

static __global__ void round_floats_kernel(float *to, const float *x, int64_t n)
{
    kernel_prologue();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = bf16_to_float(float_to_bf16(x[i]));
}

// Tiles as the kernels of products take them: a pass's rows with its padding (cuda_bucket) have as many as the rows
// alone.
static int tiles_for(int64_t rows)
{
    const int needed = blocks_for(rows, 8);
    return needed <= 2 ? needed : needed <= 8 ? blocks_for(needed, 4) * 4 : blocks_for(needed, 8) * 8;
}

// In the buffer that was not written last, or the one that is not read. Returns which; -1: out of memory.
static int write_rounded(struct cuda *c, int read, int64_t rows, int64_t width, struct rounding *to)
{
    c->last_rounded = !(read >= 0 ? read : c->last_rounded);
    struct rounded_buffer *p = &c->rounded[c->last_rounded];
    const int tiles = tiles_for(rows), blocks = (int)(round_width(width) / GROUP);
    const size_t units = (size_t)tiles * (size_t)blocks, sums = units * WARP * sizeof(uint4), cleared = p->space.bytes;
    uint8_t *const at = (uint8_t *)cuda_reserve(c, &p->space, sums + units * 2 * 8 * sizeof(float), what);
    if (p->space.bytes > cleared)
        cuda_note(c, cudaMemsetAsync(at, 0, p->space.bytes, c->stream), what);
    *to = {};
    to->tiles = tiles;
    p->number = 0;
    if (at == NULL)
        return -1;
    p->width = width;
    p->sums = c->read_sums != 0;
    p->rows = { (int)rows, tiles, blocks, (const uint4 *)at, (const float *)(at + sums) };
    to->data = (uint16_t *)at;
    to->sums = p->sums ? (float *)(at + sums) : NULL;
    return c->last_rounded;
}

bool rounding_for(struct cuda *c, int read, int64_t rows, int64_t width, struct rounding *to)
{
    *to = {};
    return c->read_rounded != 0 && rows > 0 && write_rounded(c, read, rows, width, to) >= 0;
}

struct tensor with_rounded(struct cuda *c, struct tensor x)
{
    x.rounded = c->rounded[c->last_rounded].number = ++c->rounded_number;
    return x;
}

struct tensor without_rounded(struct cuda *c, struct tensor x)
{
    for (int i = 0; i < ROUNDED_BUFFERS && x.rounded != 0; i++)
        if (c->rounded[i].number == x.rounded)
            c->rounded[i].number = 0;
    x.rounded = 0;
    return x;
}

// The buffer that has x; -1: none. More rows serve for the first of them: a pass's without its padding.
static int find_rounded(const struct cuda *c, struct tensor x)
{
    for (int i = 0; i < ROUNDED_BUFFERS && x.rounded != 0; i++) {
        const struct rounded_buffer *p = &c->rounded[i];
        if (p->number == x.rounded && p->rows.n >= x.rows && p->rows.tiles == tiles_for(x.rows) &&
            p->width == x.width && (p->sums || c->read_sums == 0))
            return i;
    }
    return -1;
}

static void queue_rounding(struct cuda *c, const struct rounding &to, int first, int rows,
                           const struct row_numbers &numbers, struct tensor x)
{
    const int64_t padded = round_width(x.width);
    QUEUE(c, round_kernel, dim3((unsigned)blocks_for(padded, THREADS), (unsigned)rows), THREADS, 0, to, first, numbers,
          (const float *)x.data, x.width, padded);
    cuda_launched(c, rounds);
}

int round_input(struct cuda *c, struct tensor x, struct rounded *to)
{
    int buffer = find_rounded(c, x);
    if (buffer < 0) {
        struct rounding made;
        buffer = write_rounded(c, -1, x.rows, x.width, &made);
        if (buffer < 0)
            return -1;
        queue_rounding(c, made, 0, (int)x.rows, {}, x);
    }
    *to = c->rounded[buffer].rows;
    to->n = (int)x.rows;
    return buffer;
}

const float *round_floats(struct cuda *c, struct tensor x)
{
    const int64_t n = x.rows * x.width;
    float *at = (float *)cuda_reserve(c, &c->floats, (size_t)n * sizeof(float), what);
    if (at == NULL)
        return NULL;
    QUEUE(c, round_floats_kernel, blocks_for(n, THREADS), THREADS, 0, at, (const float *)x.data, n);
    cuda_launched(c, rounds);
    return at;
}

bool round_groups(struct cuda *c, struct tensor x, const int32_t *row, const struct row_group *g, int count,
                  struct rounded *to)
{
    struct rounding made;
    struct row_numbers numbers = {};
    int64_t tiles = 0;
    for (int i = 0; i < count; i++)
        tiles += blocks_for(g[i].rows, 8);
    const int buffer = write_rounded(c, -1, 8 * tiles, x.width, &made);
    if (buffer < 0)
        return false;
    *to = c->rounded[buffer].rows;
    int first = 0, done = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < blocks_for(g[i].rows, 8) * 8; k++) {
            numbers.row[numbers.n++] = k >= g[i].rows ? -1 : row != NULL ? row[done] : done;
            done += k < g[i].rows;
            if (numbers.n < ROW_NUMBERS && first + numbers.n < 8 * tiles)
                continue;
            queue_rounding(c, made, first, numbers.n, numbers, x);
            first += numbers.n;
            numbers.n = 0;
        }
    return true;
}

} // namespace DEVICE_SPACE
