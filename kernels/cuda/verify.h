// verify.h - verification of a draft by a cluster of blocks: what the bodies of rules share, and the list of them. For
// .cu files only.
//
// Each cluster has one draft. Each block copies it to its shared memory first, with the links between siblings.
// Decisions depend on numbers that all threads have, so all take the same path, and one thread writes the results.
#pragma once
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/sampling.h"
extern "C" {
#include "core/draft.h"
#include "kernels/device_step/device_step.h"
#include "kernels/device_step/verification.h"
}

namespace DEVICE_SPACE
{

typedef struct sampling_scratch<CLUSTER_THREADS, CLUSTER> verify_scratch;

struct decision {
    int32_t n, empty, nodes, unused;
};

struct verify_output { // one draft's struct verify_result, in one piece of memory
    struct decision *decision;
    double *trial_p, *trial_q;                 // (max_nodes)
    int32_t *token, *node;                     // (max_nodes)
    int32_t *draft_token, *draft_parent, *tag; // (max_nodes) if the draft is on the device; else NULL, as is proposal
    uint8_t *proposal;                         // (max_nodes)
};

struct verify_call { // struct verify_request as kernels read it
    int max_nodes, vocab;
    const int32_t *n; // NULL: max_nodes, and the draft came from the host
    const int32_t *token, *parent;
    const uint8_t *proposal;
    const int32_t *tag, *q_row; // q_row: NULL: row i is node i's
    const float *p, *q;
    const int32_t *p_certain;               // verify_request's; NULL: the rows
    const struct part_sum *p_sums, *q_sums; // (rows, ROW_PARTS) of the rows of p and q; NULL: not known
    double *residual;                       // (residual_rows, vocab) residuals of rows of p
    double parameter[RULE_PARAMETERS];
    struct random_source rng;
    struct verify_output out;
};

// The calls of a launch. Those of a few drafts on the device are arguments of the kernel, so that nothing is uploaded
// between the pass and its decision; others are in memory.
enum { ARGUMENT_CALLS = 8 };
struct verify_calls {
    const struct verify_call *uploaded; // NULL: call
    struct verify_call call[ARGUMENT_CALLS];
};
static_assert(sizeof(struct verify_calls) <= 4096, "limit of kernel parameters");

// ---- bodies: each is a file and a name in this list

#define RULE_BODIES(BODY) \
    BODY(rejection) \
    BODY(match) \
    BODY(traversal)

} // namespace DEVICE_SPACE

struct rule_body {
    const char *name;
    void (*kernel)(struct DEVICE_SPACE::verify_calls calls); // a cluster per call
    size_t shared;                                           // bytes of dynamic shared memory
    int (*residual_rows)(const struct verify_request *r);    // maximum number of residuals that it keeps at once
    bool races;                                              // verify_request.uniforms are one per token of each depth
};

namespace DEVICE_SPACE
{

#define DECLARE_BODY(name) extern const struct rule_body name##_body;
RULE_BODIES(DECLARE_BODY)

// ---- drafts

struct tree {
    int32_t token[MAX_NODES];
    int16_t parent[MAX_NODES];
    int16_t child[MAX_NODES], next[MAX_NODES]; // the first child, the next sibling; -1: none
    uint8_t proposal[MAX_NODES];
};

struct row_parts { // sums of the parts of a row, each of `each` entries
    int n, each;
    double sum[ROW_PARTS];
};
static_assert((int)CLUSTER <= (int)ROW_PARTS, "a part per block");

struct verify_shared { // a block's; dynamic. It is the first member of a body's own
    verify_scratch scratch;
    struct tree tree;
    struct row_parts parts; // those of the row that the next token may be drawn from
};

__device__ inline struct verify_call call_of_block(const struct verify_calls &calls)
{
    const int i = cluster_of_block();
    const struct verify_call c = calls.uploaded != NULL ? calls.uploaded[i] : calls.call[i];
    is_global(c.p);
    is_global(c.residual);
    return c;
}

// One thread of the cluster writes results.
__device__ inline bool is_writer()
{
    return threadIdx.x == 0 && block_in_cluster() == 0;
}

__device__ inline int next_child(const struct tree &t, int n, int parent, int after)
{
    GRID_ROLLED
    for (int i = after + 1; i < n; i++)
        if (t.parent[i] == parent)
            return i;
    return -1;
}

// Copies the draft to shared memory, and to the output if the host has not seen it; clears the decision.
__device__ inline void begin(const struct verify_call &c, struct verify_shared &v)
{
    struct tree &t = v.tree;
    const int n = c.n != NULL ? *c.n : c.max_nodes;
    for (int i = threadIdx.x; i < n; i += CLUSTER_THREADS) {
        t.token[i] = c.token[i];
        t.parent[i] = (int16_t)c.parent[i];
        t.proposal[i] = c.proposal[i];
        if (block_in_cluster() != 0)
            continue;
        c.out.trial_p[i] = c.out.trial_q[i] = NAN;
        if (c.n == NULL)
            continue;
        c.out.draft_token[i] = c.token[i];
        c.out.draft_parent[i] = c.parent[i];
        c.out.proposal[i] = c.proposal[i];
        c.out.tag[i] = c.tag[i];
    }
    if (is_writer()) {
        c.out.decision->n = c.out.decision->empty = 0;
        c.out.decision->nodes = n;
    }
    if (threadIdx.x == 0)
        v.scratch.turn = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += CLUSTER_THREADS) {
        t.child[i] = (int16_t)next_child(t, n, i, i);
        t.next[i] = (int16_t)next_child(t, n, t.parent[i], i);
    }
    cluster_barrier();
}

