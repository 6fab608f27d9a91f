// mutants.h - faults of speculative decoding that were made, or could be made: M01 to M63 are a numbered list of them (docs/notes/mutants.md),
// R, D, T, S and P add faults of rejection, drafters, traversal, spectr and multipath. The rules are implemented a
// second time here, plainly, with a switch for every flaw; misreporting drafters are in verifier/exact/instance.c. Each mutant
// must be detected by the same measurement that the real rules pass: a test that lets one through is too weak.
//
// E are equivalent changes: they must survive, or the measurement raises false alarms.
#pragma once
#include <stdbool.h>
#include "tests/exact/misreports.h"
#include "verifier/exact/instance.h"
#include "verifier/rules/rule.h"

enum flaw {
    FLAWLESS, // the rule itself, reimplemented
    // rejection: the acceptance test
    ROW_OF_PARENT,
    ACCEPTS_SHARPENED,
    ACCEPTS_IF_MORE_PROBABLE,
    LENIENT,
    LENIENT_BY_2_PERCENT,
    LENIENT_BY_1_PERMILLE,
    ACCEPTS_BY_Q_OVER_P,
    ACCEPTS_EVERYTHING,
    ACCEPTS_BY_P,
    DETERMINISTIC_ACCEPTED_BY_Q,
    STALE_P,
    SKIPS_DUPLICATES,
    TRIES_LAST_FIRST,
    // rejection: the row that a child was sampled from
    UNMASKED_Q,
    MASKED_Q,
    CARRIED_Q,
    DETERMINISTIC_NOT_MASKED,
    // rejection: the residual
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
    // rejection: randomness used twice
    RESIDUAL_BY_THE_ACCEPT_TEST,
    RESIDUAL_AT_THE_DRAFTS_ADDRESS,
    // one uniform for all deterministic siblings; separate verification of each path
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
    FIRST_IS_SELECTED,
    LARGEST_AS_A_WHOLE,
    ORDER_NOT_STRICT,
    ORDERS_DIFFER,
    SMALLEST_IS_SELECTED,
    ONE_PATH_TOO_MANY,
    BAND_NOT_CARRIED,
    RESIDUAL_NOT_SKEWED,
    ORDER_BY_ID,
    FLAWS,
};

// Their options: an enum flaw. They have no end_probabilities.
extern const struct rule rejection_mutant, accept_mutant, block_mutant, traversal_mutant, spectr_mutant,
    multipath_mutant;
extern const struct rule *const mutant_rules[]; // ends with NULL

// A kind of instances; their rows alternate between dense and peaked.
struct instance_kind {
    int levels, widths[LAW_DEPTH];
    enum proposal_mix mix;
    int choice;               // enum choice of all that is DETERMINISTIC; -1: any
    int min_vocab, max_vocab; // inclusive
    bool any_rows;            // every family of rows in turn
    int instances;
};

enum expectation {
    KILLED,           // by the law of the output
    REPEATED_ADDRESS, // by an address used twice; enumeration treats the draws as independent and detects nothing else
    EQUIVALENT        // has no effect
};

struct mutant {
    const char *id, *description;
    enum expectation expectation;
    const struct rule *rule;
    enum flaw flaw;           // of the rule, if it is one of mutant_rules
    enum misreport misreport; // of the drafter
    const struct instance_kind *instance_kind;
    const struct rule *same_acceptance; // accepts as much on average; NULL: not compared
    double seen, mean, worst;           // reference figures; 0: none
};
extern const struct mutant mutants[]; // ends with id NULL

struct measured {
    int instances;
    double seen, mean, worst;     // share of instances with a distance above 1e-9; of the distances of all
    double acceptance_difference; // largest difference from what mutant.same_acceptance accepts
    int repeated;
    bool sound;
};
struct measured mutant_measure(const struct mutant *m);

// ---- shared by the implementations

int argmax(const double *w, int n);
// The row that child c was declared to be sampled from; 1 at its token for DETERMINISTIC.
void declared_row(const struct draft *d, int c, double *q, int vocab);
// Replaces p (n) by the distribution of a pick with a uniform that is known to be at least `from`.
void pick_reused(double *p, int n, double from);

// The input of block verification.
struct chain {
    int n, vocab;                                            // n: draft tokens
    int node[LAW_NODES];                                     // (n + 1) from the root
    int32_t token[LAW_NODES];                                // (n + 1)
    double p[LAW_NODES][LAW_VOCAB], q[LAW_NODES][LAW_VOCAB]; // after each node; q of the last one is not set
    double raw[LAW_NODES][LAW_VOCAB];                        // q as it was reported
};
void chain_verify(const struct chain *c, const struct draft *d, enum flaw flaw, struct rng *rng,
                  struct verification *out);
