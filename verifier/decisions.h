// decisions.h - decides the drafts of a step by a rule, once the target's pass over them is queued: where the logits
// are, in one launch and one wait, or on the host.
//
//     { begin -> wait -> decide request 0, 1, .. n - 1 }*
//
// The device decides if the rule has a body there and the device makes the rows. The host decides requests whose random
// source is not Philox, or whose tokens were sampled from rows that only the host has.
#pragma once
#include <stdbool.h>
#include "core/draft.h"
#include "core/tensor.h"

struct backend;
struct error;
struct rule;
struct sampling;
struct verification;

struct decisions;
struct decisions_setup { // borrowed
    struct backend *backend;
    const struct rule *rule;
    const void *rule_options;
    const struct sampling *sampling; // the sampling of requests without one of their own
    int slots, nodes, length;        // nodes: maximum of a slot; length: maximum of a sequence
    int vocab, used_vocab;           // width of a row of logits; ids from used_vocab on get probability 0
};

struct scored {                    // a step's drafts and their rows of logits
    const struct request *request; // (n)
    int n;
    const int *first;             // (n) the first row of each draft
    struct tensor logits;         // (rows, vocab) become probabilities
    struct verification *decided; // (n)
};

struct decisions *decisions_create(const struct decisions_setup *s);
void decisions_destroy(struct decisions *d);
// Queues the decisions that the device makes.
void decisions_begin(struct decisions *d, const struct scored *s);
// Waits for those decisions, and for all rows that the host needs. Drafts that were on the device are then on the host,
// and nowhere else.
bool decisions_wait(struct decisions *d, const struct scored *s, struct error *err);
// Fills in decided[i].
bool decisions_decide(struct decisions *d, const struct scored *s, int i, struct error *err);
// Returns the rows of p of the draft that was decided last; a row that was not read is made when it is read.
struct rows *decisions_rows(struct decisions *d);
// Returns the device memory for the decisions of drafts of up to `nodes` nodes.
size_t decisions_bytes(struct backend *b, const struct rule *rule, int slots, int nodes, int vocab);

// ---- drafts in the memory of the target's device (core/draft.h: device_draft)

int draft_max_nodes(const struct draft *d); // its number of nodes, or the maximum if only the device knows it
// Copies the draft to the host, if it is on the device alone. It stays on the device too.
void draft_fetch(struct backend *b, struct draft *d);
