// candidates.h - selects the draft tokens that are proposed: the steps on single candidates, for C and for CUDA, as in
// core/grid.h. drafters/trees/tree_builder.c builds drafts with them on the host, kernels/cuda/drafts.cu on a device;
// the loops are in these files.
//
// Candidates are numbered in the order in which they are added, so those of a level are one range; the root is 0. The
// frontier consists of the candidates of the last level that get rows of logits. Their children are the next level. In
// the end all candidates become nodes of the draft, in their order, or, in a best-first tree, the best ones.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "core/grid.h"

enum pick { PICK_SAMPLED, PICK_GREEDY, PICK_COUPLED };

struct candidate {
    double score;   // log of the product of its path's probabilities (best-first)
    int32_t parent; // the parent candidate; -1 for the root
    int32_t token;
    int32_t depth;    // depth; 0 for the root
    int32_t family;   // family of its children
    int32_t row;      // its pending row; -1: none
    int32_t q_row;    // the row of q, on a device, from which its children were sampled; -1: none
    int32_t node;     // its node in the finished draft; -1: none
    uint8_t proposal; // enum proposal
};

GRID_FUNCTION struct candidate candidate_root(int32_t token)
{
    const struct candidate c = { 0, -1, token, 0, 0, -1, -1, 0, DETERMINISTIC };
    return c;
}

// ---- families

// A family is the set of children that a candidate may have: their ranks, ascending, and the family of each. Family f's
// are members first[f] to first[f + 1]. The root has family 0. The ranks of sampled children are 0, 1, 2, ...
struct families {
    int n;
    const int16_t *first;        // (n + 1)
    const int16_t *rank, *child; // (members)
};

GRID_FUNCTION int family_size(const struct families *f, int family)
{
    return f->first[family + 1] - f->first[family];
}

// Returns the number of most probable tokens among which a family's members are, or the number of tokens to sample.
// vocab: number of ids that the tokens can have.
GRID_FUNCTION int family_top_k(const struct families *f, int family, int vocab)
{
    const int k = family_size(f, family) > 0 ? f->rank[f->first[family + 1] - 1] + 1 : 0;
    return k < vocab ? k : vocab;
}

// ---- children

// Returns the index, i or more, of the id in a row's top-k that `rank` others precede. Ids from used_vocab on are
// padding and do not count. k: there is none.
GRID_FUNCTION int top_k_index(const int32_t *token, int k, int used_vocab, int i, int rank)
{
    while (i < k && (token[i] >= used_vocab || rank-- > 0))
        i++;
    return i;
}

// at (candidates): all candidates so far
GRID_FUNCTION struct candidate candidate_child(const struct candidate *at, int parent, int family, int32_t token,
                                               enum proposal how, double score)
{
    const struct candidate c = { score, parent, token, at[parent].depth + 1, family, -1, -1, -1, (uint8_t)how };
    return c;
}

GRID_FUNCTION struct candidate greedy_child(const struct candidate *at, int parent, int family, int32_t token,
                                            float log_p)
{
    return candidate_child(at, parent, family, token, DETERMINISTIC,
                           at[parent].score + (double)(log_p < 0 ? log_p : 0));
}

// Returns whether n siblings are sampled without replacement. An only child is sampled from the full row.
GRID_FUNCTION bool siblings_differ(bool distinct, int n)
{
    return distinct && n > 1;
}

// Returns how many of n wanted children a row has. positive: number of its tokens of positive probability, or n if
// there are more.
GRID_FUNCTION int children_sampled(bool distinct, int n, int positive)
{
    return siblings_differ(distinct, n) && positive < n ? positive : n;
}

// n: number of wanted siblings, itself included. At the address of a coupled draw (coupled_position) the token is a
// function of the row.
GRID_FUNCTION struct candidate sampled_child(const struct candidate *at, int parent, int family, int32_t token,
                                             enum pick pick, bool distinct, int n)
{
    return candidate_child(at, parent, family, token,
                           pick != PICK_SAMPLED           ? DETERMINISTIC
                           : siblings_differ(distinct, n) ? SAMPLED_WITHOUT_REPLACEMENT
                                                          : SAMPLED,
                           0);
}

// A coupled draw has the address of its position in the text, as the target's draw has under `match`. Any other draw
// has FOR_DRAFT, the root's position and the child's number. depth: the parent's.
GRID_FUNCTION int32_t coupled_position(int32_t root, int depth)
{
    return root + depth + 1;
}

// ---- selections; nodes: draft tokens that a best-first tree keeps; 0: the tree is not best-first

// Returns whether candidate a ranks before b. Of equal scores the earlier candidate is better, so no child is better
// than its parent.
GRID_FUNCTION bool outranks(double score_a, int a, double score_b, int b)
{
    return score_a > score_b || (score_a == score_b && a < b);
}

// Returns how many of n candidates that can have children get rows: all, in their order, or, if a best-first tree has
// too many, the best, by rank.
GRID_FUNCTION int frontier_size(int nodes, int top, int n)
{
    return nodes > 0 && n > top ? top : n;
}

// Returns how many of n candidates, the root not counted, become draft tokens. capacity: the draft's, the root
// included.
GRID_FUNCTION int nodes_kept(int nodes, int capacity, int n)
{
    const int limit = nodes < capacity - 1 ? nodes : capacity - 1;
    return nodes > 0 && limit < n ? limit : n;
}
