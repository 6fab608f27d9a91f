// transport.h - the transport bound: the maximum probability with which any exact rule can accept at one node.
//
// Let p be the target's row and x_1 .. x_k the draft tokens. For every set H of tokens, a rule can return one of the
// draft tokens only if the target's own token could have been it: the probability is at most P(H) + 1 - Pr(all draft
// tokens lie in H). The minimum over all H is attained by some rule (max flow, min cut; Sun et al. 2023, SpecTr, arXiv
// 2310.15141; Khisti et al. 2025). For k independent samples from q, all lie in H with probability q(H)^k, and the
// minimum is among the sets {p / q <= t}: P(H) - q(H)^k is concave, and those are the corners of the set of pairs
// (q(H), P(H)).
#pragma once

// k independent samples from one row: p, q (vocab), each normalised; order: (vocab) scratch.
double transport_sampled(const double *p, const double *q, int vocab, int k, int *order);
// Deterministic draft tokens: their total probability under p; token (k), repeated ones counted once.
double transport_deterministic(const double *p, const int *token, int k);
