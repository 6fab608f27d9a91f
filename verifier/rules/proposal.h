// proposal.h - what a child of a node was drawn from, as its drafter declared it. Shared by the rules that ask.
#pragma once
#include "core/draft.h"

// The row that child c of node was drawn from, normalised, into q (vocab). It is made anew for each child: carried from
// child to child it is wrong as soon as siblings are mixed. For SAMPLED_WITHOUT_REPLACEMENT no earlier sibling's token is in it,
// however that sibling came about. Not for DETERMINISTIC, whose row is 1 at its token.
void proposal_row(const struct draft *d, int node, int c, double *q, int vocab);

// q at the child's own token: 1 for what was chosen. Above 0, or it was not drawn from this row. work: (vocab)
double proposal_probability(const struct draft *d, int node, int c, double *work, int vocab);
