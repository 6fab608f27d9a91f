// drafts.h - drafts on a device: the loops over candidates that greedy and sampled drafting share, by one block per
// slot. For .cu files only.
//
// The steps on single candidates are in kernels/device_step/candidates.h. A candidate's rank is the number of better
// ones, so the order of threads cannot matter.
#pragma once
#include "kernels/cuda/cuda.h"
extern "C" {
#include "kernels/device_step/drafting.h"
}

namespace DEVICE_SPACE
{

enum { DRAFT_THREADS = 512, DRAFT_WARPS = DRAFT_THREADS / WARP };
enum { MAX_TOP_K = 96 }; // maximum of a row's top-k (a family, and padding ids) and children
static_assert((int)DRAFTING_FRONTIER <= (int)DRAFT_THREADS, "a thread for each candidate of a frontier");

struct draft_state { // a request's
    struct drafting_request r;
    int32_t n, n_frontier; // candidates; those of the frontier
};

struct builder {                       // what kernels read
    struct drafting_shape s;           // its arrays are on the device
    const int32_t *row_id;             // (s.vocab) the inverse of s.target_id; -1: none
    struct draft_state *state;         // (requests)
    struct candidate *at;              // (slots, candidates)
    int32_t *of_frontier;              // (slots, frontier) candidates
    int32_t *next_token, *next_parent; // those of struct drafting
    int32_t *draft_n, *draft_token, *draft_parent, *tag, *draft_q_row;
    uint8_t *proposal;
};

struct level { // struct drafting_level as a kernel argument
    int depth, stride, q_row, pending, capacity;
    bool last;
    int width;
    const float *q;                // (rows, width)
    const struct part_sum *q_sums; // (rows, ROW_PARTS)
    const int32_t *best;           // (rows, k)
    const float *log_p;
    int32_t first[MAX_SLOTS];
};

struct draft_at_hand { // a block's
    struct draft_state *state;
    struct drafting_request r;
    int n, n_frontier;
    struct candidate *at; // (candidates)
    int32_t *frontier;    // (n_frontier)
};

__device__ inline struct draft_at_hand draft_of(const struct builder &t, int request)
{
    struct draft_at_hand d;
    d.state = t.state + request;
    d.r = d.state->r;
    d.n = d.state->n;
    d.n_frontier = d.state->n_frontier;
    d.at = t.at + (int64_t)d.r.slot * t.s.candidates;
    d.frontier = t.of_frontier + (int64_t)d.r.slot * t.s.frontier;
    return d;
}

// Row of the frontier's candidate f.
__device__ inline int64_t row_of(const struct level &l, int request, int f)
{
    return l.first[request] + (int64_t)f * l.stride;
}

// The sum of x over the threads before this one; *total: over all. of_warp: shared memory (DRAFT_WARPS), which calls
// may share.
template <typename number> __device__ inline number sum_before(number x, number *of_warp, number *total)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    number sum = x, before = 0;
    for (int step = 1; step < WARP; step *= 2) {
        const number other = __shfl_sync(0xFFFFFFFF, sum, (lane - step) & (WARP - 1));
        sum += lane >= step ? other : 0;
    }
    __syncthreads(); // a previous call may still be reading of_warp
    if (lane == WARP - 1)
        of_warp[warp] = sum;
    __syncthreads();
    *total = 0;
    for (int w = 0; w < DRAFT_WARPS; w++) {
        before += w < warp ? of_warp[w] : 0;
        *total += of_warp[w];
    }
    return before + (sum - x);
}

// ---- selections

struct selection { // shared memory of a block
    double score[DRAFTING_CANDIDATES + (int)WARP];
    int of_warp[DRAFT_WARPS];
};

// The scores of candidates from .. to, padded to a multiple of WARP with those of no candidate.
__device__ inline void load_scores(const struct draft_at_hand &d, int from, int to, struct selection &s)
{
    for (int i = (int)threadIdx.x; i < (to - from + WARP - 1) / WARP * WARP; i += DRAFT_THREADS)
        s.score[i] = from + i < to ? d.at[from + i].score : -INFINITY;
    __syncthreads();
}

// How many of n scores rank before number i, where threads of a warp have consecutive i. Which of two candidates is
// earlier differs within the warp only for candidates of the warp.
__device__ inline int rank_among(const double *score, int n, int i)
{
    const int first = i / WARP * WARP;
    const double own = score[i];
    int better = 0;
    UNROLL_BY(8)
    for (int k = 0; k < first; k++)
        better += outranks(score[k], 0, own, 1);
    UNROLL_BY(8)
    for (int k = first; k < first + WARP; k++)
        better += outranks(score[k], k, own, i);
    UNROLL_BY(8)
    for (int k = first + WARP; k < n; k++)
        better += outranks(score[k], 1, own, 0);
    return better;
}

