// instance.h - a random test problem small enough for enumeration: a row of p and a row of q for every text of up to a
// few tokens of a tiny vocabulary, the shape of a draft, and a proposal for each node. Drafts are built from q with any
// random source, by drafters that declare their proposals truthfully or misreport them.
#pragma once
#include <stdint.h>
#include "core/draft.h"
#include "core/splitmix.h"

enum { LAW_NODES = 8, LAW_VOCAB = 5, LAW_DEPTH = 4 };

enum choice {                 // how a DETERMINISTIC token is selected
    GREEDY,                   // argmax of q without the tokens of deterministic siblings
    ARBITRARY,                // a function of prefix and node; siblings may repeat each other
    RANDOM_BUT_DETERMINISTIC, // sampled from q and declared DETERMINISTIC
    RANDOM_IF_LIKELY,         // the same, and dropped if the token is improbable
    AFTER_EARLIER,            // a function of the first sibling's token: earlier siblings may be used
    CHOICES,
};

enum misreport { // a drafter's violation of core/draft.h
    TRUTHFUL,
    GREEDY_AS_SAMPLED,         // an argmax, declared SAMPLED
    SHARPENED_AS_SAMPLED,      // sampled at another temperature than the reported row
    DISTINCT_AS_SAMPLED,       // sampled without replacement, declared independent
    PRUNED_AS_SAMPLED,         // sampled, then dropped because the token is improbable
    DETERMINISTIC_AFTER_LATER, // a function of a later sibling's sampled token
    TOP_TWO_AS_SAMPLED,        // sampled from the top two tokens, the whole row reported
    BEST_OF_TWO_AS_SAMPLED,    // two siblings are sampled, the more probable one is kept
    RANKED_AS_SAMPLED,         // argmax without the siblings' tokens, declared SAMPLED
    ROUNDED_AS_SAMPLED,        // sampled from the row rounded to bfloat16
    UNMAPPED_AS_SAMPLED,       // the row has the ids of the drafter's vocabulary, the token those of the target's
    PADDING_IN_ROW,            // the last id is padding: never sampled, but with mass in the row
    MISREPORTS,
    // Allowed: what is below a token may depend on that token and its siblings.
    STOPS_AFTER_UNLIKELY = MISREPORTS, // no children below an improbable token
    LEAVES_BESIDE_UNLIKELY,            // nor below a token with an improbable sibling
};

// Proposals of an instance's nodes.
enum proposal_mix { ALL_DETERMINISTIC, ALL_SAMPLED, ALL_DISTINCT, MIXED, PROPOSAL_MIXES };

// Families of rows, for p and q together: positive, with zeros, one-hot, peaked, equal, of disjoint support, with ties,
// one ulp apart. ANY_ROWS: a random family for each row.
enum family { DENSE, SPARSE, ONE_HOT, PEAKED, EQUAL, DISJOINT, TIES, ONE_ULP, FAMILIES, ANY_ROWS = FAMILIES };

struct instance {
    int vocab, nodes, depth;
    int parent[LAW_NODES];       // (nodes)
    uint8_t proposal[LAW_NODES]; // (nodes) enum proposal
    uint8_t choice[LAW_NODES];   // (nodes) enum choice
    enum misreport misreport;
    int prefixes; // texts of up to depth tokens; prefix 0 is empty, its extension by x is prefix * vocab + 1 + x
    float *p, *q; // (prefixes, vocab)
};

// widths {2, 1}: a root with two children with one child each; levels 0: a random tree of up to seven draft tokens. The
// same seed gives the same instance. Free it with instance_free.
struct instance instance_create(const int *widths, int levels, int vocab, enum proposal_mix mix, enum family family,
                                uint64_t seed);
void instance_free(struct instance *in);

// A draft of an instance, built with some random source, and the rows to verify it against.
struct table_rows {
    struct rows rows;
    const float *table; // (prefixes, vocab)
    const int *prefix;  // (nodes) of the draft
    int requested;      // calls of row()
};
struct table_draft {
    struct draft draft;
    struct table_rows p, q;
    int32_t token[LAW_NODES], parent[LAW_NODES];
    uint8_t proposal[LAW_NODES];
    int prefix[LAW_NODES]; // of each node
    int from[LAW_NODES];   // the instance's node for each node of the draft
};
void instance_draft(const struct instance *in, struct rng *rng, int prefix, struct table_draft *g);
