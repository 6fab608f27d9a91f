// mutants.h - everything that somebody's speculative decoding got wrong, or well might have, under the numbers of the
// list that the tests are held against: M01 to M63, and R, D, T, S and P for what is ours to get wrong beyond it
// (rejection, drafters, traversal, spectr, multipath). The rules are written once more here, plainly, with a place for
// every flaw; drafters lie in exact/instance.c. Each must be found out by the very measure that the real rules pass. A
// test that lets one through tests too little.
//
// E are changes that change nothing: they must survive, or the measure sees ghosts.
#pragma once
#include <stdbool.h>
#include "exact/instance.h"
#include "verifier/rules/rule.h"

enum flaw {
    FLAWLESS, // the rule itself, once more
    // rejection: when a child stands
    ROW_OF_PARENT,
    ACCEPTS_SHARPENED,
    ACCEPTS_IF_LIKELIER,
    LENIENT,
    LENIENT_BY_2_PERCENT,
    LENIENT_BY_1_PERMILLE,
    ACCEPTS_BY_Q_OVER_P,
    ACCEPTS_EVERYTHING,
    ACCEPTS_BY_P,
    DETERMINISTIC_JUDGED_BY_Q,
    STALE_P,
    SKIPS_DUPLICATES,
    TRIES_LAST_FIRST,
    // rejection: the row that a child was drawn from
    UNMASKED_Q,
    MASKED_Q,
    CARRIED_Q,
    DETERMINISTIC_NOT_MASKED,
    // rejection: what is left when it falls
    RESIDUAL_IS_P,
    RESIDUAL_IS_STRIKE,
    RESIDUAL_IS_REVERSED,
    RESIDUAL_IS_ABSOLUTE,
    RESIDUAL_IS_SOFTMAX,
    RESIDUAL_IS_GREEDY,
    RESIDUAL_OF_PREVIOUS_ROW,
    RESIDUAL_WITH_NEXT_Q,
    RESIDUAL_NOT_NORMALIZED,
    DETERMINISTIC_NOT_STRUCK,
    // rejection: the target's own token
    CORRECTION_FROM_P,
    BONUS_FROM_PREVIOUS_ROW,
    BONUS_IS_GREEDY,
    BONUS_FROM_Q,
    BONUS_FROM_PARENT,
    NO_BONUS,
    // rejection: chance used twice
    RESIDUAL_BY_THE_ACCEPT_TEST,
    RESIDUAL_AT_THE_DRAFTS_ADDRESS,
    // one coin for all chosen siblings; one verification for each path
    ACCEPT_REUSED,
    DUPLICATES_COUNT_TWICE,
    LONGEST_PATH_WINS,
    // block
    UNCAPPED_LAST,
    UNCAPPED,
    H_IS_B,
    H_IS_S,
    H_OF_PREVIOUS_ROWS,
    BREAKS_AT_FIRST_FAILURE,
    RESIDUAL_OF_ONE_TOKEN,
    NOTHING_OF_NOTHING_IS_ONE,
    STEPS_BACK,
    // traversal
    SHARE_BY_DRAFT_MASS,
    SHARE_STAYS,
    SHARE_NOT_IN_RESIDUAL,
    SHARE_UNCAPPED,
    SIBLINGS_AGAINST_FULL_ROW,
    SHARE_SUMMED_FROM_THE_LEFT,
    // spectr
    RHO_IS_ONE,
    RHO_IS_TOO_SMALL,
    RHO_NOT_IN_TRIAL,
    NOTHING_TAKEN_OUT,
    TAKEN_OUT_ONCE,
    BETA_OF_ONE,
    ONE_TRY_TOO_FEW,
    RHO_IS_K,
    RHO_IS_BETWEEN,
    // multipath
    NOT_SKEWED,
    FIRST_IS_KEPT,
    LARGEST_AS_A_WHOLE,
    ORDER_NOT_STRICT,
    ORDERS_DIFFER,
    SMALLEST_IS_KEPT,
    ONE_PATH_TOO_MANY,
    BAND_NOT_CARRIED,
    RESIDUAL_NOT_SKEWED,
    ORDER_BY_ID,
    FLAWS,
};

// Their options: an enum flaw. No law of theirs is known.
extern const struct rule rejection_mutant, accept_mutant, block_mutant, traversal_mutant, spectr_mutant,
    multipath_mutant;
extern const struct rule *const mutant_rules[]; // ends with NULL

// Instances of one kind, of rows that are dense and peaked in turn.
struct ground {
    int levels, widths[LAW_DEPTH];
    enum way way;
    int choice;      // enum choice of all that is DETERMINISTIC; -1: any
    int least, most; // of the vocabulary
    bool any_rows;   // every family of rows in turn, not two of them
    int instances;
};

enum fate {
    KILLED,       // by the law of the text
    SEEN_TWICE,   // by an address that comes twice; the walk, which makes independent draws of them, sees nothing else
    EQUIVALENT,   // changes nothing
    ELSEWHERE,    // another test's
    NOT_ANNOUNCED // there is nothing in which it could be made
};

struct mutant {
    const char *id, *says;
    enum fate fate;
    const struct rule *rule; // judges; NULL: fate is one of the last two
    enum flaw flaw;          // of the rule, if it is one of mutant_rules
    enum lie lie;            // of the drafter
    const struct ground *ground;
    const struct rule *alike; // accepts as much on average; NULL: nothing is said
    double seen, mean, worst; // what the list says was measured; 0: nothing
    const char *note;         // ELSEWHERE: which test
};
extern const struct mutant mutants[]; // ends with id NULL

struct measured {
    int instances;
    double seen, mean, worst; // share of instances with a distance above 1e-9; of the distances of all
    double unlike;            // largest difference from what mutant.alike accepts
    int repeated;
    bool sound;
};
struct measured mutant_measure(const struct mutant *m);

// ---- what the writings share

int argmax(const double *w, int n);
// The row that child c was drawn from as its drafter says, 1 at its token if it was DETERMINISTIC.
void declared_row(const struct draft *d, int c, double *q, int vocab);
// p (n) as it comes out of a uniform that is known to be `from` or more and is used once more.
void pick_reused(double *p, int n, double from);

// A chain as block verification sees it.
struct chain {
    int n, vocab;                                            // guesses
    int node[LAW_NODES];                                     // (n + 1) from the root
    int32_t token[LAW_NODES];                                // (n + 1)
    double p[LAW_NODES][LAW_VOCAB], q[LAW_NODES][LAW_VOCAB]; // behind each node; q of the last one is not there
    double raw[LAW_NODES][LAW_VOCAB];                        // q as it was reported
};
void chain_verify(const struct chain *c, const struct draft *d, enum flaw flaw, struct rng *rng,
                  struct verification *out);
