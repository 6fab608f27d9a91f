// tree_builder.h - the shape of a draft: which guesses are made below which, given the drafter's own distributions.
//
// The one place that decides it, for every drafter that has a model: the model is asked for the row after each node of
// a frontier, one pass a level, and grow turns rows into guesses. Chains and trees of fixed widths may be drawn at
// random: their shape is settled before a token is. A best-first tree keeps the likeliest of many candidates by the
// product of their probabilities (EAGLE-2, Li et al. 2024, section 4.1), which looks at tokens, so its nodes are
// DETERMINISTIC: pruning what was drawn would bias the text (docs/exactness.md).
//
// A fixed tree (drafters/tree.h) says which of the likeliest tokens after each node are guessed.
//
// Candidates are numbered as they are found; the root is 0. A candidate's number is its address of chance.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/device_drafting.h"
#include "core/options.h"
#include "drafters/tree.h"

struct backend;
struct draft;
struct request;
struct rng;

struct tree_options {
    int tokens;         // depth of a chain, or of a best-first tree
    struct ints widths; // children of each node, level by level; none: a chain
    int nodes;          // of a best-first tree; 0: no such tree
    int top;            // children looked at below each node of a best-first tree, and size of its frontier
    int pick;           // enum pick
    bool distinct;      // siblings are drawn without replacement
    char *tree;         // a fixed tree, as tree_read has it; NULL: none
};

// The rows that a drafter's option table takes over as they are: TREE_OPTIONS(struct small_options, grow).
// clang-format off
#define TREE_OPTIONS(type, member) \
    { "tokens", OPTION_INT, offsetof(type, member.tokens), "4", "depth of the chain, or of the best-first tree", 1, 64, NULL }, \
    { "widths", OPTION_INTS, offsetof(type, member.widths), "", "a tree: children of each node, level by level, as in [4, 2, 1]", 1, 64, NULL }, \
    { "nodes", OPTION_INT, offsetof(type, member.nodes), "0", "a best-first tree: guesses it keeps; 0: no such tree", 0, 256, NULL }, \
    { "top", OPTION_INT, offsetof(type, member.top), "8", "of a best-first tree: children below a node, nodes of a frontier", 1, 64, NULL }, \
    { "pick", OPTION_CHOICE, offsetof(type, member.pick), "sampled", "how tokens are picked (coupled: as `match` will)", 0, 0, "sampled|greedy|coupled" }, \
    { "distinct", OPTION_BOOL, offsetof(type, member.distinct), "true", "siblings drawn without replacement", 0, 0, NULL }, \
    { "tree", OPTION_TEXT, offsetof(type, member.tree), "", "a fixed tree: a published one's name, a list of paths as in [[0], [0, 0], [1]], or a .json file", 0, 0, NULL }

// What the options come to; made once, by whoever creates a drafter.
struct tree_shape {
    struct tree_options o; // texts borrowed
    struct tree tree;      // n 0: none
    int nodes;             // most of a draft, the root included
    int frontier;          // most candidates of one frontier
    int candidates;        // most in all, the root included
    int asked;             // most whose rows are asked for in one draft, the root not counted
    int widest;            // most children of one candidate
};
// clang-format on

struct candidate {
    int parent, depth; // candidate; 0 below the root: depth of the root is 0
    int32_t token;
    uint8_t proposal;
    int fixed;    // node of the fixed tree
    double score; // log of the product of its path's probabilities (best-first)
    int node;     // in the draft once it is there; -1
};

struct tree_builder {
    const struct tree_shape *shape;
    int vocab;    // of the drafter's rows
    int capacity; // candidates, at most
    int n;
    struct candidate *at; // (room)
    int *frontier;        // (room) candidates whose rows are wanted next
    int n_frontier;
    bool forced;    // the draft is the chain that the request says
    int *order;     // (room) work
    double *weight; // (vocab) work
};

// what: "drafter small", for messages: of options that contradict each other, of trees that are none. beside: as
// tree_read's.
bool tree_shape(struct tree_shape *to, const struct tree_options *o, const char *what, const char *beside,
                struct error *err);
int tree_shape_levels(const struct tree_shape *s);           // how deep its drafts go
int tree_shape_width(const struct tree_shape *s, int depth); // children of a node there, of a shape without paths
// How deep this draft goes: the shape's levels, as far as guesses can be used, and for shapes that are not pruned, as far as
// the draft has room for whole levels.
int tree_shape_depth(const struct tree_shape *s, const struct request *r);
unsigned tree_options_kinds(const struct tree_options *o); // which drafts these are: enum takes

void builder_create(struct tree_builder *g, const struct tree_shape *shape, int vocab); // shape: borrowed
void builder_destroy(struct tree_builder *g);

// One draft: begin; while there is a frontier, give the row after each of its candidates in turn, then go on to the
// next level; end writes the guesses into the draft.
void builder_begin(struct tree_builder *g, const struct request *r);
// row (vocab): probabilities after candidate c, from which children are drawn. How many depend on the shape alone, except
// where the row has no more tokens.
void builder_sample_children(struct tree_builder *g, int c, const float *row, const struct request *r);
// The same for DETERMINISTIC children, from the k likeliest tokens and their log-probabilities: as many as builder_top_k says, and
// as many more as may be no tokens (live).
void builder_add_top_k(struct tree_builder *g, int c, const int32_t *token, const float *log_p, int k, int used_vocab);
// The same for a forced draft: the text's own next token.
void builder_add_forced(struct tree_builder *g, int c, int32_t token);
int builder_top_k(const struct tree_builder *g,
                  int c); // the likeliest tokens that c's children are among; 0: it has none
bool builder_next_level(struct tree_builder *g, const struct request *r); // false: nothing more to ask
void builder_finish(struct tree_builder *g, struct draft *d);
