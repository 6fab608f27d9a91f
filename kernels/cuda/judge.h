// judge.h - a draft as a block of threads judges it. For .cu files alone.
//
// Each block has a draft. It is copied to shared memory first, with who comes after whom among siblings; what is
// decided is decided by numbers that all threads have, so they go the same way, and one of them writes it down.
#pragma once
#include "kernels/cuda/chance.h"
#include "kernels/cuda/cuda.h"
extern "C" {
#include "core/draft.h"
#include "core/device_verification.h"
}

namespace DEVICE_SPACE
{

enum { VERIFIES = 512 }; // threads of a block
typedef struct sampling_scratch<VERIFIES> verify_scratch;

struct decided {
    int32_t n, empty, nodes, unused;
};

struct answer { // what comes back of a draft: struct ruling, in one piece of memory
    struct decided *decided;
    double *trial_p, *trial_q;                 // (most)
    int32_t *token, *node;                     // (most)
    int32_t *draft_token, *draft_parent, *tag; // (most) of a draft of the device's; else NULL, as drawn
    uint8_t *proposal;                         // (most)
};

struct call { // a draft that is to be judged, as struct judging has it
    int most, vocab;
    const int32_t *n; // NULL: most, and the draft is the host's
    const int32_t *token, *parent;
    const uint8_t *proposal;
    const int32_t *tag, *q_row; // q_row: NULL: a node's own
    const float *p, *q;
    double *q_work, *left; // (vocab) a row that was drawn from; (any, vocab) what is left of rows of p
    double lenience, rate;
    struct chance chance;
    struct answer out;
};

// Launches: one block for each of n calls.
void queue_traversal(struct cuda *c, int n, const struct call *calls); // traversal.cu

struct tree { // in shared memory
    int32_t token[MAX_NODES];
    int16_t parent[MAX_NODES];
    int16_t child[MAX_NODES], next[MAX_NODES]; // the first child, the next sibling; -1: there is none
    uint8_t proposal[MAX_NODES];
};

// ---- drafts

// Says so to the compiler, which cannot know it of an address that comes from memory.
__device__ inline void is_global(const void *p)
{
#if defined(EMULATED)
    (void)p;
#else
    __builtin_assume(__isGlobal(p));
#endif
}

__device__ inline struct call call_of_block(const struct call *calls)
{
    const struct call c = calls[blockIdx.x];
    is_global(c.p);
    is_global(c.q_work);
    is_global(c.left);
    return c;
}

__device__ inline int child_behind(const struct tree &t, int n, int parent, int after)
{
    for (int i = after + 1; i < n; i++)
        if (t.parent[i] == parent)
            return i;
    return -1;
}

// Copies the draft to shared memory, and into the answer if it has not been on the host; nothing is decided yet.
__device__ inline void begin(const struct call &c, struct tree &t)
{
    const int n = c.n != NULL ? *c.n : c.most;
    for (int i = threadIdx.x; i < n; i += VERIFIES) {
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
        c.out.decided->n = c.out.decided->empty = 0;
        c.out.decided->nodes = n;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += VERIFIES) {
        t.child[i] = (int16_t)child_behind(t, n, i, i);
        t.next[i] = (int16_t)child_behind(t, n, t.parent[i], i);
    }
    __syncthreads();
}

__device__ inline const float *row_of(const struct call &c, int node)
{
    return c.p + (int64_t)node * c.vocab;
}

__device__ inline void note(const struct call &c, int node, double p, double q)
{
    if (threadIdx.x == 0) {
        c.out.trial_p[node] = p;
        c.out.trial_q[node] = q;
    }
}

// ---- what was drawn: verifier/rules/proposal.c

__device__ inline const float *sampled_from(const struct call &c, int node)
{
    is_global(c.q);
    return c.q + (int64_t)(c.q_row != NULL ? c.q_row[node] : node) * c.vocab;
}

// The row that a child was drawn from, into c.q_work.
__device__ inline void proposal_row(const struct call &c, const struct tree &t, int node, int child,
                                    verify_scratch &capacity)
{
    from_row(c.q_work, sampled_from(c, node), c.vocab, capacity);
    if (t.proposal[child] != SAMPLED_WITHOUT_REPLACEMENT || child == t.child[node])
        return;
    if (threadIdx.x == 0)
        for (int s = t.child[node]; s < child; s = t.next[s])
            c.q_work[t.token[s]] = 0;
    __syncthreads();
    const double sum = row_sum(c.q_work, c.vocab, capacity);
    if (sum > 0)
        share_out(c.q_work, c.vocab, sum, capacity);
}

__device__ inline double proposal_probability(const struct call &c, const struct tree &t, int node, int child,
                                              verify_scratch &capacity)
{
    if (t.proposal[child] == DETERMINISTIC)
        return 1;
    if (t.proposal[child] != SAMPLED_WITHOUT_REPLACEMENT || child == t.child[node]) {
        const float *row = sampled_from(c, node);
        const double sum = row_sum(row, c.vocab, capacity);
        return share(entry_of(row, t.token[child]), sum, 1 / sum);
    }
    proposal_row(c, t, node, child, capacity);
    const double m = c.q_work[t.token[child]];
    __syncthreads(); // all have read it
    return m;
}

} // namespace DEVICE_SPACE
