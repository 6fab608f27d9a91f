// statistics.h - intervals for what prompts, not tokens, are the sample of.
//
// Tokens of one text are not independent, so the unit of replication is the prompt (docs/results.md;
// token-level intervals covered 52 % where they promised 95 %).
#pragma once
#include <stddef.h>

struct interval {
    double value, low, high; // low and high NAN when there are too few prompts for an interval (fewer than 2)
};

// Ratio of sums sum(a) / sum(b) over prompts, with the clustered, linearised 95 % interval (t with n - 1 degrees of
// freedom).
struct interval ratio_of_sums(const double *a, const double *b, size_t n);
// Ratio of two such ratios, paired by prompt: (sum(a) / sum(b)) / (sum(c) / sum(d)), on the log scale by linearisation:
// speedups.
struct interval ratio_of_ratios(const double *a, const double *b, const double *c, const double *d, size_t n);
double quantile_t(double probability, double freedom); // Student's, by the incomplete beta function (DLMF 8.17.22)
