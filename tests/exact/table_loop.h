// table_loop.h - the decode loop's own law: every outcome of chance of whole texts, through the real loop, verifier,
// cache and rules, on a target that is a table (tests/exact/table_model.h).
//
// A world is small enough for that: prompts, limits, what ends a text, how tokens are sampled, and the shape of the
// drafts. A walk decodes all its sequences to the end, over and over, until chance has nothing new; what comes out is a
// probability for each combination of texts and reasons to end. It is compared with what the table alone would say,
// token by token under the same stops, each sequence for itself: so sequences that disturb one another are found out
// too.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "core/draft.h"
#include "tests/exact/table_model.h"
#include "verifier/rules/rule.h"

enum { LOOP_NODES = 5, LOOP_PROMPT = 6, LOOP_SEQUENCES = 3, LOOP_REASONS = 4 };

struct draft_tokens { // the shape of drafts
    const char *name;
    int nodes; // the root included
    int parent[LOOP_NODES];
    uint8_t proposal[LOOP_NODES];
    bool chains; // several, equally deep
    bool lookup; // what the ngram drafter finds, nodes - 1 of them; nothing else counts then
};

unsigned draft_kinds(const struct draft_tokens *g); // enum takes
bool rule_takes(const struct rule *rule, const struct draft_tokens *g);

struct prompt {
    int n;
    int32_t token[LOOP_PROMPT];
    int limit; // new tokens
};

struct table_instance {
    int vocab, slots, sequences;
    struct prompt prompt[LOOP_SEQUENCES];
    int length;           // of the context; 0: as long as need be
    const char *sampling; // NULL: temperature 1
    int ends;
    int32_t end[2];   // tokens that end a text
    int string, stay; // tokens of the stop string, and how many of them stay in the text: at least 1; 0: no string
    int32_t stop[3];  // the stop string
    bool deep;        // guesses are made where they cannot be used any more
    bool on_device;   // logits have to be downloaded
};

struct outcome {     // of one world, or the worst and the sums of many
    double distance; // total variation between the law of the texts and the table's own
    double lost;     // |1 - the probability of all outcomes together|
    int64_t instances, runs, rows;
    int64_t why[LOOP_REASONS]; // texts that ended so
    int64_t within, back;      // that ended before the last of what a step brought; before the first of it
    int64_t objections;
    int repeated;    // addresses of chance that came twice in a run, to one sequence
    char words[200]; // the first objection
};

// seed: of both tables. Where slots are not emptied the first objection ends the walk, and no distance is taken: one
// run would depend on the one before.
struct outcome table_instance_examine(const struct table_instance *w, const struct draft_tokens *g,
                                      const struct rule *rule, const void *options, uint64_t seed, enum flaw flaw);
void outcome_add(struct outcome *worst, const struct outcome *one);
