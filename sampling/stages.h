// stages.h - the stages that sampling.c lines up; each is described where it is written, in stages.c.
#pragma once
#include "core/row_stages.h"
#include "sampling/sampling.h"

extern const struct stage repetition_penalty_stage, logit_bias_stage, temperature_stage, top_k_stage, top_p_stage,
    min_p_stage;

struct temperature_options { // the one stage whose value others ask for
    double temperature;
};

// What a step comes to, put into `to`; false: the row alone does not tell.
bool stage_on_device(const struct stage *stage, const void *options, struct row_stages *to);
