// tally.h - what the views say about each run, gathered for a report.
//
// A contest is the runs of one experiment that can be compared: the same target, sampling, prompts, limits and batch,
// hence the same `peers`. All numbers but the intervals are the views'.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "results/statistics.h"

struct error;
struct store;

enum { POSITIONS = 8 }; // depths of which a report shows the acceptance

struct tally { // one run; a number that there is none of is NAN
    int64_t run;
    char *drafter, *rule, *device, *machine, *revision;
    bool baseline, lossless, inflated, finished;
    int64_t sequences, new_tokens, steps, drafts, drafted, accepted, max_depth,
        trees; // trees: drafts that were no chain
    double tokens_per_s, end_to_end, sequence_tokens_per_s, tokens_per_step, acceptance_rate;
    double propose, verify, advance, other; // shares of the time of decoding
    struct interval speedup;                // paired, interval by prompt
    double geometric, end_to_end_speedup;
    int64_t paired_prompts, unpaired;               // unpaired: sequences
    double rate[POSITIONS], conditional[POSITIONS]; // acceptance at depth i + 1
    double by_rank[POSITIONS];                      // of first guesses: stood / tried, by rank
    double expected, accepted_uncut, z;             // by the view `expected`
    // texts against none's; where the first unequal one parts from it
    int64_t compared, equal, first_turn, first_position;
    char *first_prompt; // its prompt_id; NULL: all are equal
};

struct contest {
    char *experiment, *peers;
    char *target, *model_type, *activations, *cache, *sampling, *prompts, *limits; // limits "": the settings do not say
    bool greedy;                                                                   // temperature 0
    int64_t batch, n_prompts, turns, repeats;                                      // turns, repeats: at most
    uint64_t seed;
    int n;
    struct tally *run;         // (n) those of none first
    int n_categories;          // 0: the prompts have none
    char **category;           // (n_categories)
    int64_t *category_prompts; // (n_categories)
};

struct contests {
    int n;
    struct contest *contest; // (n) in the order in which they were first run
};

// experiment NULL: all of them. One that is not there is an error that lists those that are.
bool contests_read(struct store *s, const char *experiment, struct contests *to, struct error *err);
void contests_free(struct contests *c);

// A run's speedup over none with its interval by prompt; category NULL: of all prompts.
bool speedup_read(struct store *s, int64_t run, const char *category, struct interval *to, struct error *err);

// Must a run's texts be those of none: at temperature 0, and under the rule `match`, which draws each token by its
// place. Otherwise they are other samples, and whether they are equal says nothing.
bool texts_comparable(const struct contest *c, const struct tally *t);
