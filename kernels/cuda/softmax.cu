// softmax.cu - rows of logits become rows of probabilities where nothing has to be put in order first (no top_k, no top_p): most
// rows, and then the work is some thousand e^x. A row is dealt out to several blocks, as there are fewer rows than processors;
// what they find of it is put together exactly, so it does not matter how many they are.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/probabilities.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256, WARPS = THREADS / WARP, MOST_STRETCHES = 32 };

struct call {
    float *x; // (rows, n)
    int n, live, stretches, each;
    struct row_stages s;
    uint64_t *key;         // (rows, stretches) of the largest
    struct exact_sum *sum; // (rows, stretches) of e^x
};

struct stretch {
    float *x; // of its row
    int from, to;
};

__device__ static struct stretch stretch_of_block(const struct call &c)
{
    struct stretch s;
    s.x = c.x + (int64_t)blockIdx.x * c.n;
    s.from = (int)blockIdx.y * c.each;
    s.to = min(s.from + c.each, c.n);
    return s;
}

// The largest, and its id; what is no number and what is no token is ruled out on the way.
static __global__ void __launch_bounds__(THREADS) most_kernel(const struct call c)
{
    __shared__ uint64_t of_warp[WARPS];
    in_turn();
    const struct stretch s = stretch_of_block(c);
    uint64_t likeliest = 0;
    for (int i = s.from + (int)threadIdx.x; i < s.to; i += THREADS) {
        const float x = tidied(s.x[i], i < c.live);
        s.x[i] = x;
        const uint64_t key = key_of(x, i);
        likeliest = key > likeliest ? key : likeliest;
    }
    likeliest = block_most<WARPS>(likeliest, of_warp);
    if (threadIdx.x == 0)
        c.key[(int64_t)blockIdx.x * c.stretches + blockIdx.y] = likeliest;
}

__device__ static uint64_t likeliest_of(const struct call &c)
{
    uint64_t key = 0;
    for (int i = 0; i < c.stretches; i++)
        key = max((unsigned long long)key, (unsigned long long)c.key[(int64_t)blockIdx.x * c.stretches + i]);
    return key;
}

// e^x, and their sum; or, where there is nothing to choose from, the row itself.
static __global__ void __launch_bounds__(THREADS) weigh_kernel(const struct call c)
{
    __shared__ double of_warp[WARPS];
    in_turn();
    const struct stretch s = stretch_of_block(c);
    const uint64_t likeliest = likeliest_of(c);
    const float most = number_of(likeliest);
    if (is_certain(most, c.s)) {
        for (int i = s.from + (int)threadIdx.x; i < s.to; i += THREADS)
            s.x[i] = i == certain_token(likeliest) ? 1.0f : 0.0f;
        return;
    }
    const float top = heated(most, most, c.s.heat);
    struct exact_sum sum = { 0, 0 };
    for (int i = s.from + (int)threadIdx.x; i < s.to; i += THREADS) {
        const float x = heated(s.x[i], most, c.s.heat);
        const double e = is_below(x, top, c.s) ? 0 : grid_exp((double)x - (double)top);
        s.x[i] = (float)e;
        sum = grid_sum(sum, grid_cut(e));
    }
    sum.whole = block_sum<WARPS>(sum.whole, of_warp);
    sum.rest = block_sum<WARPS>(sum.rest, of_warp);
    if (threadIdx.x == 0)
        c.sum[(int64_t)blockIdx.x * c.stretches + blockIdx.y] = sum;
}

static __global__ void __launch_bounds__(THREADS) share_kernel(const struct call c)
{
    in_turn();
    const struct stretch s = stretch_of_block(c);
    if (is_certain(number_of(likeliest_of(c)), c.s))
        return;
    struct exact_sum sum = { 0, 0 };
    for (int i = 0; i < c.stretches; i++)
        sum = grid_sum(sum, c.sum[(int64_t)blockIdx.x * c.stretches + i]);
    const double by = 1 / grid_total(sum);
    for (int i = s.from + (int)threadIdx.x; i < s.to; i += THREADS)
        s.x[i] = (float)grid_of((double)s.x[i] * by);
}

void softmax_queue(struct cuda *c, struct tensor logits, int live, const struct row_stages *s)
{
    struct call call = {};
    const int rows = (int)logits.rows, fill = 2 * c->processors / rows;
    call.n = (int)logits.width;
    call.stretches = fill < 1 ? 1 : fill < MOST_STRETCHES ? fill : MOST_STRETCHES;
    call.each = (call.n + call.stretches - 1) / call.stretches;
    const size_t parts = (size_t)rows * (size_t)call.stretches;
    call.sum =
        (struct exact_sum *)cuda_room(c, &c->parts, parts * (sizeof(*call.sum) + sizeof(*call.key)), "probabilities");
    if (call.sum == NULL)
        return;
    call.key = (uint64_t *)(call.sum + parts);
    call.x = (float *)logits.data;
    call.live = live;
    call.s = *s;
    const dim3 grid((unsigned)rows, (unsigned)call.stretches); // y ends at 65,535
    QUEUE(c, most_kernel, grid, THREADS, 0, call);
    QUEUE(c, weigh_kernel, grid, THREADS, 0, call);
    QUEUE(c, share_kernel, grid, THREADS, 0, call);
}

} // namespace DEVICE_SPACE
