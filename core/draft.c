#include "core/draft.h"

#include <assert.h>

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
