// rejection.cu - the body of `rejection`, `lenient` and `synthetic`: verifier/rules/rejection.c specifies it and proves
// it. Parameters: 0: lenience, 1: rate; a draft token is accepted with probability min(1, lenience p / q + rate).
#include "kernels/cuda/residual.h"

namespace DEVICE_SPACE
{

static_assert((int)MAX_STRIKES >= (int)MAX_NODES, "a strike per node");

struct rejection_shared {
    struct verify_shared v; // first
    struct strikes struck;
};

// A node and what remains of its row: struct remainder of verifier/rules/rejection.c. The same in all threads.
struct visit {
    int node;
    bool in_row; // the row without the tokens that are struck out; otherwise p
    const float *row;
    struct remaining p;
    struct proposal q;
};

__device__ static void visit_init(const struct verify_call &c, struct rejection_shared &s, struct visit &at, int node)
{
    const bool leaf = s.v.tree.child[node] < 0; // its sum is not used
    at.node = node;
    at.in_row = true;
    at.row = row_of(c, node);
    at.p.certain = certain_of(c, node);
    at.p.work = c.residual;
    at.q = proposal_of(node);
    const double sum = leaf ? 0 : at.p.certain >= 0 ? 1 : row_sum(c.vocab, s.v, at.row, sums_of(c.p_sums, node), NULL);
    __syncthreads(); // all have read struck
    if (threadIdx.x == 0)
        strikes_clear(&s.struck, sum);
    __syncthreads();
}

__device__ static double entry_at(const struct visit &at, int x)
{
    return at.p.certain >= 0 ? x == at.p.certain : entry_of(at.row, x);
}

__device__ static double remainder_at(const struct rejection_shared &s, const struct visit &at, int x)
{
    return at.in_row ? strikes_share(&s.struck, x, entry_at(at, x)) : remaining_at(at.p, x);
}

// Writes the row without rejected tokens to c.residual, renormalized.
__device__ static void write_remainder(const struct verify_call &c, struct rejection_shared &s, struct visit &at)
{
    const float *row = at.row;
    const struct strikes &struck = s.struck;
    cluster_barrier(); // all have read what an earlier node left in c.residual
    replace_remaining(
        c, s.v, at.p, struck.sum, [=](int i) { return row[i]; },
        [&](int i, float x) { return is_struck(&struck, i) ? 0 : grid_round((double)x); });
    at.in_row = false;
}

// Updates the remainder after the rejection of a child. Returns false and leaves it unchanged if no mass remains.
__device__ static bool reject_child(const struct verify_call &c, struct rejection_shared &s, struct visit &at,
                                    int child)
{
    const int x = s.v.tree.token[child];
    if (s.v.tree.proposal[child] == DETERMINISTIC && at.in_row) {
        bool mass_left = false;
        __syncthreads(); // all have read struck
        if (threadIdx.x == 0)
            mass_left = strike(&s.struck, x, entry_at(at, x));
        __syncthreads();
        return mass_left; // the writer knows
    }
    if (s.v.tree.proposal[child] == DETERMINISTIC)
        return remove_token(c, s.v, at.p, x) > 0;
    if (at.in_row)
        write_remainder(c, s, at);
    return take_residual(c, s.v, at.p, 1, at.q, child) > 0;
}

// The child of the node that is accepted, or -1.
__device__ static int accepted_child(const struct verify_call &c, struct rejection_shared &s, struct visit &at)
{
    const struct tree &t = s.v.tree;
    for (int child = t.child[at.node]; child >= 0; child = t.next[child]) {
        const double q = proposal_probability(c, s.v, at.q, child);
        const double p = lenient_numerator(c.parameter[0], c.parameter[1], remainder_at(s, at, t.token[child]), q);
        record_trial(c, child, p, q);
        if (accept(p, q, c.rng, FOR_ACCEPT, child))
            return child;
        const bool mass_left = reject_child(c, s, at, child);
        if (is_writer())
            c.out.decision->empty += !mass_left;
    }
    return -1;
}

// A draw from the row without rejected tokens; of a leaf, from the row.
__device__ static int pick_unstruck(const struct verify_call &c, struct rejection_shared &s, const struct visit &at)
{
    struct row_parts &parts = s.v.parts;
    const float *row = at.row;
    const struct strikes &struck = s.struck;
    if (at.p.certain >= 0) // never struck out: no other token has mass
        return at.p.certain;
    row_sum(c.vocab, s.v, row, sums_of(c.p_sums, at.node), &parts);
    if (threadIdx.x == 0)
        for (int i = 0; i < struck.n; i++) {
            const int x = struck.token[i];
            parts.sum[x / parts.each] -= entry_of(row, x); // exact
        }
    __syncthreads();
    return pick_in_parts(
        c, s.v, [&](int i) { return is_struck(&struck, i) ? 0 : entry_of(row, i); },
        s.v.tree.child[at.node] < 0 ? FOR_BONUS : FOR_RESIDUAL, at.node);
}

static __global__ void __launch_bounds__(CLUSTER_THREADS, 1)
    rejection_kernel(const __grid_constant__ struct verify_calls calls)
{
    DYNAMIC_SHARED(struct rejection_shared, s);
    kernel_prologue();
    const struct verify_call c = call_of_block(calls);
    const struct tree &t = s->v.tree;
    struct visit at = {};
    begin(c, s->v);
    visit_init(c, *s, at, 0);
    for (int child; (child = accepted_child(c, *s, at)) >= 0; visit_init(c, *s, at, child))
        emit(c, at.node, t.token[child]);
    emit(c, at.node, at.in_row ? pick_unstruck(c, *s, at) : pick_remaining(c, s->v, at.p, at.node));
}

static int residual_rows(const struct verify_request *)
{
    return 1;
}

const struct rule_body rejection_body = { "rejection", rejection_kernel, sizeof(struct rejection_shared), residual_rows,
                                          false };

} // namespace DEVICE_SPACE
