// states.h - what a head reads of training texts: hidden states of the target, and its top-k probabilities.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "commands/text_passes.h"

struct text_states {               // the caller sets the first members; the others start at 0; do not move while open
    struct speclab_target *target; // borrowed
    struct taps taps;
    int top_k;      // at most the used vocabulary
    enum type type; // the states': F32 or BF16 (to nearest, ties to even)

    struct text_passes pass;
    // For all tokens of some texts:
    void *state;      // (tokens, taps * width) row i: the state that predicts token i + 1
    int32_t *top_id;  // (tokens, top_k) the most probable tokens i + 1 at temperature 1, in descending order
    float *top_p;     // (tokens, top_k)
    int64_t capacity; // tokens
};
// rows: of a pass; at most those that the target was opened for. Returns false and sets err on failure.
bool text_states_open(struct text_states *s, int rows, struct error *err);
void text_states_close(struct text_states *s); // { 0 }: no effect
// Replaces what there is by that of these texts. stop: as in interrupt_check, between passes.
bool text_states_compute(struct text_states *s, const struct texts *t, const volatile int *stop, struct error *err);
