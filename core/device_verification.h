// device_verification.h - what a device is told to judge a draft by, and what it answers (kernels/backend.h: judge). The rules
// themselves are in verifier/; a device has some of them once more, with the same answers bit for bit.
#pragma once
#include <stdint.h>
#include "core/tensor.h"

struct device_draft; // core/draft.h

// Of which rule a device has one; lenient's and replayed's are rejection's, block's is traversal's.
enum device_rule { DEVICE_NONE, DEVICE_REJECTION, DEVICE_MATCH, DEVICE_TRAVERSAL };

struct verify_request {
    enum device_rule device_rule;
    double lenience, rate; // rejection's: 1, 0; a guess stands with probability min(1, lenience p / q + rate)
    // The draft: as struct draft has it on the host, or one on the device, which comes back with the ruling; then n is the
    // most nodes that it can have.
    int n;
    const int32_t *token, *parent; // (n)
    const uint8_t *proposal;       // (n)
    const struct device_draft *there;
    // Probabilities on the device: (n, vocab). q: of a draft of the host's, row i being node i's; data NULL: nothing was drawn.
    struct tensor p, q;
    // Philox's stream, and the root's place (sampling/rng.h).
    uint64_t seed, sequence;
    int32_t root;
    // Uniforms in place of Philox's, for whoever wants to know what a device makes of them (exact/bisect.h): of each node's coin,
    // then of a draw from what is left there, then from a row as it is, (3, n); of a race for each depth's tokens, (n, vocab), to
    // which the half step is added. NULL: Philox's.
    const double *given;
};

struct verify_result { // as struct judgement has it
    int n, empty;
    int32_t *token, *node;     // (nodes)
    double *trial_p, *trial_q; // (nodes)
    // Of a draft on the device: what was there, for as many nodes as there were; else not touched.
    int nodes;
    int32_t *draft_token, *draft_parent, *tag; // (most)
    uint8_t *proposal;                         // (most)
};
