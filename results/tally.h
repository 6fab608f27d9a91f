// tally.h - the numbers of each run, read from the views for a report.
//
// A comparison is the set of runs of one experiment that can be compared: the same target, sampling, prompts, limits
// and batch, hence the same `peers`. All numbers come from the views; intervals are computed from their sums by prompt.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "results/statistics/intervals.h"

struct error;
struct store;

enum { POSITIONS = 8 }; // number of depths for which a report shows the acceptance

struct by_category { // a run's numbers over the prompts of one category
    struct interval speedup, tokens_per_step;
    int64_t speedup_prompts; // prompts that entered the speedup
};

struct tally { // the numbers of one run; NAN: no such number
    int64_t run;
    char *drafter, *drafter_kind, *drafter_options, *rule, *device, *machine, *revision;
    bool baseline, lossless, drafter_invariant, inflated, finished;
    int64_t sequences, drafts, drafted, accepted, max_depth;
    int64_t trees; // drafts that are not chains
    double end_to_end;
    double propose, verify, advance, other; // shares of the time of decoding
    struct interval acceptance_rate, expected_rate, tokens_per_step;
    struct interval ttft; // mean time to first token, ns
    struct interval tokens_per_s;
    struct interval speedup, end_to_end_speedup; // speedups over paired sequences
    int64_t speed_prompts; // prompts that entered tokens_per_s, or, unless the cell is a baseline, the speedups
    double disturbed;      // share of its time in slices that were disturbed
    bool all_disturbed; // a slice of it or of none was disturbed in every round, so its speed or speedup includes all
    double geometric;
    int64_t unpaired;                                        // sequences without a pair
    struct interval rate[POSITIONS], conditional[POSITIONS]; // acceptance at depth i + 1
    double by_rank[POSITIONS];                               // accepted / tried at depth 1, by rank
    double expected, accepted_uncut, z;                      // values of the view `expected`
    // texts compared with none's; where the first unequal one differs
    int64_t compared, equal, first_turn, first_position;
    char *first_prompt;              // prompt_id of that text; NULL: all texts are equal
    struct by_category *by_category; // (n_categories of the comparison)
};

struct comparison {
    char *experiment, *peers;
    char *target, *model_type, *activations, *cache, *sampling, *prompts, *limits; // limits "": not in the settings
    bool greedy;                                                                   // the temperature is 0
    int64_t batch, n_prompts, turns, repeats;                                      // turns, repeats: max over prompts
    uint64_t seed;
    int n;
    struct tally *run;         // (n) runs of none first
    int n_categories;          // 0: prompts have no categories
    char **category;           // (n_categories)
    int64_t *category_prompts; // (n_categories)
};

struct comparisons {
    int n;
    struct comparison *comparison; // (n) ordered by their first run
    struct store *kept; // has the views as tables until comparisons_free; they lack what is written meanwhile
};

// experiment NULL: all. The error for an unknown experiment lists the known ones.
bool comparisons_read(struct store *s, const char *experiment, struct comparisons *to, struct error *err);
void comparisons_free(struct comparisons *c);

// A run compared with another one of the same prompts, prompt by prompt.
struct against {
    double run;      // id of the run
    int64_t prompts; // number of prompts that both have
    bool in_pairs;   // the numbers are over texts in the same pair; otherwise over all texts of these prompts
    struct interval speed, ttft;                 // ratios of the run's over the other's
    struct interval acceptance, tokens_per_step; // differences, the run's less the other's
};
struct againsts { // all runs that share prompts with the other; free(of)
    int n;
    struct against *of; // (n)
};
bool against_read(struct store *s, int64_t other, struct againsts *to, struct error *err);
const struct against *against_find(const struct againsts *a, int64_t run); // NULL: the run shares none

// Returns whether a run's texts must equal none's: at temperature 0, and under the rule `match`, which derives each
// draw from its position. Otherwise they are other samples, and equality has no meaning.
bool texts_comparable(const struct comparison *c, const struct tally *t);
