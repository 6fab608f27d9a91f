// logit_rows.h - rows of logits on a device as the probabilities that are sampled from.
//
// A row goes through the sampling stages, where it is if its device can do that, and is fetched, when it is first asked
// for: a rule visits a path and its children's row, not the tree. Where the host has the device's memory, the logits themselves become probabilities:
// after a pass all else has left the caches, and to write 200 KB anew would cost more than the work on them. The path
// before each node is put together from the sequence and the draft, so that stages that look back see the draft's own
// tokens.
#pragma once
#include <stdbool.h>
#include "core/draft.h"
#include "core/row_stages.h"

struct backend;
struct sampling;

struct logit_rows {
    struct rows rows; // first
    struct backend *backend;
    const struct sampling *sampling;
    int used_vocab;
    bool on_device; // the device makes probabilities of logits, by these
    struct row_stages stages;
    bool made;            // it has made all of the draft's
    struct tensor logits; // (all rows of the pass, vocab)
    int first;            // where the draft's rows begin
    const struct request *request;
    int capacity;  // nodes
    float **row;   // (room) probabilities of those that were asked for; NULL
    float *copy;   // (room, vocab) for what has to be brought from a device; not touched, it costs no memory
    int32_t *path; // (length + room)
};

void logit_rows_create(struct logit_rows *r, struct backend *b, const struct sampling *s, int used_vocab, int vocab,
                       int nodes, int length);
void logit_rows_destroy(struct logit_rows *r);
// The device makes probabilities of these rows of logits. Only where it can.
void logit_rows_make(struct logit_rows *r, struct tensor logits);
// The rows of a request's draft, which begin at row `first`. made: the device has made probabilities of them.
void logit_rows_point(struct logit_rows *r, struct tensor logits, int first, const struct request *request, bool made);
