// stages.h - the sampling stages, described in stages.c.
#pragma once
#include "core/row_stages.h"
#include "sampling/sampling.h"

extern const struct stage repetition_penalty_stage, logit_bias_stage, temperature_stage, top_k_stage, top_p_stage,
    min_p_stage;

struct temperature_options { // public, as sampling_is_greedy reads it
    double temperature;
};

// Adds the parameters of a stage to `to`; false: a device cannot apply this stage.
bool stage_on_device(const struct stage *stage, const void *options, struct row_stages *to);
