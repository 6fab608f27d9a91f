// drafts.cu - drafts built where the logits are: drafters/tree_builder.c and host_drafts.c for a device, candidate for candidate. The
// host knows the maximum number of rows of each level and nothing else.
//
// A level is the top-k of each row (top_k.cu), or rows of probabilities and draws from them (a block per row); then one block per slot
// adds the children and selects the candidates that get rows of logits next. Rank among candidates is computed by counting the better
// ones: there are some hundred candidates, and the order of threads cannot matter.
#include "kernels/cuda/sampling.h"
#include "kernels/cuda/cuda.h"
extern "C" {
#include "device_step/drafting.h"
#include "core/row_stages.h"
}

#include <math.h>

namespace DEVICE_SPACE
{

enum { THREADS = 512, WARPS = THREADS / WARP, SIBLINGS = 64 };

struct builder { // as kernels read it
    enum pick pick;
    bool distinct, uneven; // uneven: a row may have fewer tokens than its candidate should have children
    int nodes, top, vocab, used_vocab, k, candidates, frontier, evaluated, draft_nodes;
    const int16_t *first, *rank, *child;
    const int32_t *target_id;
    const struct drafting_request *request;
    int32_t *n, *n_frontier;                               // (slots)
    int32_t *at, *children;                                // (slots, frontier) candidate; number of its children
    int32_t *parent, *token, *family, *row, *q_row, *node; // (slots, candidates)
    uint8_t *how;                                          // (slots, candidates) enum proposal
    double *score;                                         // (slots, candidates)
    int32_t *next_token, *next_parent;                     // as in struct drafting
    int32_t *draft_n, *draft_token, *draft_parent, *tag, *draft_q_row;
    uint8_t *proposal;
};

struct level { // struct drafting_level as a kernel argument
    int depth, stride, q_row, pending, capacity, width;
    const float *q;      // (rows, width)
    const int32_t *best; // (rows, k)
    const float *log_p;
    int32_t first[MAX_SLOTS];
};

struct cuda_drafting {        // on the host
    struct drafting drafting; // first
    struct builder builder;
    void *memory;
    int32_t *best; // (slots * frontier, k)
    float *log_p;
    int slots, requests;
};

// ---- candidates

__device__ static int family_of(const struct builder &t, int slot, int f)
{
    return t.family[slot * t.candidates + t.at[slot * t.frontier + f]];
}

__device__ static int family_size(const struct builder &t, int family)
{
    return t.first[family + 1] - t.first[family];
}

__device__ static int row_of(const struct level &l, int request, int f)
{
    return l.first[request] + f * l.stride;
}

__device__ static void put(const struct builder &t, int slot, int c, int parent, int32_t token, int how, int family,
                           double score)
{
    const int at = slot * t.candidates + c;
    t.parent[at] = parent;
    t.token[at] = token;
    t.how[at] = (uint8_t)how;
    t.family[at] = family;
    t.score[at] = score;
    t.row[at] = t.q_row[at] = -1;
}

// ---- beginning

static __global__ void begin_kernel(const __grid_constant__ struct builder t)
{
    kernel_prologue();
    const struct drafting_request r = t.request[blockIdx.x];
    put(t, r.slot, 0, 0, r.token, DETERMINISTIC, 0, 0);
    t.n[r.slot] = 1;
    t.at[r.slot * t.frontier] = 0;
    t.n_frontier[r.slot] = 1;
}

// ---- the next level

// Whether candidate a ranks before b.
__device__ static bool better(const double *score, int a, int b)
{
    return score[a] > score[b] || (score[a] == score[b] && a < b);
}

// Selects the frontier at depth `depth` from candidates from .. to: all of them in their order or, if there are too many, the best in
// order of rank. Returns their number, in every thread.
__device__ static int select_frontier(const struct builder &t, const struct drafting_request &r, int depth, int from,
                                      int to, double *of_warp)
{
    const double *score = t.score + r.slot * t.candidates;
    const int32_t *family = t.family + r.slot * t.candidates;
    const bool evaluated = depth<r.max_depth, crowded = t.nodes> 0 && to - from > t.top;
    double count = 0;
    for (int c = from + (int)threadIdx.x; c < to && evaluated; c += THREADS) {
        if (family_size(t, family[c]) == 0)
            continue;
        int before = 0;
        for (int other = from; other < to; other++)
            if (family_size(t, family[other]) > 0)
                before += crowded ? better(score, other, c) : other < c;
        if (crowded && before >= t.top)
            continue;
        t.at[r.slot * t.frontier + before] = c;
        count++;
    }
    return (int)block_sum<WARPS>(count, of_warp);
}

// Writes the frontier's tokens and parents for the next pass, and the pending rows they will have.
__device__ static void write_frontier(const struct builder &t, const struct level &l, int slot, int count)
{
    const int32_t *at = t.at + slot * t.frontier;
    if (threadIdx.x == 0)
        t.n_frontier[slot] = count;
    for (int f = (int)threadIdx.x; f < l.capacity; f += THREADS) {
        const bool real = f < count;
        const int c = slot * t.candidates + (real ? at[f] : 0);
        t.next_token[slot * t.frontier + f] = real ? t.token[c] : 0;
        t.next_parent[slot * t.evaluated + l.pending + f] = real ? t.row[slot * t.candidates + t.parent[c]] : -1;
    }
    __syncthreads(); // rows of parents were read from the same array
    for (int f = (int)threadIdx.x; f < count; f += THREADS)
        t.row[slot * t.candidates + at[f]] = l.pending + f;
}

__device__ static void next_frontier(const struct builder &t, const struct level &l, const struct drafting_request &r,
                                     int from, int to, double *of_warp)
{
    __syncthreads(); // the frontier's candidates were read
    const int count = select_frontier(t, r, l.depth + 1, from, to, of_warp);
    if (threadIdx.x == 0)
        t.n[r.slot] = to;
    write_frontier(t, l, r.slot, count);
}

// ---- deterministic children

// The children of the frontier's candidate f of a request, from the top-k of its row. Writes them from candidate `at` on, unless that is
// negative; returns their number.
__device__ static int top_k_children(const struct builder &t, const struct level &l, int request, int slot, int f,
                                     int at)
{
    const int c = t.at[slot * t.frontier + f], family = t.family[slot * t.candidates + c];
    const int64_t row = (int64_t)row_of(l, request, f) * t.k;
    const double score = t.score[slot * t.candidates + c];
    int member = t.first[family], rank = 0, n = 0;
    for (int i = 0; i < t.k && member < t.first[family + 1]; i++) {
        const int id = l.best[row + i], token = t.target_id != NULL ? t.target_id[id] : id;
        if (token >= t.used_vocab)
            continue;
        if (rank++ != t.rank[member])
            continue;
        const float log_p = l.log_p[row + i];
        if (at >= 0)
            put(t, slot, at + n, c, token, DETERMINISTIC, t.child[member], score + (double)(log_p < 0 ? log_p : 0));
        member++;
        n++;
    }
    return n;
}

static __global__ void __launch_bounds__(THREADS, 1)
    greedy_kernel(const __grid_constant__ struct builder t, const __grid_constant__ struct level l)
{
    __shared__ int begin[DRAFTING_FRONTIER + 1];
    __shared__ double of_warp[WARPS];
    kernel_prologue();
    const struct drafting_request r = t.request[blockIdx.x];
    const int n = t.n[r.slot], frontier = t.n_frontier[r.slot];
    for (int f = (int)threadIdx.x; f < frontier; f += THREADS)
        begin[f + 1] = top_k_children(t, l, (int)blockIdx.x, r.slot, f, -1);
    __syncthreads();
    if (threadIdx.x == 0) {
        begin[0] = n;
        for (int f = 0; f < frontier; f++)
            begin[f + 1] += begin[f];
    }
    __syncthreads();
    for (int f = (int)threadIdx.x; f < frontier; f += THREADS)
        top_k_children(t, l, (int)blockIdx.x, r.slot, f, begin[f]);
    __syncthreads();
    next_frontier(t, l, r, n, begin[frontier], of_warp);
}

// ---- sampled children

// Maps rows over the drafter's ids to the target's: tokens without an id of the drafter are impossible.
static __global__ void map_ids_kernel(float *to, int width, const float *from, int from_width, const int32_t *target_id)
{
    kernel_prologue();
    to += (int64_t)blockIdx.x * width;
    from += (int64_t)blockIdx.x * from_width;
    for (int x = (int)threadIdx.x; x < width; x += THREADS)
        to[x] = -INFINITY;
    __syncthreads();
    for (int x = (int)threadIdx.x; x < from_width; x += THREADS) {
        const int id = target_id != NULL ? target_id[x] : x;
        if (id < width)
            to[id] = from[x];
    }
}

__device__ static int wanted(const struct builder &t, int slot, int f)
{
    const int size = family_size(t, family_of(t, slot, f));
    return size < t.vocab ? size : t.vocab;
}

// Counts the children: without replacement a row yields no more tokens than have positive probability.
static __global__ void __launch_bounds__(THREADS, 1)
    count_kernel(const __grid_constant__ struct builder t, const __grid_constant__ struct level l)
{
    __shared__ double of_warp[WARPS];
    kernel_prologue();
    const int slot = t.request[blockIdx.y].slot, f = (int)blockIdx.x;
    if (f >= t.n_frontier[slot])
        return;
    const float *q = l.q + (int64_t)row_of(l, (int)blockIdx.y, f) * l.width;
    double has = 0;
    for (int i = (int)threadIdx.x; i < l.width; i += THREADS)
        has += q[i] > 0;
    has = block_sum<WARPS>(has, of_warp);
    const int max_children = wanted(t, slot, f);
    if (threadIdx.x == 0)
        t.children[slot * t.frontier + f] = max_children > 1 && has < max_children ? (int)has : max_children;
}

__device__ static int children_of(const struct builder &t, int slot, int f)
{
    return t.uneven ? t.children[slot * t.frontier + f] : wanted(t, slot, f);
}

__device__ static struct random_source source_of(const struct drafting_request &r)
{
    const struct random_source c = { r.seed, r.sequence, r.root };
    return c;
}

// Samples a candidate's children from its row: one block each.
static __global__ void __launch_bounds__(THREADS, 1)
    sample_kernel(const __grid_constant__ struct builder t, const __grid_constant__ struct level l)
{
    __shared__ struct sampling_scratch<THREADS> scratch;
    __shared__ int32_t out[SIBLINGS];
    kernel_prologue();
    const struct drafting_request r = t.request[blockIdx.y];
    const int f = (int)blockIdx.x, row = row_of(l, (int)blockIdx.y, f);
    if (f >= t.n_frontier[r.slot])
        return;
    const int c = t.at[r.slot * t.frontier + f], family = family_of(t, r.slot, f);
    const bool distinct = t.distinct && wanted(t, r.slot, f) > 1;
    struct row_without left = { l.q + (int64_t)row * l.width, out, 0 };
    int at = t.n[r.slot];
    for (int before = 0; before < f; before++)
        at += children_of(t, r.slot, before);
    for (int k = 0, n = children_of(t, r.slot, f); k < n; k++) {
        const int x = pick(&left, l.width, source_of(r), FOR_DRAFT, at + k, scratch);
        if (threadIdx.x == 0) {
            out[k] = x;
            put(t, r.slot, at + k, c, x, distinct ? SAMPLED_WITHOUT_REPLACEMENT : SAMPLED, t.child[t.first[family] + k],
                0);
        }
        left.n += distinct;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        t.q_row[r.slot * t.candidates + c] = l.q_row + row;
}

// The token that `match` would draw from this row at this position.
static __global__ void __launch_bounds__(THREADS, 1)
    coupled_kernel(const __grid_constant__ struct builder t, const __grid_constant__ struct level l)
{
    __shared__ struct sampling_scratch<THREADS> scratch;
    kernel_prologue();
    const struct drafting_request r = t.request[blockIdx.x];
    if (t.n_frontier[r.slot] == 0)
        return;
    const float *q = l.q + (int64_t)row_of(l, (int)blockIdx.x, 0) * l.width;
    const int x = race(q, l.width, source_of(r), r.root + l.depth + 1, scratch);
    if (threadIdx.x == 0)
        put(t, r.slot, t.n[r.slot], t.at[r.slot * t.frontier], x, DETERMINISTIC,
            t.child[t.first[family_of(t, r.slot, 0)]], 0);
}

static __global__ void __launch_bounds__(THREADS, 1)
    level_kernel(const __grid_constant__ struct builder t, const __grid_constant__ struct level l)
{
    __shared__ double of_warp[WARPS];
    kernel_prologue();
    const struct drafting_request r = t.request[blockIdx.x];
    const int n = t.n[r.slot];
    int to = n;
    for (int f = 0; f < t.n_frontier[r.slot]; f++)
        to += children_of(t, r.slot, f);
    next_frontier(t, l, r, n, to, of_warp);
}

// ---- the draft

// Marks the candidates that become nodes: all, or the best ones. node: (candidates) -1: not a node.
__device__ static void select_nodes(const struct builder &t, const struct drafting_request &r, int n, int32_t *node,
                                    int *nodes)
{
    const double *score = t.score + r.slot * t.candidates;
    const int limit = t.nodes < r.capacity - 1 ? t.nodes : r.capacity - 1;
    const int keep = t.nodes > 0 && limit < n - 1 ? limit : n - 1;
    for (int c = 1 + (int)threadIdx.x; c < n; c += THREADS) {
        int before = 0;
        for (int other = 1; other < n && keep < n - 1; other++)
            before += better(score, other, c);
        node[c] = keep == n - 1 || before < keep ? 1 : -1;
    }
    if (threadIdx.x == 0) {
        node[0] = 0;
        *nodes = keep + 1;
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(THREADS, 1) end_kernel(const __grid_constant__ struct builder t)
{
    __shared__ int32_t kept[DRAFTING_CANDIDATES];
    __shared__ int nodes;
    kernel_prologue();
    const struct drafting_request r = t.request[blockIdx.x];
    const int n = t.n[r.slot], from = r.slot * t.candidates, to = r.slot * t.draft_nodes;
    select_nodes(t, r, n, kept, &nodes);
    for (int c = (int)threadIdx.x; c < n; c += THREADS) {
        int at = c == 0 ? 0 : 1;
        for (int other = 1; other < c; other++)
            at += kept[other] > 0;
        t.node[from + c] = kept[c] >= 0 ? at : -1;
    }
    __syncthreads();
    for (int c = (int)threadIdx.x; c < n; c += THREADS) {
        const int node = t.node[from + c];
        if (node < 0)
            continue;
        t.draft_token[to + node] = t.token[from + c];
        t.draft_parent[to + node] = c == 0 ? -1 : t.node[from + t.parent[from + c]];
        t.proposal[to + node] = t.how[from + c];
        t.tag[to + node] = t.row[from + c];
        t.draft_q_row[to + node] = t.q_row[from + c];
    }
    for (int node = nodes + (int)threadIdx.x; node < t.draft_nodes; node += THREADS) {
        t.draft_token[to + node] = 0;
        t.draft_parent[to + node] = t.tag[to + node] = t.draft_q_row[to + node] = -1;
        t.proposal[to + node] = DETERMINISTIC;
    }
    if (threadIdx.x == 0)
        t.draft_n[r.slot] = nodes;
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
    const size_t slots = (size_t)s->slots, all = slots * (size_t)s->candidates, level = slots * (size_t)s->frontier;
    const size_t nodes = slots * (size_t)s->draft_nodes, members = (size_t)s->families.first[s->families.n];
    t->first = carve<int16_t>(p, (size_t)s->families.n + 1);
    t->rank = carve<int16_t>(p, members);
    t->child = carve<int16_t>(p, members);
    t->target_id = s->target_id != NULL ? carve<int32_t>(p, (size_t)s->row_vocab) : NULL;
    t->request = carve<struct drafting_request>(p, slots);
    t->score = carve<double>(p, all);
    int32_t **const of_slots[] = { &t->n, &t->n_frontier, &t->draft_n };
    int32_t **const of_levels[] = { &t->at, &t->children, &t->next_token };
    int32_t **const of_candidates[] = { &t->parent, &t->token, &t->family, &t->row, &t->q_row, &t->node };
    int32_t **const of_nodes[] = { &t->draft_token, &t->draft_parent, &t->tag, &t->draft_q_row };
    for (int32_t **to : of_slots)
        *to = carve<int32_t>(p, slots);
    for (int32_t **to : of_levels)
        *to = carve<int32_t>(p, level);
    for (int32_t **to : of_candidates)
        *to = carve<int32_t>(p, all);
    for (int32_t **to : of_nodes)
        *to = carve<int32_t>(p, nodes);
    t->next_parent = carve<int32_t>(p, slots * (size_t)(s->evaluated > 0 ? s->evaluated : 1));
    t->how = carve<uint8_t>(p, all);
    t->proposal = carve<uint8_t>(p, nodes);
    g->best = carve<int32_t>(p, level * (size_t)s->k);
    g->log_p = carve<float>(p, level * (size_t)s->k);
}

static bool has_families(const struct drafting_shape *s)
{
    for (int f = 0; f < s->families.n; f++)
        if (s->families.first[f + 1] - s->families.first[f] > 1)
            return true;
    return false;
}

struct drafting *cuda_drafts_create(struct backend *b, const struct drafting_shape *s)
{
    assert(s->candidates <= DRAFTING_CANDIDATES && s->frontier <= DRAFTING_FRONTIER && s->slots <= MAX_SLOTS);
    for (int f = 0; f < s->families.n; f++)
        assert(s->pick == PICK_GREEDY || s->families.first[f + 1] - s->families.first[f] <= SIBLINGS);
    struct cuda_drafting *g = (struct cuda_drafting *)xcalloc(1, sizeof(*g));
    struct arena p = { NULL, 0 };
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
    t->pick = s->pick;
    t->distinct = s->distinct;
    t->uneven = s->pick == PICK_SAMPLED && s->distinct && has_families(s);
    t->nodes = s->nodes, t->top = s->top;
    t->vocab = s->vocab, t->used_vocab = s->used_vocab, t->k = s->k;
    t->candidates = s->candidates, t->frontier = s->frontier, t->evaluated = s->evaluated,
    t->draft_nodes = s->draft_nodes;
    const size_t members = (size_t)s->families.first[s->families.n] * sizeof(int16_t);
    b->upload(b, (void *)t->first, s->families.first, ((size_t)s->families.n + 1) * sizeof(int16_t));
    b->upload(b, (void *)t->rank, s->families.rank, members);
    b->upload(b, (void *)t->child, s->families.child, members);
    if (s->target_id != NULL)
        b->upload(b, (void *)t->target_id, s->target_id, (size_t)s->row_vocab * sizeof(int32_t));
    g->slots = s->slots;
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
    assert(n >= 1 && n <= g->slots);
    g->requests = n;
    b->upload(b, (void *)g->builder.request, r, (size_t)n * sizeof(*r));
    QUEUE(c, begin_kernel, n, 1, 0, g->builder);
    cuda_launched(c, "building a draft");
}

// Makes the rows of probabilities where the drafts refer to them.
static void make_rows(struct cuda *c, const struct drafting_level *l, const int32_t *target_id)
{
    assert(l->q.rows == l->logits.rows);
    if (l->q.data != l->logits.data)
        QUEUE(c, map_ids_kernel, (int)l->q.rows, THREADS, 0, (float *)l->q.data, (int)l->q.width,
              (const float *)l->logits.data, (int)l->logits.width, target_id);
    cuda_probabilities(&c->backend, l->q, l->used_vocab, l->stages, l->q_sums);
}

static void sample_level(struct cuda *c, struct cuda_drafting *g, const struct drafting_level *wanted,
                         const struct level &l)
{
    const dim3 rows((unsigned)wanted->width, (unsigned)g->requests);
    make_rows(c, wanted, g->builder.target_id);
    if (g->builder.uneven)
        QUEUE(c, count_kernel, rows, THREADS, 0, g->builder, l);
    if (g->builder.pick == PICK_COUPLED)
        QUEUE(c, coupled_kernel, g->requests, THREADS, 0, g->builder, l);
    else
        QUEUE(c, sample_kernel, rows, THREADS, 0, g->builder, l);
    QUEUE(c, level_kernel, g->requests, THREADS, 0, g->builder, l);
}

void cuda_drafts_level(struct backend *b, struct drafting *drafting, const struct drafting_level *wanted)
{
    struct cuda *c = (struct cuda *)b;
    struct cuda_drafting *g = (struct cuda_drafting *)drafting;
    struct level l = {};
    assert(wanted->capacity <= g->builder.frontier && wanted->pending + wanted->capacity <= g->builder.evaluated);
    l.depth = wanted->depth, l.stride = wanted->stride, l.q_row = wanted->q_row;
    l.pending = wanted->pending, l.capacity = wanted->capacity;
    l.width = (int)wanted->q.width;
    l.q = (const float *)wanted->q.data;
    l.best = g->best, l.log_p = g->log_p;
    for (int i = 0; i < g->requests; i++)
        l.first[i] = wanted->first[i];
    if (g->builder.pick == PICK_GREEDY) {
        top_k_queue(c, wanted->logits, g->builder.k, g->best, g->log_p);
        QUEUE(c, greedy_kernel, g->requests, THREADS, 0, g->builder, l);
    } else
        sample_level(c, g, wanted, l);
    cuda_launched(c, "building a draft");
}

void cuda_drafts_end(struct backend *b, struct drafting *drafting)
{
    struct cuda *c = (struct cuda *)b;
    struct cuda_drafting *g = (struct cuda_drafting *)drafting;
    QUEUE(c, end_kernel, g->requests, THREADS, 0, g->builder);
    cuda_launched(c, "building a draft");
}

} // namespace DEVICE_SPACE
