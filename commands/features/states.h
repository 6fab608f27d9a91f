// states.h - the inputs of a head for training texts: hidden states of the target, and its top-k probabilities.
//
// A pass takes the next rows of the texts end to end, wherever texts begin and end. Its states are those that a drafter
// receives in `advance` while the same text is decoded, to the bit: a row of a pass does not depend on the others.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/model.h"

struct error;
struct kv_cache;
struct speclab_target;
struct texts;

struct text_states {               // the caller sets the first members; the others start at 0; do not move while open
    struct speclab_target *target; // borrowed
    struct taps taps;
    int top_k;      // maximum: the used vocabulary
    enum type type; // type of the states: F32 or BF16 (to nearest, ties to even)

    int rows;               // rows of a pass
    struct kv_cache *cache; // recreated for a longer text
    int length;             // its capacity, tokens of a text
    struct tensor logits;   // (LOGIT_ROWS, vocab)
    float *copy;            // rows of a device with memory of its own
    // The following are arrays for all tokens of some texts.
    void *state;      // (tokens, taps * width) row i: the state that predicts token i + 1
    int32_t *top_id;  // (tokens, top_k) the most probable tokens i + 1 at temperature 1, in descending order
    float *top_p;     // (tokens, top_k)
    int64_t capacity; // tokens
};
// rows: maximum rows of a pass, at most those for which the target was opened. Returns false and sets err on failure.
bool text_states_open(struct text_states *s, int rows, struct error *err);
void text_states_close(struct text_states *s); // { 0 }: no effect
// Replaces the arrays by those of these texts. stop: see interrupt_check; it is read between passes.
bool text_states_compute(struct text_states *s, const struct texts *t, const volatile int *stop, struct error *err);
