// law.h - THE LAW: what comes out of drafting and judging, summed over every outcome of chance, compared with what the
// target alone would have said.
//
// An instance is a world small enough to walk through: a row of p and a row of q for every text of up to a few tokens
// of a tiny vocabulary, and the shape of a draft with a way of drawing for each node. The draft is grown from q and
// judged against p with the same source of chance (sampling/outcomes.h), so drafting is part of the law: a drafter that
// misstates how it drew is found out like a rule that errs. Nothing is estimated. A rule is exact when the total
// variation between the two laws is rounding, 1e-12, on every instance; the smallest flaw worth the name shows at 1e-3.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "verifier/rule.h"

enum { LAW_NODES = 8, LAW_VOCAB = 4 };

enum choice {          // how a CHOSEN token was chosen
    LIKELIEST,         // the likeliest that no chosen sibling has
    ARBITRARY,         // fixed by prefix and node; siblings may repeat each other
    SAMPLED,           // at random from q, and yet called CHOSEN
    SAMPLED_IF_LIKELY, // likewise, and dropped when it came out as something unlikely
    AFTER_EARLIER,     // by what the first sibling came out as: what stands earlier may be looked at
    CHOICES,
};

enum lie { // what a drafter may do that it must not
    HONEST,
    LIKELIEST_AS_DRAWN, // an argmax, called a draw
    SHARPENED_AS_DRAWN, // drawn at another temperature than the row reported
    DISTINCT_AS_DRAWN,  // drawn without the earlier siblings, called independent
    PRUNED_AS_DRAWN,    // drawn, then dropped because it came out as something unlikely
    CHOSEN_AFTER_LATER, // chosen by what a sibling that stands later was drawn as
    LIES,
};
extern const char *const lie_names[LIES];

enum way { ALL_CHOSEN, ALL_DRAWN, ALL_DISTINCT, MIXED, WAYS }; // of drawing the nodes of a draft

struct instance {
    int vocab, nodes, depth;
    int parent[LAW_NODES];     // (nodes)
    uint8_t drawn[LAW_NODES];  // (nodes) enum drawn
    uint8_t choice[LAW_NODES]; // (nodes) enum choice
    enum lie lie;
    int prefixes; // texts of up to depth tokens; prefix 0 is the empty one, its child by x is prefix * vocab + 1 + x
    float *p, *q; // (prefixes, vocab)
};

struct finding {           // of one instance, or the worst of many
    double distance;       // total variation between the law of the output and the target's
    double lost;           // |1 - the probability of all outcomes together|
    double law_error;      // largest |how often the path ended at a node - what rule.law says|, summed over drafts
    double accepted_error; // |E[accepted] from judging - from rule.law|
    double trial_error;    // largest |product of a run's trials - rule.law at the node where it ended|
    bool sound;            // node[] was a path of the draft from the root, and token[] its tokens
    int repeated;          // addresses that came twice in a run
    int64_t instances, runs;
};

struct finding law_examine(const struct instance *in, const struct rule *rule, const void *options);

// Every shape, way of drawing, vocabulary and family of rows that the rule takes; stops at the first instance whose
// distance is above `enough`. The same for rules, for mutants and for liars.
struct finding law_sweep(const struct rule *rule, const void *options, enum lie lie, double enough);

// One instance by hand: widths {2, 1} is a root with two children with one child each. instance_free frees it.
struct instance instance_create(const int *widths, int levels, int vocab, enum way way, uint64_t seed);
void instance_free(struct instance *in);

// A draft of an instance, grown with some source of chance, and rows to judge it against.
struct table_rows {
    struct rows rows;
    const float *table; // (prefixes, vocab)
    const int *prefix;  // (nodes) of the draft
    int asked;          // how many rows were asked for
};
struct growth {
    struct draft draft;
    struct table_rows p, q;
    int32_t token[LAW_NODES], parent[LAW_NODES];
    uint8_t drawn[LAW_NODES];
    int prefix[LAW_NODES]; // of each node
    int from[LAW_NODES];   // which node of the instance each node of the draft is
};
void instance_grow(const struct instance *in, struct rng *rng, int prefix, struct growth *g);
