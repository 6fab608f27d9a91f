// verification.h - the arguments and results of a draft's verification on a device (device_step.h: verify).
// verifier/rules specifies the rules. A device has bodies for some of them, with equal results to the bit.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

struct device_draft; // core/draft.h
struct part_sum;     // core/grid.h
struct rule_body;    // the device defines it; device_step.h: rule_body

enum { RULE_PARAMETERS = 4 }; // maximum number of a body's parameters

struct verify_request {
    const struct rule_body *body;      // equal in all requests of a call
    double parameter[RULE_PARAMETERS]; // equal in all requests of a call; the body interprets them. Unused ones are 0
    // The draft: arrays as in struct draft on the host, or a draft on the device, which is returned with the result. n
    // is then its maximum number of nodes.
    int n;
    const int32_t *token, *parent; // (n)
    const uint8_t *proposal;       // (n)
    const struct device_draft *on_device;
    // Probabilities on the device: (n, vocab). q belongs to a draft on the host, row i to node i; data NULL: nothing
    // was sampled.
    struct tensor p, q;
    const struct part_sum
        *p_sums; // (n, ROW_PARTS) on the device: sums of the rows of p (device_step.h: probabilities); NULL: not known
    // (n) on the device. Row i of p is 1 at this token and 0 elsewhere, and only the shape of p is used. Then no token
    // may be SAMPLED, except under `match`. NULL: the rows are used.
    const int32_t *p_certain;
    // Philox's stream, and the root's position (sampling/rng.h).
    uint64_t seed, sequence;
    int32_t root;
    // Uniforms that replace Philox's, for tests that enumerate them (tests/support/bisect.h): (3, n), one for each
    // node's acceptance test, for a draw from its residual, for a draw from its row; for `match` (n, vocab), one per
    // token of each depth, to which half a step is added. NULL: Philox's are used.
    const double *uniforms;
};

struct verify_result { // the fields of struct verification
    int n, empty;
    int32_t *token, *node;     // (nodes)
    double *trial_p, *trial_q; // (nodes)
    // The nodes of a draft on the device and their number; otherwise not written.
    int nodes;
    int32_t *draft_token, *draft_parent, *tag; // (maximum number of nodes)
    uint8_t *proposal;                         // (maximum number of nodes)
};
