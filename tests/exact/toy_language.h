// toy_language.h - texts of a little language as the observer (exact/observer.h) sees them. What comes next depends on the
// last token, guesses are drawn or chosen from a table too, and any rule judges them: no model is needed.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "exact/observer.h"

struct rule;

enum { VOCAB = 12, NODES = 16, END = VOCAB - 1 };

int language_make(void **state); // a group's set-up

// What a drafter that does not tell the truth draws from: what it reports, at temperature 2/3.
extern float language_lie[VOCAB][VOCAB];

enum shape {
    SAMPLED_CHAIN,       // three draws
    DISTINCT_TREE,       // of widths 3, 2
    DETERMINISTIC_CHAIN, // the likeliest of q, three deep
    DETERMINISTIC_TREE,  // the two likeliest, and the likeliest below each
    SAMPLED_CHAINS,      // two that part at the root, two deep
    NO_DRAFT,
};

struct told {                          // how texts come about
    const struct rule *rule, *seen_as; // seen_as: what the observer is told; NULL: the truth
    enum shape shape;
    const float (*from)[VOCAB]; // what drafts are drawn from; NULL: guessed
    bool shares_randomness;     // what comes for a guess that fell is picked by the guess's own number
    int texts, tokens;          // tokens of each, or up to a step more
};

struct writer {
    const struct told *told;
    struct observer *observer;
    void *options;
    uint64_t seed;
};

struct writer writer_open(const struct told *told, uint64_t seed);
void writer_close(struct writer *w);
// One text, into `to`.
void writer_write(struct writer *w, int64_t sequence, struct observed *to);

// All texts in their order, watched as commands/exact/exact_run.c does; answers the most that the bet has been.
double language_write(const struct told *told, uint64_t seed, struct observed *to);
