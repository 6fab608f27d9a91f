// mutants_point_mass.c - other ways of verifying DETERMINISTIC siblings, with their flaws: with one uniform for all of
// them, which is exact if done right (SGLang's target-only sampling), and path by path, which is not.
#include <math.h>
#include <string.h>
#include "verifier/exact/law.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/exact/mutants.h"

// A uniform u >= from lies in [low, high) of the cumulative sum of p with a probability proportional to the length of
// the intersection.
void pick_reused(double *p, int n, double from)
{
    double cumulative = 0, sum = dist_sum(p, n);
    int last = n - 1;
    while (last > 0 && p[last] <= 0)
        last--;
    for (int i = 0; i < n; i++) {
        double low = cumulative, high = i == last ? 1 : cumulative + p[i] / sum;
        cumulative = high;
        p[i] = p[i] > 0 ? fmax(high - fmax(low, from), 0) : 0;
    }
}

// Returns the accepted child of node; -1: none, and p (vocab) is the residual. One uniform u: accepts the first child
// with u < the sum of p over it and its earlier siblings.
static int child_by_one_uniform(const struct draft *d, int node, double *p, int vocab, struct rng *rng, enum flaw flaw)
{
    double weight[LAW_NODES + 1], sum = 0, full[LAW_VOCAB];
    int child[LAW_NODES], n = 0;
    memcpy(full, p, sizeof(full));
    for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c), n++) {
        int x = d->token[c];
        child[n] = c;
        weight[n] = fmin(flaw == DUPLICATES_COUNT_TWICE ? full[x] : p[x], 1 - sum);
        sum += weight[n];
        p[x] = 0;
    }
    weight[n] = fmax(1 - sum, 0);
    if (n == 0 || dist_sum(p, vocab) <= 0)
        weight[n] = n == 0;
    int rejected = rng->pick(rng, weight, n + 1, (struct address){ FOR_ACCEPT, rng->root, node });
    if (rejected < n)
        return child[rejected];
    if (n > 0 && flaw == ACCEPT_REUSED)
        pick_reused(p, vocab, sum);
    return -1;
}

static void verify_by_one_uniform(const struct draft *d, struct rows *rows, struct rng *rng, enum flaw flaw,
                                  struct verification *out)
{
    double p[LAW_VOCAB];
    int node = 0;
    for (;;) {
        dist_from_row(p, rows->row(rows, node), rows->vocab);
        int child = child_by_one_uniform(d, node, p, rows->vocab, rng, flaw);
        if (child < 0)
            break;
        verification_add(out, node, d->token[child]);
        node = child;
    }
    verification_add(out, node, rng->pick(rng, p, rows->vocab, (struct address){ FOR_RESIDUAL, rng->root, node }));
}

// Where the path from the root to a leaf ends if it is verified alone; p (vocab): the residual there.
static int end_of_path(const struct draft *d, struct rows *rows, int leaf, struct rng *rng, double *p)
{
    int path[LAW_NODES], n = 0;
    for (int node = leaf; node > 0; node = d->parent[node])
        path[n++] = node;
    for (int node = 0;; node = path[--n]) {
        dist_from_row(p, rows->row(rows, node), rows->vocab);
        if (n == 0)
            return node;
        int c = path[n - 1], x = d->token[c];
        if (!rng->accept(rng, p[x], 1, (struct address){ FOR_ACCEPT, rng->root, c + LAW_NODES * leaf })) {
            dist_remove(p, rows->vocab, x);
            return node;
        }
    }
}

static void verify_path_by_path(const struct draft *d, struct rows *rows, struct rng *rng, struct verification *out)
{
    double p[LAW_VOCAB], best[LAW_VOCAB] = { 0 };
    int end = -1;
    for (int leaf = 0; leaf < d->n; leaf++) {
        if (draft_next_child(d, leaf, leaf) >= 0)
            continue;
        int node = end_of_path(d, rows, leaf, rng, p);
        if (end >= 0 && draft_depth(d, node) <= draft_depth(d, end))
            continue;
        end = node;
        memcpy(best, p, sizeof(best));
    }
    int token = rng->pick(rng, best, rows->vocab, (struct address){ FOR_RESIDUAL, rng->root, end });
    verification_path(out, d, end, token);
}

static void accept_mutant_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                                 struct rng *rng, struct verification *out)
{
    (void)rule;
    enum flaw flaw = *(const enum flaw *)options;
    verification_clear(out, d->n);
    if (flaw == LONGEST_PATH_WINS)
        verify_path_by_path(d, rows, rng, out);
    else
        verify_by_one_uniform(d, rows, rng, flaw, out);
}

const struct rule accept_mutant = {
    .name = "one uniform",
    .summary = "rejection of deterministic siblings by a single uniform, with a flaw",
    .takes = TAKES_DETERMINISTIC | TAKES_TREES,
    .verify = accept_mutant_verify,
};
