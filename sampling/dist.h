// dist.h - arithmetic on rows of probabilities for the rules. A row is (vocab) doubles. Probabilities are integer
// multiples of 2^-52 (core/grid.h): sums are exact in any order, and a normalized row adds up to exactly 1. Leviathan
// et al. 2023; docs/exactness.md has the rules of arithmetic that make the code match the mathematics.
#pragma once
#include <stdbool.h>

struct draft;

void dist_copy(double *to, const float *row, int n);
void dist_from_row(double *to, const float *row, int n); // copies and normalizes
// dist_share(row[i], dist_row_sum(row, n)) is entry i of dist_from_row.
int dist_row_argmax(const float *row, int n); // the first of the most probable tokens
double dist_row_sum(const float *row, int n);
double dist_share(float entry, double sum);
double dist_sum(const double *w, int n);
bool dist_normalize(double *w, int n); // false if the sum is 0; w is unchanged then
// Sets p[x] to 0 and renormalizes p: the residual after a DETERMINISTIC token x was rejected. Returns the mass before
// renormalization; 0: no mass remained, and p is unchanged.
double dist_remove(double *p, int n, int x);
// p := (p - q)+, renormalized: the residual after a SAMPLED token was rejected. q need not be normalized to the last
// bit. Returns the mass before renormalization; 0 (only rounding can cause it): p is unchanged.
double dist_residual(double *p, const double *q, int n);
// Computes the residual of a * p, 0 <= a <= 1, for rules that carry a from node to node. If it returns 0 and a < 1, p
// is undefined.
double dist_scaled_residual(double *p, double a, const double *q, int n);

// ---- the distribution that a child of a node was sampled from, as its drafter declared it, for rules that need q

// Writes the normalised row that child c of node was sampled from to q (vocab). The row is computed anew for each
// child: a row updated from sibling to sibling is wrong as soon as proposals are mixed. For SAMPLED_WITHOUT_REPLACEMENT
// the tokens of all earlier siblings are removed, whatever their own proposal. DETERMINISTIC children must not be
// passed: their row is 1 at their token.
void proposal_row(const struct draft *d, int node, int c, double *q, int vocab);

// Returns q at the child's own token; 1 for DETERMINISTIC. Asserts that it is positive: otherwise the token was not
// sampled from this row. work: (vocab) scratch.
double proposal_probability(const struct draft *d, int node, int c, double *work, int vocab);
