// score_layers.h - `speclab score --layers`: scores sets of a target's layers in given texts, for who searches the best set.
#pragma once
#include <stdbool.h>

struct error;
struct target;

struct score_layers {
    const char *texts; // conversations; the first half of up to 2 * SCORED_TEXTS is chosen by, the others are held out
    int positions;     // in each text
    int context;       // longer texts are cut at the end
};

// Prints {"layers", "device", "chosen", "held_out": positions}, then answers each line of stdin by one:
//     choose SET SET ..   {"scores": [[match, overlap], ..]} on the texts that are chosen by
//     evaluate SET        {"chosen": [match, overlap], "held_out": likewise, "draft_ns", "pass_ns": of 1, 2, .. rows}
// A set is a list of layers (models/layer_list.h).
bool score_layers(struct target *t, const struct score_layers *p, struct error *err);
