// eagle.h - EAGLE heads: a decoder layer that reads hidden states of the target and predicts the next one.
//
// EAGLE-1 and EAGLE-2 (Li et al. 2024, arXiv 2401.15077 and 2406.16858) have the same head, EAGLE-3 (Li et al. 2025,
// arXiv 2503.01840) another. Row i reads token i and the state f that predicted it: the target's state for tokens of
// the sequence, the head's own state of the parent row for draft tokens.
//
//     EAGLE    x = fc [E(token); f]            no norm before attention; logits = the target's LM head of x
//     EAGLE-3  g = fc f for a state of the target (of three of its layers, before any norm), g = f for an own state
//              attention reads [rms E(token); rms g], x = g + ..., logits = own LM head of rms x
//
// The output x of a row is the f of the draft tokens that follow it. A pass is one of model.h, with a cache of the
// caller's.
#pragma once
#include <stdbool.h>
#include "core/quantize.h"
#include "core/tensor.h"
#include "models/heads/head.h"
#include "models/model.h"

struct eagle;

enum layer_ids {
    LAYERS_ENTERED,
    LAYERS_LEFT
};                                           // layer id i in the configuration: the state entering, or leaving layer i
enum tri { TRI_UNSET, TRI_TRUE, TRI_FALSE }; // UNSET: the checkpoint decides

struct eagle_setup {
    enum head_kind kind; // HEAD_EAGLE or HEAD_EAGLE3
    enum activations activations;
    enum quantize quantize;
    enum layer_ids layer_ids;
    // EAGLE-3: the residual that attention is added to is normed. Required if the checkpoint does not say it.
    enum tri norm_before_residual;
    int rows; // maximum rows of a pass
};

// path: as head_open's. target, b: borrowed. Returns NULL and sets err on failure. A head whose width, vocabulary or
// number of layers differs from the target's is an error that gives both numbers.
struct eagle *eagle_open(const char *path, const struct model *target, struct backend *b, const struct eagle_setup *s,
                         struct error *err);
// Returns whether eagle_open would accept the head h, which it closes, for a target of this shape. It reads no numbers
// (head_fits).
bool eagle_fits(struct head h, const struct model_shape *target, const struct eagle_setup *s, struct head_facts *facts,
                struct error *err);
void eagle_close(struct eagle *e); // NULL is allowed

const struct head_facts *eagle_facts(const struct eagle *e);
struct kv_shape eagle_kv_shape(const struct eagle *e, int slots, int length, int pending);

// The head's own states, in the caller's memory, whose address is fixed: (slots * of_slot, width), for each slot the
// root's state, then those of its pending rows.
struct eagle_states {
    struct tensor rows;
    int of_slot;
};

// f: states of the target (n, taps.n * the target's width). The state of each slot's last row becomes its root's.
// f.data NULL: the rows are draft tokens, whose f are the head's own states of the rows that they follow, and all their
// states are kept. Returns (n, width), borrowed until the next pass.
struct tensor eagle_forward(struct eagle *e, struct kv_cache *c, const struct pass *p, struct tensor f,
                            const struct eagle_states *own);
// Computes out (n, vocab), the logits of `states`, which eagle_forward returned.
void eagle_logits(struct eagle *e, struct tensor out, struct tensor states);
