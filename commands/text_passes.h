// text_passes.h - passes of a target over given texts: the hidden states and the logits of every token, on the host.
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

// Gets rows first .. first + n - 1 of all texts' tokens: x (n, width), which it may overwrite.
typedef bool take_rows(void *self, int64_t first, int64_t n, float *x, struct error *err);

struct text_passes {               // the caller sets the first members; the others start at 0
    struct speclab_target *target; // borrowed
    struct taps taps;
    int slots, rows;            // texts in a pass, at most 8; rows of one, at most those that the target was opened for
    int logit_rows;             // rows whose logits exist at a time
    take_rows *states, *logits; // states: the width of all taps, not called without taps
    void *self;

    struct kv_cache *cache; // recreated for a longer text
    int length;             // its capacity, tokens of a text
    struct tensor row;      // (logit_rows, vocab)
    float *copy;            // rows of a device with memory of its own
};

bool text_passes_open(struct text_passes *p, struct error *err);
void text_passes_close(struct text_passes *p);
// logits are taken of the rows from token `from` on. stop: as in interrupt_check, between passes.
bool text_passes_run(struct text_passes *p, const struct texts *t, int64_t from, const volatile int *stop,
                     struct error *err);

// One pass that appends n tokens, at most TARGET_ROWS, to a slot's sequence.
bool append_pass(struct model *m, struct kv_cache *c, int slot, const int32_t *token, int n, struct states *out,
                 struct error *err);
