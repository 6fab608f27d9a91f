// intervals.h - confidence intervals with prompts as the sample.
//
// Tokens of one text are not independent, so the unit of replication is the prompt (docs/results.md; nominal 95 %
// intervals over tokens covered the truth in 52 % of trials).
#pragma once
#include <stddef.h>

struct interval {
    double value, low, high; // low and high NAN: fewer than 2 prompts
};

// Ratio of sums sum(a) / sum(b) over prompts, with the clustered, linearised 95 % interval (t with n - 1 degrees of
// freedom).
struct interval ratio_of_sums(const double *a, const double *b, size_t n);
// Ratio of two such ratios, paired by prompt: (sum(a) / sum(b)) / (sum(c) / sum(d)), linearised on the log scale. Used for
// speedups.
struct interval ratio_of_ratios(const double *a, const double *b, const double *c, const double *d, size_t n);
