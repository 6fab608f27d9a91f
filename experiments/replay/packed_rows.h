// packed_rows.h - the rows of probabilities of one step as compressed bytes, and back to the same bits.
//
// A row keeps all its entries, or its largest ones, those of given tokens, and the mass of the others. Entries of 0
// take no bytes, so a row is one number at temperature 0.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/memory.h"

struct error;

enum {
    ROWS_NONE = 0,
    ROWS_FULL = -1
}; // values of `rows` in struct experiment; other values are the number of entries of a row

// The draw of the rule `match` from a row: the winner of the race at (FOR_TOKEN, position), sampling/rng.h. It cannot
// be computed from a row that lacks entries.
struct drawn {
    int32_t position, token; // token -1: not known
};

// Appends a row to a step's rows, which are not yet compressed. keep: number of entries, or ROWS_FULL. also (n): tokens
// whose entries are kept in any case.
void row_pack(const float *row, int vocab, int keep, const int32_t *also, int n, struct drawn drawn, struct text *to);
// Returns whether a step's rows are within what a database holds: p of `nodes` nodes, and q if they are sampled.
// support: number of positive entries of a row.
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
    double rest; // mass of the entries that are not kept, on the grid of probabilities (core/grid.h); 0: all are kept
    struct drawn drawn;
};

struct unpacked_rows { // initialize with { 0 }
    int vocab, n;
    struct kept_row *row; // (n) ordered as in row_pack
};

// what: the rows in messages ("results.db: sequence 3, step 0"). Call rows_free in any case, also after failure.
bool rows_unpack(const void *packed, size_t bytes, const char *what, struct unpacked_rows *to, struct error *err);
void rows_free(struct unpacked_rows *r);
// Writes the row to `to` (vocab). The rest goes to the first tokens that are not kept, so the sum is the row's.
void row_write(const struct kept_row *r, int vocab, float *to);
