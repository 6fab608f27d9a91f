// packed_rows.h - the rows of probabilities of one step as compressed bytes, and back to the same bits.
//
// A row keeps all its entries, or its largest ones, those of given tokens, and the mass of the others. Entries of 0 take no bytes, so at
// temperature 0 a row is one number.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/memory.h"

struct error;

enum {
    ROWS_NONE = 0,
    ROWS_FULL = -1
}; // as in struct experiment: what is recorded; else the number of entries of a row

// What rule `match` draws from a row: the winner of the race at (FOR_TOKEN, position), sampling/rng.h. It cannot be found again in a row
// that lacks entries.
struct drawn {
    int32_t position, token; // token -1: not known
};

// Appends a row to a step's rows, not compressed yet. keep: entries, or ROWS_FULL. also (n): tokens whose entries are kept in any case.
void row_pack(const float *row, int vocab, int keep, const int32_t *also, int n, struct drawn drawn, struct text *to);
// Whether a step's rows are within what a database holds: of `nodes` nodes p, and if they are sampled q; `support`: entries of a row that are not 0.
bool rows_packable(int nodes, bool sampled, int keep, int support, struct error *err);
// Compresses a step's rows; the caller frees the result. *bytes: its size.
void *rows_pack(const struct text *rows, int vocab, size_t *bytes);

struct kept_entry {
    int32_t token;
    float p;
};

struct kept_row {
    int n;
    struct kept_entry *entry; // (n) tokens ascend
    double rest; // mass of the entries that are not kept, on the grid of probabilities (core/grid.h); 0: all are
    struct drawn drawn;
};

struct unpacked_rows { // initialize with { 0 }
    int vocab, n;
    struct kept_row *row; // (n) in the order of row_pack
};

// what: for messages ("results.db: sequence 3, step 0"). Call rows_free also after failure.
bool rows_unpack(const void *packed, size_t bytes, const char *what, struct unpacked_rows *to, struct error *err);
void rows_free(struct unpacked_rows *r);
// Writes the row to `to` (vocab). The rest goes to the first tokens that are not kept, so the sum is the row's.
void row_write(const struct kept_row *r, int vocab, float *to);
