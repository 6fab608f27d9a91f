// epsilon_cutoff.c - an example of a sampling stage: epsilon sampling (Hewitt, Manning, Liang 2022, "Truncation Sampling as Language
// Model Desmoothing"), which keeps tokens of at least a given probability, and always the most probable one.
//
// A probability is e^(x - largest) / weight, so the cut is at largest + log(epsilon weight).
#include <math.h>

#include "engine/plugin.h"
#include "sampling/logits.h"

struct epsilon_cutoff_options {
    double epsilon;
};

static void keep_above_epsilon(struct logits *l, const void *options, const struct path *before)
{
    (void)before;
    const double epsilon = ((const struct epsilon_cutoff_options *)options)->epsilon, largest = logits_largest(l);
    if (epsilon > 0 && largest > -INFINITY)
        logits_drop_below(l, largest + fmin(0, log(epsilon * logits_weight(l))));
}

static const struct option epsilon_cutoff_option[] = {
    // of the stage's name
    { "epsilon_cutoff", OPTION_REAL, offsetof(struct epsilon_cutoff_options, epsilon), "0", "the probability; 0: all",
      0, 1, NULL },
    { 0 },
};

static const struct stage epsilon_cutoff_stage = {
    .name = "epsilon_cutoff",
    .summary = "an example: keeps tokens of at least a probability",
    .option = epsilon_cutoff_option,
    .options_size = sizeof(struct epsilon_cutoff_options),
    .apply = keep_above_epsilon,
};

SPECLAB_PLUGIN(err)
{
    return speclab_register_stage(&epsilon_cutoff_stage, err);
}
