// residual.h - the rows that draft tokens were sampled from, and what is left of a row of p after rejections, as in
// sampling/dist.c. For the bodies of rules.
//
// Of rows of q only the numbers that normalize them are computed; their entries follow from the floats at each use. A
// residual is written as doubles, each entry always by the same thread.
#pragma once
#include "kernels/cuda/verify.h"

namespace DEVICE_SPACE
{

// ---- rows of q

// The row that the children of a node were sampled from. The same in all threads.
struct proposal {
    int node;
    const float *row;
    double sum;               // the row's; negative: not computed yet
    struct normalizer of_row; // if has_normalizer
    bool has_normalizer;
    int without;                 // the row without the tokens of earlier siblings of this child is normalized by
    struct normalizer of_others; // this; -1: none
};

__device__ inline struct proposal proposal_of(int node)
{
    struct proposal q = {};
    q.node = node;
    q.sum = -1;
    q.without = -1;
    return q;
}

// Looks up the row, once, and its sum.
__device__ inline double proposal_sum(const struct verify_call &c, struct verify_shared &v, struct proposal &q)
{
    if (q.sum >= 0)
        return q.sum;
    const int row = c.q_row != NULL ? c.q_row[q.node] : q.node;
    is_global(c.q);
    q.row = c.q + (int64_t)row * c.vocab;
    return q.sum = row_sum(c.vocab, v, q.row, sums_of(c.q_sums, row), NULL);
}

// Whether a child was sampled from the row without the tokens of earlier siblings.
__device__ inline bool lacks_siblings(const struct tree &t, int node, int child)
{
    return t.proposal[child] == SAMPLED_WITHOUT_REPLACEMENT && child != t.child[node];
}

// Entry i, which is x in the row. The proposal is prepared for the child.
__device__ inline double proposal_entry(const struct tree &t, const struct proposal &q, int i, float x)
{
    const double of_row = normalized(q.of_row, i, grid_round((double)x));
    return q.without < 0                                 ? of_row
           : is_earlier_sibling(t, q.node, q.without, i) ? 0
                                                         : normalized(q.of_others, i, of_row);
}

// The normalizer of a row of floats that adds up to `sum`.
__device__ NOT_INLINED struct normalizer row_normalizer(int vocab, struct verify_shared &v, const float *row,
                                                        double sum)
{
    if (!(sum > 0) || sum == 1)
        return identity();
    return divide(
        vocab, sum, v.scratch, [=](int i) { return row[i]; }, [](int, float x) { return grid_round((double)x); },
        [](int, double) {});
}

// Returns the proposal, whose sum is known, with the normalizers for a child.
__device__ NOT_INLINED struct proposal with_normalizers(int vocab, struct verify_shared &v, struct proposal q,
                                                        int child)
{
    const struct tree &t = v.tree;
    const double sum = q.sum;
    const float *row = q.row;
    const auto load = [=](int i) { return row[i]; };
    const auto nothing = [](int, double) {};
    if (!q.has_normalizer)
        q.of_row = row_normalizer(vocab, v, row, sum);
    q.has_normalizer = true;
    if (!lacks_siblings(t, q.node, child)) {
        q.without = -1;
        return q;
    }
    if (q.without == child)
        return q;
    double left = sum > 0 ? 1 : 0; // the normalized row's; exact
    for (int s = t.child[q.node]; s < child; s = t.next[s])
        if (!is_earlier_sibling(t, q.node, s, t.token[s]))
            left -= normalized(q.of_row, t.token[s], entry_of(row, t.token[s]));
    q.without = child;
    q.of_others = identity();
    const struct proposal others = q;
    if (left > 0 && left != 1)
        q.of_others = divide(
            vocab, left, v.scratch, load, [&](int i, float x) { return proposal_entry(t, others, i, x); }, nothing);
    return q;
}

__device__ inline void proposal_prepare(const struct verify_call &c, struct verify_shared &v, struct proposal &q,
                                        int child)
{
    proposal_sum(c, v, q);
    q = with_normalizers(c.vocab, v, q, child);
}

// The probability of a child's token in the row that it was sampled from.
__device__ inline double proposal_probability(const struct verify_call &c, struct verify_shared &v, struct proposal &q,
                                              int child)
{
    const int x = v.tree.token[child];
    if (v.tree.proposal[child] == DETERMINISTIC)
        return 1;
    if (!lacks_siblings(v.tree, q.node, child)) {
        const double sum = proposal_sum(c, v, q);
        return grid_share(entry_of(q.row, x), sum, 1 / sum);
    }
    proposal_prepare(c, v, q, child);
    return proposal_entry(v.tree, q, x, q.row[x]);
}

// ---- residuals

// What is left of a row of p, which adds up to 1: entry i is normalized(n, i, row[i]), or of a residual normalized(n,
// i, work[i]). The same in all threads.
struct remaining {
    int certain;      // the only token; -1: the following
    const float *row; // NULL: work
    double *work;     // (vocab)
    struct normalizer n;
};

__device__ inline double remaining_at(const struct remaining &p, int i)
{
    if (p.certain >= 0)
        return i == p.certain;
    return normalized(p.n, i, p.row != NULL ? entry_of(p.row, i) : p.work[i]);
}

// p becomes its entries(i, remaining_at(i), other(i)), which add up to `left`, divided by that; v.parts become its own.
// They are written to p.work, which nobody may read at the time of the call.
template <typename loader, typename entries>
__device__ inline void replace_remaining(const struct verify_call &c, struct verify_shared &v, struct remaining &p,
                                         double left, loader load, entries entry)
{
    double *work = p.work;
    const struct normalizer n = divide(
        c.vocab, left, v.scratch, load, entry, [=](int i, double x) { work[i] = x; }, v.parts.sum);
    p.row = NULL;
    p.n = identity();
    p.n.missing = n.missing;
    p.n.argmax = n.argmax;
    __syncthreads();
    if (threadIdx.x == 0) {
        v.parts.n = blocks_in_cluster();
        v.parts.each = span_of_block<CLUSTER>(c.vocab).each;
        if (n.argmax >= 0)
            v.parts.sum[n.argmax / v.parts.each] += n.missing;
    }
    __syncthreads();
}

// Removes token x and normalizes. Returns the mass that was left; 0: p is unchanged.
__device__ inline double remove_token(const struct verify_call &c, struct verify_shared &v, struct remaining &p, int x)
{
    const struct remaining was = p;
    const double left = 1 - remaining_at(p, x); // exact
    if (!(left > 0))
        return 0;
    if (p.certain >= 0)
        return left;
    cluster_barrier(); // all have read it
    replace_remaining(
        c, v, p, left, [=](int i) { return was.row != NULL ? (double)was.row[i] : was.work[i]; },
        [=](int i, double y) { return i == x ? 0 : normalized(was.n, i, grid_round(y)); });
    return left;
}

// p := (a p - q)+ normalized, 0 <= a <= 1, for the q of a child. Returns the mass before normalizing; 0: p is
// unchanged.
__device__ inline double take_residual(const struct verify_call &c, struct verify_shared &v, struct remaining &p,
                                       double a, struct proposal &q, int child)
{
    struct both {
        double p;
        float q;
    };
    proposal_prepare(c, v, q, child);
    const struct remaining was = p;
    const struct proposal of = q;
    const struct tree &t = v.tree;
    const auto load = [=](int i) {
        const struct both x = { was.row != NULL ? (double)was.row[i] : was.work[i], of.row[i] };
        return x;
    };
    const auto excess = [&](int i, const struct both &x) {
        const double y = normalized(was.n, i, grid_round(x.p)); // entries of work are on the grid
        return grid_excess(a != 1 ? grid_round(y * a) : y, proposal_entry(t, of, i, x.q));
    };
    struct tally left = { 0, 0, -1 };
    walk(c.vocab, v.scratch, load, [&](int i, const struct both &x) { left.sum += excess(i, x); });
    left = combine(left, v.scratch);
    if (!(left.sum > 0))
        return 0;
    replace_remaining(c, v, p, left.sum, load, excess);
    return left.sum;
}

// A draw from a residual.
__device__ inline int pick_remaining(const struct verify_call &c, struct verify_shared &v, const struct remaining &p,
                                     int node)
{
    if (p.certain >= 0)
        return p.certain;
    return pick_in_parts(
        c, v, [=](int i) { return normalized(p.n, i, p.work[i]); }, FOR_RESIDUAL, node);
}

} // namespace DEVICE_SPACE
