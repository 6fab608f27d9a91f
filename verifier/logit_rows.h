// logit_rows.h - turns rows of logits on a device into the probabilities that are sampled from.
//
// A row goes through the sampling stages, on its device if that is possible, and is copied to the host when it is first
// read: a rule reads the rows of a path and its children, not those of the whole tree. Where host and device share
// memory, the logits themselves become probabilities. After a pass nothing else is in the caches, and writing 200 KB
// elsewhere would cost more than the work on them. The path before each node is made from the sequence and the draft,
// so that stages that look back see the draft's own tokens.
#pragma once
#include <stdbool.h>
#include "core/draft.h"
#include "core/row_stages.h"

struct backend;
struct part_sum;
struct sampling;

struct logit_rows {
    struct rows rows; // must be first
    struct backend *backend;
    const struct sampling *sampling;
    int used_vocab;
    // The device makes probabilities of logits by `stages`, for requests without sampling options of their own.
    bool on_device;
    struct row_stages stages;
    bool made;            // the device has made all rows of the draft
    bool has_path;        // path begins with the request's tokens; rows that the device makes need no path
    struct tensor logits; // (all rows of the pass, vocab)
    int first;            // the first row of the draft
    const struct request *request;
    int capacity;  // nodes
    float **row;   // (capacity) probabilities that have been read; NULL: not yet
    float *copy;   // (capacity, vocab) rows downloaded from a device; pages that are not touched take no memory
    int32_t *path; // (length + capacity)
};

void logit_rows_create(struct logit_rows *r, struct backend *b, const struct sampling *s, int used_vocab, int vocab,
                       int nodes, int length);
void logit_rows_destroy(struct logit_rows *r);
// Return whether the device makes probabilities of a request's rows, and whether each row has one certain token.
bool logit_rows_on_device(const struct logit_rows *r, const struct request *request);
bool logit_rows_certain(const struct logit_rows *r, const struct request *request);
// Makes probabilities of these rows of logits of the request, and their sums (device_step.h; NULL: not wanted), on the
// device.
void logit_rows_make(struct logit_rows *r, const struct request *request, struct tensor logits, struct part_sum *sums);
// Selects the rows of a request's draft, which begin at row `first`. made: they are already probabilities.
void logit_rows_point(struct logit_rows *r, struct tensor logits, int first, const struct request *request, bool made);
