// top_k.cu - the k most probable ids of each row, ties to the lowest id, and their log probabilities.
//
// A logit and its id form one 64-bit key, which is larger for a larger logit and, among equals, for a smaller id. Each thread
// of a block has the largest key of its share of the row; the largest of these is the row's next result, and the thread that
// had it searches its share again.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"

#include <string.h>

namespace DEVICE_SPACE
{

enum { THREADS = 1024, WARPS = THREADS / WARP };

// The largest key below `below` in a thread's share of a row.
__device__ static uint64_t largest_below(const float *x, int64_t vocab, uint64_t below)
{
    uint64_t best = 0;
    UNROLL_BY(8)
    for (int64_t v = threadIdx.x; v < vocab; v += THREADS) {
        const uint64_t key = key_of(x[v], (int)v);
        best = key < below && key > best ? key : best;
    }
    return best;
}

// logits (rows, vocab); token, log_p (rows, k)
static __global__ void top_k_kernel(const float *logits, int64_t vocab, int k, int32_t *token, float *log_p)
{
    kernel_prologue();
    __shared__ uint64_t of_warp[WARPS];
    __shared__ double sums[WARPS];
    const float *x = logits + blockIdx.x * vocab;
    uint64_t own = largest_below(x, vocab, ~0ull);
    double log_total = 0;
    for (int r = 0; r < k; r++) {
        const uint64_t best = block_max<WARPS>(own, of_warp);
        own = own == best ? largest_below(x, vocab, best) : own;
        const float value = number_of(best);
        if (r == 0) { // sum of exp(x - max): in order per thread, then a tree over lanes, then the warps in order
            double total = 0;
            for (int64_t v = threadIdx.x; v < vocab; v += THREADS)
                total += (double)expf(x[v] - value);
            total = block_sum<WARPS>(total, sums);
            log_total = log(total) + (double)value;
        }
        if (threadIdx.x == 0) {
            token[(int64_t)blockIdx.x * k + r] = id_of(best);
            log_p[(int64_t)blockIdx.x * k + r] = (float)((double)value - log_total);
        }
    }
}

void top_k_queue(struct cuda *c, struct tensor logits, int k, int32_t *token, float *log_p)
{
    assert(k >= 1 && k <= logits.width && logits.type == F32);
    QUEUE(c, top_k_kernel, (int)logits.rows, THREADS, 0, (const float *)logits.data, logits.width, k, token, log_p);
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
