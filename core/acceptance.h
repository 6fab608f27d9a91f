// acceptance.h - the decisions of verification and of draws on single numbers, with the same bits on a CPU and on a GPU.
//
// Rows are walked elsewhere: by vector loops on the host (sampling/), by blocks of threads on a device (kernels/cuda). What a walk
// finds goes through these functions on both sides, so a decision is written once. As in grid.h, each operation rounds once.
#pragma once
#include <stdbool.h>
#include "core/grid.h"

// ---- entries of rows

// An entry of w / whole; by: 1 / whole. A row with one nonzero entry becomes exactly one-hot. Multiplying by the inverse does not
// ensure that, so entry == whole is a case of its own.
GRID_FUNCTION double grid_share(double entry, double whole, double by)
{
    return entry == whole ? 1 : grid_round_down(entry * by);
}

// An entry of (p - q)+.
GRID_FUNCTION double grid_excess(double p, double q)
{
    return p > q ? p - q : 0;
}

// ---- uniforms: of the 53 bits of grid_bits53

GRID_FUNCTION double uniform_of_bits(double bits)
{
    return bits * 0x1p-53;
}

GRID_FUNCTION double race_uniform_of_bits(double bits) // never 0
{
    return (bits + 0.5) * 0x1p-53;
}

// ---- acceptance tests

// Whether the test of probability min(1, num / den) needs no uniform. num == den: u * den < num may fail in the last bit.
GRID_FUNCTION bool acceptance_is_certain(double num, double den)
{
    return num <= 0 || num >= den;
}

GRID_FUNCTION bool acceptance_of(double u, double num, double den)
{
    return acceptance_is_certain(num, den) ? num > 0 : u * den < num;
}

// ---- draws

// Inverts a cumulative sum: returns the first index at which *below plus the weights up to it exceeds target; if rounding would lead
// past all of them, the last index of positive weight; -1: there is none. *below: becomes the sum before that index.
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

// In a race (sampling/rng.h): whether a token of weight w may have a time of less than `best`, as -log(1 - u) >= u; its time.
GRID_FUNCTION bool race_may_win(double u, double w, double best)
{
    return u < best * w;
}

GRID_FUNCTION double race_time(double u, double w)
{
    return grid_exponential(u) / w;
}

// ---- rejection: verifier/rules/rejection.c

// What is left of a row while only deterministic draft tokens were rejected: the row without the tokens that are struck out.
enum { MAX_STRIKES = 512 }; // a draft has no more nodes
struct strikes {
    double sum;  // of the other entries; exact
    int n, last; // last: a rejected token that is not struck out, since no other has mass; -1: none
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

// entry: of the row at x, on the grid.
GRID_FUNCTION double strikes_share(const struct strikes *s, int x, double entry)
{
    return is_struck(s, x) ? 0 : grid_share(entry, s->sum, 1 / s->sum);
}

// Removes a rejected token. Returns false and keeps it if no other token has mass.
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

// The numerator of a trial whose denominator is q.
GRID_FUNCTION double lenient_numerator(double lenience, double rate, double p, double q)
{
    return lenience * p + rate * q;
}

// ---- match: verifier/rules/match.c

// The probability of a child's token, of entry p, given that it is none of the earlier siblings'. *left: the row's sum without those,
// updated. repeats: an earlier sibling has the same token.
GRID_FUNCTION double match_probability(double p, bool repeats, double *left)
{
    if (repeats)
        return 0;
    const double probability = p <= 0 ? 0 : p >= *left ? 1 : p / *left;
    *left -= p;
    return probability;
}

// ---- traversal: verifier/rules/traversal.c

// The share a that goes down to a child: min(1, through / q).
GRID_FUNCTION double share_handed_down(double through, double q)
{
    return through >= q ? 1 : through / q;
}

// A node's a after a child was given up and `left` of its mass a remained; -1: rounding left none although a is 1, which stays.
GRID_FUNCTION double share_left(double left, double a)
{
    if (left > 0)
        return left / (left + (1 - a)); // bracketed so that it is exactly 1 at a = 1
    return a != 1 ? 0 : -1;
}
