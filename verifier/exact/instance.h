// instance.h - a random test problem small enough for enumeration: a row of p and a row of q for every text of up to a
// few tokens of a tiny vocabulary, the shape of a draft, and a proposal for each node. Drafts are built from q with any
// random source, by drafters that declare their proposals truthfully, unless a test has them misreport.
#pragma once
#include <stdint.h>
#include "core/draft.h"
#include "core/splitmix.h"

enum { LAW_NODES = 8, LAW_VOCAB = 5, LAW_DEPTH = 4 };

enum choice {                 // how a DETERMINISTIC token is selected
    GREEDY,                   // argmax of q among the tokens that deterministic siblings do not have
    ARBITRARY,                // a function of prefix and node; siblings may repeat each other
    RANDOM_BUT_DETERMINISTIC, // sampled from q and declared DETERMINISTIC
    RANDOM_IF_LIKELY,         // sampled from q and declared DETERMINISTIC, but dropped if the token is improbable
    AFTER_EARLIER,            // a function of the first sibling's token: earlier siblings may be used
    CHOICES,
};

// Proposals that the nodes of an instance may have.
enum proposal_mix { ALL_DETERMINISTIC, ALL_SAMPLED, ALL_DISTINCT, MIXED, PROPOSAL_MIXES };

// Families of rows, for p and q together: positive, with zeros, one-hot, peaked, equal, of disjoint support, with ties,
// one ulp apart. ANY_ROWS: a random family for each row.
enum family { DENSE, SPARSE, ONE_HOT, PEAKED, EQUAL, DISJOINT, TIES, ONE_ULP, FAMILIES, ANY_ROWS = FAMILIES };

struct instance;
struct table_draft;
// A drafter that does not draft as it declares. It shows that the law of its output differs (tests/exact/misreports.h).
struct drafter_flaw {
    // Returns the token of a new child of parent, node k of the instance, which it declares as sampled from w (vocab),
    // the row of q; -1: none.
    int (*sampled)(const struct instance *in, int k, struct table_draft *g, int parent, double *w, struct rng *rng);
    bool (*stops)(const struct instance *in, const struct table_draft *g, int node); // node gets no children
    void (*end)(const struct instance *in, struct table_draft *g);                   // the draft is complete
};

struct instance {
    int vocab, nodes, depth;
    int parent[LAW_NODES];           // (nodes)
    uint8_t proposal[LAW_NODES];     // (nodes) enum proposal
    uint8_t choice[LAW_NODES];       // (nodes) enum choice
    const struct drafter_flaw *flaw; // NULL: none
    int prefixes; // texts of up to depth tokens; prefix 0 is empty, its extension by x is prefix * vocab + 1 + x
    float *p, *q; // (prefixes, vocab)
};

// Makes an instance. widths {2, 1}: a root with two children with one child each; levels 0: a random tree of up to
// seven draft tokens. Equal seeds give equal instances. Free it with instance_free.
struct instance instance_create(const int *widths, int levels, int vocab, enum proposal_mix mix, enum family family,
                                uint64_t seed);
void instance_free(struct instance *in);

// A draft of an instance, built with some random source, and the rows to verify it against.
struct table_rows {
    struct rows rows;
    const float *table; // (prefixes, vocab)
    const int *prefix;  // (nodes) the prefix of each node of the draft
    int requested;      // number of calls of row()
};
struct table_draft {
    struct draft draft;
    struct table_rows p, q;
    int32_t token[LAW_NODES], parent[LAW_NODES];
    uint8_t proposal[LAW_NODES];
    int prefix[LAW_NODES]; // the prefix of each node
    int from[LAW_NODES];   // the instance's node for each node of the draft
};
void instance_draft(const struct instance *in, struct rng *rng, int prefix, struct table_draft *g);
