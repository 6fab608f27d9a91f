// stages.h - the stages that sampling.c lines up; each is described where it is written, in stages.c.
#pragma once
#include "sampling/sampling.h"

extern const struct stage repetition_penalty_stage, logit_bias_stage, temperature_stage, top_k_stage, top_p_stage,
    min_p_stage;

struct temperature_options { // the one stage whose value others ask for
    double temperature;
};
