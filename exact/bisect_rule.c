// bisect_rule.c - where the uniforms of a draft stand, and our own rules as boxes that are given them.
#include <assert.h>
#include <stddef.h>

#include "exact/bisect.h"

// ---- places

int bisect_places(const struct draft *d, int vocab, bool races)
{
    return races ? (draft_max_depth(d) + 1) * vocab : 3 * d->n;
}

int bisect_place(const struct draft *d, int vocab, struct address at)
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
        assert(!"a rule does not draft");
        return -1;
    }
}

enum purpose bisect_purpose(const struct draft *d, int place, bool races)
{
    return races ? FOR_TOKEN : place < d->n ? FOR_ACCEPT : place < 2 * d->n ? FOR_RESIDUAL : FOR_BONUS;
}

// ---- a rule as a box

struct script {
    struct rng rng; // first
    struct black_box *box;
    const struct draft *draft;
    const double *u;
    int vocab;
};

// The uniforms of an address, n of them; and that they were looked at is written down.
static const double *look_at(struct script *s, struct address at, int n)
{
    int place = bisect_place(s->draft, s->vocab, at);
    struct black_box *b = s->box;
    for (int i = 0; b->looks >= 0 && i < n; i++) {
        int k = 0;
        while (k < b->looks && b->look[k] != place + i)
            k++;
        if (k == b->looks)
            b->look[b->looks++] = place + i;
    }
    return s->u + place;
}

static bool script_accept(struct rng *self, double num, double den, struct address at)
{
    return rng_accept_of(*look_at((struct script *)self, at, 1), num, den);
}

static int script_pick(struct rng *self, const double *weight, int n, struct address at)
{
    return rng_pick_of(look_at((struct script *)self, at, at.purpose == FOR_TOKEN ? n : 1), weight, n, at);
}

static void rule_judge(struct black_box *self, const struct draft *d, struct rows *p, const double *u,
                       struct verification *out)
{
    struct rule_box *b = (struct rule_box *)self;
    struct script s = { { script_accept, script_pick, BISECT_ROOT, NULL }, self, d, u, p->vocab };
    self->looks = b->tells ? 0 : -1;
    b->rule->verify(d, p, b->options, &s.rng, out);
}

struct rule_box bisect_rule(const struct rule *rule, const void *options)
{
    return (struct rule_box){ { rule == rule_named("match"), rule_judge, 0, { 0 } }, rule, options, true };
}
