// verification.h - what a device is given to verify a draft, and what it returns (device_step.h: verify). The rules are specified in
// verifier/rules; a device has bodies for some of them, with the same results to the bit.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

struct device_draft; // core/draft.h
struct part_sum;     // core/grid.h
struct rule_body;    // a device's own; device_step.h: rule_body

enum { RULE_PARAMETERS = 4 }; // maximum number of a body's parameters

struct verify_request {
    const struct rule_body *body;      // the same for all requests of a call
    double parameter[RULE_PARAMETERS]; // so is this; what they mean is the body's business. Unused ones are 0
    // The draft: arrays as in struct draft on the host, or a draft on the device, which is returned with the result; n is then its
    // maximum number of nodes.
    int n;
    const int32_t *token, *parent; // (n)
    const uint8_t *proposal;       // (n)
    const struct device_draft *on_device;
    // Probabilities on the device: (n, vocab). q: of a draft on the host, row i being node i's; data NULL: nothing was sampled.
    struct tensor p, q;
    const struct part_sum
        *p_sums; // (n, ROW_PARTS) on the device, of the rows of p (device_step.h: probabilities); NULL: not known
    // (n) on the device: row i of p is 1 at this token and 0 elsewhere, and only the shape of p is used; then no token may be
    // SAMPLED but under `match`. NULL: the rows.
    const int32_t *p_certain;
    // Philox's stream, and the root's position (sampling/rng.h).
    uint64_t seed, sequence;
    int32_t root;
    // Uniforms in place of Philox's, for tests that enumerate them (tests/support/bisect.h): (3, n) of each node's acceptance test, of a draw
    // from its residual, of a draw from its row; for `match` (n, vocab), one per token of each depth, to which half a step is added.
    // NULL: Philox's.
    const double *uniforms;
};

struct verify_result { // as struct verification
    int n, empty;
    int32_t *token, *node;     // (nodes)
    double *trial_p, *trial_q; // (nodes)
    // Of a draft on the device: its number of nodes and the nodes; otherwise not written.
    int nodes;
    int32_t *draft_token, *draft_parent, *tag; // (maximum number of nodes)
    uint8_t *proposal;                         // (maximum number of nodes)
};
