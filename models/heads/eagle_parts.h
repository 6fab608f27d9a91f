// eagle_parts.h - shared by eagle.c and eagle_config.c; internal.
#pragma once
#include "models/config.h"
#include "models/heads/eagle.h"

struct eagle_config {
    struct model_config layers; // path borrowed
    int draft_vocab;
    struct taps taps;
    enum tri fc_bias;          // EAGLE: whether fc has a bias; UNSET: if its tensor exists
    bool norm_before_residual; // EAGLE-3: the residual that attention is added to is normed
    bool norm_before_fc;       // one norm over the states side by side
    bool fc_norm;              // one norm for each of the states
    bool norm_output;          // the output state is normed
};

// Reads the configuration of head h, and checks it against the target. Returns false and sets err on failure.
bool eagle_config_read(struct eagle_config *c, const struct head *h, const struct model_shape *target,
                       const struct eagle_setup *s, struct error *err);
