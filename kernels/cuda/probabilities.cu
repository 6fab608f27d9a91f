// probabilities.cu - rows of logits become rows of probabilities, bit for bit as sampling/ makes them on the host: the same
// functions of single numbers (core/grid.h), and sums that are exact, so that it does not matter who adds what first.
//
// Where tokens are ruled out by their order (top_k, top_p), a row is a block's; for the others there is softmax.cu. It goes
// over the row once for each of: the largest, temperature, top_k's and top_p's three walks of a radix selection
// (sampling/stages.c says how), the sum of e^x, and the division by it; rows are some 100 to 600 kB, so all but the first
// time they come from the cache.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/probabilities.h"

namespace DEVICE_SPACE
{

enum { THREADS = 512, WARPS = THREADS / WARP, BUCKETS = 1 << 11 };

struct room {
    struct exact_sum bucket[BUCKETS];
    double sums[WARPS];
    uint64_t keys[WARPS];
    uint32_t cut;
    int stay;
    struct exact_sum kept;
};

struct row {
    float *x;
    int n;
    struct room *room;
};

// ---- stages

__device__ static struct exact_sum weight_of(float x, float most, bool by_count)
{
    const struct exact_sum one = { 1, 0 };
    return by_count ? one : grid_cut(grid_exp((double)x - (double)most));
}

// One thread: the bucket in which enough is reached, from the last one down; what lies above it is added to kept.
__device__ static int find_bucket(struct room *room, int buckets, double enough)
{
    struct exact_sum kept = room->kept;
    int lowest = 0, b = buckets - 1;
    while (lowest < b && room->bucket[lowest].whole == 0 && room->bucket[lowest].rest == 0)
        lowest++;
    for (; b > lowest && grid_total(grid_sum(kept, room->bucket[b])) < enough; b--)
        kept = grid_sum(kept, room->bucket[b]);
    room->kept = kept;
    return b;
}

// Of those that equal the cut the first room->stay stay.
__device__ static void drop_ties(const struct row &r, float cut)
{
    int before = 0;
    for (int first = 0; first < r.n; first += THREADS) {
        const int i = first + (int)threadIdx.x;
        const bool tie = i < r.n && r.x[i] == cut;
        const uint32_t ties = __ballot_sync(0xFFFFFFFF, tie);
        __syncthreads();
        if (threadIdx.x % WARP == 0)
            r.room->keys[threadIdx.x / WARP] = (uint64_t)__popc(ties);
        __syncthreads();
        int number = before + __popc(ties & ((1u << threadIdx.x % WARP) - 1));
        for (int w = 0; w < WARPS; w++) {
            number += w < (int)threadIdx.x / WARP ? (int)r.room->keys[w] : 0;
            before += (int)r.room->keys[w];
        }
        if (tie && number >= r.room->stay)
            r.x[i] = -INFINITY;
    }
}

// The likeliest until they weigh enough; among equals the lowest ids.
__device__ static void keep_likeliest(const struct row &r, float most, double enough, bool by_count)
{
    const int shift[] = { 21, 10, 0 }, bits[] = { 11, 11, 10 };
    struct room *room = r.room;
    uint32_t known = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        room->cut = 0;
        room->kept.whole = room->kept.rest = 0;
    }
    UNROLL
    for (int walk = 0; walk < 3; walk++) {
        const uint32_t mask = (1u << bits[walk]) - 1;
        for (int b = threadIdx.x; b < BUCKETS; b += THREADS)
            room->bucket[b].whole = room->bucket[b].rest = 0;
        __syncthreads();
        const uint32_t cut = room->cut;
        for (int i = threadIdx.x; i < r.n; i += THREADS) {
            const uint32_t key = grid_ordered(r.x[i]);
            if ((key & known) != cut || !(r.x[i] > -INFINITY))
                continue;
            struct exact_sum *b = &room->bucket[key >> shift[walk] & mask];
            const struct exact_sum w = weight_of(r.x[i], most, by_count);
            atomicAdd(&b->whole, w.whole);
            atomicAdd(&b->rest, w.rest);
        }
        __syncthreads();
        if (threadIdx.x == 0)
            room->cut = cut | (uint32_t)find_bucket(room, (int)mask + 1, enough) << shift[walk];
        known |= mask << shift[walk];
        __syncthreads();
    }
    const float cut = grid_of_ordered(room->cut);
    if (threadIdx.x == 0) {
        const struct exact_sum one = weight_of(cut, most, by_count);
        struct exact_sum kept = room->kept;
        for (room->stay = 0; room->stay < r.n && grid_total(kept) < enough; room->stay++)
            kept = grid_sum(kept, one);
    }
    for (int i = threadIdx.x; i < r.n; i += THREADS)
        if (r.x[i] < cut)
            r.x[i] = -INFINITY;
    __syncthreads();
    drop_ties(r, cut);
    __syncthreads();
}

