// round.cu - the planes that products read (round.h), and their two buffers.
//
// The input of a product is mostly what the operation before it made, and that one has written its planes: the tensor's value has
// their number. Planes of any other input are made here.
//
// Rows that fill the last tiles may have any numbers. Products read them, but an output depends on its own row only, and outputs of
// these rows are not kept. Memory is cleared when it is reserved, so that nothing reads what was never written.
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };

// A thread per number; zeros beyond the width.
static __global__ void round_kernel(const struct rounding to, const float *x, int64_t width, int64_t padded)
{
    kernel_prologue();
    const int64_t row = blockIdx.y, k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (k / WARP * WARP < padded)
        round_number(to, row, k, k < width ? x[row * width + k] : 0);
}

static __global__ void round_floats_kernel(float *to, const float *x, int64_t n)
{
    kernel_prologue();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = bf16_to_float(float_to_bf16(x[i]));
}

static size_t aligned(size_t bytes) // planes and sums start at multiples of 256
{
    return (bytes + 255) / 256 * 256;
}

// Planes of one kind at *at: where they are read and where they are written. sums: whether these are written.
static void lay_out(uint8_t **at, int planes, bool sums, struct rounded *read, struct planes *write)
{
    const size_t units = (size_t)read->tiles * (size_t)read->blocks;
    write->data = (uint16_t *)*at;
    read->data = (const uint4 *)write->data;
    read->sums = (const float *)(read->data + units * (size_t)planes * WARP);
    write->sums = sums ? (float *)read->sums : NULL;
    *at += units * (size_t)planes * WARP * sizeof(uint4) + aligned(units * 2 * 8 * sizeof(float));
}

// Tiles as the kernels of products take them: a pass's rows with its padding (cuda_bucket) have as many as the rows alone.
static int tiles_for(int64_t rows)
{
    const int needed = blocks_for(rows, 8);
    return needed <= 2 ? needed : needed <= 8 ? blocks_for(needed, 4) * 4 : blocks_for(needed, 8) * 8;
}

// In the buffer that was not written last, or the one that is not read. Returns which; -1: out of memory.
static int write_planes(struct cuda *c, int read, int64_t rows, int64_t width, bool one, bool three,
                        struct rounding *to)
{
    struct rounded r = {};
    r.n = (int)rows;
    r.tiles = tiles_for(rows);
    r.blocks = (int)(round_width(width) / GROUP);
    const size_t units = (size_t)r.tiles * (size_t)r.blocks, plane = units * WARP * sizeof(uint4);
    const size_t bytes =
        (one + 3 * (size_t)three) * plane + (one + (size_t)three) * aligned(units * 2 * 8 * sizeof(float));
    c->last_planes = !(read >= 0 ? read : c->last_planes);
    struct planes_buffer *p = &c->planes[c->last_planes];
    const size_t cleared = p->space.bytes;
    uint8_t *at = (uint8_t *)cuda_reserve(c, &p->space, bytes, "the input of products");
    if (p->space.bytes > cleared)
        cuda_note(c, cudaMemsetAsync(at, 0, p->space.bytes, c->stream), "the input of products");
    *to = {};
    to->tiles = r.tiles;
    p->number = 0;
    if (at == NULL)
        return -1;
    p->rows = rows;
    p->width = width;
    p->one = p->three = r;
    p->sums = c->read_sums != 0;
    if (one)
        lay_out(&at, 1, p->sums, &p->one, &to->one);
    if (three)
        lay_out(&at, 3, p->sums, &p->three, &to->three);
    return c->last_planes;
}

bool rounding_for(struct cuda *c, int read, int64_t rows, int64_t width, struct rounding *to)
{
    *to = {};
    return (c->read_one != 0 || c->read_three != 0) && rows > 0 &&
           write_planes(c, read, rows, width, c->read_one != 0, c->read_three != 0, to) >= 0;
}

struct tensor with_planes(struct cuda *c, struct tensor x)
{
    x.planes = c->planes[c->last_planes].number = ++c->planes_number;
    return x;
}

