// device_drafting.h - drafts that grow in a device's memory, so that the host need not see a token before the next pass is queued.
// What grows, and how, is specified by drafters/tree_builder.h; a device does the same, candidate for candidate, and leaves the
// drafts where the target's pass and the rule find them (core/draft.h: device_draft).
//
//     create -> { begin -> { level }* -> end }* -> destroy                       kernels/backend.h: grow_..
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "core/tensor.h"

struct row_stages;

enum pick { PICK_SAMPLED, PICK_GREEDY, PICK_COUPLED };

enum { DRAFTING_CANDIDATES = 2048, DRAFTING_FRONTIER = 512 }; // of a slot, at most: larger drafts grow on the host

// A family is the children that a candidate may have: their ranks, ascending, and the family of each. Family f's are members
// first[f] to first[f + 1]. The root has family 0. Of what is drawn, ranks are 0, 1, 2, ...
struct drafting_shape {
    enum pick pick;
    bool distinct; // siblings are drawn without replacement
    int families;
    const int16_t *first;        // (families + 1)
    const int16_t *rank, *child; // (members)
    int nodes, top;              // of a best-first tree: guesses kept, size of a frontier; 0: no such tree
    int vocab;                   // no candidate has more children
    int used_vocab;              // ids from here on are no tokens
    int k;                       // how many of the likeliest are looked at
    int row_vocab;               // of the rows of logits
    const int32_t *target_id;    // (row_vocab) what their ids are in the target's vocabulary; NULL: the same
    int slots;
    int candidates, frontier, asked,
        draft_nodes; // of a slot, at most: in all, of one level, whose rows are asked for; of a draft
};

struct drafting { // in the device's memory; a backend's own begins with it
    // Of each slot the candidates whose rows are wanted next, and behind them 0: (slots, frontier).
    const int32_t *token;
    // (slots, asked) which pending row of the drafter's each pending row follows, numbered as drafting_level says; -1: the root.
    const int32_t *parent;
    // Drafts, as device_draft has them. tag: a node's pending row; -1: it has none.
    const int32_t *n;                                        // (slots)
    const int32_t *draft_token, *draft_parent, *q_row, *tag; // (slots, draft_nodes)
    const uint8_t *proposal;                                 // (slots, draft_nodes)
    size_t bytes;                                            // that it took there
};

struct drafting_request {
    int32_t slot, token; // the root's token
    int32_t max_depth;   // levels that this draft may have, at least 1
    int32_t capacity;    // nodes that it may have
    int32_t root;        // place of the root in its sequence, and Philox's stream: sampling/rng.h
    uint64_t seed, sequence;
};

struct drafting_level {
    int depth, width;     // of the candidates at hand; how many a request has at most
    struct tensor logits; // (rows, row_vocab): of request i's candidate f at row first[i] + f * stride
    const int32_t *first; // (requests)
    int stride;           // 1; 0: all candidates of a request share a row
    struct tensor q;      // (rows, vocab of the target) becomes what was drawn from; may lie where the logits do
    int q_row;            // what its first row is called in the drafts
    const struct row_stages *stages; // of q
    int used_vocab;                  // of q's columns
    int pending, capacity;           // the next level's candidates are pending rows pending .. pending + room
};