// The frontier among candidates from .. to. Returns its size.
__device__ inline int select_frontier(const struct builder &t, const struct draft_at_hand &d, int from, int to,
                                      struct selection &s)
{
    const int n = frontier_size(t.s.nodes, t.s.top, to - from);
    int count = 0, more;
    if (n < to - from) { // all of them can have children, since the tree is a best-first one
        load_scores(d, from, to, s);
        for (int i = (int)threadIdx.x; i < to - from; i += DRAFT_THREADS) {
            const int rank = rank_among(s.score, to - from, i);
            if (rank < n)
                d.frontier[rank] = from + i;
        }
        return n;
    }
    for (int first = from; first < to; first += DRAFT_THREADS, count += more) {
        const int c = first + (int)threadIdx.x;
        const bool has_row = c < to && family_size(&t.s.families, d.at[c].family) > 0;
        const int f = count + sum_before(has_row ? 1 : 0, s.of_warp, &more);
        if (has_row)
            d.frontier[f] = c;
    }
    return count;
}

// The frontier's tokens and parents for the next pass, and the pending rows that it will have.
__device__ inline void write_frontier(const struct builder &t, const struct level &l, const struct draft_at_hand &d,
                                      int n)
{
    int32_t *token = t.next_token + (int64_t)d.r.slot * t.s.frontier;
    int32_t *parent = t.next_parent + (int64_t)d.r.slot * t.s.evaluated + l.pending;
    for (int f = (int)threadIdx.x; f < l.capacity; f += DRAFT_THREADS) {
        token[f] = 0;
        parent[f] = -1;
        if (f >= n)
            continue;
        struct candidate *c = &d.at[d.frontier[f]];
        token[f] = c->token;
        parent[f] = d.at[c->parent].row;
        c->row = l.pending + f;
    }
}

// The draft of n candidates; after its last node token 0 and parent -1.
__device__ inline void write_draft(const struct builder &t, const struct draft_at_hand &d, int n, struct selection &s)
{
    const int keep = nodes_kept(t.s.nodes, d.r.capacity, n - 1);
    const int64_t to = (int64_t)d.r.slot * t.s.draft_nodes;
    int nodes = 1, more; // the root is one
    load_scores(d, 1, n, s);
    for (int first = 0; first < n - 1; first += DRAFT_THREADS, nodes += more) {
        const int i = first + (int)threadIdx.x;
        const bool kept = i < n - 1 && (keep == n - 1 || rank_among(s.score, n - 1, i) < keep);
        const int node = nodes + sum_before(kept ? 1 : 0, s.of_warp, &more);
        if (kept)
            d.at[1 + i].node = node;
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += DRAFT_THREADS) {
        const struct candidate c = d.at[i];
        if (c.node < 0)
            continue;
        t.draft_token[to + c.node] = c.token;
        t.draft_parent[to + c.node] = i == 0 ? -1 : d.at[c.parent].node;
        t.proposal[to + c.node] = c.proposal;
        t.tag[to + c.node] = c.row;
        t.draft_q_row[to + c.node] = c.q_row;
    }
    for (int node = nodes + (int)threadIdx.x; node < t.s.draft_nodes; node += DRAFT_THREADS) {
        t.draft_token[to + node] = 0;
        t.draft_parent[to + node] = t.tag[to + node] = t.draft_q_row[to + node] = -1;
        t.proposal[to + node] = DETERMINISTIC;
    }
    if (threadIdx.x == 0)
        t.draft_n[d.r.slot] = nodes;
}

// Ends a level: its children are candidates d.n to `to`.
__device__ inline void end_level(const struct builder &t, const struct level &l, const struct draft_at_hand &d, int to,
                                 struct selection &s)
{
    __syncthreads(); // candidates were written, and the frontier was read
    if (l.last) {
        write_draft(t, d, to, s);
        return;
    }
    const int n = l.depth + 1 < d.r.max_depth ? select_frontier(t, d, d.n, to, s) : 0;
    __syncthreads();
    write_frontier(t, l, d, n);
    if (threadIdx.x == 0)
        d.state->n = to, d.state->n_frontier = n;
}

// drafts_sampled.cu: the children of a level that are sampled, and its end.
void sample_level(struct cuda *c, const struct builder *t, const struct drafting_level *wanted, struct level *l,
                  int requests);

} // namespace DEVICE_SPACE
