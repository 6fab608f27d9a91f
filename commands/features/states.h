// states.h - what a head reads of training texts: hidden states of the target, and its top-k probabilities.
//
// The states are those that a drafter receives in `advance` while the same text is decoded, to the bit: they come from the same
// pass with the same taps, and a row of a pass does not depend on the others.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"
#include "models/model.h"

struct error;
struct target;
struct texts;

struct states_setup {
    struct target *target; // borrowed
    struct taps taps;
    int top_k;      // at most the used vocabulary
    enum type type; // of the states: F32 or BF16 (to nearest, ties to even)
};

struct text_states {  // of all tokens of some texts; start with { 0 }
    void *state;      // (tokens, taps * width) row i: the state that predicts token i + 1
    int32_t *top_id;  // (tokens, top_k) the most probable tokens i + 1 at temperature 1, in descending order
    float *top_p;     // (tokens, top_k)
    int64_t capacity; // tokens
};
void text_states_free(struct text_states *s);

struct states_pass;
// Returns NULL and sets err on failure. rows: of a pass; at most those that the target was opened for.
struct states_pass *states_create(const struct states_setup *s, int rows, struct error *err);
void states_destroy(struct states_pass *p); // NULL is allowed
size_t states_row_bytes(const struct states_setup *s);
// stop: as in interrupt_check, between passes.
bool states_compute(struct states_pass *p, const struct texts *t, struct text_states *to, const volatile int *stop,
                    struct error *err);
