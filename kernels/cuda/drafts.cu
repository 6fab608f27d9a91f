// drafts.cu - drafts built where the logits are: drafters/trees/tree_builder.c and host_drafts.c for a device,
// candidate for candidate. The host knows the maximum number of rows of each level and nothing else.
//
// A level is the top-k of each row (top_k.cu), or rows of probabilities and draws from them (drafts_sampled.cu). Then
// one block per slot adds the children and selects the candidates that get rows of logits next, or, after the last
// level, writes the draft. layout.cu makes the layout of such rows in a pass.
#include "kernels/cuda/drafts.h"

namespace DEVICE_SPACE
{

enum { BEGIN = 64 }; // requests per launch

struct cuda_drafting {        // the host's
    struct drafting drafting; // first
    struct builder builder;
    void *memory;
    int32_t *best; // (slots * frontier, k)
    float *log_p;
    int requests;
};

struct requests {
    int first;
    struct drafting_request of[BEGIN];
};

static __global__ void begin_kernel(const __grid_constant__ struct builder t, const __grid_constant__ struct requests r)
{
    kernel_prologue();
    const struct drafting_request &own = r.of[blockIdx.x];
    const struct draft_state state = { own, 1, 1 };
    t.state[r.first + (int)blockIdx.x] = state;
    t.at[(int64_t)own.slot * t.s.candidates] = candidate_root(own.token);
    t.of_frontier[(int64_t)own.slot * t.s.frontier] = 0;
}

// The children of the frontier's candidate f from the top-k of its row, by a warp. They become candidates from `to` on,
// unless that is negative. Returns their number. token: shared memory (k).
__device__ static int top_k_children(const struct builder &t, const struct level &l, const struct draft_at_hand &d,
                                     int f, int to, int32_t *token)
{
    const int lane = (int)threadIdx.x % WARP, c = d.frontier[f], family = d.at[c].family;
    const int first = t.s.families.first[family], size = family_size(&t.s.families, family);
    const int64_t row = row_of(l, (int)blockIdx.x, f) * t.s.k;
    int n = 0;
    __syncwarp(); // the last row's tokens were read
    for (int i = lane; i < t.s.k; i += WARP)
        token[i] = t.s.target_id != NULL ? t.s.target_id[l.best[row + i]] : l.best[row + i];
    __syncwarp();
    for (int m = lane; m - lane < size; m += WARP) {
        const int i = m < size ? top_k_index(token, t.s.k, t.s.used_vocab, 0, t.s.families.rank[first + m]) : t.s.k;
        if (i < t.s.k && to >= 0)
            d.at[to + m] = greedy_child(d.at, c, t.s.families.child[first + m], token[i], l.log_p[row + i]);
        n += __popc(__ballot_sync(0xFFFFFFFF, i < t.s.k)); // the first members
    }
    return n;
}

static __global__ void __launch_bounds__(DRAFT_THREADS, 1)
    greedy_kernel(const __grid_constant__ struct builder t, const __grid_constant__ struct level l)
{
    __shared__ struct selection s;
    __shared__ int32_t token[DRAFT_WARPS][MAX_TOP_K];
    __shared__ int begin[DRAFTING_FRONTIER]; // numbers of children, then the first child
    kernel_prologue();
    const struct draft_at_hand d = draft_of(t, (int)blockIdx.x);
    const int thread = (int)threadIdx.x, warp = thread / WARP;
    int children;
    for (int f = warp; f < d.n_frontier; f += DRAFT_WARPS) {
        const int n = top_k_children(t, l, d, f, -1, token[warp]);
        if (thread % WARP == 0)
            begin[f] = n;
    }
    __syncthreads();
    const int before = sum_before(thread < d.n_frontier ? begin[thread] : 0, s.of_warp, &children);
    if (thread < d.n_frontier)
        begin[thread] = d.n + before;
    __syncthreads();
    for (int f = warp; f < d.n_frontier; f += DRAFT_WARPS)
        top_k_children(t, l, d, f, begin[f], token[warp]);
    end_level(t, l, d, d.n + children, s);
}

// ---- life

// Arrays one after the other in one allocation.
struct arena {
    uint8_t *data; // NULL: only measures
    size_t bytes;
};

template <typename T> static T *carve(struct arena *p, size_t n)
{
    T *to = (T *)(p->data != NULL ? p->data + p->bytes : NULL);
    p->bytes += (n * sizeof(T) + 15) / 16 * 16;
    return to;
}

static void lay_out(struct cuda_drafting *g, struct arena *p, const struct drafting_shape *s)
{
    struct builder *t = &g->builder;
    const size_t slots = (size_t)s->slots, level = slots * (size_t)s->frontier;
    const size_t nodes = slots * (size_t)s->draft_nodes, members = (size_t)s->families.first[s->families.n];
    t->s.families.first = carve<int16_t>(p, (size_t)s->families.n + 1);
    t->s.families.rank = carve<int16_t>(p, members);
    t->s.families.child = carve<int16_t>(p, members);
    t->s.target_id = s->target_id != NULL ? carve<int32_t>(p, (size_t)s->row_vocab) : NULL;
    t->row_id = s->target_id != NULL ? carve<int32_t>(p, (size_t)s->vocab) : NULL;
    t->state = carve<struct draft_state>(p, slots);
    t->at = carve<struct candidate>(p, slots * (size_t)s->candidates);
    int32_t **const of_levels[] = { &t->of_frontier, &t->next_token };
    int32_t **const of_nodes[] = { &t->draft_token, &t->draft_parent, &t->tag, &t->draft_q_row };
    t->draft_n = carve<int32_t>(p, slots);
    for (int32_t **to : of_levels)
        *to = carve<int32_t>(p, level);
    for (int32_t **to : of_nodes)
        *to = carve<int32_t>(p, nodes);
    t->next_parent = carve<int32_t>(p, slots * (size_t)(s->evaluated > 0 ? s->evaluated : 1));
    t->proposal = carve<uint8_t>(p, nodes);
    g->best = carve<int32_t>(p, level * (size_t)s->k);
    g->log_p = carve<float>(p, level * (size_t)s->k);
}

// The drafter's ids of the target's; -1: none.
static void upload_row_ids(struct backend *b, const struct builder *t, const struct drafting_shape *s)
{
    int32_t *of = (int32_t *)xcalloc((size_t)s->vocab, sizeof(*of));
    for (int x = 0; x < s->vocab; x++)
        of[x] = -1;
    for (int x = 0; x < s->row_vocab; x++)
        if (s->target_id[x] < s->vocab)
            of[s->target_id[x]] = x;
    b->upload(b, (void *)t->row_id, of, (size_t)s->vocab * sizeof(*of));
    free(of);
}

struct drafting *cuda_drafts_create(struct backend *b, const struct drafting_shape *s)
{
    assert(s->candidates <= DRAFTING_CANDIDATES && s->frontier <= DRAFTING_FRONTIER && s->slots <= MAX_SLOTS);
    assert(s->k <= MAX_TOP_K);
    for (int f = 0; f < s->families.n; f++)
        assert(family_size(&s->families, f) <= MAX_TOP_K);
    struct cuda_drafting *g = (struct cuda_drafting *)xcalloc(1, sizeof(*g));
    struct arena p = { NULL, 0 };
    g->builder.s = *s;
    lay_out(g, &p, s);
    g->memory = b->alloc(b, p.bytes);
    if (g->memory == NULL) {
        free(g);
        return NULL;
    }
    p.data = (uint8_t *)g->memory;
    p.bytes = 0;
    lay_out(g, &p, s);
    struct builder *t = &g->builder;
    const size_t members = (size_t)s->families.first[s->families.n] * sizeof(int16_t);
    b->upload(b, (void *)t->s.families.first, s->families.first, ((size_t)s->families.n + 1) * sizeof(int16_t));
    b->upload(b, (void *)t->s.families.rank, s->families.rank, members);
    b->upload(b, (void *)t->s.families.child, s->families.child, members);
    if (s->target_id != NULL) {
        b->upload(b, (void *)t->s.target_id, s->target_id, (size_t)s->row_vocab * sizeof(int32_t));
        upload_row_ids(b, t, s);
    }
    g->drafting.bytes = p.bytes;
    g->drafting.token = t->next_token;
    g->drafting.parent = t->next_parent;
    g->drafting.n = t->draft_n;
    g->drafting.draft_token = t->draft_token;
    g->drafting.draft_parent = t->draft_parent;
    g->drafting.q_row = t->draft_q_row;
    g->drafting.tag = t->tag;
    g->drafting.proposal = t->proposal;
    return &g->drafting;
}

void cuda_drafts_destroy(struct backend *b, struct drafting *drafting)
{
    struct cuda_drafting *g = (struct cuda_drafting *)drafting;
    if (g == NULL)
        return;
    b->release(b, g->memory);
    free(g);
}

// ---- launches

void cuda_drafts_begin(struct backend *b, struct drafting *drafting, const struct drafting_request *r, int n)
{
    struct cuda *c = (struct cuda *)b;
    struct cuda_drafting *g = (struct cuda_drafting *)drafting;
    struct requests some;
    assert(n >= 1 && n <= g->builder.s.slots);
    g->requests = n;
    for (some.first = 0; some.first < n; some.first += BEGIN) {
        const int count = n - some.first < BEGIN ? n - some.first : BEGIN;
        memcpy(some.of, r + some.first, (size_t)count * sizeof(*r));
        QUEUE(c, begin_kernel, count, 1, 0, g->builder, some);
    }
    cuda_launched(c, "building a draft");
}

void cuda_drafts_level(struct backend *b, struct drafting *drafting, const struct drafting_level *wanted)
{
    struct cuda *c = (struct cuda *)b;
    struct cuda_drafting *g = (struct cuda_drafting *)drafting;
    struct level l = {};
    assert(wanted->capacity <= g->builder.s.frontier && wanted->pending + wanted->capacity <= g->builder.s.evaluated);
    l.depth = wanted->depth, l.stride = wanted->stride, l.q_row = wanted->q_row, l.last = wanted->last;
    l.pending = wanted->pending, l.capacity = wanted->capacity;
    l.best = g->best, l.log_p = g->log_p;
    memcpy(l.first, wanted->first, (size_t)g->requests * sizeof(*l.first));
    if (g->builder.s.pick == PICK_GREEDY) {
        top_k_queue(c, wanted->logits, g->builder.s.k, g->best, g->log_p);
        QUEUE(c, greedy_kernel, g->requests, DRAFT_THREADS, 0, g->builder, l);
    } else
        sample_level(c, &g->builder, wanted, &l, g->requests);
    cuda_launched(c, "building a draft");
}

} // namespace DEVICE_SPACE
