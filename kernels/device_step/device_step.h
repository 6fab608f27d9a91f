// device_step.h - a decoding step in the memory of a device: probabilities, drafting and verification where the logits
// are, without the host between. Results equal those of sampling/, drafters/ and verifier/ to the bit.
//
// A backend offers all of these operations through one table (kernels/backend.h: step), or none. They are queued in one
// order with the backend's other operations, and report failures like them, through sync().
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "core/tensor.h"

struct backend;
struct drafting;
struct drafting_level;
struct drafting_request;
struct drafting_shape;
struct part_sum; // core/grid.h
struct row_stages;
struct rule_body;
struct verify_request;
struct verify_result;

struct device_step {
    // Turns logits (n, vocab) into probabilities in place, with the bits of sampling_row. Ids from used_vocab on are
    // padding. sums: (n, ROW_PARTS) on the device, sums over the parts of each row (core/grid.h); NULL: not wanted.
    void (*probabilities)(struct backend *b, struct tensor logits, int used_vocab, const struct row_stages *s,
                          struct part_sum *sums);

    // Finds the token of probability 1 in each row that these logits become at temperature 0: token (n) on the device.
    // The logits are unchanged.
    void (*certain)(struct backend *b, struct tensor logits, int used_vocab, int32_t *token);

    // Returns the device's body of a rule by its name (struct rule: device_body), for verify_request; NULL: it has
    // none.
    const struct rule_body *(*rule_body)(struct backend *b, const char *name);
    // verify verifies n drafts in one launch (verification.h). verify_wait, with the same requests, waits for the
    // results and copies them to the host in one read; n of a result is 0 if the device failed. verify_bytes returns
    // the device memory for one such draft, without reading data.
    void (*verify)(struct backend *b, const struct verify_request *r, int n);
    void (*verify_wait)(struct backend *b, const struct verify_request *r, struct verify_result *to, int n);
    size_t (*verify_bytes)(struct backend *b, const struct verify_request *r);

    // Build drafts level by level (drafting.h); the host waits for nothing. drafts_create returns NULL if memory is
    // exhausted. Requests of one drafts_begin belong to different slots.
    struct drafting *(*drafts_create)(struct backend *b, const struct drafting_shape *s);
    void (*drafts_destroy)(struct backend *b, struct drafting *g);
    void (*drafts_begin)(struct backend *b, struct drafting *g, const struct drafting_request *r, int n);
    void (*drafts_level)(struct backend *b, struct drafting *g, const struct drafting_level *l);
};
