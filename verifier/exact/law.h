// law.h - the law of a rule: the distribution of what drafting and verification emit. It is computed by enumeration of
// every outcome of the random source, and compared with the target's own distribution.
//
// An instance (verifier/exact/instance.h) is small enough for that: a row of p and a row of q for every text of up to a
// few tokens of a tiny vocabulary, the shape of a draft, and a proposal for each node. The draft is built from q and
// verified against p with the same random source (sampling/outcomes.h), so drafting is part of the law: a drafter that
// misreports its proposals is detected like a wrong rule. Nothing is estimated. A rule is exact if the total variation
// between the two distributions is rounding, 1e-12, on every instance. The smallest relevant fault shows at 1e-3.
#pragma once
#include "verifier/exact/instance.h"
#include "verifier/rules/rule.h"

struct law_result {   // the result for one instance, or the worst of many
    double distance;  // total variation between the law of the output and the target's
    double mean;      // mean of `distance` over instances
    double lost;      // |1 - total probability of all outcomes|
    double law_error; // max over nodes and drafts of |probability that the path ends there - rule.end_probabilities|
    double accepted_error; // |E[accepted] of verify - of rule.end_probabilities|
    double trial_error;    // max |product of a run's trials - rule.end_probabilities at the node where it ended|
    double empty;          // probability of runs in which a residual had no mass left
    double accepted;       // E[accepted] of one instance
    bool sound;            // node[] was a path of the draft from the root, and token[] its tokens
    int repeated;          // addresses used twice in a run
    int64_t instances, runs;
    bool own_random;    // a run, made again with the same outcomes, decided or asked in another way; the rest is void
    const char *failed; // NULL, or why a plugin's rule could not decide (verification.failed)
};

struct law_result law_examine(const struct instance *in, const struct rule *rule, const void *options);

// Returns the maximum, or NAN if either is NAN, so that NAN fails every bound.
double law_max(double a, double b);

// Returns the total variation between the mass on texts of depth + 1 tokens and the target's own. The target continues
// shorter outputs. Texts are numbered like prefixes. mass: (texts of up to depth + 1 tokens) mass of each output,
// continued on return; own: as long, 0 on entry, the target's mass on return.
double law_distance(const struct instance *in, double *mass, double *own);

// The size of a sweep: instances per chain configuration and per tree configuration (a shape, a proposal mix, a
// vocabulary). Configurations with more than `drafts` drafts are skipped.
struct sweep_size {
    int chains, trees;
    int64_t drafts;
    bool (*progress)(int64_t done, int64_t all); // is called after each instance; false: stop. NULL: nobody
};

// Examines every shape, proposal mix, vocabulary and family of rows that the rule takes, and stops at the first
// instance whose distance is above `enough`, and where the rule fails or is no function of the outcomes. flaw: a flaw
// of the drafter; NULL: none. Rules, mutants and misreporting drafters go through the same sweep.
struct law_result law_sweep(const struct rule *rule, const void *options, const struct drafter_flaw *flaw,
                            struct sweep_size size, double enough);

// ---- the transport bound: the maximum probability with which any exact rule can accept at one node
//
// Let p be the target's row and x_1 .. x_k the draft tokens. For every set H of tokens, a rule can return one of the
// draft tokens only if the target's own token could have been it: the probability is at most P(H) + 1 - Pr(all draft
// tokens lie in H). The minimum over all H is attained by some rule (max flow, min cut; Sun et al. 2023, SpecTr, arXiv
// 2310.15141; Khisti et al. 2025). For k independent samples from q, all lie in H with probability q(H)^k, and the
// minimum is among the sets {p / q <= t}: P(H) - q(H)^k is concave, and those are the corners of the set of pairs
// (q(H), P(H)).
//
// transport_sampled returns the bound for k independent samples from one row: p, q (vocab), each normalised; order:
// (vocab) scratch.
double transport_sampled(const double *p, const double *q, int vocab, int k, int *order);
// Returns the bound for deterministic draft tokens: their total probability under p; token (k), repeated ones counted
// once.
double transport_deterministic(const double *p, const int *token, int k);
