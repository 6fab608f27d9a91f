// law.h - THE LAW: what comes out of drafting and judging, summed over every outcome of chance, compared with what the
// target alone would have said.
//
// An instance is a world small enough to walk through: a row of p and a row of q for every text of up to a few tokens
// of a tiny vocabulary, and the shape of a draft with a way of drawing for each node. The draft is grown from q and
// judged against p with the same source of chance (sampling/outcomes.h), so drafting is part of the law: a drafter that
// misstates how it drew is found out like a rule that errs. Nothing is estimated. A rule is exact when the total
// variation between the two laws is rounding, 1e-12, on every instance; the smallest flaw worth the name shows at 1e-3.
#pragma once
#include "exact/instance.h"
#include "verifier/rules/rule.h"

struct finding {           // of one instance, or the worst of many
    double distance;       // total variation between the law of the output and the target's
    double lost;           // |1 - the probability of all outcomes together|
    double law_error;      // largest |how often the path ended at a node - what rule.law says|, of any draft
    double accepted_error; // |E[accepted] from judging - from rule.law|
    double trial_error;    // largest |product of a run's trials - rule.law at the node where it ended|
    double empty;          // probability of runs in which nothing was left of a residual
    double accepted;       // E[accepted], of one instance
    bool sound;            // node[] was a path of the draft from the root, and token[] its tokens
    int repeated;          // addresses that came twice in a run
    int64_t instances, runs;
};

struct finding law_examine(const struct instance *in, const struct rule *rule, const void *options);

// The greater one, or NAN if either is: what cannot be compared must not pass for good.
double law_greater(double a, double b);

// Half the distance between the mass on texts of depth + 1 tokens, shorter outputs continued by the target, and the
// target's own. Texts are numbered as prefixes are. mass: (texts of up to depth + 1 tokens) what was put out, and on
// return continued; own: (the same) 0 on entry, the target's on return.
double law_distance(const struct instance *in, double *mass, double *own);

// How much is walked through: instances of each chain configuration and of each tree configuration (a shape, a way of
// drawing, a vocabulary), the families of rows in turn; configurations of more than so many drafts are left out.
struct effort {
    int chains, trees;
    int64_t drafts;
};

// Every shape, way of drawing, vocabulary and family of rows that the rule takes; stops at the first instance whose
// distance is above `enough`. The same for rules, for mutants and for liars.
struct finding law_sweep(const struct rule *rule, const void *options, enum lie lie, struct effort e, double enough);
