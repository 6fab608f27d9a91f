// stages.h - the stage that others ask about: temperature 0 is greedy decoding. All stages are described in stages.c.
#pragma once
#include "sampling/sampling.h"

extern const struct stage temperature_stage;

struct temperature_options { // as sampling_is_greedy reads it
    double temperature;
};
