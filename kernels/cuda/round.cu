// round.cu - planes of a tensor that nobody left planes of, and which planes there are.
//
// A product's input is mostly what the operation before it made, and that one has left its planes (round.h): they are
// known by the tensor's place and shape until any other operation runs.
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };

// A number to a thread, zeros beyond the rows and the width.
static __global__ void round_kernel(const struct rounding to, const float *x, int n, int64_t width, int64_t padded)
{
    in_turn();
    const int64_t row = blockIdx.y, k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (k / WARP * WARP < padded)
        round_number(to, row, k, row < n && k < width ? x[row * width + k] : 0);
}

static __global__ void round_floats_kernel(float *to, const float *x, int64_t n)
{
    in_turn();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n)
        to[i] = bf16_to_float(float_to_bf16(x[i]));
}

static size_t whole(size_t bytes) // pieces begin at whole sectors
{
    return (bytes + 255) / 256 * 256;
}

// Room for planes of one kind behind *at; where they are read and where they are left.
static void lay(uint8_t **at, int planes, struct rounded *read, struct planes *left)
{
    const size_t units = (size_t)read->tiles * (size_t)read->blocks;
    left->data = (uint16_t *)*at;
    left->sums = (float *)(*at + units * (size_t)planes * WARP * sizeof(uint4));
    read->data = (const uint4 *)left->data;
    read->sums = left->sums;
    *at += units * (size_t)planes * WARP * sizeof(uint4) + whole(units * 2 * 8 * sizeof(float));
}

// As the kernels of products take them; so a pass's rows and its padding (cuda_bucket) are as many tiles as the rows alone.
static int tiles_for(int64_t rows)
{
    const int needed = blocks_for(rows, 8);
    return needed <= 2 ? needed : needed <= 8 ? blocks_for(needed, 4) * 4 : blocks_for(needed, 8) * 8;
}

// The other room than the last time's: an operation may read that and leave this.
static bool make_capacity(struct cuda *c, int64_t rows, int64_t width, bool one, bool three, struct rounding *to)
{
    struct rounded r = {};
    r.n = (int)rows;
    r.tiles = tiles_for(rows);
    r.blocks = (int)(round_width(width) / GROUP);
    const size_t units = (size_t)r.tiles * (size_t)r.blocks, plane = units * WARP * sizeof(uint4);
    const size_t bytes =
        (one + 3 * (size_t)three) * plane + (one + (size_t)three) * whole(units * 2 * 8 * sizeof(float));
    struct space *space = &c->rounded[c->made.turn = !c->made.turn];
    uint8_t *at = (uint8_t *)cuda_reserve(c, space, bytes, "the input of products");
    *to = {};
    to->tiles = r.tiles;
    c->made.x = NULL;
    if (at == NULL)
        return false;
    c->made.one = c->made.three = r;
    if (one)
        lay(&at, 1, &c->made.one, &to->one);
    if (three)
        lay(&at, 3, &c->made.three, &to->three);
    return true;
}

bool rounding_for(struct cuda *c, int64_t rows, int64_t width, struct rounding *to)
{
    *to = {};
    return (c->read_one != 0 || c->read_three != 0) && rows > 0 &&
           make_capacity(c, rows, width, c->read_one != 0, c->read_three != 0, to);
}

void rounding_is(struct cuda *c, struct tensor x)
{
    c->made.x = x.data;
    c->made.rows = x.rows;
    c->made.width = x.width;
}

// Those of more rows do for the first of them: a pass's without its padding.
bool round_input(struct cuda *c, struct tensor x, struct wanted w, struct inputs *to)
{
    const struct made *made = &c->made;
    const bool there = made->x == x.data && made->rows >= x.rows && made->one.tiles == tiles_for(x.rows) &&
                       made->width == x.width && (made->one.data != NULL || !w.one) &&
                       (made->three.data != NULL || !w.three);
    if ((w.one || w.three) && !there) {
        struct rounding left;
        if (!make_capacity(c, x.rows, x.width, w.one, w.three, &left))
            return false;
        const int64_t padded = round_width(x.width);
        const dim3 grid((unsigned)blocks_for(padded, THREADS), (unsigned)left.tiles * 8);
        QUEUE(c, round_kernel, grid, THREADS, 0, left, (const float *)x.data, (int)x.rows, x.width, padded);
        cuda_launched(c, "rounding the input of products");
        rounding_is(c, x);
    }
    to->one = made->one;
    to->three = made->three;
    to->one.n = to->three.n = (int)x.rows;
    if (w.floats) {
        const int64_t n = x.rows * x.width;
        float *at = (float *)cuda_reserve(c, &c->floats, (size_t)n * sizeof(float), "the input of products");
        if (at == NULL)
            return false;
        QUEUE(c, round_floats_kernel, blocks_for(n, THREADS), THREADS, 0, at, (const float *)x.data, n);
        cuda_note(c, cudaGetLastError(), "rounding the input of products"); // planes stay as they are
        to->floats = at;
    }
    return true;
}

} // namespace DEVICE_SPACE
