// layer_drafts.h - drafts by some of the target's own layers: early_exit, layer_skip.
//
// The layers read the target's cache: of each of them it has the rows of the whole text but the root, as the target's own passes wrote
// them. Root and draft tokens are pending rows, which are dropped when the draft is done: the target's pass computes all layers of them.
// So drafting needs no memory of its own and no pass over the prompt. The rows of a layer depend on all layers before it, skipped or
// not, and so differ from those that the chosen layers alone would have written: the draft reads the better ones.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "drafters/trees/draft_batch.h"
#include "drafters/drafter.h"

struct layer_drafts {
    struct drafter drafter; // first
    struct model *model;    // the target
    struct kv_cache *cache; // the target's; NULL until attach
    struct draft_batch draft_batch;
    int *layer, layers;             // (layers) ascending; owned
    char *shown;                    // the same as a list
    int32_t *token, *slot, *parent; // (rows) of a pass
    int *first;                     // (slots) first row of each request
};

// layer (n): becomes its own. what: "drafter early_exit", for messages. layer_drafts_destroy may be called after a failure.
bool layer_drafts_open(struct layer_drafts *g, const struct drafter_env *env, const struct tree_options *o, int *layer,
                       int n, const char *what, struct error *err);
void layer_drafts_attach(struct drafter *d, struct kv_cache *target_cache);
bool layer_drafts_propose(struct drafter *d, struct request *r, int n, struct error *err);
void layer_drafts_destroy(struct drafter *d);