struct tensor without_planes(struct cuda *c, struct tensor x)
{
    for (int i = 0; i < PLANES_BUFFERS && x.planes != 0; i++)
        if (c->planes[i].number == x.planes)
            c->planes[i].number = 0;
    x.planes = 0;
    return x;
}

// The buffer that has x's planes of the wanted kinds; -1: none. Those of more rows serve for the first of them: a pass's without its
// padding.
static int find_planes(const struct cuda *c, struct tensor x, struct input_forms w)
{
    for (int i = 0; i < PLANES_BUFFERS && x.planes != 0; i++) {
        const struct planes_buffer *p = &c->planes[i];
        if (p->number == x.planes && p->rows >= x.rows && p->one.tiles == tiles_for(x.rows) && p->width == x.width &&
            (p->one.data != NULL || !w.one) && (p->three.data != NULL || !w.three) && (p->sums || c->read_sums == 0))
            return i;
    }
    return -1;
}

bool round_input(struct cuda *c, struct tensor x, struct input_forms w, struct inputs *to)
{
    to->read = w.one || w.three ? find_planes(c, x, w) : -1;
    if ((w.one || w.three) && to->read < 0) {
        struct rounding planes;
        to->read = write_planes(c, -1, x.rows, x.width, w.one, w.three, &planes);
        if (to->read < 0)
            return false;
        const int64_t padded = round_width(x.width);
        const dim3 grid((unsigned)blocks_for(padded, THREADS), (unsigned)x.rows);
        QUEUE(c, round_kernel, grid, THREADS, 0, planes, (const float *)x.data, x.width, padded);
        cuda_launched(c, "rounding the input of products");
    }
    if (to->read >= 0) {
        to->one = c->planes[to->read].one;
        to->three = c->planes[to->read].three;
        to->one.n = to->three.n = (int)x.rows;
    }
    if (w.floats) {
        const int64_t n = x.rows * x.width;
        float *at = (float *)cuda_reserve(c, &c->floats, (size_t)n * sizeof(float), "the input of products");
        if (at == NULL)
            return false;
        QUEUE(c, round_floats_kernel, blocks_for(n, THREADS), THREADS, 0, at, (const float *)x.data, n);
        cuda_launched(c, "rounding the input of products");
        to->floats = at;
    }
    return true;
}

// ---- groups of rows

// Rows first .. of the planes; -1: none.
static __global__ void round_rows_kernel(const struct rounding to, int first,
                                         const __grid_constant__ struct row_numbers numbers, const float *x,
                                         int64_t width, int64_t padded)
{
    kernel_prologue();
    const int row = numbers.row[blockIdx.y];
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= 0 && k / WARP * WARP < padded)
        round_number(to, first + (int)blockIdx.y, k, k < width ? x[row * width + k] : 0);
}

bool round_groups(struct cuda *c, struct tensor x, const int32_t *row, const struct row_group *g, int count, bool three,
                  struct rounded *to)
{
    struct rounding planes;
    struct row_numbers numbers = {};
    int64_t tiles = 0;
    const int64_t padded = round_width(x.width);
    for (int i = 0; i < count; i++)
        tiles += blocks_for(g[i].rows, 8);
    const int at = write_planes(c, -1, 8 * tiles, x.width, !three, three, &planes);
    if (at < 0)
        return false;
    *to = three ? c->planes[at].three : c->planes[at].one;
    int first = 0, done = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < blocks_for(g[i].rows, 8) * 8; k++) {
            numbers.row[numbers.n++] = k >= g[i].rows ? -1 : row != NULL ? row[done] : done;
            done += k < g[i].rows;
            if (numbers.n < ROW_NUMBERS && first + numbers.n < 8 * tiles)
                continue;
            QUEUE(c, round_rows_kernel, dim3((unsigned)blocks_for(padded, THREADS), (unsigned)numbers.n), THREADS, 0,
                  planes, first, numbers, (const float *)x.data, x.width, padded);
            first += numbers.n;
            numbers.n = 0;
        }
    cuda_launched(c, "rounding the input of products");
    return true;
}

} // namespace DEVICE_SPACE
