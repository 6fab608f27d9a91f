// recorded_drafts.h - the drafts of a text in the database (table draft), and the rows of them that a rule reads.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/draft.h"
#include "experiments/replay/packed_rows.h"
#include "sampling/rng.h"

struct error;
struct query;

struct recorded_draft {
    int step, position; // step of the root and its position
    struct draft draft; // the draft without q
    int n_out;          // tokens of the step
    void *packed;       // (bytes) rows
    size_t bytes;
};

struct recorded_text {    // initialize with { 0 }
    int64_t sequence;     // id in the database
    int64_t number;       // selects its random numbers (sequence_number)
    int64_t conversation; // the number of its first turn
    int prompt_tokens, new_tokens;
    bool string; // a stop string ended it, which takes back tokens
    int n;
    struct recorded_draft *draft; // (n) drafts by step
    int n_out;
    int32_t *out; // (n_out) the tokens of all steps from position prompt_tokens on, including those that the end cut
};

// The columns of a query that recorded_text_add reads, from tables draft and sequence.
#define RECORDED_COLUMNS \
    "sequence.id, prompt, turn, repeat, prompt_tokens, new_tokens, stop, draft.step, position, draft.tokens, parents, proposals, out, rows"

// Adds the query's current row: the next step of the text. The first row sets the fields of the text. Fails if it is
// damaged.
bool recorded_text_add(struct recorded_text *t, struct query *q, const char *path, struct error *err);
void recorded_text_free(struct recorded_text *t);

// The rows and random numbers that a rule reads of a recorded step. Draws are addressed (sampling/rng.h), so they are
// the run's. A race over a row with missing entries has the winner that was recorded with it.
struct recorded_rows { // initialize with { 0 }; do not move while open
    struct rows_view {
        struct rows rows; // must be first
        struct recorded_rows *of;
        bool q;
    } p, q;
    struct recorded_source {
        struct philox philox; // must be first
        // The original function of philox.
        int (*pick_row)(struct rng *self, const float *weight, int n, struct address at);
        struct recorded_rows *of;
    } source;
    struct unpacked_rows kept;
    const int *node; // (nodes) for the nodes of the draft that is decided about: their numbers in the recorded draft
    struct {
        float *row; // (vocab) NULL: never used
        bool made;
        int kept;        // index into kept.row; -1: the node has no q
    } at[2 * MAX_NODES]; // indexed by recorded node: p, then q
    int vocab, nodes;    // nodes: number of nodes of the recorded draft
    bool incomplete;     // a row was read that lacks entries
    bool uncertain;      // a race over an incomplete row was not recorded
};

// Opens the rows of a draft. The memory of the previous draft is reused.
bool recorded_rows_open(struct recorded_rows *r, const struct recorded_draft *d, const char *what, struct error *err);
// node: borrowed. seed, sequence, root: address of the random numbers, r->source.philox.rng.
void recorded_rows_point(struct recorded_rows *r, const int *node, uint64_t seed, int64_t sequence, int root);
void recorded_rows_destroy(struct recorded_rows *r); // { 0 } is allowed
