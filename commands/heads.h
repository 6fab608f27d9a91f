// heads.h - `speclab heads`: accuracy of a drafter on known text: at each position, the rank of the text's token in the
// drafter's distribution, by depth.
//
// The target generates the texts, or a file has them (docs/training.md). Each text is then replayed token by token; at
// every position the drafter proposes with teacher forcing: the text's own token follows every proposed one (struct
// forced). Depth d therefore counts ranks after d - 1 correct tokens, as EAGLE's n-alpha with n = d - 1 (Li et al.
// 2024, arXiv 2401.15077, section 4) and as the accuracy that Medusa's head d - 1 has (Cai et al. 2024, section 2.3.3).
// A wrong layer convention shows at once.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct error;
struct experiment;

enum { HEADS_DEPTH = 16, HEADS_RANKS = 10 };

struct head_ranks { // one drafter's
    int depth;      // the largest in its drafts
    int64_t texts;
    int64_t positions[HEADS_DEPTH];           // positions evaluated at each depth
    int64_t ranked[HEADS_DEPTH][HEADS_RANKS]; // among these, the number whose token had this rank
    // In a chain of the drafter's own top-1 tokens: positions at which it reaches this depth, and at which it is
    // correct there too.
    int64_t reached[HEADS_DEPTH], accepted[HEADS_DEPTH];
    // Confidence, the probability that the drafter gives its top-1 token, against that token being right, at each depth
    // (results/statistics/calibration.h).
    double ece[HEADS_DEPTH], brier[HEADS_DEPTH], auroc[HEADS_DEPTH], confidence[HEADS_DEPTH]; // confidence: its mean
    int64_t unknown; // positions whose token is missing from a reduced vocabulary
};

struct heads_options {
    long long tokens;  // positions to evaluate, for each drafter
    const char *texts; // training texts, whose answers are evaluated; NULL: the target generates the texts
    long long nodes;   // draft tokens of the best fixed tree, which is printed; 0: no tree
    const char *json;  // a file for the shares and the tree of a single drafter; NULL: none
    FILE *out;
    const volatile int *stop; // see experiment_run
};

// Evaluates every drafter of the experiment that has rows of q, with the experiment's first rule and batch and each of
// its sampling settings. *last, unless NULL: of the last of them; unchanged if there is none.
bool heads_run(const struct experiment *e, const struct heads_options *plan, struct head_ranks *last,
               struct error *err);
