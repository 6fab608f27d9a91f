// intervals.h - confidence intervals with prompts as the sample, or with prompts and slices of time.
//
// Tokens of one text are not independent, so the unit of replication is the prompt (docs/results.md; a nominal 95 %
// interval over tokens covers the truth in half of the experiments of tests/results/test_coverage.c).
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>

struct interval {
    double value, low, high; // low and high NAN: fewer than 2 prompts, or the clock is not known
    double prompts;          // number of such prompts that would make the half-width 2 % of the value; NAN: not known
};

static const struct interval no_interval = { NAN, NAN, NAN, NAN };

enum statistic {               // functions of the sums over prompts of a, b, c, d
    STATISTIC_RATE,            // a / b, with a <= b in each prompt: from 0 to 1
    STATISTIC_RATIO,           // a / b
    STATISTIC_RATIO_OF_RATIOS, // (a / b) / (c / d)
    STATISTIC_DIFFERENCE,      // a / b - c / d
    STATISTIC_CHANGE, // the ratio of two ratios of ratios: a speedup measured again on the same prompts. What a prompt
                      // has in common in both cancels, and so does what slows all its passes in one of them
};

enum {
    BOOTSTRAP_FROM = 10,
    BOOTSTRAP_UP_TO = 49
}; // minimum prompts for quantiles from resamples; with fewer, Student's are used

// Returns the clustered 95 % interval. x: columns (n), 8 for STATISTIC_CHANGE, the new run's four before the old one's,
// otherwise 4, of which the last two are NULL if the statistic has none. Elements i of all columns belong to one
// prompt: what two cells have in common there cancels.
struct interval interval_of(enum statistic of, const double *const *x, size_t n);

// Returns the interval of a statistic whose times come from a machine that other work and temperature slow down for a
// while. A row is a unit: what was decoded of a prompt in a slice of time, in all cells that the statistic compares.
// Rows of a prompt depend on each other, and so do the rows of a slice, since one clock has timed them. The variance is
// two-way clustered (Cameron, Gelbach and Miller 2011): to the variance over prompts it adds what the rows of different
// prompts in a slice have in common. If no slice has two prompts this is interval_of over the prompts' sums, in the
// order of their numbers.
//
// x (n): as above. work: for each pair of columns of x, the column (n) whose quotient by the time would be constant on
// a constant clock, which is the steps where x has tokens. NULL for a pair: its first column; NULL: this for all pairs.
// prompt, slice (n): any numbers; slices of two runs have different ones.
//
// low, high and prompts are NAN if a whole sum comes from one slice in which several prompts share the time: then
// nothing shows how the clock varies. `prompts` assumes that more prompts fill proportionally more slices, so that both
// parts of the variance fall with their number.
struct interval interval_of_units(enum statistic of, const double *const *x, const double *const *work,
                                  const int64_t *prompt, const int64_t *slice, size_t n);
