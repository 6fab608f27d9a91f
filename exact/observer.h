// observer.h - looks on while a text is decoded, and gathers what shows whether it is drawn from the target.
//
// Of each step it takes the draft, the rows p and q and what the rule decided (verifier.h: struct judged), and keeps
// sums:
//
//     the text       every token beside the row of p at its node (evidence.h)
//     the control    the same rule on the same drafts and rows once more, with chance of its own
//     plants         rules that are wrong on purpose, likewise (negative_controls.h): were they not seen, nothing would be
//     the drafter    every drawn guess beside the row of q that it says it was drawn from
//     independence   where a single drawn guess fell and another token came: given the rows, one says nothing of the other
//     acceptance     accepted tokens beside E[accepted | draft] from rule.law, and the variance
//
// Tokens behind an end of text within a step are counted like others: the rule judged them.
#pragma once
#include <stdint.h>

#include "exact/evidence.h"
#include "exact/negative_controls.h"

struct verified;
struct observer;
struct rule;

enum stream {
    THE_TEXT,
    THE_CONTROL,
    THE_DRAFTER,
    NEGATIVE_CONTROL_SET,
    STREAMS = NEGATIVE_CONTROL_SET + NEGATIVE_CONTROLS
};
const char *stream_name(int stream); // "text", "control", "drafter", "lenience 1.1", ...

// Doubles and nothing else: sums can be added, and kept as they are. Start with { 0 }.
struct observed {
    struct evidence of[STREAMS];
    double rejected[SQUARE][SQUARE]; // uniform of the guess that fell, of the token that came instead
    double steps, drafted, accepted, expected, variance;
    double max_depth; // draft; no sum: the greatest
};
enum { OBSERVED_DOUBLES = sizeof(struct observed) / sizeof(double) };

struct observer_setup {
    const struct rule *rule; // borrowed, with its options
    const void *rule_options;
    int slots, nodes, vocab; // nodes: most of a draft
    int32_t end;             // token that ends a text; -1: none
    uint64_t seed;           // of all chance here; the run's own will do, its addresses are not used
};

struct observer *observer_create(const struct observer_setup *s);
void observer_destroy(struct observer *o);
void observer_start(struct observer *o, int slot, int64_t sequence); // a text begins in this slot
void observer_verified(void *o, const struct verified *j);           // for struct watch
// What there is of the slot's text, which is over: added to `to`.
void observer_take(struct observer *o, int slot, struct observed *to);
void observed_join(struct observed *to, const struct observed *from);
