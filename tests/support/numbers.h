// numbers.h - what tests of rows and of statistics count with: made-up numbers, sums, and how near one is to another.
#pragma once
#include <stdint.h>

double uniform(uint64_t *state);              // from 0 to below 1, of a linear congruence
void near(double a, double b, double within); // fails the test with both numbers
double worse(double a, double b);             // the greater; what is no number is the worst of all
double row_sum(const float *w, int n);
int row_best(const float *w, int n); // of equals the first
