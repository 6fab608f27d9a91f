// observer.h - observes the steps of a decode loop and accumulates evidence on whether its texts follow the target.
//
// From each step it takes the draft, the rows p and q and the decision (verifier.h: struct verified), and keeps sums:
//
//     the text           every token against the row of p at its node (evidence.h)
//     the control        the same rule on the same drafts and rows once more, with a separate random source
//     negative controls  rules that are wrong on purpose, with separate random sources: they must be detected
//     the drafter        every sampled draft token against the row of q that it was declared to be sampled from
//     independence       a single sampled draft token that was rejected against its replacement, given the rows
//     acceptance         accepted tokens against E[accepted | draft] of rule.end_probabilities, and the variance
//
// Tokens after an end of text within a step count like others, since the rule verified them.
#pragma once
#include <stdint.h>

#include "verifier/exact/evidence.h"
#include "verifier/rules/rule.h"

struct verified;
struct observer;

// ---- rules that are wrong on purpose, to show that the observer would detect such a fault in a real rule
//
// Each is a mistake found in real code (docs/exactness.md). It verifies the drafts and rows of a real run in addition
// to the real rule, with a separate random source, and has no effect on the text. All walk down the tree as `rejection`
// does, whatever the real rule is.
enum negative_control {
    CONTROL_LENIENT,  // accepts with probability min(1, 1.1 p / q)
    CONTROL_RESAMPLE, // samples from p itself after a rejection, not from the residual
    CONTROL_WRONG_Q,  // uses q at temperature 4/3; treats a deterministic token as sampled with probability 3/4
    NEGATIVE_CONTROLS
};
extern const struct rule *const negative_control[NEGATIVE_CONTROLS]; // name, summary and verify, indexed by enum
                                                                     // negative_control

// ---- the observer

enum stream {
    STREAM_TEXT,
    STREAM_CONTROL,
    STREAM_DRAFTER,
    STREAM_NEGATIVE_CONTROLS, // the first of them
    STREAMS = STREAM_NEGATIVE_CONTROLS + NEGATIVE_CONTROLS
};
const char *stream_name(int stream); // "text", "control", "drafter", "lenience 1.1", ...

// The sums consist of doubles only, so they can be added and stored as they are. Initialise with { 0 }.
struct observed {
    struct evidence of[STREAMS];
    double rejected[SQUARE][SQUARE]; // counts by the uniforms of the rejected token and of its replacement
    double steps, drafted, accepted, expected, variance;
    double max_depth; // maximum depth of a draft; a maximum, not a sum
};
enum { OBSERVED_DOUBLES = sizeof(struct observed) / sizeof(double) };

struct observer_setup {
    const struct rule *rule; // borrowed, with its options
    const void *rule_options;
    int slots, nodes, vocab; // nodes: maximum of a draft
    int32_t end;             // token that ends a text; -1: none
    uint64_t seed;           // seed of the observer's randomness; may be the run's own, whose addresses are not used
};

struct observer *observer_create(const struct observer_setup *s);
void observer_destroy(struct observer *o);
void observer_start(struct observer *o, int slot, int64_t sequence); // a text begins in this slot
void observer_verified(struct observer *o, const struct verified *step);
// Why the rule, a plugin's, could not decide as the control; NULL: it could. From then on the sums are of no use.
const char *observer_failed(const struct observer *o);
// Adds the sums of the slot's text, which has ended, to `to`.
void observer_take(struct observer *o, int slot, struct observed *to);
void observed_join(struct observed *to, const struct observed *from);
