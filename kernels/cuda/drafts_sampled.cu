// drafts_sampled.cu - sampled and coupled children of a level: rows of probabilities, and draws from them with the
// host's results.
//
// A draw reads the part of a row that has the token, by the sums that come with the probabilities. They are exact
// (core/grid.h), so a part without a token that was drawn before has its sum less that token's weight.
#include "kernels/cuda/drafts.h"
#include "kernels/cuda/sampling.h"

namespace DEVICE_SPACE
{

enum { MAP_THREADS = 256 };

// The sums of the parts of the row of the frontier's candidate f.
__device__ static const struct part_sum *sums_of(const struct level &l, int request, int f)
{
    return l.q_sums + row_of(l, request, f) * ROW_PARTS;
}

// Rows over the target's ids: tokens without an id of the drafter are impossible.
static __global__ void map_ids_kernel(float *to, int width, const float *from, int from_width, const int32_t *row_id)
{
    kernel_prologue();
    const int x = (int)(blockIdx.y * MAP_THREADS + threadIdx.x);
    if (x >= width)
        return;
    const int id = row_id != NULL ? row_id[x] : x < from_width ? x : -1;
    to[(int64_t)blockIdx.x * width + x] = id >= 0 ? from[(int64_t)blockIdx.x * from_width + id] : -INFINITY;
}

struct draws { // shared memory of a block
    struct selection selection;
    struct sampling_scratch<DRAFT_THREADS> scratch;
    double sum[ROW_PARTS], of_warp[DRAFT_WARPS];
    int32_t out[MAX_TOP_K]; // tokens that were drawn before, where siblings differ
    int first, n;           // the children's
};

// Number of children of the frontier's candidate f.
__device__ static int children_of(const struct builder &t, const struct level &l, const struct draft_at_hand &d,
                                  int request, int f)
{
    const int n = family_top_k(&t.s.families, d.at[d.frontier[f]].family, t.s.vocab);
    const struct part_sum *part = sums_of(l, request, f);
    int positive = 0;
    if (!siblings_differ(t.s.distinct, n))
        return n;
    UNROLL_BY(8)
    for (int i = 0; i < ROW_PARTS; i++)
        positive += (int)part[i].positive;
    return children_sampled(t.s.distinct, n, positive);
}

// A draw from a row without the first n tokens of s.out, by the sums of its parts in s.sum.
__device__ static int pick_token(const struct level &l, const float *row, int n, double target, struct draws &s)
{
    const int each = row_part(l.width);
    double below = 0;
    const int from = max(pick_cumulative(s.sum, ROW_PARTS, target, &below), 0) * each;
    const auto entry = [&](int i) {
        bool is_out = false;
        for (int k = 0; k < n; k++)
            is_out = is_out || s.out[k] == i;
        return is_out ? 0 : entry_of(row, i);
    };
    return pick_between(entry, from, min(from + each, l.width), target, below, s.scratch);
}

// The children of the frontier's candidate f. Returns the number after the last one's.
__device__ static int sample_children(const struct builder &t, const struct level &l, const struct draft_at_hand &d,
                                      int f, struct draws &s)
{
    const int c = d.frontier[f], family = d.at[c].family, wanted = family_top_k(&t.s.families, family, t.s.vocab);
    const bool distinct = siblings_differ(t.s.distinct, wanted);
    const struct random_source source = { d.r.seed, d.r.sequence, d.r.root };
    const int64_t at_row = row_of(l, (int)blockIdx.y, f);
    const float *row = l.q + at_row * l.width;
    const int own = (int)threadIdx.x <= f ? children_of(t, l, d, (int)blockIdx.y, (int)threadIdx.x) : 0;
    int children;
    double total;
    const int before = sum_before(own, s.selection.of_warp, &children);
    if ((int)threadIdx.x == f)
        s.first = d.n + before, s.n = own;
    if (threadIdx.x < ROW_PARTS)
        s.sum[threadIdx.x] = sums_of(l, (int)blockIdx.y, f)[threadIdx.x].sum;
    __syncthreads();
    const int at = s.first, n = s.n;
    sum_before(threadIdx.x < ROW_PARTS ? s.sum[threadIdx.x] : 0, s.of_warp, &total);
    for (int k = 0; k < n; k++) {
        const int x = pick_token(l, row, distinct ? k : 0, total * uniform(source, FOR_DRAFT, at + k), s);
        const double weight = distinct ? entry_of(row, x) : 0;
        total -= weight;
        if (threadIdx.x == 0) {
            s.out[k] = x;
            s.sum[x / row_part(l.width)] -= weight;
            d.at[at + k] = sampled_child(d.at, c, t.s.families.child[t.s.families.first[family] + k], x, t.s.pick,
                                         t.s.distinct, wanted);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        d.at[c].q_row = l.q_row + (int)at_row;
    return at + n;
}

// One block per row. If no level has more than one, it ends the level as well.
static __global__ void __launch_bounds__(DRAFT_THREADS, 1)
    sample_kernel(const __grid_constant__ struct builder t, const __grid_constant__ struct level l)
{
    __shared__ struct draws s;
    kernel_prologue();
    const struct draft_at_hand d = draft_of(t, (int)blockIdx.y);
    int to = d.n;
    if ((int)blockIdx.x < d.n_frontier)
        to = sample_children(t, l, d, (int)blockIdx.x, s);
    if (gridDim.x == 1)
        end_level(t, l, d, to, s.selection);
}

static __global__ void __launch_bounds__(DRAFT_THREADS, 1)
    level_kernel(const __grid_constant__ struct builder t, const __grid_constant__ struct level l)
{
    __shared__ struct selection s;
    kernel_prologue();
    const struct draft_at_hand d = draft_of(t, (int)blockIdx.x);
    const bool real = (int)threadIdx.x < d.n_frontier;
    int children;
    sum_before(real ? children_of(t, l, d, (int)blockIdx.x, (int)threadIdx.x) : 0, s.of_warp, &children);
    end_level(t, l, d, d.n + children, s);
}

// The token that `match` would draw from this row at this position; a cluster of blocks for each draft.
static __global__ void __launch_bounds__(CLUSTER_THREADS, 1)
    race_kernel(const __grid_constant__ struct builder t, const __grid_constant__ struct level l)
{
    typedef struct sampling_scratch<CLUSTER_THREADS, CLUSTER> race_scratch;
    DYNAMIC_SHARED(race_scratch, scratch);
    kernel_prologue();
    if (threadIdx.x == 0)
        scratch->turn = 0;
    cluster_barrier(); // all blocks have begun
    const int request = cluster_of_block();
    const struct draft_at_hand d = draft_of(t, request);
    if (d.n_frontier > 0) {
        const struct random_source source = { d.r.seed, d.r.sequence, d.r.root };
        const int c = d.frontier[0], child = t.s.families.child[t.s.families.first[d.at[c].family]];
        const int x =
            race(l.q + row_of(l, request, 0) * l.width, l.width, source, coupled_position(d.r.root, l.depth), *scratch);
        if (threadIdx.x == 0 && block_in_cluster() == 0)
            d.at[d.n] = sampled_child(d.at, c, child, x, t.s.pick, t.s.distinct, 1);
    }
}

void sample_level(struct cuda *c, const struct builder *t, const struct drafting_level *wanted, struct level *l,
                  int requests)
{
    const unsigned rows = (unsigned)wanted->width, n = (unsigned)requests;
    assert(wanted->q.rows == wanted->logits.rows && wanted->q_sums != NULL);
    if (wanted->q.data != wanted->logits.data)
        QUEUE(c, map_ids_kernel, dim3((unsigned)wanted->q.rows, (unsigned)blocks_for(wanted->q.width, MAP_THREADS)),
              MAP_THREADS, 0, (float *)wanted->q.data, (int)wanted->q.width, (const float *)wanted->logits.data,
              (int)wanted->logits.width, t->row_id);
    cuda_probabilities(&c->backend, wanted->q, wanted->used_vocab, wanted->stages, wanted->q_sums);
    l->width = (int)wanted->q.width;
    l->q = (const float *)wanted->q.data;
    l->q_sums = wanted->q_sums;
    if (t->s.pick == PICK_COUPLED) {
        const int blocks = cluster_blocks(c);
        QUEUE_CLUSTERS(c, race_kernel, blocks, requests * blocks, CLUSTER_THREADS,
                       sizeof(struct sampling_scratch<CLUSTER_THREADS, CLUSTER>), *t, *l);
    } else
        QUEUE(c, sample_kernel, dim3(rows, n), DRAFT_THREADS, 0, *t, *l);
    if (t->s.pick == PICK_COUPLED || rows > 1)
        QUEUE(c, level_kernel, requests, DRAFT_THREADS, 0, *t, *l);
}

} // namespace DEVICE_SPACE
