// bisect_rule.c - the layout of a draft's uniforms, and struct rule as a black box.
#include <assert.h>
#include <math.h>
#include <stddef.h>

#include "core/acceptance.h"
#include "tests/support/bisect.h"

// ---- layout

int bisect_uniforms(const struct draft *d, int vocab, bool races)
{
    return races ? (draft_max_depth(d) + 1) * vocab : 3 * d->n;
}

int bisect_uniform_index(const struct draft *d, int vocab, struct address at)
{
    switch (at.purpose) {
    case FOR_ACCEPT:
        return at.node;
    case FOR_RESIDUAL:
        return d->n + at.node;
    case FOR_BONUS:
        return 2 * d->n + at.node;
    case FOR_TOKEN:
        return (at.position - BISECT_ROOT - 1) * vocab;
    default:
        assert(!"expected a purpose of a rule");
        return -1;
    }
}

enum purpose bisect_purpose(const struct draft *d, int place, bool races)
{
    return races ? FOR_TOKEN : place < d->n ? FOR_ACCEPT : place < 2 * d->n ? FOR_RESIDUAL : FOR_BONUS;
}

// ---- a rule as a black box

struct given_rng {
    struct rng rng; // first
    struct black_box *box;
    const struct draft *draft;
    const double *u;
    int vocab;
};

// Returns the n uniforms of an address and records that they were read.
static const double *read_uniforms(struct given_rng *s, struct address at, int n)
{
    int index = bisect_uniform_index(s->draft, s->vocab, at);
    struct black_box *b = s->box;
    for (int i = 0; b->n_reads >= 0 && i < n; i++) {
        int k = 0;
        while (k < b->n_reads && b->read[k] != index + i)
            k++;
        if (k == b->n_reads)
            b->read[b->n_reads++] = index + i;
    }
    return s->u + index;
}

static bool given_accept(struct rng *self, double num, double den, struct address at)
{
    return acceptance_of(*read_uniforms((struct given_rng *)self, at, 1), num, den);
}

int pick_by_uniforms(const double *u, const double *weight, int n, struct address at)
{
    double best = INFINITY;
    int winner = -1;
    if (at.purpose != FOR_TOKEN)
        return rng_invert(u[0], weight, n);
    for (int i = 0; i < n; i++) {
        const double time = weight[i] > 0 ? race_time(u[i] + 0x1p-54, weight[i]) : INFINITY;
        winner = time < best ? i : winner;
        best = time < best ? time : best;
    }
    return winner;
}

static int given_pick(struct rng *self, const double *weight, int n, struct address at)
{
    return pick_by_uniforms(read_uniforms((struct given_rng *)self, at, at.purpose == FOR_TOKEN ? n : 1), weight, n,
                            at);
}

static void rule_box_verify(struct black_box *self, const struct draft *d, struct rows *p, const double *u,
                            struct verification *out)
{
    struct rule_box *b = (struct rule_box *)self;
    struct given_rng s = { { given_accept, given_pick, BISECT_ROOT, NULL }, self, d, u, p->vocab };
    self->n_reads = b->reports_reads ? 0 : -1;
    b->rule->verify(b->rule, d, p, b->options, &s.rng, out);
}

struct rule_box bisect_rule(const struct rule *rule, const void *options)
{
    return (struct rule_box){ { rule->drafter_invariant, rule_box_verify, 0, { 0 } }, rule, options, true };
}
