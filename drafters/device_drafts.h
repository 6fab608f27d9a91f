// device_drafts.h - drafts of several sequences that grow in a device's memory: what draft_batch.c does where it can. The host
// queues everything and sees nothing; how many rows a level has it counts as the most that they can come to. For draft_batch.c.
#pragma once
#include "drafters/draft_batch.h"
#include "kernels/backend.h"

struct device_drafts {
    struct drafting *drafting;
    struct drafting_request *request;   // (slots) those at hand
    int requests;                       //
    struct device_draft *draft;         // (slots)
    int32_t *tag;                       // (slots, nodes) of the drafts, when they were judged: a node's pending row
    bool *brought;                      // (slots, nodes) of q: the rows that the host has
    struct device_rows *rows, *parents; // (slots) of the level at hand: its tokens; their parents' pending rows
    int n_level;                        // requests that it has rows of
    int *capacity, *nodes;              // (levels + 1) of a request: rows of a level, at most; nodes down to it
    int32_t *first;                     // (slots)
    struct tensor q;                    // (slots * (1 + asked), vocab of the target) of drafts that are drawn
    bool in_place;                      // logits are put where q is to be
    int depth, pending, q_rows, n_rows; // of the level at hand: depth, first pending row, its first row of q, its rows
};

// g->there; NULL: no device does it, or it has no room.
void device_drafts_create(struct draft_batch *g);
void device_drafts_destroy(struct draft_batch *g);
size_t device_drafts_bytes(const struct draft_batch *g); // that it took there
// Room for the logits of a level's rows, also where drafts grow on the host, if there is some; data NULL: there is not.
struct tensor device_drafts_workspace(const struct draft_batch *g, int rows);

bool device_drafts_can(const struct draft_batch *g, const struct request *r, int n); // whether these can grow there
void device_drafts_begin(struct draft_batch *g, const struct request *r, int n);
struct tensor device_drafts_logits(struct draft_batch *g, int rows);
void device_drafts_children(struct draft_batch *g, const int *first, int stride);
int device_drafts_level(struct draft_batch *g); // rows of the next level
struct pass device_drafts_rows(struct draft_batch *g, const struct request *r, const struct kv_cache *cache, int *first,
                               int32_t *token, int32_t *slot, int32_t *parent);
int device_drafts_pending(const struct draft_batch *g, int slot, int *n); // as draft_batch_pending
void device_drafts_end(struct draft_batch *g, const struct request *r);
// A row of q of the slot's last draft, for whoever asks on the host: (vocab of the target) in `to`.
void device_drafts_row(const struct draft_batch *g, int slot, int node, float *to);
