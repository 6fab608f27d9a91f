// rule.h - a rule decides which draft tokens are accepted and which token follows them.
//
// A rule is a pure function of a draft, the target's rows and a random source. It uses no model, no cache and no
// device, and it cannot fail. Throughout, p is the target's distribution and q the drafter's; a trial is one acceptance
// test.
//
// The contract of a rule:
//   - Rows of p and q arrive as non-negative floats that sum to 1 up to rounding, one per node. A row is fetched when
//     rows->row() is called, so a rule calls it only for nodes that it visits.
//   - Randomness comes from `rng` only, at the addresses of sampling/rng.h, and no address is used twice in a step.
//   - The output is a path of the draft from its root, followed by one token of the target: at least one token.
//   - A rule marked `exact` keeps the target's distribution for every draft whose proposals are declared truthfully
//     (core/draft.h). docs/exactness.md has the proofs, tests/exact/test_rules.c verifies each registered rule.
//
// To add a rule, write one file here and add its name to registry.c, or write a plugin (engine/plugin.h).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/digest.h"
#include "core/draft.h"
#include "core/options.h"
#include "kernels/device_step/verification.h"
#include "sampling/dist.h"

struct rule {
    const char *name;    // the name given to --rule and `rule:`
    const char *summary; // one line for `speclab list`
    bool exact;          // lossless: the output has the target's distribution for every truthful draft
    const char *optimal; // drafts for which no exact rule accepts more on average, with source; NULL: unknown
    unsigned takes;      // enum takes: drafts that the rule can verify
    // The text is a function of the seed and the target, the same for every drafter (Daliri, Musco, Suresh 2024): each
    // token is drawn at the address (FOR_TOKEN, position), and no row of q is read.
    bool drafter_invariant;
    // A draft of the root alone is decided as by `rejection`, the first in the list: the token is drawn from the root's
    // row at FOR_BONUS. The text of `none` is then equal to the last bit, and one run of it is the baseline of all
    // these rules (experiments/sweep/cell_lists.c).
    bool bonus_alone;
    // A rejected SAMPLED child without siblings has the distribution (q - p)+ and its replacement (p - q)+, and the two
    // are independent: verifier/exact/observer.c tests it.
    bool replaces_by_residual;
    const struct option *options; // NULL: none
    size_t options_size;          // size of the struct that `options` points into

    // Verifies draft d against the target's rows p and writes the decision to out. rule: the struct itself.
    void (*verify)(const struct rule *rule, const struct draft *d, struct rows *p, const void *options, struct rng *rng,
                   struct verification *out);

    // Computes the probability, given the draft, that the accepted path ends at each node: end (nodes), which sums to
    // 1. It yields E[accepted], its variance and an exact test of the rule. It reads every row of p, so it is called on
    // request only. May be NULL.
    void (*end_probabilities)(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                              double *end);

    // The name of the body by which a device verifies, with the same results bit for bit
    // (kernels/device_step/device_step.h: rule_body), and the function that gives its parameters under these options.
    // NULL: the host verifies; the body has no parameters.
    const char *device_body;
    void (*device_parameters)(const void *options, double parameter[RULE_PARAMETERS]);
    struct hash source; // set by speclab_register_rule: the hash of the plugin's file; { 0 }: a rule of the tree
    const void *self;   // a pointer for the rule's own use (engine/foreign_rules.c)
};

extern const struct rule *rules[]; // ends with NULL: verifier/rules/registry.c. The first is the default
// Adds a copy of the rule at the end of the list. What it points to has to stay. Returns false and sets err if its name
// is there already, or if it lacks what the contract needs.
bool speclab_register_rule(const struct rule *rule, struct error *err);
const struct rule *rule_named(const char *name); // NULL: no such rule
int rule_names(const char **to);                 // to: (MAX_REGISTERED + 1), ends with NULL; returns their number
