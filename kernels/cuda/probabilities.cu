// probabilities.cu - rows of logits become rows of probabilities, with the bits that sampling/ computes on the host: the same functions
// of single numbers (core/grid.h), and exact sums, whose order does not matter.
//
// Launches: the largest of each row; three walks for top_k, three for top_p (select.h); e^x and its sum; the division by it. Rows have
// 100 to 600 kB, so all launches but the first read them from the cache.
#include "kernels/cuda/select.h"

namespace DEVICE_SPACE
{

// Finds the largest logit and its id, replaces NaN and padding by -inf, and clears the buckets.
static __global__ void __launch_bounds__(ROW_THREADS) argmax_kernel(const __grid_constant__ struct rows_call c)
{
    __shared__ uint64_t of_warp[ROW_WARPS];
    kernel_prologue();
    const struct chunk s = chunk_of_block(c);
    uint64_t argmax = 0;
    walk_batches(s, [&](int i, float logit) {
        const float x = cleaned(logit, i < c.used_vocab);
        if (!(x == logit))
            s.x[i] = x;
        const uint64_t key = key_of(x, i);
        argmax = key > argmax ? key : argmax;
    });
    argmax = block_max<ROW_WARPS>(argmax, of_warp);
    if (threadIdx.x == 0)
        c.key[(int64_t)blockIdx.x * c.chunks + blockIdx.y] = argmax;
    const int number = (int)blockIdx.y * ROW_THREADS + (int)threadIdx.x;
    for (int k = 0; k < c.selections; k++)
        for (int b = number; b < (WALKS - 1) * BUCKETS; b += c.chunks * ROW_THREADS) {
            struct exact_sum *bucket = buckets_of(c.selection[k], 0) + b;
            bucket->whole = bucket->rest = 0;
        }
}

// The first walk of a selection applies what comes before it: the first of all the temperature, that of the second selection the
// first selection's cut.
static __global__ void __launch_bounds__(ROW_THREADS)
    walk_kernel(const __grid_constant__ struct rows_call c, int number, int walk)
{
    __shared__ struct select_scratch scratch;
    kernel_prologue();
    const struct chunk s = chunk_of_block(c);
    const float most = number_of(argmax_of(c)), top = scaled_logit(most, most, c.s.inverse_temperature);
    if (is_certain(most, c.s))
        return;
    if (number == 0 && walk == 0 && c.s.inverse_temperature != 1)
        walk_batches(s, [&](int i, float x) { s.x[i] = scaled_logit(x, most, c.s.inverse_temperature); });
    if (number > 0 && walk == 0)
        apply_cut(c, c.selection[number - 1], s, top, scratch);
    __syncthreads();
    walk_chunk(c, c.selection[number], walk, s, top, scratch);
}

// e^x and their sum; or, if one token is certain, its row.
static __global__ void __launch_bounds__(ROW_THREADS) exp_kernel(const __grid_constant__ struct rows_call c)
{
    __shared__ struct select_scratch scratch;
    __shared__ double of_warp[ROW_WARPS];
    kernel_prologue();
    const struct chunk s = chunk_of_block(c);
    const uint64_t argmax = argmax_of(c);
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
    if (c.selections > 0)
        apply_cut(c, c.selection[c.selections - 1], s, top, scratch);
    struct exact_sum sum = { 0, 0 };
    walk_batches(s, [&](int i, float logit) {
        const float x = c.selections > 0 ? logit : scaled_logit(logit, most, c.s.inverse_temperature);
        const double e = is_below(x, top, c.s) ? 0 : grid_exp((double)x - (double)top);
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
    if (is_certain(number_of(argmax_of(c)), c.s))
        return;
    struct exact_sum sum = { 0, 0 };
    for (int i = 0; i < c.chunks; i++)
        sum = grid_sum(sum, c.sum[(int64_t)blockIdx.x * c.chunks + i]);
    const double by = 1 / grid_total(sum);
    const int length = row_part(c.n);
    for (int k = s.from / length; k < (s.from + c.each) / length; k++) {
        const struct chunk part = { s.x, k * length, min((k + 1) * length, c.n) };
        double of_part = 0, positive = 0;
        walk_batches(part, [&](int i, float x) {
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

static void add_selection(struct rows_call *c, bool by_count, double enough)
{
    struct selection *s = &c->selection[c->selections++];
    s->by_count = by_count;
    s->enough = enough;
}

// Allocates the partial results. false: out of memory.
static bool allocate_parts(struct cuda *c, struct rows_call *call, int rows)
{
    const size_t parts = (size_t)rows * (size_t)call->chunks, of_part = sizeof(*call->sum) + sizeof(*call->key);
    const size_t buckets = (size_t)rows * (WALKS - 1) * BUCKETS, counts = parts * LAST_BUCKETS;
    const size_t of_selection = buckets * sizeof(struct exact_sum) + counts * sizeof(uint32_t);
    uint8_t *at = (uint8_t *)cuda_reserve(c, &c->parts, (size_t)call->selections * of_selection + parts * of_part,
                                          "probabilities");
    if (at == NULL)
        return false;
    for (int k = 0; k < call->selections; k++, at += of_selection) {
        call->selection[k].bucket = (struct exact_sum *)at;
        call->selection[k].count = (uint32_t *)(at + buckets * sizeof(struct exact_sum));
    }
    call->sum = (struct exact_sum *)at;
    call->key = (uint64_t *)(call->sum + parts);
    return true;
}

static void queue_rows(struct cuda *c, struct rows_call call, int rows)
{
    const int fill = (call.selections > 0 ? 2 : 8) * c->processors / rows; // each block of a selection finds the cut
    for (call.chunks = 1; 2 * call.chunks <= fill && call.chunks < ROW_PARTS;)
        call.chunks *= 2;
    call.each = ROW_PARTS / call.chunks * row_part(call.n);
    if (!allocate_parts(c, &call, rows))
        return;
    const dim3 grid((unsigned)rows, (unsigned)call.chunks);
    QUEUE(c, argmax_kernel, grid, ROW_THREADS, 0, call);
    for (int k = 0; k < call.selections; k++)
        for (int walk = 0; walk < WALKS; walk++)
            QUEUE(c, walk_kernel, grid, ROW_THREADS, 0, call, k, walk);
    QUEUE(c, exp_kernel, grid, ROW_THREADS, 0, call);
    if (call.s.inverse_temperature != 0) // else every row has a certain token
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
    const bool certain = s->inverse_temperature == 0; // every row has a certain token
    if (!certain && s->top_k > 0 && s->top_k < call.n)
        add_selection(&call, true, s->top_k);
    if (!certain && s->top_p < 1)
        add_selection(&call, false, s->top_p);
    const int64_t most = 2 * c->processors; // rows at a time: more would not be faster, and take more memory
    for (int64_t i = 0; i < logits.rows; i += most) {
        call.x = (float *)logits.data + i * logits.width;
        call.row_sum = sums != NULL ? sums + i * ROW_PARTS : NULL;
        queue_rows(c, call, (int)(logits.rows - i < most ? logits.rows - i : most));
    }
    cuda_launched(c, "probabilities");
}

} // namespace DEVICE_SPACE
