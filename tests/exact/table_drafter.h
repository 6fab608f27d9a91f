// table_drafter.h - the drafter of the worlds of tests/exact/table_loop.h: guesses of a given shape from a table of its own,
// or those of the real ngram drafter. It holds what it is told against what it was told before, and tells the table
// model what every slot stands for.
#pragma once
#include "drafters/drafter.h"
#include "tests/exact/table_loop.h"

struct draft_rows {
    struct rows rows; // first
    const struct table *q;
    uint64_t text[LOOP_NODES]; // of each node
    float row[LOOP_NODES][TABLE_VOCAB];
};

struct told { // of a slot, by advances
    int n;
    int32_t token[TABLE_TEXT];
};

struct table_drafter {
    struct drafter drafter; // first
    const struct table_instance *table_instance;
    const struct draft_tokens *shape;
    struct model *target; // knows what it is to be shown
    struct table q;
    struct drafter *lookup; // NULL: it grows its own
    struct draft_rows rows[TABLE_SLOTS];
    struct told told[TABLE_SLOTS];
    int root_n; // tokens of the sequence in the last request
};

struct table_drafter *table_drafter_create(const struct table_instance *w, const struct draft_tokens *shape,
                                           struct model *target, struct table q);
