// bisect.h - the law of a compiled rule treated as a black box: uniforms in, tokens out.
//
// The enumeration of verifier/exact/law.h drives a rule through struct rng, so it assumes that every decision has a probability
// of its own. A rule that uses one uniform twice, rounds it to 11 bits or tests u <= p / q instead of u < p / q is
// exact there and wrong in use, and a kernel has no struct rng at all. Here the uniforms are an argument. The output of
// a box is piecewise constant on their cube; the edges are found by bisection on the grid of 2^-53, so the measure of
// each piece is exact, and the measures give the law. Nothing is sampled and nothing is estimated.
//
// A cell is a product of intervals, initially the whole cube. The box is evaluated along each axis through the cell's
// middle, at corners and at random points. Where the outcome differs from that in the middle, bisection finds an edge,
// the whole cell is cut there, and both parts are treated in the same way. Every cut is valid wherever it is made: the
// order in which uniforms are used, and which of them are used, determine the number of cells, not their measures.
// Assumptions under which a cell that is called constant is constant:
//
//   - A box is a function of its arguments, and its decisions compare one uniform at a time with bounds that earlier
//     decisions determine. So each edge is perpendicular to an axis. (A race compares two uniforms; see below.)
//   - Two runs with different decisions end differently, in the nodes of their paths or in their tokens. Then the first
//     decision that varies within a cell shows on its axis. Decisions without a visible effect are left to corners and
//     points: `hidden_edges` counts the edges that only these found.
//   - Between two points of an axis with the same outcome there is no other outcome. This holds if an acceptance test
//     has one threshold and a pick goes through its tokens in order; only random points check the rest. An acceptance
//     test with more than one threshold is reported by `max_cuts`.
//   - Randomness of drafting is independent of these uniforms: it is enumerated with sampling/outcomes.h.
//
// A race (sampling/rng.h, FOR_TOKEN) compares log(1 - u_i) / log(1 - u_j) with a ratio of weights. One uniform of a
// pair is held fixed and the other bisected, which gives the ratio. That the ratio does not depend on the fixed value,
// and that pairs determine the winner among many, is checked at some points, not everywhere. The probabilities are the
// ratios over their sum. A box either races or does not, and a racing box reads no other uniforms.
#pragma once
#include "verifier/exact/instance.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

enum { BISECT_BITS = 53, BISECT_ROOT = 7, BISECT_UNIFORMS = LAW_NODES * LAW_VOCAB };

// Layout of the uniforms of a draft of n nodes: number `node` serves FOR_ACCEPT, n + node serves FOR_RESIDUAL and 2 n +
// node serves FOR_BONUS. For a racing box, number depth * vocab + i belongs to token i at place depth + 1 after the
// root. A kernel launcher copies them to where its kernel reads them.
int bisect_uniforms(const struct draft *d, int vocab, bool races);             // their number
int bisect_uniform_index(const struct draft *d, int vocab, struct address at); // of a race: the index of token 0
enum purpose bisect_purpose(const struct draft *d, int index, bool races);

struct black_box {
    bool races;
    // u: (bisect_uniforms) multiples of 2^-53 in [0, 1); a race adds its half step itself. out->n, token and node are
    // set.
    void (*verify)(struct black_box *self, const struct draft *d, struct rows *p, const double *u,
                   struct verification *out);
    // The uniforms that the last call read, in order; others need not be varied. n_reads = -1: unknown.
    int n_reads, read[BISECT_UNIFORMS];
};

struct rule_box {         // a struct rule as a black box, with Philox's map from uniforms to decisions
    struct black_box box; // first
    const struct rule *rule;
    const void *options;
    bool reports_reads;
};
struct rule_box bisect_rule(const struct rule *rule, const void *options);

struct bisected {        // of one instance, or the worst of many
    double distance;     // total variation between the law of the output and the target's
    double lost;         // |1 - total measure of all cells|
    double impossible;   // largest measure of a text of probability 0: must be 0, not just rounding
    double ratio_spread; // of races: how far a ratio of weights depends on where it was measured
    bool sound;          // every outcome was a path of its draft, and the number of cells stayed in bounds
    int max_cuts;        // largest number of cuts of one cell along an axis of FOR_ACCEPT: 1 for single thresholds
    int hidden_edges;    // edges that no axis showed
    int contradictions;  // of races: outcomes that the pairs do not explain
    int64_t instances, drafts, cells, runs;
};
struct bisected bisect_examine(const struct instance *in, struct black_box *box);
void bisect_merge_worst(struct bisected *worst, const struct bisected *one);

// What a source picks by these uniforms, multiples of 2^-53 in [0, 1): n of a race, at a FOR_TOKEN address, without the 2^-54 that it adds; else one.
int pick_by_uniforms(const double *u, const double *weight, int n, struct address at);
