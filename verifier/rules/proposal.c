#include "verifier/rules/proposal.h"

#include <assert.h>

#include "sampling/dist.h"

void proposal_row(const struct draft *d, int node, int c, double *q, int vocab)
{
    int first = draft_next_child(d, node, node);
    dist_from_row(q, d->q->row(d->q, node), vocab);
    if (d->proposal[c] != SAMPLED_WITHOUT_REPLACEMENT || c == first)
        return;
    for (int s = first; s < c; s = draft_next_child(d, node, s))
        q[d->token[s]] = 0;
    dist_normalize(q, vocab);
}

double proposal_probability(const struct draft *d, int node, int c, double *work, int vocab)
{
    double m;
    if (d->proposal[c] == DETERMINISTIC)
        return 1;
    if (d->proposal[c] == SAMPLED_WITHOUT_REPLACEMENT && c != draft_next_child(d, node, node)) {
        proposal_row(d, node, c, work, vocab);
        m = work[d->token[c]];
    } else {
        const float *row = d->q->row(d->q, node);
        m = dist_share(row[d->token[c]], dist_row_sum(row, vocab));
    }
    assert(m > 0); // else the token was not sampled from this row
    return m;
}
