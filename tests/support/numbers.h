// numbers.h - helpers for tests of rows and statistics: pseudorandom numbers, sums, comparisons.
#pragma once
#include <stdint.h>

double uniform(uint64_t *state);              // in [0, 1), from a linear congruential generator
int below(int n);                             // in [0, n), from one such generator of the program
void near(double a, double b, double within); // fails the test with both numbers unless |a - b| <= within
double worse(double a, double b);             // the larger; NaN counts as the largest
double row_sum(const float *w, int n);
int row_argmax(const float *w, int n); // ties: the first
