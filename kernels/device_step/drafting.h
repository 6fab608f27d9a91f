// drafting.h - drafts that a device builds in its own memory, so that the host need not see a token before the next
// pass is queued. candidates.h has the steps, drafters/trees/tree_builder.h the shapes. A device builds the host's
// draft, candidate for candidate, and leaves it where the target's pass and the rule read it (core/draft.h:
// device_draft).
//
//     create -> { begin -> { level }* }* -> destroy                              device_step.h: drafts_..
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "core/tensor.h"
#include "kernels/device_step/candidates.h"

struct part_sum; // core/grid.h
struct row_stages;

enum { DRAFTING_CANDIDATES = 2048, DRAFTING_FRONTIER = 512 }; // maximum per slot; the host builds larger drafts

struct drafting_shape {
    enum pick pick;
    bool distinct; // siblings are sampled without replacement
    struct families families;
    int nodes, top;           // best-first tree: draft tokens kept, candidates of a frontier; nodes 0: not best-first
    int vocab;                // maximum number of children of a candidate
    int used_vocab;           // ids from this one on are padding
    int k;                    // size of the top-k read from each row
    int row_vocab;            // width of the rows of logits
    const int32_t *target_id; // (row_vocab) ids of the rows in the target's vocabulary; NULL: the ids are the target's
    int slots;
    // Maximum numbers per slot: candidates; candidates of one level; candidates that get rows of logits, the root not
    // counted; nodes of a draft.
    int candidates, frontier, evaluated, draft_nodes;
};

struct drafting { // the device's memory; a backend's struct begins with it
    // Lists, for each slot, the candidates that need rows of logits next, padded with 0: (slots, frontier).
    const int32_t *token;
    // (slots, evaluated) the pending row before each of the drafter's pending rows, numbered as in drafting_level; -1:
    // the root.
    const int32_t *parent;
    // The drafts, laid out as in device_draft. tag: a node's pending row; -1: none.
    const int32_t *n;                                        // (slots)
    const int32_t *draft_token, *draft_parent, *q_row, *tag; // (slots, draft_nodes)
    const uint8_t *proposal;                                 // (slots, draft_nodes)
    size_t bytes;                                            // bytes of device memory
};

struct drafting_request {
    int32_t slot, token; // token: the root's token
    int32_t max_depth;   // levels of this draft, at least 1
    int32_t capacity;    // maximum number of nodes of the draft
    int32_t root;        // the root's position in its sequence, and Philox's stream: sampling/rng.h
    uint64_t seed, sequence;
};

struct drafting_level {
    int depth, width;     // depth of the current candidates; maximum number of them per request
    struct tensor logits; // (rows, row_vocab) request i's candidate f is at row first[i] + f * stride
    const int32_t *first; // (requests)
    int stride;           // 1; 0: all candidates of a request share a row
    struct tensor q; // (rows, vocab of the target) becomes the rows from which tokens are sampled; may overlay logits
    int q_row;       // number of q's first row in the drafts
    struct part_sum *q_sums;         // (rows, ROW_PARTS) becomes the sums of q (device_step.h), if wanted
    const struct row_stages *stages; // stages that make q
    int used_vocab;                  // used vocabulary of q's columns
    int pending, capacity;           // the next level's candidates are pending rows pending .. pending + capacity
    bool last;                       // no request has a next level, so the drafts are written
};
