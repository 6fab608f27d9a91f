// drafts.h - the implementations by which a draft batch (draft_batch.h) builds its drafts: on the host (host_drafts.c),
// or where the logits are (device_drafts.c). draft_batch_create chooses one. Only these files include it.
#pragma once
#include "core/draft.h"
#include "core/tensor.h"
#include "models/model.h"

struct draft_batch;
struct draft_path;
struct error;
struct kv_cache;

struct drafts {                      // each implementation's struct begins with it; arguments as in draft_batch.h
    const struct draft_batch *batch; // borrowed
    size_t bytes, host_bytes;        // memory that it took
    bool on_device;                  // its drafts are on the device (core/draft.h: device_draft)

    // Returns the implementation that builds these drafts: d, or the host's if d cannot. *m: number of active requests.
    struct drafts *(*begin)(struct drafts *d, const struct request *r, int n, struct request *active, int *m);
    struct tensor (*logits)(struct drafts *d, int rows);
    bool (*children)(struct drafts *d, const struct request *r, int n, const int *first, int stride, struct error *err);
    int (*next_level)(struct drafts *d, const struct request *r, int n);
    struct pass (*rows)(struct drafts *d, const struct request *r, int n, const struct kv_cache *cache, int *first,
                        int32_t *token, int32_t *slot, int32_t *parent);
    void (*end)(struct drafts *d, const struct request *r, int n);
    int (*row)(const struct drafts *d, int slot, int node);
    void (*destroy)(struct drafts *d);
};

// logits: (slots * frontier, vocab) to use, borrowed; data NULL: it allocates its own. Returns NULL if memory is
// exhausted.
struct drafts *host_drafts_create(const struct draft_batch *g, struct tensor logits);
// Returns the memory for row `candidate` of the slot's q: (vocab of the target); NULL if nothing is sampled.
float *host_drafts_row(struct drafts *d, int slot, int candidate);
// Does what draft_batch_paths does.
int host_drafts_paths(struct drafts *d, const struct request *r, int n, int *first, struct draft_path *to,
                      int32_t *token);
// Returns NULL if the device cannot build such drafts, or has no memory for them.
struct drafts *device_drafts_create(const struct draft_batch *g);
