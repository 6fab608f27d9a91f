// slice_load.h - whether other processes used the processors during slices. The kernel counts in hundredths of a second, so slices that are shorter
// than load_foreign needs are measured together with those that follow, and stored when that is known.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "experiments/machine.h"
#include "results/store.h"

struct slice_load { // { 0 } at first
    struct load begun;
    struct slice_row *row; // (n) since `begun`; owned
    size_t n, capacity;
    bool disturbed; // so were the last slices of which it is known
};

void slice_load_begin(struct slice_load *l); // before a slice
// After it: row's foreign_load and disturbed are filled in.
bool slice_load_end(struct slice_load *l, struct store *s, const struct slice_row *row, struct error *err);
// Stores the rest, as disturbed if the slices before were; nothing is known of the first slices of all. Frees l also on failure.
bool slice_load_close(struct slice_load *l, struct store *s, struct error *err);
