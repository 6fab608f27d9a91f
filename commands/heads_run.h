// heads_run.h - how well a drafter would have guessed a text that is known: of each place behind a certain token, where the
// text's own token stood among the drafter's.
//
// Texts are the target's own. Each is then read once more, token by token, and behind each the drafter is asked for what
// comes, told the truth after every answer (struct forced). So depth d says how often the right token has which rank after
// d - 1 right ones, as EAGLE's papers count with n-alpha, n = d - 1 (Li et al. 2024, arXiv 2401.15077, section 4) and Medusa's
// with the accuracy of head d - 1 (Cai et al. 2024, section 2.3.3). A wrong convention of layers shows at once.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct error;
struct experiment;

enum { HEADS_DEPTH = 16, HEADS_RANKS = 10 };

struct heads_seen {                                                       // of one drafter
    int depth;                                                            // of its drafts
    int64_t texts, places[HEADS_DEPTH], ranked[HEADS_DEPTH][HEADS_RANKS]; // places asked about; those of each rank
    int64_t unknown;                                                      // tokens that a reduced vocabulary has not
};

struct heads_plan {
    int64_t tokens; // of texts, that are asked about, for each drafter
    FILE *out;
    const volatile int *stop; // as experiment_run's
    // Called with what was seen of each drafter that has rows; shown: as people read it. NULL: not wanted.
    bool (*each)(void *self, const char *shown, const struct heads_seen *seen, struct error *err);
    void *self;
};

// Every drafter of the experiment that has rows of its own, on the experiment's first rule and batch and each sampling.
bool heads_run(const struct experiment *e, const struct heads_plan *plan, struct error *err);
