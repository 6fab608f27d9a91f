// rule.h - decides which guesses stand. A pure function of a draft, the target's distributions and
// chance: no model, no cache, no device, no failure. Throughout, p is the target's, q the drafter's.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/draft.h"
#include "core/device_verification.h"
#include "core/options.h"

struct verification {
    int n;
    int32_t *token, *node;     // (nodes) as in struct advance
    int empty;                 // residuals in which nothing was left after a fall: rounding alone can bring that about
    double *trial_p, *trial_q; // (nodes) by what each node that was looked at was judged; NAN: it was not
    double *work;              // (2 nodes + 1, vocab) rows to work in: double, whatever stands there
};

struct verification verification_create(int nodes, int vocab); // owns its arrays
void verification_destroy(struct verification *j);
void verification_clear(struct verification *j, int nodes);             // nothing yet, of a draft of so many nodes
void verification_add(struct verification *j, int node, int32_t token); // and after node came token
// All at once: the path of d from the root to node `last`, and `token` after it.
void verification_path(struct verification *j, const struct draft *d, int last, int32_t token);

struct rule {
    const char *name;
    const char *summary;
    bool exact; // the text has the target's distribution for every draft that tells the truth
    const char
        *optimal;   // for which drafts no exact rule accepts more on average, and who proved it; NULL: it is not known
    unsigned takes; // enum takes

    // Given this draft, the probability that the path ends at each node: (nodes), sums to 1. One function gives
    // E[accepted], its variance and an exact test for every rule. It needs every row of p, so it runs when asked for.
    // May be NULL.
    void (*law)(const struct draft *d, struct rows *p, const void *options, double *end);
    const struct option *options; // NULL: it has none
    size_t options_size;
    // Of which a device has a body of its own, with the same answers (core/device_verification.h); DEVICE_NONE: of none. lenience, rate:
    // of rejection's; NULL: 1, 0.
    enum device_rule device_rule;
    double (*lenience)(const void *options), (*rate)(const void *options);
    void (*verify)(const struct draft *d, struct rows *p, const void *options, struct rng *rng,
                   struct verification *out);
};

extern const struct rule *const rules[];         // ends with NULL: verifier/rules/registry.c
const struct rule *rule_named(const char *name); // NULL: none
