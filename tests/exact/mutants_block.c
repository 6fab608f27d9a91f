// mutants_block.c - block verification as in its paper (Sun et al. 2024, algorithm 2), from the first token to the
// last, with a switch for every flaw. `block` of verifier/rules/traversal.c works from the last token to the first.
#include <assert.h>
#include <math.h>
#include <string.h>
#include "verifier/exact/law.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/exact/mutants.h"

void declared_row(const struct draft *d, int c, double *q, int vocab)
{
    int parent = d->parent[c];
    if (d->proposal[c] == DETERMINISTIC) {
        for (int x = 0; x < vocab; x++)
            q[x] = x == d->token[c];
        return;
    }
    dist_from_row(q, d->q->row(d->q, parent), vocab);
    if (d->proposal[c] != SAMPLED_WITHOUT_REPLACEMENT)
        return;
    for (int s = draft_next_child(d, parent, parent); s < c; s = draft_next_child(d, parent, s))
        q[d->token[s]] = 0;
    dist_normalize(q, vocab);
}

// Writes (b p - q)+ to r (vocab) and returns its sum.
static double residual(const double *p, double b, const double *q, int vocab, double *r)
{
    double sum = 0;
    for (int x = 0; x < vocab; x++)
        sum += r[x] = fmax(b * p[x] - q[x], 0);
    return sum;
}

// b_i, the share of the target's mass that may pass through each draft token.
static void shares(const struct chain *c, enum flaw flaw, double *b)
{
    double product = 1;
    b[0] = 1;
    for (int i = 1; i <= c->n; i++) {
        double ratio = c->p[i - 1][c->token[i]] / c->q[i - 1][c->token[i]];
        product *= ratio;
        b[i] = flaw == UNCAPPED ? product : fmin(1, b[i - 1] * ratio);
        if (flaw == UNCAPPED_LAST && i == c->n)
            b[i] = fmin(1, product);
    }
}

// h_i, the probability that the path reaches at least i.
static double reach_probability(const struct chain *c, const double *b, int i, enum flaw flaw)
{
    double r[LAW_VOCAB];
    int row = flaw == H_OF_PREVIOUS_ROWS ? i - 1 : i;
    if (i == c->n || flaw == H_IS_B)
        return b[i];
    double s = residual(c->p[row], b[i], c->q[row], c->vocab, r), of = s + (1 - b[i]);
    if (b[i] > 1)
        return 1; // or more, as s >= b - 1
    if (flaw == H_IS_S)
        return s;
    if (flaw == STEPS_BACK) { // HSD: sum (q - b p)+, which is equal
        of = 0;
        for (int x = 0; x < c->vocab; x++)
            of += fmax(c->q[row][x] - b[i] * c->p[row][x], 0);
    }
    return of > 0 ? s / of : flaw == NOTHING_OF_NOTHING_IS_ONE;
}

// Number of accepted draft tokens: the largest i whose acceptance test succeeds.
static int length(const struct chain *c, const double *b, enum flaw flaw, struct rng *rng)
{
    int longest = 0;
    if (flaw == STEPS_BACK) {
        for (int i = c->n; i > 0; i--)
            if (rng->accept(rng, reach_probability(c, b, i, flaw), 1,
                            (struct address){ FOR_ACCEPT, rng->root, c->node[i] }))
                return i;
        return 0;
    }
    for (int i = 1; i <= c->n; i++) {
        if (rng->accept(rng, reach_probability(c, b, i, flaw), 1,
                        (struct address){ FOR_ACCEPT, rng->root, c->node[i] }))
            longest = i;
        else if (flaw == BREAKS_AT_FIRST_FAILURE)
            break;
    }
    return longest;
}

void chain_verify(const struct chain *c, const struct draft *d, enum flaw flaw, struct rng *rng,
                  struct verification *out)
{
    double b[LAW_NODES], r[LAW_VOCAB];
    shares(c, flaw, b);
    int last = length(c, b, flaw, rng);
    struct address at = { last == c->n ? FOR_BONUS : FOR_RESIDUAL, rng->root, c->node[last] };
    const double *q = flaw == RESIDUAL_NOT_SKEWED ? c->raw[last] : c->q[last];
    const double *from = r;
    // A residual without mass: caused by some flaws.
    if (last == c->n || residual(c->p[last], flaw == RESIDUAL_OF_ONE_TOKEN ? 1 : b[last], q, c->vocab, r) <= 0)
        from = c->p[last];
    verification_path(out, d, c->node[last], rng->pick(rng, from, c->vocab, at));
}

static void block_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                         struct rng *rng, struct verification *out)
{
    (void)rule;
    struct chain c = { .n = d->n - 1, .vocab = rows->vocab };
    assert(rows->vocab <= LAW_VOCAB);
    for (int i = 0; i < d->n; i++) {
        c.node[i] = i;
        c.token[i] = d->token[i];
        dist_from_row(c.p[i], rows->row(rows, i), rows->vocab);
        if (i > 0)
            declared_row(d, i, c.q[i - 1], rows->vocab);
    }
    memcpy(c.raw, c.q, sizeof(c.raw));
    verification_clear(out, d->n);
    chain_verify(&c, d, *(const enum flaw *)options, rng, out);
}

const struct rule block_mutant = {
    .name = "block, reimplemented",
    .summary = "block verification with a flaw",
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT,
    .verify = block_verify,
};
