// instance.h - a world small enough to walk through: a row of p and a row of q for every text of up to a few tokens of
// a tiny vocabulary, and the shape of a draft with a way of drawing for each node. Drafts are grown from q with
// whatever source of chance is given, by drafters that keep their word or break it.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "core/splitmix.h"

enum { LAW_NODES = 8, LAW_VOCAB = 5, LAW_DEPTH = 4 };

enum choice {                 // how a DETERMINISTIC token was chosen
    GREEDY,                   // the likeliest that no chosen sibling has
    ARBITRARY,                // fixed by prefix and node; siblings may repeat each other
    RANDOM_BUT_DETERMINISTIC, // at random from q, and yet called DETERMINISTIC
    RANDOM_IF_LIKELY,         // likewise, and dropped when it came out as something unlikely
    AFTER_EARLIER,            // by what the first sibling came out as: what stands earlier may be looked at
    CHOICES,
};

enum lie { // what a drafter may do that it must not
    HONEST,
    GREEDY_AS_SAMPLED,         // an argmax, called a draw
    SHARPENED_AS_SAMPLED,      // drawn at another temperature than the row reported
    DISTINCT_AS_SAMPLED,       // drawn without the earlier siblings, called independent
    PRUNED_AS_SAMPLED,         // drawn, then dropped because it came out as something unlikely
    DETERMINISTIC_AFTER_LATER, // chosen by what a sibling that stands later was drawn as
    TOP_TWO_AS_SAMPLED,        // drawn from the two likeliest, the whole row reported
    BEST_OF_TWO_AS_SAMPLED,    // of two siblings that were drawn the likelier is kept
    RANKED_AS_SAMPLED,         // the likeliest that no sibling has, called a draw
    ROUNDED_AS_SAMPLED,        // drawn from the row rounded to bfloat16
    UNMAPPED_AS_SAMPLED,       // the row is in the numbers of the drafter's own vocabulary, the token in the target's
    PADDING_IN_ROW,            // the last id is padding: never drawn, and yet there is mass on it in the row
    LIES,
    // No lies, as these may be done: what comes below a token may depend on what it and its siblings are.
    STOPS_AFTER_UNLIKELY = LIES, // nothing comes below a token that came out as something unlikely
    LEAVES_BESIDE_UNLIKELY,      // nor below one with such a sibling
};
extern const char *const lie_names[LIES];

enum way { ALL_DETERMINISTIC, ALL_SAMPLED, ALL_DISTINCT, MIXED, WAYS }; // of drawing the nodes of a draft

// Of rows, p's and q's together: with zeros, certain, peaked, equal, of disjoint support, with ties, one unit in the
// last place apart. ANY_ROWS: each row another.
enum family { DENSE, SPARSE, ONE_HOT, PEAKED, EQUAL, DISJOINT, TIES, ONE_ULP, FAMILIES, ANY_ROWS = FAMILIES };

struct instance {
    int vocab, nodes, depth;
    int parent[LAW_NODES];       // (nodes)
    uint8_t proposal[LAW_NODES]; // (nodes) enum proposal
    uint8_t choice[LAW_NODES];   // (nodes) enum choice
    enum lie lie;
    int prefixes; // texts of up to depth tokens; prefix 0 is the empty one, its child by x is prefix * vocab + 1 + x
    float *p, *q; // (prefixes, vocab)
};

// widths {2, 1} is a root with two children with one child each; levels 0: a tree by chance, of up to seven guesses.
// The same seed gives the same instance. instance_free frees it.
struct instance instance_create(const int *widths, int levels, int vocab, enum way way, enum family family,
                                uint64_t seed);
void instance_free(struct instance *in);

// A draft of an instance, grown with some source of chance, and rows to judge it against.
struct table_rows {
    struct rows rows;
    const float *table; // (prefixes, vocab)
    const int *prefix;  // (nodes) of the draft
    int asked;          // how many rows were asked for
};
struct draft_batch {
    struct draft draft;
    struct table_rows p, q;
    int32_t token[LAW_NODES], parent[LAW_NODES];
    uint8_t proposal[LAW_NODES];
    int prefix[LAW_NODES]; // of each node
    int from[LAW_NODES];   // which node of the instance each node of the draft is
};
void instance_draft(const struct instance *in, struct rng *rng, int prefix, struct draft_batch *g);
