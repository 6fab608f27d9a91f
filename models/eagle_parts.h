// eagle_parts.h - what eagle.c and eagle_config.c share; for nobody else.
#pragma once
#include "models/config.h"
#include "models/eagle.h"

struct eagle_config {
    struct model_config layers; // path borrowed
    int draft_vocab;
    struct taps taps;
    enum tri fc_bias;          // EAGLE: what is said of fc's bias
    bool norm_before_residual; // EAGLE-3: what attention is added to
    bool norm_before_fc;       // one norm over the states side by side
    bool fc_norm;              // one for each of them
    bool norm_output;          // what the head leaves behind is normed
};

bool eagle_config_read(struct eagle_config *c, const struct head *h, const struct model_shape *target,
                       const struct eagle_setup *s, struct error *err);
