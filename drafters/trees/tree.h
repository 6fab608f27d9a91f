// tree.h - fixed trees, whose shape is known before any token is. A tree is a list of paths. Each member of a path is
// the rank of a token among the most probable ones after its parent, 0 being the most probable: [0, 2] is the third
// most probable token after the most probable one. Cai et al. 2024 (Medusa), section 2.1.3; EAGLE-1 has such a tree as
// well.
#pragma once
#include <stdbool.h>
#include "core/draft.h"

struct error;

enum { TREE_DEPTH = 16, TREE_RANKS = 64 }; // maximum length of a path; ranks are below TREE_RANKS

struct tree {
    int n; // number of nodes, the root (0) included; 0: no tree
    struct tree_node {
        short parent, rank, depth; // parents come before children, ordered by depth, siblings by rank
    } node[MAX_NODES];
};

struct published_tree {
    const char *name, *paths; // paths: words of digits, one for each path
};
extern const struct published_tree published_trees[]; // ends with { NULL, NULL }: drafters/trees/tree_published.c

// text: the name of a published tree, a JSON list of paths as in "[[0], [0, 0], [1]]", or a file with such a list
// (alone, or as "tree" in an object, as `speclab heads` writes it). beside: directory for relative names; may be NULL.
// Paths may be in any order, but the parent of each must be in the list. Returns false and sets err on failure.
bool tree_read(const char *text, const char *beside, struct tree *to, struct error *err);
// Finds the tree of `nodes` draft tokens, none deeper than `depth`, with the largest expected depth, which it returns.
// It assumes that a token of rank r after d accepted ones is accepted with probability share[d * ranks + r],
// independently of the tokens (Chen et al. 2024, Sequoia). A sibling comes only after all siblings of lower rank. The
// tree has fewer nodes if no further one adds anything.
double tree_best(const double *share, int depth, int ranks, int nodes, struct tree *to);
char *tree_write(const struct tree *t); // writes a JSON list of paths; the caller frees it
int tree_max_depth(const struct tree *t);
int tree_children(const struct tree *t, int node); // number of children
bool tree_has_gaps(const struct tree *t); // some siblings' ranks are not 0, 1, 2, ...: such a tree cannot be sampled
