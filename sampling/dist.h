// dist.h - arithmetic on rows of probabilities, as every rule needs it. Rows here are double: (vocab).
// Probabilities are whole numbers of 2^-52 (core/grid.h): sums are exact, in whatever order, and what was normalised adds up
// to 1, not nearly to 1. Leviathan et al. 2023; the arithmetic rules that make code match mathematics are in
// docs/exactness.md.
#pragma once
#include <stdbool.h>

void dist_copy(double *to, const float *row, int n);
void dist_from_row(double *to, const float *row, int n); // copies and normalises
// What dist_from_row would make of one entry, given the sum of all.
double dist_row_sum(const float *row, int n);
double dist_share(float entry, double sum);
double dist_sum(const double *w, int n);
bool dist_normalize(double *w, int n); // false, and unchanged: there is no mass
// p without token x, renormalised: what is left of p after a DETERMINISTIC child was refused. Answers how much that was; 0:
// nothing is left, and p stays as it was.
double dist_strike(double *p, int n, int x);
// p := (p - q)+, renormalised: what is left after a SAMPLED child was refused. q need not be normalised to the last bit.
// Answers how much that was; 0 (rounding alone can bring that about): p stays as it was.
double dist_residual(double *p, const double *q, int n);
// The same of a * p, 0 <= a <= 1, as rules need it that carry a from node to node. If it answers 0 and a < 1, p is worthless.
double dist_scaled_residual(double *p, double a, const double *q, int n);
