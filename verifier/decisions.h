// decisions.h - how a rule decides the drafts of a step, once the target's pass over them is queued: on the host
// (host_decisions.c), or where the logits are (device_decisions.c). decisions_create chooses one for the life of a verifier.
//
//     { begin -> wait -> decide request 0, 1, .. n - 1 }*
#pragma once
#include <stdbool.h>
#include "core/draft.h"
#include "core/tensor.h"

struct backend;
struct error;
struct logit_rows;
struct rule;
struct verification;

struct decisions_setup { // borrowed
    struct backend *backend;
    const struct rule *rule;
    const void *rule_options;
    struct logit_rows *p;
    int slots, nodes; // nodes: of a slot
};

struct scored {                    // a step's drafts and their rows of logits
    const struct request *request; // (n)
    int n;
    const int *first;             // (n) where each draft's rows begin
    struct tensor logits;         // (rows, vocab) become probabilities
    struct verification *decided; // (n)
};

struct decisions { // each implementation's own struct begins with it
    // Queues what the device decides.
    void (*begin)(struct decisions *d, const struct scored *s);
    // Waits for that, and for all rows that the host decides by. Drafts on the device are on the host then, and nowhere else.
    bool (*wait)(struct decisions *d, const struct scored *s, struct error *err);
    // Fills in decided[i], and points the setup's rows p at the draft's until the next call.
    void (*decide)(struct decisions *d, const struct scored *s, int i);
    void (*destroy)(struct decisions *d);
};

struct decisions *decisions_create(const struct decisions_setup *s);
// The device's, if the rule has a body there and the device makes the rows; else NULL.
struct decisions *device_decisions_create(const struct decisions_setup *s);
struct decisions *host_decisions_create(const struct decisions_setup *s);
// Device memory for the decisions of drafts with so many nodes.
size_t device_decisions_bytes(struct backend *b, const struct rule *rule, int slots, int nodes, int vocab);
