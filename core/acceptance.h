// acceptance.h - the decisions of verification and of draws on single numbers, with the same bits on a CPU and on a
// GPU.
//
// The loops over rows are elsewhere: vector loops on the host (sampling/), blocks of threads on a device
// (kernels/cuda). Both sides pass what a loop finds to these functions, so each decision is written once. As in grid.h,
// each operation rounds once.
#pragma once
#include <stdbool.h>
#include "core/grid.h"

// ---- entries of rows

// Returns entry / whole; by: 1 / whole. A row with one nonzero entry becomes exactly one-hot. Multiplying by the
// inverse does not ensure that, so entry == whole is a separate case.
GRID_FUNCTION double grid_share(double entry, double whole, double by)
{
    return entry == whole ? 1 : grid_round_down(entry * by);
}

// Returns an entry of (p - q)+.
GRID_FUNCTION double grid_excess(double p, double q)
{
    return p > q ? p - q : 0;
}

// ---- uniforms from the 53 bits of philox_bits53

GRID_FUNCTION double uniform_of_bits(double bits)
{
    return bits * 0x1p-53;
}

GRID_FUNCTION double race_uniform_of_bits(double bits) // never 0
{
    return (bits + 0.5) * 0x1p-53;
}

// ---- acceptance tests

// Returns whether the test of probability min(1, num / den) needs no uniform. If num == den, u * den < num may fail in
// the last bit.
GRID_FUNCTION bool acceptance_is_certain(double num, double den)
{
    return num <= 0 || num >= den;
}

GRID_FUNCTION bool acceptance_of(double u, double num, double den)
{
    return acceptance_is_certain(num, den) ? num > 0 : u * den < num;
}

// ---- draws

// Inverts a cumulative sum: returns the first index at which *below plus the weights up to it exceeds target. If
// rounding would lead past all of them, returns the last index of positive weight; -1: there is none. *below becomes
// the sum before the index.
GRID_FUNCTION int pick_cumulative(const double *weight, int n, double target, double *below)
{
    double sum = *below;
    int last = -1;
    GRID_ROLLED
    for (int i = 0; i < n && !(last >= 0 && sum > target); i++)
        if (weight[i] > 0) {
            last = i;
            *below = sum;
            sum += weight[i];
        }
    return last;
}

// Returns whether a token of weight w may have a time below `best` in a race (sampling/rng.h), since -log(1 - u) >= u.
// race_time() returns that time.
GRID_FUNCTION bool race_may_win(double u, double w, double best)
{
    return u < best * w;
}

GRID_FUNCTION double race_time(double u, double w)
{
    return grid_exponential(u) / w;
}

// ---- rejection: verifier/rules/rejection.c

// The rest of a row while only deterministic draft tokens were rejected: the row
// without the tokens that are struck out.
enum { MAX_STRIKES = 512 }; // a draft has no more nodes
struct strikes {
    double sum;  // exact sum of the other entries
    int n, last; // last: a rejected token that is not struck out, since no other token has mass; -1: none
    int32_t token[MAX_STRIKES];
};

GRID_FUNCTION void strikes_clear(struct strikes *s, double sum)
{
    s->sum = sum;
    s->n = 0;
    s->last = -1;
}

GRID_FUNCTION bool is_struck(const struct strikes *s, int x)
{
    GRID_ROLLED
    for (int i = 0; i < s->n; i++)
        if (s->token[i] == x)
            return true;
    return false;
}

// entry: the row's entry at x, on the grid.
GRID_FUNCTION double strikes_share(const struct strikes *s, int x, double entry)
{
    return is_struck(s, x) ? 0 : grid_share(entry, s->sum, 1 / s->sum);
}

// Removes a rejected token. Returns false, and keeps the token, if no other token has mass.
GRID_FUNCTION bool strike(struct strikes *s, int x, double entry)
{
    const bool again = is_struck(s, x);
    const double mass = again ? 0 : entry;
    if (x == s->last || !(s->sum > mass)) {
        s->last = x;
        return false;
    }
    s->sum -= mass;
    if (!again)
        s->token[s->n++] = x;
    return true;
}

// Returns the numerator of an acceptance test whose denominator is q.
GRID_FUNCTION double lenient_numerator(double lenience, double rate, double p, double q)
{
    return lenience * p + rate * q;
}

// ---- match: verifier/rules/match.c

// Returns the probability of a child's token, of entry p, given that the row's token is none of its earlier siblings'.
// *left: the row's sum without those, updated. repeats: an earlier sibling has the same token.
GRID_FUNCTION double match_probability(double p, bool repeats, double *left)
{
    if (repeats)
        return 0;
    const double probability = p <= 0 ? 0 : p >= *left ? 1 : p / *left;
    *left -= p;
    return probability;
}

// ---- traversal: verifier/rules/traversal.c

// Returns the share a that is handed down to a child: min(1, through / q).
GRID_FUNCTION double share_handed_down(double through, double q)
{
    return through >= q ? 1 : through / q;
}

// Returns a node's share a after the test of a child failed and `left` of its mass a remained; -1: rounding left none
// although a is 1, so a stays 1.
GRID_FUNCTION double share_left(double left, double a)
{
    if (left > 0)
        return left / (left + (1 - a)); // bracketed so that it is exactly 1 at a = 1
    return a != 1 ? 0 : -1;
}
