// depth_heads.h - drafters with one head per depth of the draft, all of which read the target's last hidden state: the
// state that predicted the root. Head d predicts the token d + 1 positions after the root, whatever the tokens between
// are (Cai et al. 2024, arXiv 2401.10774, section 2.1.1).
//
// So a level of a draft has one row of logits, which all nodes of the level above share, and a draft needs no pass. A
// drafter of this kind opens its weights and computes logits. This file has the other parts: states, draft trees, the
// vocabulary (drafters/trees/draft_batch.h).
#pragma once
#include "core/draft.h"
#include "drafters/trees/draft_batch.h"
#include "drafters/drafter.h"

struct depth_heads { // first member of the drafter's struct
    struct drafter drafter;
    // Queues out (n, vocab) = logits of head `depth` for states (n, width), on env.backend; depth: from 0.
    void (*logits)(struct depth_heads *h, int depth, struct tensor out, struct tensor states);
    struct draft_batch draft_batch;
    struct tensor state,
        active;      // (slots, width) states that predicted the roots: one for each slot; those of the current requests
    int depth;       // depth of the current level
    bool *has_state; // (slots) false for a sequence of one token, which no state predicted
};

// Reads the shape of drafts from the tree options. Fails unless the drafter computes on the target's device. what: the
// word in messages, "drafter medusa". Returns false and sets err on failure.
bool depth_heads_shape(struct tree_shape *shape, const struct tree_options *o, const char *what,
                       const struct drafter_env *env, struct error *err);
// Is called once the heads are open. heads: their number, at least the depth of the drafts. path: their file, for
// messages. vocab, target_id: those of their logits, as in draft_batch_create. activations: resolved. bytes: size of
// their weights and workspace. Sets the fields of h->drafter except type, backend and identity. On failure
// depth_heads_close may be called.
struct depth_heads_setup {
    const char *what, *path;
    int heads, vocab;
    const int32_t *target_id;
    enum activations activations;
    size_t bytes;
};
bool depth_heads_open(struct depth_heads *h, const struct depth_heads_setup *setup, const struct tree_shape *shape,
                      const struct drafter_env *env, struct error *err);
void depth_heads_close(struct depth_heads *h); // frees what h owns, but not h

// These are functions for struct drafter_type.
bool depth_heads_propose(struct drafter *d, struct request *r, int n, struct error *err);
bool depth_heads_advance(struct drafter *d, const struct advance *a, int n, struct error *err);
void depth_heads_forget(struct drafter *d, int slot);
