// table_drafter.h - the drafter of tests/exact/table_loop.h: drafts of a given shape from a table of its own, those
// of the real ngram drafter, or those of the real ladder of both. It checks each request and advance against the advances before it, and passes the expected
// text of every slot to the table model.
#pragma once
#include "drafters/drafter.h"
#include "tests/exact/table_loop.h"

struct draft_rows {
    struct rows rows; // first
    const struct table *q;
    uint64_t text[LOOP_NODES]; // of each node
    float row[LOOP_NODES][TABLE_VOCAB];
};

struct announced { // the text of a slot, from its advances
    int n;
    int32_t token[TABLE_TEXT];
};

struct table_drafter {
    struct drafter drafter; // first
    const struct table_instance *table_instance;
    const struct draft_shape *shape;
    struct model *target; // a table model
    struct table q;
    struct drafter *inner; // the ngram drafter or the ladder; NULL: drafts come from q
    struct draft_rows rows[TABLE_SLOTS];
    struct announced announced[TABLE_SLOTS];
    int root_n; // tokens of the sequence in the last request
};

struct table_drafter *table_drafter_create(const struct table_instance *w, const struct draft_shape *shape,
                                           struct model *target, struct table q);
