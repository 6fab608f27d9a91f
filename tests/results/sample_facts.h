// sample_facts.h - facts for tests of the results database, made up but consistent: five runs of one experiment over a few
// prompts. They are kept in plain arrays, so that a test can compute with loops what a view computes in SQL.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "results/store.h"

struct error;

enum { MADE_RUNS = 6, MADE_STEPS = 64, MADE_TRIALS = 12, MADE_TOKENS = 64 };

// NONE and LOOKUP decode by `rejection`, alone. TREE drafts trees and records expectations. LOSSY's texts differ and
// its rule is another, with no `none` of its own. PAIR_NONE and PAIR_LOOKUP run in a batch of 2: another contest.
enum { NONE, LOOKUP, TREE, LOSSY, PAIR_NONE, PAIR_LOOKUP };

struct made_sequence {
    int run;
    struct sequence_row row;
    struct step_row step[MADE_STEPS];
    int step_tokens[MADE_STEPS];   // what the step brought the text
    int step_accepted[MADE_STEPS]; // accepted before the end of the text cut it
    struct trial_row trial[MADE_STEPS][MADE_TRIALS];
    int32_t token[MADE_TOKENS];
    char prompt_id[16];
};

struct sample_facts {
    struct run_row run[MADE_RUNS];
    int64_t id[MADE_RUNS]; // set by sample_facts_store
    int n;
    struct made_sequence *sequence; // (n) in the order in which they are stored
};

struct sample_facts *sample_facts_create(uint64_t seed, int prompts, int turns, int repeats);
void sample_facts_free(struct sample_facts *m);
// runs, pairs, sequences; all but LOSSY finished
bool sample_facts_store(struct sample_facts *m, struct store *s, struct error *err);
// The first column of the only row that a question has; NAN: it has none.
double sample_facts_query(struct store *s, const char *sql);
void sample_facts_hold(struct store *s, const char *sql); // fails the test if that is not 1
