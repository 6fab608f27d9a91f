// recorded_drafts.h - the drafts of a text, as the database has them (table draft), and what a rule reads of them.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "experiments/replay/packed_rows.h"
#include "sampling/rng.h"

struct error;
struct query;

struct recorded_draft {
    int step, position; // the root's
    struct draft draft; // without q
    int n_out;          // tokens of the step
    void *packed;       // (bytes) rows
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
    int n_out;
    int32_t *out; // (n_out) the tokens of all steps: from position prompt_tokens on, those that the end cut included
};

// The columns of a query that recorded_text_add reads, from tables draft and sequence.
#define RECORDED_COLUMNS \
    "sequence.id, prompt, turn, repeat, prompt_tokens, new_tokens, stop, draft.step, position, draft.tokens, parents, proposals, out, rows"

// Adds the query's current row: the next step of the text, whose first row sets what is the text's own. Fails if it is damaged.
bool recorded_text_add(struct recorded_text *t, struct query *q, const char *path, struct error *err);
void recorded_text_free(struct recorded_text *t);

// What a rule reads of a recorded step: its draft's rows, and its random numbers. Draws are addressed (sampling/rng.h), so they are the run's; a race
// over a row of which entries are missing has the winner that was recorded with it.
struct recorded_rows { // initialize with { 0 }; do not move while open
    struct rows_view {
        struct rows rows; // first
        struct recorded_rows *of;
        bool q;
    } p, q;
    struct recorded_source {
        struct philox philox;                                                             // first
        int (*pick_row)(struct rng *self, const float *weight, int n, struct address at); // philox's own
        struct recorded_rows *of;
    } source;
    struct unpacked_rows kept;
    const int *node; // (nodes) of the draft that is decided about: its nodes in the recorded one
    struct {
        float *row; // (vocab) NULL: never used
        bool made;
        int kept;        // index into kept.row; -1: the node has no q
    } at[2 * MAX_NODES]; // by recorded node: p, then q
    int vocab, nodes;    // nodes: of the recorded draft
    bool incomplete;     // a row was read whose entries are not all there
    bool uncertain;      // a race over an incomplete row was not recorded
};

// The memory of the draft before is reused.
bool recorded_rows_open(struct recorded_rows *r, const struct recorded_draft *d, const char *what, struct error *err);
// node: borrowed. seed, sequence, root: of the random numbers, r->source.philox.rng.
void recorded_rows_point(struct recorded_rows *r, const int *node, uint64_t seed, int64_t sequence, int root);
void recorded_rows_destroy(struct recorded_rows *r); // { 0 } is fine