__device__ static double total_of(struct exact_sum s, struct room *room)
{
    s.whole = block_sum<WARPS>(s.whole, room->sums);
    s.rest = block_sum<WARPS>(s.rest, room->sums);
    return grid_total(s);
}

__device__ static double weigh(const struct row &r, float most)
{
    struct exact_sum sum = { 0, 0 };
    for (int i = threadIdx.x; i < r.n; i += THREADS)
        sum = grid_sum(sum, weight_of(r.x[i], most, false));
    return total_of(sum, r.room);
}

__device__ static void softmax(const struct row &r, float most)
{
    struct exact_sum sum = { 0, 0 };
    for (int i = threadIdx.x; i < r.n; i += THREADS) {
        const double e = grid_exp((double)r.x[i] - (double)most);
        r.x[i] = (float)e;
        sum = grid_sum(sum, grid_cut(e));
    }
    const double by = 1 / total_of(sum, r.room);
    for (int i = threadIdx.x; i < r.n; i += THREADS)
        r.x[i] = (float)grid_of((double)r.x[i] * by);
}

static __global__ void __launch_bounds__(THREADS, 1)
    probabilities_kernel(float *logits, int n, int live, const struct row_stages s)
{
    __shared__ struct room room;
    const struct row r = { logits + (int64_t)blockIdx.x * n, n, &room };
    in_turn();
    uint64_t likeliest = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        r.x[i] = tidied(r.x[i], i < live);
        const uint64_t key = key_of(r.x[i], i);
        likeliest = key > likeliest ? key : likeliest;
    }
    likeliest = block_most<WARPS>(likeliest, room.keys);
    float most = number_of(likeliest);
    if (is_certain(most, s)) {
        for (int i = threadIdx.x; i < n; i += THREADS)
            r.x[i] = i == certain_token(likeliest) ? 1.0f : 0.0f;
        return;
    }
    for (int i = threadIdx.x; i < n && s.heat != 1; i += THREADS)
        r.x[i] = heated(r.x[i], most, s.heat);
    most = heated(most, most, s.heat);
    if (s.top_k > 0 && s.top_k < n)
        keep_likeliest(r, most, s.top_k, true);
    if (s.top_p < 1) {
        const double enough = s.top_p * weigh(r, most);
        keep_likeliest(r, most, enough > 1 ? enough : 1, false);
    }
    for (int i = threadIdx.x; i < n; i += THREADS)
        if (is_below(r.x[i], most, s))
            r.x[i] = -INFINITY;
    softmax(r, most);
}

void cuda_probabilities(struct backend *b, struct tensor logits, int live, const struct row_stages *s)
{
    struct cuda *c = (struct cuda *)b;
    assert(logits.type == F32 && live > 0 && live <= logits.width && logits.width <= 1 << 20);
    if (logits.rows == 0)
        return;
    if ((s->top_k > 0 && s->top_k < logits.width) || s->top_p < 1)
        QUEUE(c, probabilities_kernel, (int)logits.rows, THREADS, 0, (float *)logits.data, (int)logits.width, live, *s);
    else
        softmax_queue(c, logits, live, s);
    cuda_launched(c, "probabilities");
}

} // namespace DEVICE_SPACE
