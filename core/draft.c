#include "core/draft.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"

int draft_add(struct draft *d, int parent, int32_t token, enum proposal how)
{
    assert(parent >= 0 && parent < d->n);
    if (d->n >= d->capacity)
        return -1;
    int node = d->n++;
    d->token[node] = token;
    d->parent[node] = parent;
    d->proposal[node] = (uint8_t)how;
    return node;
}

int draft_next_child(const struct draft *d, int parent, int after)
{
    for (int node = after + 1; node < d->n; node++)
        if (d->parent[node] == parent)
            return node;
    return -1;
}

int draft_child(const struct draft *d, int parent, int32_t token)
{
    int child = draft_next_child(d, parent, parent);
    while (child >= 0 && d->token[child] != token)
        child = draft_next_child(d, parent, child);
    return child;
}

int draft_depth(const struct draft *d, int node)
{
    int depth = 0;
    for (; d->parent[node] >= 0; node = d->parent[node])
        depth++;
    return depth;
}

int draft_rank(const struct draft *d, int node)
{
    int rank = 0;
    for (int i = 1; i < node; i++)
        rank += d->parent[i] == d->parent[node];
    return rank;
}

int draft_max_depth(const struct draft *d)
{
    int max_depth = 0;
    for (int node = 1; node < d->n; node++) {
        int depth = draft_depth(d, node);
        if (depth > max_depth)
            max_depth = depth;
    }
    return max_depth;
}

unsigned takes_missing(unsigned takes, unsigned made)
{
    unsigned beyond = made & ~takes & ~(unsigned)(SHARES_RANDOMNESS | CONTINUES | OWN_TEMPERATURE);
    return takes & TAKES_TREES ? beyond & ~(unsigned)TAKES_CHAINS : beyond;
}

bool draft_is_path(const struct draft *d, const int32_t *node, const int32_t *token, int n, int vocab)
{
    if (n < 1 || n > d->n || node[0] != 0)
        return false;
    for (int i = 0; i < n; i++)
        if (node[i] < 0 || node[i] >= d->n || token[i] < 0 || token[i] >= vocab)
            return false;
    for (int i = 1; i < n; i++)
        if (d->parent[node[i]] != node[i - 1] || d->token[node[i]] != token[i - 1])
            return false;
    return true;
}

// ---- the decision about a draft

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
