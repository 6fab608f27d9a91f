// proposal.h - the distribution that a child of a node was sampled from, as its drafter declared it. For rules that
// need q.
#pragma once
#include "core/draft.h"

// Writes the normalised row that child c of node was sampled from to q (vocab). The row is computed anew for each
// child: a row updated from sibling to sibling is wrong as soon as proposals are mixed. For SAMPLED_WITHOUT_REPLACEMENT
// the tokens of all earlier siblings are removed, whatever their own proposal. Not for DETERMINISTIC children, whose
// row is 1 at their token.
void proposal_row(const struct draft *d, int node, int c, double *q, int vocab);

// q at the child's own token; 1 for DETERMINISTIC. Asserts that it is positive: otherwise the token was not sampled
// from this row. work: (vocab) scratch.
double proposal_probability(const struct draft *d, int node, int c, double *work, int vocab);
