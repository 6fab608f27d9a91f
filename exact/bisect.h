// bisect.h - the law of a compiled rule that is only ever seen from outside: uniforms in, tokens out.
//
// THE LAW (exact/law.h) drives a rule through struct rng, so it believes that every decision has a chance of its own. A
// rule that uses one uniform twice, rounds it to 11 bits or takes u <= p / q for u < p / q is exact to it and wrong in
// use, and a kernel has no struct rng at all. Here the uniforms are an argument. What a box puts out is constant on
// pieces of their cube; the edges are found by bisection on the grid of 2^-53, so the measure of each piece is known to
// the last bit, and with the measures the law. Nothing is drawn and nothing is estimated.
//
// A cell is a product of intervals, at first the whole cube. Along each axis through its middle, and at corners and
// points by chance, the box is asked whether it still says the same; where it does not, bisection finds an edge and the
// whole cell is cut there, and both parts are looked at in the same way. A cut is right wherever it is made: the order
// in which uniforms are used, and which of them are used, decide how many cells there are, not what they weigh. What is
// assumed, and makes a cell that is called constant so:
//
//   - A box is a function of its arguments, and its decisions compare one uniform at a time with bounds that earlier
//     decisions settle. So each edge is square to an axis. (A race compares two; below.)
//   - Two runs that decide differently end differently, in the nodes of their paths or in their tokens. Then the first
//     decision that is not settled within a cell shows on its axis. Decisions that leave no trace are left to corners
//     and points: `surprises` counts the edges that only these found.
//   - Between two places of an axis with the same outcome there is no other. It holds where a coin turns once and a
//     pick goes through its tokens in order; points by chance are all that looks for the rest. A coin that was cut more
//     than once on a line is told by `turns`.
//   - Drafting has chances of its own, independent of these uniforms: it is walked through with sampling/outcomes.h.
//
// A race (sampling/rng.h, FOR_TOKEN) is decided by log(1 - u_i) / log(1 - u_j) against a ratio of weights. One uniform
// of a pair is held and the other bisected, which gives the ratio; that it is the same wherever the first is held, and
// that pairs decide between many as well, is checked at some points, not everywhere. The chances are the ratios over
// their sum. A box either races or does not, and while it races it reads nothing else.
#pragma once
#include "exact/instance.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

enum { BISECT_BITS = 53, BISECT_ROOT = 7, BISECT_PLACES = LAW_NODES * LAW_VOCAB };

// Which uniform serves which draw: for a draft of n nodes, number `node` is the coin of FOR_ACCEPT, n + node the pick
// of FOR_RESIDUAL and 2 n + node that of FOR_BONUS. For a box that races, number depth * vocab + i is that of token i
// at the place depth + 1 behind the root. Whoever launches a kernel puts them where it wants them.
int bisect_places(const struct draft *d, int vocab, bool races);       // how many there are
int bisect_place(const struct draft *d, int vocab, struct address at); // of an address; a race's: of its token 0
enum purpose bisect_purpose(const struct draft *d, int place, bool races);

struct black_box {
    bool races;
    // u: (bisect_places) multiples of 2^-53 in [0, 1); a race adds its half step itself. out->n, token and node count.
    void (*verify)(struct black_box *self, const struct draft *d, struct rows *p, const double *u,
                   struct verification *out);
    // Which uniforms the last judgement looked at, in order, if the box can tell: it saves asking about the others. -1:
    // it cannot.
    int looks, look[BISECT_PLACES];
};

struct rule_box {         // a rule of ours as such a box: it gets the map from uniforms to answers that Philox has
    struct black_box box; // first
    const struct rule *rule;
    const void *options;
    bool tells;
};
struct rule_box bisect_rule(const struct rule *rule, const void *options);

struct bisected {       // of one instance, or the worst of many
    double distance;    // total variation between the law of the output and the target's
    double lost;        // |1 - all cells together|
    double impossible;  // the most that is put on a text which the target never says: to be 0, not rounding
    double bend;        // of races: how far a ratio of weights depends on where it was measured
    bool sound;         // every outcome was a path of its draft, and cells came to an end
    int turns;          // most cuts across a coin's axis that one cell took: 1 where coins turn once
    int surprises;      // edges that no axis showed
    int contradictions; // of races: outcomes that the pairs do not explain
    int64_t instances, drafts, cells, runs;
};
struct bisected bisect_examine(const struct instance *in, struct black_box *box);
void bisect_worse_of(struct bisected *worst, const struct bisected *one);
