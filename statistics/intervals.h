// intervals.h - confidence intervals with prompts as the sample.
//
// Tokens of one text are not independent, so the unit of replication is the prompt (docs/results.md; nominal 95 %
// intervals over tokens covered the truth in 52 % of trials).
#pragma once
#include <stddef.h>

struct interval {
    double value, low, high; // low and high NAN: fewer than 2 prompts
};

// Ratio of two ratios of sums, paired by prompt: (sum(a) / sum(b)) / (sum(c) / sum(d)), with the clustered 95 % interval,
// linearised on the log scale (t with n - 1 degrees of freedom). Used for speedups.
struct interval ratio_of_ratios(const double *a, const double *b, const double *c, const double *d, size_t n);
