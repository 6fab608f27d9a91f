// draft_batch.h - the drafts of several sequences, grown level by level from logits that a drafter computes.
//
// What drafters with rows of logits share: the growers, the rows that tokens were drawn from, and the vocabulary of a
// drafter that is not the target's. tree_builder.h decides the shape; where logits come from is the drafter's business.
//
//     begin -> logits of the roots -> { children -> level -> logits of the frontiers }* -> end
//
// Where the device that has the logits is the target's and can do it, the drafts grow there (device_drafts.h), and none of
// these waits: frontiers are then counted as the largest that they can be, and nobody here knows a token.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/draft.h"
#include "core/tensor.h"
#include "core/row_stages.h"
#include "drafters/drafter.h"
#include "drafters/tree_builder.h"

struct error;
struct device_drafts;
struct kv_cache;
struct device_rows;

struct draft_batch_slot {
    struct rows q; // first: rows of the draft being judged
    struct draft_batch *draft_batch;
    int number; // of this slot
    struct tree_builder tree_builder;
    int *row;      // (candidates) the drafter's own, as its pending row in a cache; -1 when a draft begins
    float **after; // (candidates) if any are drawn: what each one's children were drawn from: (target's vocabulary)
};

struct draft_batch {
    struct tree_shape shape;
    struct drafter_env env;
    int vocab, target_vocab;  // of the rows of logits; of the target's
    const int32_t *target_id; // (vocab) of the drafter's ids, no two alike, borrowed; NULL: they are the target's own
    int used_vocab;           // ids of the target from here on are no tokens
    struct draft_batch_slot *slot; // (env.slots)
    struct tensor logits;          // (slots * frontier, vocab) on env.backend: those of the level at hand
    struct tensor own_logits;      // where they lie; data NULL: in the room of `there`
    struct device_drafts *there;   // NULL: drafts grow on the host alone
    bool on_device_now;            // the drafts at hand grow on the device
    bool staged;                   // the device makes probabilities of its rows itself, by these
    struct row_stages stages;
    int k;         // likeliest tokens asked for: the widest family, and what may be no tokens
    int32_t *best; // (slots * frontier, k)
    float *best_log_p;
    char *tree;               // the fixed tree as a list of paths, whatever it was named by; NULL: there is none
    size_t bytes, host_bytes; // that draft_batch_create took
    float *host;              // (vocab) a row on its way from the drafter's ids to the target's
    int32_t *path;            // (length + candidates)
};

// Of rows over `vocab` ids; target_id as above. live: of the target's ids. false: err says why; draft_batch_destroy is fine then.
bool draft_batch_create(struct draft_batch *g, const struct tree_shape *shape, const struct drafter_env *env, int vocab,
                        const int32_t *target_id, int used_vocab, struct error *err);
void draft_batch_destroy(struct draft_batch *g);

// The requests that guesses can be made for go to live (n): how many. The others' drafts stay as they are.
int draft_batch_begin(struct draft_batch *g, const struct request *r, int n, struct request *active);
struct tensor draft_batch_logits(struct draft_batch *g,
                                 int rows); // where the drafter is to put the level's logits: (rows, vocab)
// Children of every frontier candidate: of request i's number f the row of logits is first[i] + f stride.
bool draft_batch_children(struct draft_batch *g, const struct request *r, int n, const int *first, int stride,
                          struct error *err);
int draft_batch_level(struct draft_batch *g, const struct request *r,
                      int n); // candidates whose rows are wanted next; 0: no more
// The frontiers' candidates as the rows of a pass behind the pending rows of cache, request i's from first[i] on; each one's row
// is noted. token, slot, parent: room for them.
struct pass draft_batch_rows(struct draft_batch *g, const struct request *r, int n, const struct kv_cache *cache,
                             int *first, int32_t *token, int32_t *slot, int32_t *parent);
// Of that pass, whose rows are there: in place of tokens, the pending rows that its rows follow; -1: the root.
const struct device_rows *draft_batch_parents(const struct draft_batch *g, int *n);
int draft_batch_pending(const struct draft_batch *g, int slot,
                        int *n); // and which of the slot's pending rows are in it: the first of n
void draft_batch_end(struct draft_batch *g, const struct request *r, int n);
// Which pending row a node of the slot's last draft had, once the draft has been judged; -1: none.
int draft_batch_row(const struct draft_batch *g, int slot, int node);
