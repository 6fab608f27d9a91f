// top_k.cu - the k most probable ids of each row, ties to the lowest id, and their log probabilities.
//
// A logit and its id form one 64-bit key, which is larger for a larger logit and, among equals, for a smaller id. A
// cluster has a row, each of its blocks a part of it. The k-th largest of the keys that are the largest of a group of
// threads is a lower bound of the part's k-th largest key. A second walk lists the keys from this bound on, which are
// few more than k, and sums up the exponentials. The first block ranks the results of all parts. If the list is too
// long, the part's results are found one by one.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"

#include <string.h>

namespace DEVICE_SPACE
{

enum { WARPS = CLUSTER_THREADS / (int)WARP, GROUP = 4, GROUPS = CLUSTER_THREADS / GROUP, LISTED = 256 };

struct top_k_shared {
    uint64_t of_warp[WARPS], of_group[GROUPS];
    double sum_of_warp[WARPS];
    uint64_t max, bound, listed[LISTED]; // the part's largest key; its bound; its keys from there on
    int n_listed;
    // In the first block: of each part the largest key and the sum of exp(x - max), and its k results.
    uint64_t largest[CLUSTER];
    double sum[CLUSTER];
    uint64_t result[1]; // (blocks, k) 0: the part has no more
};

static size_t shared_bytes(int blocks, int k)
{
    return sizeof(struct top_k_shared) + (size_t)blocks * (size_t)k * sizeof(uint64_t);
}

// The largest key below `below`.
__device__ static uint64_t largest_below(const float *x, int from, int to, uint64_t below)
{
    uint64_t best = 0;
    visit_share<CLUSTER_THREADS>(x, from, to, [&](int i, float v) {
        const uint64_t key = key_of(v, i);
        best = key < below && key > best ? key : best;
    });
    return best;
}

// The number of keys above `key`.
__device__ static int rank_of(const uint64_t *keys, int n, uint64_t key)
{
    int rank = 0;
    for (int i = 0; i < n; i++)
        rank += keys[i] > key;
    return rank;
}

// From the largest key of each thread: s->max and s->bound; 0: there are fewer groups with keys than k.
__device__ static void find_bound(struct top_k_shared *s, uint64_t own, int k)
{
    for (int step = GROUP / 2; step > 0; step /= 2) {
        const uint64_t other = __shfl_xor_sync(0xFFFFFFFF, (unsigned long long)own, step);
        own = other > own ? other : own;
    }
    if (threadIdx.x % GROUP == 0)
        s->of_group[threadIdx.x / GROUP] = own;
    if (threadIdx.x == 0)
        s->max = s->bound = 0, s->n_listed = 0;
    __syncthreads();
    if (threadIdx.x < GROUPS && s->of_group[threadIdx.x] != 0) {
        const uint64_t key = s->of_group[threadIdx.x];
        const int rank = rank_of(s->of_group, GROUPS, key);
        if (rank == 0)
            s->max = key;
        if (rank == k - 1)
            s->bound = key;
    }
    __syncthreads();
}

// Lists the keys from the bound on. Returns the sum of exp(x - max): in order per thread, then a tree over lanes, then
// the warps in order; 0 if the part is empty or all -inf.
__device__ static double list_keys(struct top_k_shared *s, const float *x, int from, int to)
{
    const uint64_t bound = s->bound;
    const float max = s->max != 0 ? number_of(s->max) : -INFINITY;
    double total = 0;
    visit_share<CLUSTER_THREADS>(x, from, to, [&](int i, float v) {
        const uint64_t key = key_of(v, i);
        total += max > -INFINITY ? (double)expf(v - max) : 0;
        if (key >= bound) {
            const int at = atomicAdd(&s->n_listed, 1);
            if (at < LISTED)
                s->listed[at] = key;
        }
    });
    return block_sum<WARPS>(total, s->sum_of_warp);
}

// The part's k largest keys, the largest first. own: each thread's largest.
__device__ static void find_results(struct top_k_shared *s, const float *x, int from, int to, int k, uint64_t own,
                                    uint64_t *result)
{
    const int n = s->n_listed;
    if (n <= LISTED) {
        for (int i = (int)threadIdx.x; i < n; i += CLUSTER_THREADS) {
            const int rank = rank_of(s->listed, n, s->listed[i]);
            if (rank < k)
                result[rank] = s->listed[i];
        }
        for (int i = n + (int)threadIdx.x; i < k; i += CLUSTER_THREADS)
            result[i] = 0;
        return;
    }
    for (int r = 0; r < k; r++) { // the thread that had the last result searches its share again
        const uint64_t best = block_max<WARPS>(own, s->of_warp);
        if (threadIdx.x == 0)
            result[r] = best;
        if (own == best && best != 0)
            own = largest_below(x, from, to, best);
    }
}

// The log of the row's sum of exp(x): the parts in order.
__device__ static double log_total(const struct top_k_shared &s, int blocks)
{
    uint64_t largest = 0;
    double total = 0;
    for (int b = 0; b < blocks; b++)
        largest = s.largest[b] > largest ? s.largest[b] : largest;
    const double max = (double)number_of(largest);
    for (int b = 0; b < blocks; b++)
        if (s.sum[b] > 0)
            total += s.sum[b] * exp((double)number_of(s.largest[b]) - max);
    return log(total) + max;
}

// logits (rows, vocab); token, log_p (rows, k)
static __global__ void __launch_bounds__(CLUSTER_THREADS, 1)
    top_k_kernel(const float *logits, int vocab, int k, int32_t *token, float *log_p)
{
    DYNAMIC_SHARED(struct top_k_shared, s);
    kernel_prologue();
    const int row = cluster_of_block(), block = block_in_cluster(), blocks = blocks_in_cluster();
    const int each = (vocab + blocks - 1) / blocks, from = min(block * each, vocab), to = min(from + each, vocab);
    const float *x = logits + (int64_t)row * vocab;
    const uint64_t own = largest_below(x, from, to, ~0ull);
    find_bound(s, own, k);
    const double sum = list_keys(s, x, from, to);
    cluster_barrier(); // the first block has begun
    struct top_k_shared *first = in_block(s, 0);
    if (threadIdx.x == 0)
        first->largest[block] = s->max, first->sum[block] = sum;
    find_results(s, x, from, to, k, own, first->result + (int64_t)block * k);
    cluster_barrier();
    if (block != 0)
        return;
    const double total = log_total(*s, blocks);
    for (int i = (int)threadIdx.x; i < blocks * k; i += CLUSTER_THREADS) {
        const uint64_t key = s->result[i];
        const int rank = rank_of(s->result, blocks * k, key);
        if (key != 0 && rank < k) {
            token[(int64_t)row * k + rank] = id_of(key);
            log_p[(int64_t)row * k + rank] = (float)((double)number_of(key) - total);
        }
    }
}

void top_k_queue(struct cuda *c, struct tensor logits, int k, int32_t *token, float *log_p)
{
    enum { MOST = 48 << 10 };
    const int all = cluster_blocks(c), blocks = shared_bytes(all, k) <= MOST ? all : 1;
    assert(k >= 1 && k <= logits.width && logits.type == F32 && shared_bytes(blocks, k) <= MOST);
    QUEUE_CLUSTERS(c, top_k_kernel, blocks, (int)logits.rows * blocks, CLUSTER_THREADS, shared_bytes(blocks, k),
                   (const float *)logits.data, (int)logits.width, k, token, log_p);
    cuda_launched(c, "best");
}

void cuda_best(struct backend *b, struct tensor logits, int k, int32_t *token, float *log_p)
{
    struct cuda *c = (struct cuda *)b;
    const size_t n = (size_t)logits.rows * (size_t)k, bytes = n * (sizeof(int32_t) + sizeof(float));
    uint8_t *buffer = (uint8_t *)cuda_reserve(c, &c->best, bytes, "best");
    if (buffer == NULL) {
        memset(token, 0, n * sizeof(*token)); // sync() reports the error
        memset(log_p, 0, n * sizeof(*log_p));
        return;
    }
    int32_t *ids = (int32_t *)buffer;
    float *values = (float *)(buffer + n * sizeof(int32_t));
    top_k_queue(c, logits, k, ids, values);
    b->download(b, token, ids, n * sizeof(*token));
    b->download(b, log_p, values, n * sizeof(*log_p));
}

} // namespace DEVICE_SPACE
