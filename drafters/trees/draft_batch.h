// draft_batch.h - the drafts of several sequences, built level by level from logits that a drafter computes.
//
// Drafters with rows of logits share tree builders, the rows from which tokens were sampled, and the treatment of a
// vocabulary other than the target's. tree_builder.h specifies which draft tokens are proposed; the drafter computes
// the logits.
//
//     begin -> logits of the roots -> { children -> level -> logits of the frontiers }* -> end
//
// If the logits are on the target's device and it can build drafts, they are built there (drafts.h) and none of these
// functions waits. The size of a frontier is then its maximum, and the host sees no token.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/draft.h"
#include "core/row_stages.h"
#include "core/tensor.h"
#include "drafters/drafter.h"
#include "drafters/trees/tree_builder.h"
#include "sampling/sampling.h"

struct drafts;
struct error;
struct kv_cache;

struct draft_batch {
    struct tree_shape shape;
    struct drafter_env env;
    struct sampling sampling; // the target's at the draft's own temperature, and env points here; n 0: unused
    struct temperature_options temperature;
    int vocab, target_vocab;  // width of the rows of logits; the target's vocabulary
    const int32_t *target_id; // (vocab) target ids of the drafter's ids, all different, borrowed; NULL: they are equal
    int used_vocab;           // ids of the target from this one on are padding
    int child_vocab;          // number of ids that children can have
    bool staged;              // the device makes probabilities of its rows, by `stages`
    struct row_stages stages;
    int k;                    // size of the top-k read from a row: the largest family, and padding ids
    char *tree;               // the fixed tree as a list of paths, however it was named; NULL: none
    const uint8_t *declined;  // (rows) not 0: the drafter has no row there, and the node no children; on the host only;
                              // NULL: it has all rows
    size_t bytes, host_bytes; // memory that draft_batch_create took
    struct drafts *drafts;    // chosen at creation
    struct drafts *current;   // builds the current drafts: `drafts`, or the implementation to which it delegated them
};

// vocab: width of the rows of logits. used_vocab: the target's. Returns false and sets err on failure.
// draft_batch_destroy may be called then.
bool draft_batch_create(struct draft_batch *g, const struct tree_shape *shape, const struct drafter_env *env, int vocab,
                        const int32_t *target_id, int used_vocab, struct error *err);
void draft_batch_destroy(struct draft_batch *g);

// Builds the drafts of the requests that get draft tokens. The drafter writes logits to draft_batch_logits: first those
// of the roots, row i for request i; then, level by level, those of the frontiers, row first[i] + f stride for request
// i's candidate f.
struct draft_logits {
    bool (*of_roots)(void *self, const struct request *r, int n, struct error *err);
    bool (*of_frontiers)(void *self, const struct request *r, int n, struct error *err);
    int stride;
};
bool draft_batch_build(struct draft_batch *g, const struct request *r, int n, int *first, const struct draft_logits *by,
                       void *self, struct error *err);
// The following are the steps of draft_batch_build.

// Copies the requests that get draft tokens to active (n) and returns their number. The drafts of the others are
// unchanged.
int draft_batch_begin(struct draft_batch *g, const struct request *r, int n, struct request *active);
// Returns the memory for the level's logits: (rows, vocab).
struct tensor draft_batch_logits(struct draft_batch *g, int rows);
// Adds the children of every candidate of the frontier: the logits of request i's candidate f are row first[i] + f
// stride.
bool draft_batch_children(struct draft_batch *g, const struct request *r, int n, const int *first, int stride,
                          struct error *err);
// Begins the next level. Returns the number of candidates that need rows of logits; 0: the drafts are done.
int draft_batch_level(struct draft_batch *g, const struct request *r, int n);
// Returns the frontier's candidates as the rows of a pass, which become pending rows of cache; request i's begin at
// first[i]. token, slot, parent: memory for them.
struct pass draft_batch_rows(struct draft_batch *g, const struct request *r, int n, const struct kv_cache *cache,
                             int *first, int32_t *token, int32_t *slot, int32_t *parent);
// Writes the frontier's candidates as paths from the root, of drafts that are built on the host (drafts_on_host). Those
// of request i begin at first[i]. Returns their number. token: (rows * (levels + 1)) memory for them.
struct draft_path {
    int slot, n;          // n: 1 for the root itself
    const int32_t *token; // (n) the root first
};
int draft_batch_paths(struct draft_batch *g, const struct request *r, int n, int *first, struct draft_path *to,
                      int32_t *token);
void draft_batch_end(struct draft_batch *g, const struct request *r, int n);
// Returns the pending row of a node of the slot's last draft, once the draft is verified; -1: none, also for node -1.
int draft_batch_row(const struct draft_batch *g, int slot, int node);
