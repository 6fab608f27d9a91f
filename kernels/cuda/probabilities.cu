// probabilities.cu - rows of logits become rows of probabilities, with the bits that sampling/ computes on the host:
// the same functions of single numbers (core/grid.h), and exact sums, whose order does not matter.
//
// Launches: the largest of each row; the cut of top_k and top_p (select.cu); e^x and its sum; the division by it. Rows
// have 100 to 600 kB, so all launches but the first read them from the cache.
#include "kernels/cuda/probabilities.h"

namespace DEVICE_SPACE
{

// Finds the largest logit and its id, and replaces NaN and padding by -inf.
static __global__ void __launch_bounds__(ROW_THREADS) argmax_kernel(const __grid_constant__ struct rows_call c)
{
    __shared__ uint64_t of_warp[ROW_WARPS];
    kernel_prologue();
    const struct chunk s = chunk_of_block(c);
    uint64_t argmax = 0;
    visit_chunk(s, [&](int i, float logit) {
        const float x = cleaned(logit, i < c.used_vocab);
        if (!(x == logit))
            s.x[i] = x;
        const uint64_t key = key_of(x, i);
        argmax = key > argmax ? key : argmax;
    });
    argmax = block_max<ROW_WARPS>(argmax, of_warp);
    if (threadIdx.x == 0)
        c.key[(int64_t)blockIdx.x * c.chunks + blockIdx.y] = argmax;
}

// e^x and their sum; or, if one token is certain, its row.
static __global__ void __launch_bounds__(ROW_THREADS) exp_kernel(const __grid_constant__ struct rows_call c)
{
    __shared__ double of_warp[ROW_WARPS];
    kernel_prologue();
    const struct chunk s = chunk_of_block(c);
    const uint64_t argmax = argmax_of(c, (int)blockIdx.x);
    const float most = number_of(argmax);
    if (is_certain(most, c.s)) {
        const int certain = certain_token(argmax), part = row_part(c.n);
        for (int i = s.from + (int)threadIdx.x; i < s.to; i += ROW_THREADS)
            s.x[i] = i == certain ? 1.0f : 0.0f;
        for (int k = s.from / part + (int)threadIdx.x; c.row_sum != NULL && k < (s.from + c.each) / part;
             k += ROW_THREADS)
            row_sums(c)[k].sum = row_sums(c)[k].positive = k == certain / part;
        return;
    }
    const float top = scaled_logit(most, most, c.s.inverse_temperature);
    const uint64_t cut = c.cut != NULL ? c.cut[blockIdx.x] : 0;
    struct exact_sum sum = { 0, 0 };
    visit_chunk(s, [&](int i, float logit) {
        const float x = scaled_logit(logit, most, c.s.inverse_temperature);
        const bool stays = key_of(x, i) >= cut && !is_below(x, top, c.s);
        const double e = stays ? grid_exp((double)x - (double)top) : 0;
        s.x[i] = (float)e;
        sum = grid_sum(sum, grid_split(e));
    });
    sum.whole = block_sum<ROW_WARPS>(sum.whole, of_warp);
    sum.rest = block_sum<ROW_WARPS>(sum.rest, of_warp);
    if (threadIdx.x == 0)
        c.sum[(int64_t)blockIdx.x * c.chunks + blockIdx.y] = sum;
}

// The division by the sum, and the sums of the row's parts.
static __global__ void __launch_bounds__(ROW_THREADS) normalize_kernel(const __grid_constant__ struct rows_call c)
{
    __shared__ double of_warp[ROW_WARPS];
    kernel_prologue();
    const struct chunk s = chunk_of_block(c);
    if (is_certain(number_of(argmax_of(c, (int)blockIdx.x)), c.s))
        return;
    struct exact_sum sum = { 0, 0 };
    for (int i = 0; i < c.chunks; i++)
        sum = grid_sum(sum, c.sum[(int64_t)blockIdx.x * c.chunks + i]);
    const double by = 1 / grid_total(sum);
    const int length = row_part(c.n);
    for (int k = s.from / length; k < (s.from + c.each) / length; k++) {
        const struct chunk part = { s.x, k * length, min((k + 1) * length, c.n) };
        double of_part = 0, positive = 0;
        visit_chunk(part, [&](int i, float x) {
            const float probability = (float)grid_round((double)x * by);
            s.x[i] = probability;
            of_part += grid_round((double)probability);
            positive += probability > 0;
        });
        if (c.row_sum == NULL)
            continue;
        of_part = block_sum<ROW_WARPS>(of_part, of_warp);
        positive = block_sum<ROW_WARPS>(positive, of_warp);
        if (threadIdx.x == 0) {
            row_sums(c)[k].sum = of_part;
            row_sums(c)[k].positive = (int64_t)positive;
        }
    }
}

static void queue_rows(struct cuda *c, struct rows_call call, int rows)
{
    const int fill = 8 * c->processors / rows;
    for (call.chunks = 1; 2 * call.chunks <= fill && call.chunks < ROW_PARTS;)
        call.chunks *= 2;
    call.each = ROW_PARTS / call.chunks * row_part(call.n);
    const size_t parts = (size_t)rows * (size_t)call.chunks;
    const size_t bytes = parts * (sizeof(*call.sum) + sizeof(*call.key)) + (size_t)rows * sizeof(*call.cut);
    call.sum = (struct exact_sum *)cuda_reserve(c, &c->parts, bytes, "probabilities");
    if (call.sum == NULL)
        return;
    call.key = (uint64_t *)(call.sum + parts);
    const bool certain = call.s.inverse_temperature == 0; // every row has a certain token
    call.cut = !certain && (selects(call, true) || selects(call, false)) ? call.key + parts : NULL;
    const dim3 grid((unsigned)rows, (unsigned)call.chunks);
    QUEUE(c, argmax_kernel, grid, ROW_THREADS, 0, call);
    if (call.cut != NULL)
        select_queue(c, call, rows);
    QUEUE(c, exp_kernel, grid, ROW_THREADS, 0, call);
    if (!certain)
        QUEUE(c, normalize_kernel, grid, ROW_THREADS, 0, call);
}

void cuda_probabilities(struct backend *b, struct tensor logits, int used_vocab, const struct row_stages *s,
                        struct part_sum *sums)
{
    struct cuda *c = (struct cuda *)b;
    assert(logits.type == F32 && used_vocab > 0 && used_vocab <= logits.width && logits.width <= 1 << 20);
    struct rows_call call = {};
    call.n = (int)logits.width;
    call.used_vocab = used_vocab;
    call.s = *s;
    const int64_t most = 2 * c->processors; // rows at a time: more would not be faster, and take more memory
    for (int64_t i = 0; i < logits.rows; i += most) {
        call.x = (float *)logits.data + i * logits.width;
        call.row_sum = sums != NULL ? sums + i * ROW_PARTS : NULL;
        queue_rows(c, call, (int)(logits.rows - i < most ? logits.rows - i : most));
    }
    cuda_launched(c, "probabilities");
}

// ---- temperature 0, without rows

struct certain_shared { // dynamic
    uint64_t of_warp[CLUSTER_THREADS / (int)WARP], key;
};

// A cluster has a row, each of its blocks a part of it. token: (rows)
static __global__ void __launch_bounds__(CLUSTER_THREADS, 2)
    certain_kernel(const float *logits, int n, int used_vocab, int32_t *token)
{
    DYNAMIC_SHARED(struct certain_shared, s);
    kernel_prologue();
    const int row = cluster_of_block(), blocks = blocks_in_cluster(), each = (used_vocab + blocks - 1) / blocks;
    const int from = min(block_in_cluster() * each, used_vocab), to = min(from + each, used_vocab);
    uint64_t key = key_of(-INFINITY, 0);
    visit_share<CLUSTER_THREADS>(logits + (int64_t)row * n, from, to, [&](int i, float logit) {
        const uint64_t other = key_of(cleaned(logit, true), i);
        key = other > key ? other : key;
    });
    key = block_max<CLUSTER_THREADS / (int)WARP>(key, s->of_warp);
    if (threadIdx.x == 0)
        s->key = key;
    cluster_barrier();
    for (int k = 0; k < blocks; k++) {
        const uint64_t other = in_block(s, k)->key;
        key = other > key ? other : key;
    }
    if (threadIdx.x == 0 && block_in_cluster() == 0)
        token[row] = certain_token(key);
    cluster_end();
}

void cuda_certain(struct backend *b, struct tensor logits, int used_vocab, int32_t *token)
{
    struct cuda *c = (struct cuda *)b;
    const int blocks = cluster_blocks(c);
    assert(logits.type == F32 && used_vocab > 0 && used_vocab <= logits.width);
    QUEUE_CLUSTERS(c, certain_kernel, blocks, (int)logits.rows * blocks, CLUSTER_THREADS, sizeof(struct certain_shared),
                   (const float *)logits.data, (int)logits.width, used_vocab, token);
    cuda_launched(c, "certain");
}

} // namespace DEVICE_SPACE
