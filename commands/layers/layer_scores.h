// layer_scores.h - how well some of a target's layers predict the token that the target itself would pick, in given texts.
//
// At each of the positions the layers run the row of one token, the root, over the target's own cache of the tokens before it: the first
// draft token of the drafters layer_skip and early_exit (drafters/layer_drafts.h), without a draft.
#pragma once
#include <stdbool.h>

struct error;
struct layer_scores;
struct target;
struct texts;

struct layer_score {
    double match;   // share of positions at which the argmax is the target's: acceptance at temperature 0
    double overlap; // mean of sum min(p, q) at temperature 1, over the 64 most probable tokens of each
};

struct layer_cost { // nanoseconds, medians
    enum { MAX_DRAFT = 8 } most;
    double
        pass[MAX_DRAFT + 2]; // [n]: the target's pass over a root and n - 1 draft tokens, with its logits; from n = 1
};

enum { SCORED_TEXTS = 16 };

// Reads up to SCORED_TEXTS conversations from t, beginning with `first`, that have at least two answer tokens, and `positions` of each.
// t (borrowed for the call), target (until layer_scores_close). Returns NULL and sets err on failure.
struct layer_scores *layer_scores_open(struct target *target, const struct texts *t, int first, int positions,
                                       struct error *err);
void layer_scores_close(struct layer_scores *s); // NULL: no effect
int layer_scores_positions(const struct layer_scores *s);
// Scores n subsets: kept (n, layers). stop: as for interrupt_check.
bool layer_scores_of(struct layer_scores *s, const bool *kept, int n, struct layer_score *to, const volatile int *stop,
                     struct error *err);
// Times passes of the target, and in *draft the pass of one draft token through the kept layers (layers), side by side.
bool layer_scores_time(struct layer_scores *s, const bool *kept, struct layer_cost *to, double *draft,
                       struct error *err);
