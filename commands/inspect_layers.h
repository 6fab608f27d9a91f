// inspect_layers.h - `speclab inspect --score --layers`: how well some of a target's layers predict the token that the
// target itself would pick, in given texts, for who searches the best set of layers.
//
// At each of the positions the layers run the row of one token, the root, over the target's own cache of the tokens
// before it: the first draft token of the drafters layer_skip and early_exit (drafters/layer_drafts.c), without a
// draft.
#pragma once
#include <stdbool.h>

struct error;
struct speclab_target;
struct texts;

struct layer_choice {
    int n, *layer; // (n) ascending
};

struct layer_score {
    double match;   // share of positions at which the argmax is the target's: acceptance at temperature 0
    double overlap; // mean of sum min(p, q) at temperature 1, over the 64 most probable tokens of each
};

enum { SCORED_TEXTS = 16 };

struct layer_scores;
// Reads up to SCORED_TEXTS conversations from t, beginning with `first`, that have at least two answer tokens, and
// `positions` of each. t (borrowed for the call), target (until layer_scores_close). Returns NULL and sets err on
// failure.
struct layer_scores *layer_scores_open(struct speclab_target *target, const struct texts *t, int first, int positions,
                                       struct error *err);
void layer_scores_close(struct layer_scores *s); // NULL: no effect
int layer_scores_positions(const struct layer_scores *s);
// stop: as for interrupt_check.
bool layer_scores_of(struct layer_scores *s, const struct layer_choice *set, int n, struct layer_score *to,
                     const volatile int *stop, struct error *err);

// texts: conversations, of which the first half of up to 2 * SCORED_TEXTS is chosen by, the others are held out; longer
// ones than `context` are cut at the end. positions: in each of them. Prints {"layers", "device", "chosen", "held_out":
// positions}, then answers each line of stdin by one:
//     choose SET SET ..   {"scores": [[match, overlap], ..]} on the texts that are chosen by
//     evaluate SET        {"chosen": [match, overlap], "held_out": likewise, "draft_ns", "pass_ns": of 1, 2, .. rows}
// A set is a list of layers (models/layer_list.h).
bool score_layers(struct speclab_target *t, const char *texts, int positions, int context, struct error *err);
