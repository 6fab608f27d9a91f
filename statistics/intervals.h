// intervals.h - confidence intervals with prompts as the sample.
//
// Tokens of one text are not independent, so the unit of replication is the prompt (docs/results.md; a nominal 95 % interval over tokens
// covers the truth in half of the experiments of tests/results/test_coverage.c).
#pragma once
#include <math.h>
#include <stddef.h>

struct interval {
    double value, low, high; // low and high NAN: fewer than 2 prompts
    double prompts;          // how many of this kind would make the half-width 2 % of the value; NAN: not known
};

static const struct interval no_interval = { NAN, NAN, NAN, NAN };

enum statistic {               // functions of the sums over prompts of a, b, c, d
    STATISTIC_RATE,            // a / b, with a <= b in each prompt: from 0 to 1
    STATISTIC_RATIO,           // a / b
    STATISTIC_RATIO_OF_RATIOS, // (a / b) / (c / d)
    STATISTIC_DIFFERENCE,      // a / b - c / d
    STATISTIC_CHANGE,          // one ratio of ratios over another: interval_of_change
};

enum {
    BOOTSTRAP_FROM = 10,
    BOOTSTRAP_UP_TO = 49
}; // prompts with which quantiles are those of resamples; otherwise Student's

// The clustered 95 % interval; a to d (n), c and d NULL where the statistic has none. Elements i of all four are of one prompt: what two cells
// have in common there cancels.
struct interval interval_of(enum statistic of, const double *a, const double *b, const double *c, const double *d,
                            size_t n);
// The same of ((a / b) / (c / d) of `is`) / (that of `was`), four columns (n) each: a speedup measured again on the same prompts. What a prompt
// has in common in both cancels, and so does what slows all its passes in one of them.
struct interval interval_of_change(const double *const *was, const double *const *is, size_t n);
