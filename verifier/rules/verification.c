// verification.c - the result of a rule, and the row that a child was sampled from.
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "sampling/dist.h"
#include "verifier/rules/rule.h"

// A draft of n nodes is at most n - 1 levels deep. A rule that walks down the tree uses two scratch rows, one that
// works from the leaves up uses one per level, `multipath` two per level. Pages that are never touched take no memory.
struct verification verification_create(int nodes, int vocab)
{
    size_t n = (size_t)nodes;
    return (struct verification){
        .token = xcalloc(n, sizeof(int32_t)),
        .node = xcalloc(n, sizeof(int32_t)),
        .trial_p = xcalloc(n, sizeof(double)),
        .trial_q = xcalloc(n, sizeof(double)),
        .work = xcalloc((2 * n + 1) * (size_t)vocab, sizeof(double)),
    };
}

void verification_destroy(struct verification *v)
{
    free(v->token);
    free(v->node);
    free(v->trial_p);
    free(v->trial_q);
    free(v->work);
    *v = (struct verification){ 0 };
}

void verification_clear(struct verification *v, int nodes)
{
    v->n = v->empty = 0;
    for (int node = 0; node < nodes; node++)
        v->trial_p[node] = v->trial_q[node] = NAN;
}

void verification_path(struct verification *v, const struct draft *d, int last, int32_t token)
{
    int at = draft_depth(d, last);
    v->n = at + 1;
    for (int node = last; node >= 0; node = d->parent[node]) {
        v->node[at] = node;
        v->token[at--] = token;
        token = d->token[node];
    }
}

void verification_add(struct verification *v, int node, int32_t token)
{
    v->node[v->n] = node;
    v->token[v->n++] = token;
}

// ---- proposals

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
