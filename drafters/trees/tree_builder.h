// tree_builder.h - the shape of a draft: which draft tokens are proposed after which, given the drafter's own
// distributions.
//
// Every drafter with a model uses it. The drafter computes the row of logits after each candidate of a frontier, one
// pass per level, and the builder turns rows into candidates. Chains and trees of fixed widths may be sampled: their
// shape is fixed before any token is. A best-first tree keeps the candidates with the largest products of probabilities
// along their paths (EAGLE-2, Li et al. 2024, section 4.1). That depends on tokens, so its nodes are DETERMINISTIC:
// pruning sampled tokens would bias the output (docs/exactness.md).
//
// A fixed tree (drafters/trees/tree.h) states which of the top-k tokens after each node are proposed.
//
// kernels/device_step/candidates.h has the steps on single candidates, which a device shares. A candidate's number is
// its address for randomness.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "kernels/device_step/candidates.h"
#include "core/options.h"
#include "drafters/trees/tree.h"

struct draft;
struct request;

struct tree_options {
    int tokens;         // depth of a chain or of a best-first tree
    struct ints widths; // children of each node, level by level; none: a chain
    int nodes;          // number of draft tokens of a best-first tree; 0: not best-first
    int top;            // children considered per node of a best-first tree, and size of its frontier
    int pick;           // enum pick
    bool distinct;      // siblings are sampled without replacement
    char *tree;         // a fixed tree in a form that tree_read reads; NULL: none
    double temperature; // sampled tokens are drawn at it; 0: at that of the target's sampling
};

// Rows for a drafter's option table: TREE_OPTIONS(struct small_options, tree).
// clang-format off
#define TREE_OPTIONS(type, member) \
    { "tokens", OPTION_INT, offsetof(type, member.tokens), "4", "depth of the chain, or of the best-first tree", 1, 64, NULL }, \
    { "widths", OPTION_INTS, offsetof(type, member.widths), "", "a tree: children of each node, level by level, as in [4, 2, 1]", 1, 64, NULL }, \
    { "nodes", OPTION_INT, offsetof(type, member.nodes), "0", "a best-first tree: draft tokens it keeps; 0: no such tree", 0, 256, NULL }, \
    { "top", OPTION_INT, offsetof(type, member.top), "8", "of a best-first tree: children below a node, nodes of a frontier", 1, 64, NULL }, \
    { "pick", OPTION_CHOICE, offsetof(type, member.pick), "sampled", "how tokens are picked (coupled: as `match` will)", 0, 0, "sampled|greedy|coupled" }, \
    { "distinct", OPTION_BOOL, offsetof(type, member.distinct), "true", "siblings sampled without replacement", 0, 0, NULL }, \
    { "tree", OPTION_TEXT, offsetof(type, member.tree), "", "a fixed tree: a published one's name, a list of paths as in [[0], [0, 0], [1]], or a .json file", 0, 0, NULL }, \
    { "temperature", OPTION_REAL, offsetof(type, member.temperature), "", "draft tokens are sampled at it; not given: at that of the target (pick: greedy is the limit 0)", 0.01, 100, NULL }

enum { MAX_LEVELS = 64 }; // maximum of `tokens`

// The options, and the values that follow from them. It is computed once, when a drafter is created.
struct tree_shape {
    struct tree_options o; // texts borrowed
    struct tree tree;      // n 0: no fixed tree
    int levels;            // maximum depth of its drafts
    // (levels + 1) Maximum per depth: candidates that get rows of logits; candidates up to this depth, the root
    // included.
    int level_rows[MAX_LEVELS + 1], level_candidates[MAX_LEVELS + 1];
    int nodes;             // maximum nodes of a draft, the root included
    int frontier;          // maximum number of candidates of one level that get rows of logits
    int candidates;        // maximum number of candidates in total, the root included
    int evaluated;         // maximum number of candidates that get rows of logits in one draft, the root not counted
    int max_children;      // maximum number for one candidate
};
// clang-format on

struct tree_builder {
    const struct tree_shape *shape;
    struct families families;
    int vocab;    // width of the drafter's rows
    int capacity; // capacity for candidates
    int n;
    int level;            // the first candidate of the last level
    struct candidate *at; // (capacity)
    int *frontier;        // (capacity) candidates that need rows of logits next
    int n_frontier;
    bool forced;    // the draft is the chain given by the request
    int *order;     // (capacity) scratch
    double *weight; // (vocab) scratch
};

// what: the word in messages, "drafter small". beside: as in tree_read. Returns false and sets err if options
// contradict each other or the tree is invalid.
bool tree_shape(struct tree_shape *to, const struct tree_options *o, const char *what, const char *beside,
                struct error *err);
// Checks the options before anything is opened, for drafter_type.check.
bool tree_options_check(const struct tree_options *o, const char *what, struct error *err);
// Returns the families of the candidates: each level is a family, or each node of a fixed tree. The caller frees them.
struct families families_of(const struct tree_shape *s);
void families_free(struct families *f);
// Returns the depth of this draft: the shape's levels, limited to draft tokens that can be used and, for shapes that
// are not pruned, to whole levels within the draft's capacity.
int tree_shape_depth(const struct tree_shape *s, const struct request *r);
unsigned tree_options_kinds(const struct tree_options *o); // the kinds of these drafts: enum takes

void builder_create(struct tree_builder *g, const struct tree_shape *shape, int vocab); // shape: borrowed
void builder_destroy(struct tree_builder *g);

// Build one draft: begin; while there is a frontier, pass the row after each of its candidates in turn, then begin the
// next level; finish writes the nodes into the draft.
void builder_begin(struct tree_builder *g, const struct request *r);
// row (vocab): the probabilities after candidate c, from which its children are sampled. Their number depends only on
// the shape, unless the row has fewer tokens.
void builder_sample_children(struct tree_builder *g, int c, const float *row, const struct request *r);
// Adds DETERMINISTIC children from the top-k tokens and their log-probabilities. k: builder_top_k and the number of
// padding ids (from used_vocab on) that may precede.
void builder_add_top_k(struct tree_builder *g, int c, const int32_t *token, const float *log_p, int k, int used_vocab);
// Adds the given text's next token to a forced draft.
void builder_add_forced(struct tree_builder *g, int c, int32_t token);
// Returns the size of the top-k that contains c's children; 0: it has none.
int builder_top_k(const struct tree_builder *g, int c);
bool builder_next_level(struct tree_builder *g, const struct request *r); // false: the draft is complete
void builder_finish(struct tree_builder *g, struct draft *d);