// Whether a sibling before `child` has this token.
__device__ inline bool is_earlier_sibling(const struct tree &t, int node, int child, int token)
{
    GRID_ROLLED
    for (int s = t.child[node]; s < child; s = t.next[s])
        if (t.token[s] == token)
            return true;
    return false;
}

// ---- rows of p

__device__ inline const float *row_of(const struct verify_call &c, int node)
{
    return c.p + (int64_t)node * c.vocab;
}

// The token of a row of p that has one, otherwise -1.
__device__ inline int certain_of(const struct verify_call &c, int node)
{
    return c.p_certain != NULL ? c.p_certain[node] : -1;
}

// The sums of the parts of row `row` of p or q; sums: p_sums or q_sums.
__device__ inline const struct part_sum *sums_of(const struct part_sum *sums, int row)
{
    return sums != NULL ? sums + (int64_t)row * ROW_PARTS : NULL;
}

// The sum of a row, by a walk if its sums are not known. parts: where those of its parts go; NULL: not wanted.
__device__ NOT_INLINED double row_sum(int vocab, struct verify_shared &v, const float *row, const struct part_sum *sums,
                                      struct row_parts *parts)
{
    if (sums == NULL) {
        struct tally t = { 0, 0, -1 };
        walk(
            vocab, v.scratch, [=](int i) { return row[i]; }, [&](int, float x) { t.sum += grid_round((double)x); });
        t = combine(t, v.scratch, parts != NULL ? parts->sum : NULL);
        if (parts != NULL && threadIdx.x == 0)
            parts->n = blocks_in_cluster(), parts->each = span_of_block<CLUSTER>(vocab).each;
        __syncthreads();
        return t.sum;
    }
    static_assert((int)ROW_PARTS == (int)WARP, "a part per lane");
    const double part = sums[threadIdx.x % WARP].sum;
    const double sum = warp_sum(part);
    if (parts == NULL)
        return sum;
    __syncthreads(); // parts may still be read
    if (threadIdx.x < ROW_PARTS)
        parts->sum[threadIdx.x] = part;
    if (threadIdx.x == 0)
        parts->n = ROW_PARTS, parts->each = row_part(vocab);
    __syncthreads();
    return sum;
}

// A draw from the row of these entries, by the sums of its parts in v.parts.
template <typename entries>
__device__ inline int pick_in_parts(const struct verify_call &c, struct verify_shared &v, entries entry,
                                    enum purpose purpose, int node)
{
    double sum = 0, below = 0;
    GRID_ROLLED
    for (int k = 0; k < v.parts.n; k++)
        sum += v.parts.sum[k];
    const double target = sum * uniform(c.rng, purpose, node);
    const int from = max(pick_cumulative(v.parts.sum, v.parts.n, target, &below), 0) * v.parts.each;
    return pick_between(entry, from, min(from + v.parts.each, c.vocab), target, below, v.scratch);
}

// The token after a leaf.
__device__ inline int pick_bonus(const struct verify_call &c, struct verify_shared &v, int node)
{
    const float *row = row_of(c, node);
    if (certain_of(c, node) >= 0)
        return certain_of(c, node);
    row_sum(c.vocab, v, row, sums_of(c.p_sums, node), &v.parts);
    return pick_in_parts(
        c, v, [=](int i) { return entry_of(row, i); }, FOR_BONUS, node);
}

// ---- results

// Appends: token follows node.
__device__ inline void emit(const struct verify_call &c, int node, int token)
{
    if (is_writer()) {
        c.out.node[c.out.decision->n] = node;
        c.out.token[c.out.decision->n++] = token;
    }
}

__device__ inline void record_trial(const struct verify_call &c, int node, double p, double q)
{
    if (is_writer()) {
        c.out.trial_p[node] = p;
        c.out.trial_q[node] = q;
    }
}

} // namespace DEVICE_SPACE
