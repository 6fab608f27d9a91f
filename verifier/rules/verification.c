// verification.c - where a rule writes down what it decided.
#include <math.h>
#include <stdlib.h>
#include "core/memory.h"
#include "verifier/rules/rule.h"

// A draft of so many nodes is at most nodes - 1 deep. The rows to work in are touched as far as a rule goes, and pages
// that are never touched cost no memory: a rule that walks down needs two, one that comes back up one for each level,
// `multipath` two for each.
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

void verification_destroy(struct verification *j)
{
    free(j->token);
    free(j->node);
    free(j->trial_p);
    free(j->trial_q);
    free(j->work);
    *j = (struct verification){ 0 };
}

void verification_clear(struct verification *j, int nodes)
{
    j->n = j->empty = 0;
    for (int node = 0; node < nodes; node++)
        j->trial_p[node] = j->trial_q[node] = NAN;
}

void verification_path(struct verification *j, const struct draft *d, int last, int32_t token)
{
    int at = draft_depth(d, last);
    j->n = at + 1;
    for (int node = last; node >= 0; node = d->parent[node]) {
        j->node[at] = node;
        j->token[at--] = token;
        token = d->token[node];
    }
}

void verification_add(struct verification *j, int node, int32_t token)
{
    j->node[j->n] = node;
    j->token[j->n++] = token;
}
