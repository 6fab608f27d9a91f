// merge.h - puts the rows of one database into another: of shards (results/merge/shards.h), of other machines, of an earlier copy of itself.
//
// A row that both have is known by a key that does not depend on the file: a run by experiment and cell, a pair by its UUID, a text by
// run, prompt, turn, repeat and pair. So a second merge adds nothing.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct error;
struct store;

struct merged {
    int64_t runs, pairs, texts; // added
    int64_t left_out;           // texts that the database had of another pair
};

// Checks a file before anything is written: that it is a database of this schema version, whole, and not being written.
bool merge_check(const char *from, struct error *err);
// Merges the database `from` into s, in one transaction. On failure s is as it was before, and err names the file.
bool merge(struct store *s, const char *from, struct merged *m, struct error *err);
