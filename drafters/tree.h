// tree.h - trees whose shape is known before a token is: a list of paths. A path says of each of its tokens which it is
// among the likeliest after its parent, 0 being the likeliest: [0, 2] is the third likeliest token after the likeliest.
// Cai et al. 2024 (Medusa), section 2.1.3; EAGLE-1 has such a tree, too.
#pragma once
#include <stdbool.h>
#include "core/draft.h"

struct error;

enum { TREE_DEPTH = 16, TREE_RANKS = 64 }; // of a path: most members, each less than that

struct tree {
    int n; // nodes, the root (0) included; 0: there is no such tree
    struct tree_node {
        short parent, rank, depth; // parents stand before children, levels in order, siblings by rank
    } node[MAX_NODES];
};

struct published_tree {
    const char *name, *paths; // words of digits
};
extern const struct published_tree published_trees[]; // ends with { NULL, NULL }: drafters/tree_published.c

// text: the name of a published tree, a JSON list of paths as in "[[0], [0, 0], [1]]", or a file with such a list (by itself,
// or as "tree" in an object, as `speclab heads` writes it). beside: folder that relative names start from; may be NULL.
// Paths may stand in any order; each one's beginning must be there.
bool tree_read(const char *text, const char *beside, struct tree *to, struct error *err);
// The tree of `nodes` guesses that reaches deepest on average, if a guess of rank r after d tokens that stood is right with
// probability share[d * ranks + r], whatever stands there: of every path the product, best first (Cai et al. 2024, section
// 2.3.3), a sibling only behind all likelier ones: the best there is where shares do not rise with the rank. Fewer nodes
// where none with a positive product is left.
void tree_best(const double *share, int depth, int ranks, int nodes, struct tree *to);
char *tree_write(const struct tree *t); // as a JSON list of paths; free() it
int tree_max_depth(const struct tree *t);
int tree_children(const struct tree *t, int node); // how many
bool tree_has_gaps(const struct tree *t);          // siblings whose ranks are not 0, 1, 2, ...: such can only be chosen
