// recorded_drafts.h - the drafts of a text and their rows, as the database has them (table draft).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "experiments/replay/packed_rows.h"

struct error;
struct query;

struct recorded_draft {
    int step, position; // of the root
    struct draft draft; // without q
    int n_out;
    int32_t *out; // (n_out)
    void *packed; // (bytes) rows
    size_t bytes;
};

struct recorded_text {    // initialize with { 0 }
    int64_t sequence;     // id
    int64_t number;       // selects its random numbers (sequence_number)
    int64_t conversation; // the number of its first turn
    int prompt_tokens, new_tokens;
    bool string; // ended by a stop string, which takes back tokens
    int n;
    struct recorded_draft *draft; // (n) by step
};

// The columns of a query that recorded_text_add reads, from tables draft and sequence.
#define RECORDED_COLUMNS \
    "sequence.id, prompt, turn, repeat, prompt_tokens, new_tokens, stop, draft.step, position, draft.tokens, parents, proposals, out, rows"

// Adds the query's current row: the next step of the text, whose first row sets what is the text's own. Fails if it is damaged.
bool recorded_text_add(struct recorded_text *t, struct query *q, const char *path, struct error *err);
void recorded_text_free(struct recorded_text *t);

// A recorded draft's rows for a rule.
struct recorded_rows { // initialize with { 0 }; do not move while open
    struct rows_view {
        struct rows rows; // first
        struct recorded_rows *of;
        bool q;
    } p, q;
    struct unpacked_rows kept;
    const int *node;           // (nodes) of the draft that is decided about: its nodes in the recorded one
    float *row[2 * MAX_NODES]; // (vocab) by recorded node: p, then q; NULL: never used
    bool made[2 * MAX_NODES];
    int kept_row[2 * MAX_NODES]; // index into kept.row; -1: the node has no q
    int vocab, nodes;            // nodes: of the recorded draft
    bool incomplete;             // a row was read whose entries are not all there
};

bool recorded_rows_open(struct recorded_rows *r, const struct recorded_draft *d, const char *what, struct error *err);
void recorded_rows_point(struct recorded_rows *r, const int *node); // borrowed
// The recorded row that a pointer from rows.row is; NULL: none.
const struct kept_row *recorded_row_of(const struct recorded_rows *r, const float *row);
void recorded_rows_close(struct recorded_rows *r);   // keeps the memory of rows for the next draft
void recorded_rows_destroy(struct recorded_rows *r); // { 0 } is fine
