// slice_load.h - measures whether other processes used the processors during slices. The kernel counts in hundredths of
// a second, so slices that are shorter than load_foreign needs are measured together with those that follow, and stored
// when the result is known.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "experiments/machine.h"
#include "results/store.h"

struct slice_load { // { 0 } at first
    struct load begun;
    struct slice_row *row; // (n) slices since `begun`; owned
    size_t n, capacity;
    bool disturbed; // the last slices with a known result were disturbed
};

void slice_load_begin(struct slice_load *l); // must be called before a slice
// Ends a slice: fills in the row's foreign_load and disturbed.
bool slice_load_end(struct slice_load *l, struct store *s, const struct slice_row *row, struct error *err);
// Stores the remaining slices, as disturbed if the slices before were. If there were none before, nothing is known of
// them. Frees l even on failure.
bool slice_load_close(struct slice_load *l, struct store *s, struct error *err);
