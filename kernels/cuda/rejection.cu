// rejection.cu - the body of `rejection`, `lenient` and `synthetic`: verifier/rules/rejection.c specifies it and proves it.
// Parameters: 0: lenience, 1: rate; a draft token is accepted with probability min(1, lenience p / q + rate).
#include "kernels/cuda/verify.h"

namespace DEVICE_SPACE
{

// What remains of a node's row: struct remainder of verifier/rules/rejection.c. While `in_row`, it is the row without the tokens
// struck[0 .. n), whose sum is `sum`; afterwards it is c.residual.
struct remainder {
    bool in_row;
    double sum;
    int n, last; // last: a rejected token that is not struck out, since no other has mass; -1: none
    int32_t struck[MAX_NODES];
};

__device__ static bool is_struck(const struct remainder &l, int x)
{
    for (int i = 0; i < l.n; i++)
        if (l.struck[i] == x)
            return true;
    return false;
}

__device__ static double remainder_at(const struct verify_call &c, const struct remainder &l, const float *row, int x)
{
    return !l.in_row ? c.residual[x] : is_struck(l, x) ? 0 : share(entry_of(row, x), l.sum, 1 / l.sum);
}

// Removes a rejected deterministic token from the row; one thread. Returns false and keeps it if no other token has mass.
__device__ static bool strike_rejected(struct remainder &l, const float *row, int x)
{
    const double mass = is_struck(l, x) ? 0 : entry_of(row, x);
    if (x != l.last && l.sum > mass) {
        l.sum -= mass;
        l.struck[l.n++] = x;
        return true;
    }
    l.last = x;
    return false;
}

// Writes the row without rejected tokens to c.residual, renormalised.
__device__ static void write_remainder(const struct verify_call &c, struct remainder &l, const float *row,
                                       verify_scratch &scratch)
{
    const struct row_without r = { row, l.struck, l.n };
    for (int i = threadIdx.x; i < c.vocab; i += VERIFY_THREADS)
        c.residual[i] = entry_of(&r, i);
    const double sum = row_sum(c.residual, c.vocab, scratch);
    if (sum != 1)
        normalize(c.residual, c.vocab, sum, scratch);
    if (threadIdx.x == 0)
        l.in_row = false;
    __syncthreads();
}

// Updates the remainder after the rejection of a child.
__device__ static void reject_child(const struct verify_call &c, const struct tree &t, int node, int child,
                                    struct remainder &l, verify_scratch &scratch)
{
    const float *row = row_of(c, node);
    bool mass_left;
    __syncthreads(); // all have read l
    if (t.proposal[child] == DETERMINISTIC && l.in_row) {
        mass_left = threadIdx.x == 0 && strike_rejected(l, row, t.token[child]);
        __syncthreads();
    } else if (t.proposal[child] == DETERMINISTIC) {
        mass_left = row_remove(c.residual, c.vocab, t.token[child], scratch) > 0;
    } else {
        if (l.in_row)
            write_remainder(c, l, row, scratch);
        proposal_row(c, t, node, child, scratch);
        mass_left = scaled_residual(c.residual, 1, c.q_work, c.vocab, scratch) > 0;
    }
    if (threadIdx.x == 0)
        c.out.decision->empty += !mass_left;
}

// The child of node that is accepted, or -1.
__device__ static int accepted_child(const struct verify_call &c, const struct tree &t, int node, struct remainder &l,
                                     verify_scratch &scratch)
{
    const double lenience = c.parameter[0], rate = c.parameter[1];
    const float *row = row_of(c, node);
    const double sum = t.child[node] < 0 ? 0 : row_sum(row, c.vocab, scratch);
    __syncthreads();
    if (threadIdx.x == 0) {
        l.in_row = true;
        l.sum = sum;
        l.n = 0;
        l.last = -1;
    }
    __syncthreads();
    for (int child = t.child[node]; child >= 0; child = t.next[child]) {
        const double q = proposal_probability(c, t, node, child, scratch);
        const double p = lenience * remainder_at(c, l, row, t.token[child]) + rate * q;
        record_trial(c, child, p, q);
        if (accept(p, q, c.rng, FOR_ACCEPT, child))
            return child;
        reject_child(c, t, node, child, l, scratch);
    }
    return -1;
}

static __global__ void __launch_bounds__(VERIFY_THREADS, 1) rejection_kernel(const struct verify_call *calls)
{
    __shared__ verify_scratch scratch;
    __shared__ struct tree t;
    __shared__ struct remainder l;
    kernel_prologue();
    const struct verify_call c = call_of_block(calls);
    begin(c, t);
    int node = 0;
    for (int child; (child = accepted_child(c, t, node, l, scratch)) >= 0; node = child)
        emit(c, node, t.token[child]);
    const struct row_without r = { row_of(c, node), l.struck, l.n };
    emit(c, node,
         t.child[node] < 0 ? pick(r.row, c.vocab, c.rng, FOR_BONUS, node, scratch)
         : l.in_row        ? pick(&r, c.vocab, c.rng, FOR_RESIDUAL, node, scratch)
                           : pick(c.residual, c.vocab, c.rng, FOR_RESIDUAL, node, scratch));
}

static void queue(struct cuda *c, int n, const struct verify_call *calls)
{
    QUEUE(c, rejection_kernel, n, VERIFY_THREADS, 0, calls);
}

static int residual_rows(const struct verify_request *r)
{
    (void)r;
    return 1;
}

const struct rule_body rejection_body = { "rejection", queue, residual_rows, false };

} // namespace DEVICE_SPACE
