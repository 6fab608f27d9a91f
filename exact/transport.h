// transport.h - the most that any exact rule could accept at one node, whatever it does: a bound to hold rules against.
//
// Let p be the target's row and x_1 .. x_k the guesses. For every set H of tokens a rule can answer with one of the
// guesses only if the target's own token could have been it: the chance is at most P(H) + 1 - Pr(all guesses lie in H).
// The least of these over all H is also reached by some rule (max flow, min cut; Sun et al. 2023, SpecTr, arXiv
// 2310.15141; Khisti et al. 2025). For k independent draws from q the guesses all lie in H with probability q(H)^k, and
// the least is among the sets {p / q <= t}: P(H) - q(H)^k is concave, and those are the corners of what pairs (q(H),
// P(H)) there are.
#pragma once

// k independent draws from one row: p, q (vocab), each normalised; order: (vocab) to work in.
double transport_sampled(const double *p, const double *q, int vocab, int k, int *order);
// Guesses that were chosen: what p says of them together; token (k), repeated ones counted once.
double transport_deterministic(const double *p, const int *token, int k);
