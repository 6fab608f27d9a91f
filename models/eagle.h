// eagle.h - EAGLE's heads: a decoder layer that reads the target's states and guesses the state that will follow.
//
// EAGLE-1 and EAGLE-2 (Li et al. 2024, arXiv 2401.15077 and 2406.16858) have the same head, EAGLE-3 (Li et al. 2025, arXiv
// 2503.01840) another. Row i reads token i and the state f that predicted it: the target's, as long as the text is known,
// otherwise the head's own of the row before.
//
//     EAGLE    x = fc [E(token); f]            the layer has no norm before attention; logits = the target's head of x
//     EAGLE-3  g = f, of the target fc f       of three of its layers, before any norm
//              attention reads [rms E(token); rms g], x = g + ..., logits = own head of rms x
//
// What a head leaves behind, x, is the f of the row after. Each pass is one of model.h, with a cache of the caller's.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/head.h"
#include "models/model.h"

struct eagle;

enum layer_ids { LAYERS_ENTERED, LAYERS_LEFT }; // what an id in the checkpoint's list of layers counts
enum tri { BY_CHECKPOINT, SAID_TRUE, SAID_FALSE };

struct eagle_setup {
    enum head_kind kind; // HEAD_EAGLE or HEAD_EAGLE3
    enum activations activations;
    enum layer_ids layer_ids;
    enum tri
        norm_before_residual; // EAGLE-3: what attention is added to is normed; needed where the checkpoint is silent
    int rows;                 // of a pass, at most
};

// path: models/head.h. target, b: borrowed. A head for another width or vocabulary than the target's, or layers that it has
// not, is an error that says both numbers.
struct eagle *eagle_open(const char *path, const struct model *target, struct backend *b, const struct eagle_setup *s,
                         struct error *err);
bool eagle_fits(const char *path, const struct model_shape *target, const struct eagle_setup *s,
                struct head_facts *facts, struct error *err);
void eagle_close(struct eagle *e); // NULL is fine

struct taps eagle_taps(const struct eagle *e); // the states of the target that it reads
int eagle_width(const struct eagle *e);        // of its own states
int eagle_vocab(const struct eagle *e);        // of its rows of logits
const int32_t *eagle_target_id(
    const struct eagle *e);                    // (vocab) of a reduced vocabulary, ascending; NULL: the target's ids
struct hash eagle_hash(const struct eagle *e); // which weights these are
enum activations eagle_activations(const struct eagle *e); // never DEFAULT
size_t eagle_bytes(const struct eagle *e);                 // of its weights and of a pass
struct kv_shape eagle_kv_shape(const struct eagle *e, int slots, int length, int pending);

// f: (n, taps.n * the target's width) of the target, or (n, width) its own. Returns (n, width), borrowed until the next pass.
struct tensor eagle_forward(struct eagle *e, struct kv_cache *c, const struct pass *p, struct tensor f, bool own);
void eagle_logits(struct eagle *e, struct tensor out, struct tensor states); // (n, vocab) of what eagle_forward left
