// verify.h - verification of a draft by a block of threads: what the bodies of rules share, and the list of them. For .cu files only.
//
// Each block has one draft. It is copied to shared memory first, with the links between siblings. Decisions depend on numbers that
// all threads have, so all take the same path, and thread 0 writes the results.
#pragma once
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/sampling.h"
extern "C" {
#include "core/draft.h"
#include "device_step/verification.h"
}

namespace DEVICE_SPACE
{

enum { VERIFY_THREADS = 512 }; // of a block
typedef struct sampling_scratch<VERIFY_THREADS> verify_scratch;

struct decision {
    int32_t n, empty, nodes, unused;
};

struct verify_output { // of one draft: struct verify_result, in one piece of memory
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
    double *q_work;   // (vocab) the row that a token was sampled from
    double *residual; // (residual_rows, vocab) residuals of rows of p
    double parameter[RULE_PARAMETERS];
    struct random_source rng;
    struct verify_output out;
};

// ---- bodies: each is a file and a name in this list

#define RULE_BODIES(BODY) \
    BODY(rejection) \
    BODY(match) \
    BODY(traversal)

} // namespace DEVICE_SPACE

struct rule_body {
    const char *name;
    void (*queue)(struct DEVICE_SPACE::cuda *c, int n,
                  const struct DEVICE_SPACE::verify_call *calls); // a block per call
    int (*residual_rows)(const struct verify_request *r);         // maximum number of residuals that it keeps at once
    bool races; // verify_request.uniforms are one per token of each depth
};

namespace DEVICE_SPACE
{

#define DECLARE_BODY(name) extern const struct rule_body name##_body;
RULE_BODIES(DECLARE_BODY)

// ---- drafts

struct tree { // in shared memory
    int32_t token[MAX_NODES];
    int16_t parent[MAX_NODES];
    int16_t child[MAX_NODES], next[MAX_NODES]; // the first child, the next sibling; -1: none
    uint8_t proposal[MAX_NODES];
};

// Tells the compiler, which cannot know it of an address that it loads.
__device__ inline void is_global(const void *p)
{
#if defined(EMULATED)
    (void)p;
#else
    __builtin_assume(__isGlobal(p));
#endif
}

__device__ inline struct verify_call call_of_block(const struct verify_call *calls)
{
    const struct verify_call c = calls[blockIdx.x];
    is_global(c.p);
    is_global(c.q_work);
    is_global(c.residual);
    return c;
}

__device__ inline int next_child(const struct tree &t, int n, int parent, int after)
{
    for (int i = after + 1; i < n; i++)
        if (t.parent[i] == parent)
            return i;
    return -1;
}

// Copies the draft to shared memory, and to the output if the host has not seen it; clears the decision.
__device__ inline void begin(const struct verify_call &c, struct tree &t)
{
    const int n = c.n != NULL ? *c.n : c.max_nodes;
    for (int i = threadIdx.x; i < n; i += VERIFY_THREADS) {
        t.token[i] = c.token[i];
        t.parent[i] = (int16_t)c.parent[i];
        t.proposal[i] = c.proposal[i];
        c.out.trial_p[i] = c.out.trial_q[i] = NAN;
        if (c.n == NULL)
            continue;
        c.out.draft_token[i] = c.token[i];
        c.out.draft_parent[i] = c.parent[i];
        c.out.proposal[i] = c.proposal[i];
        c.out.tag[i] = c.tag[i];
    }
    if (threadIdx.x == 0) {
        c.out.decision->n = c.out.decision->empty = 0;
        c.out.decision->nodes = n;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += VERIFY_THREADS) {
        t.child[i] = (int16_t)next_child(t, n, i, i);
        t.next[i] = (int16_t)next_child(t, n, t.parent[i], i);
    }
    __syncthreads();
}

__device__ inline const float *row_of(const struct verify_call &c, int node)
{
    return c.p + (int64_t)node * c.vocab;
}

// Appends: token follows node.
__device__ inline void emit(const struct verify_call &c, int node, int token)
{
    if (threadIdx.x == 0) {
        c.out.node[c.out.decision->n] = node;
        c.out.token[c.out.decision->n++] = token;
    }
}

__device__ inline void record_trial(const struct verify_call &c, int node, double p, double q)
{
    if (threadIdx.x == 0) {
        c.out.trial_p[node] = p;
        c.out.trial_q[node] = q;
    }
}

// ---- rows that tokens were sampled from: verifier/rules/proposal.c

__device__ inline const float *sampled_from(const struct verify_call &c, int node)
{
    is_global(c.q);
    return c.q + (int64_t)(c.q_row != NULL ? c.q_row[node] : node) * c.vocab;
}

// The row that a child was sampled from, into c.q_work.
__device__ inline void proposal_row(const struct verify_call &c, const struct tree &t, int node, int child,
                                    verify_scratch &scratch)
{
    from_row(c.q_work, sampled_from(c, node), c.vocab, scratch);
    if (t.proposal[child] != SAMPLED_WITHOUT_REPLACEMENT || child == t.child[node])
        return;
    if (threadIdx.x == 0)
        for (int s = t.child[node]; s < child; s = t.next[s])
            c.q_work[t.token[s]] = 0;
    __syncthreads();
    const double sum = row_sum(c.q_work, c.vocab, scratch);
    if (sum > 0)
        normalize(c.q_work, c.vocab, sum, scratch);
}

__device__ inline double proposal_probability(const struct verify_call &c, const struct tree &t, int node, int child,
                                              verify_scratch &scratch)
{
    if (t.proposal[child] == DETERMINISTIC)
        return 1;
    if (t.proposal[child] != SAMPLED_WITHOUT_REPLACEMENT || child == t.child[node]) {
        const float *row = sampled_from(c, node);
        const double sum = row_sum(row, c.vocab, scratch);
        return share(entry_of(row, t.token[child]), sum, 1 / sum);
    }
    proposal_row(c, t, node, child, scratch);
    const double m = c.q_work[t.token[child]];
    __syncthreads(); // all have read it
    return m;
}

} // namespace DEVICE_SPACE
