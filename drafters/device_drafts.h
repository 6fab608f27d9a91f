// device_drafts.h - drafts of several sequences that grow in a device's memory: what draft_batch.c does where it can. The host
// queues everything and sees nothing; how many rows a level has it counts as the most that they can come to. For draft_batch.c.
#pragma once
#include "drafters/draft_batch.h"
#include "kernels/backend.h"

struct growth_there {
    struct grown *grown;
    struct growing_request *request;    // (slots) those at hand
    int requests;                       //
    struct draft_there *draft;          // (slots)
    int32_t *tag;                       // (slots, nodes) of the drafts, when they were judged: a node's pending row
    bool *brought;                      // (slots, nodes) of q: the rows that the host has
    struct rows_there *rows, *parents;  // (slots) of the level at hand: its tokens; their parents' pending rows
    int n_level;                        // requests that it has rows of
    int *room, *nodes;                  // (levels + 1) of a request: rows of a level, at most; nodes down to it
    int32_t *first;                     // (slots)
    struct tensor q;                    // (slots * (1 + asked), vocab of the target) of drafts that are drawn
    bool in_place;                      // logits are put where q is to be
    int depth, pending, q_rows, n_rows; // of the level at hand: depth, first pending row, its first row of q, its rows
};

// g->there; NULL: no device does it, or it has no room.
void growth_there_create(struct growth *g);
void growth_there_destroy(struct growth *g);
size_t growth_there_bytes(const struct growth *g); // that it took there
// Room for the logits of a level's rows, also where drafts grow on the host, if there is some; data NULL: there is not.
struct tensor growth_there_room(const struct growth *g, int rows);

bool growth_there_takes(const struct growth *g, const struct request *r, int n); // whether these can grow there
void growth_there_begin(struct growth *g, const struct request *r, int n);
struct tensor growth_there_logits(struct growth *g, int rows);
void growth_there_children(struct growth *g, const int *first, int stride);
int growth_there_level(struct growth *g); // rows of the next level
struct pass growth_there_rows(struct growth *g, const struct request *r, const struct kv_cache *cache, int *first,
                              int32_t *token, int32_t *slot, int32_t *parent);
int growth_there_pending(const struct growth *g, int slot, int *n); // as growth_pending
void growth_there_end(struct growth *g, const struct request *r);
// A row of q of the slot's last draft, for whoever asks on the host: (vocab of the target) in `to`.
void growth_there_row(const struct growth *g, int slot, int node, float *to);
