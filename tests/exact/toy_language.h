// toy_language.h - texts of a Markov chain, observed by verifier/exact/observer.h. The next token depends on the last one, draft
// tokens come from a second table, and any rule verifies them: no model is needed.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "verifier/exact/observer.h"

struct rule;

enum { VOCAB = 12, NODES = 16, END = VOCAB - 1 };

int toy_language_make(void **state); // a group's set-up

// The rows that a misreporting drafter samples from: those that it reports, at temperature 2/3.
extern float toy_language_misreported[VOCAB][VOCAB];

enum shape {
    SAMPLED_CHAIN,       // three tokens
    DISTINCT_TREE,       // without replacement, of widths 3, 2
    DETERMINISTIC_CHAIN, // argmax of q, three deep
    DETERMINISTIC_TREE,  // the top two, and the argmax below each
    SAMPLED_CHAINS,      // two chains from the root, two deep
    NO_DRAFT,
};

struct text_setup {                          // how texts are generated
    const struct rule *rule, *declared_rule; // declared_rule: the one that the observer is set up with; NULL: rule
    enum shape shape;
    const float (*from)[VOCAB]; // the rows that drafts are sampled from; NULL: the reported ones
    bool shares_randomness;     // the replacement of a rejected token is picked with the token's own uniform
    int texts, tokens;          // tokens of each, or up to a step more
};

struct text_writer {
    const struct text_setup *text_setup;
    struct observer *observer;
    void *options;
    uint64_t seed;
};

struct text_writer text_writer_open(const struct text_setup *text_setup, uint64_t seed);
void text_writer_close(struct text_writer *w);
// Generates one text and adds its sums to `to`.
void text_writer_write(struct text_writer *w, int64_t sequence, struct observed *to);

// Generates all texts in order, monitored as in commands/exact/exact_run.c; returns the maximum of the bet.
double toy_language_write(const struct text_setup *text_setup, uint64_t seed, struct observed *to);
