#include "tests/exact/shared_randomness.h"

static bool sharing_accept(struct rng *self, double num, double den, struct address at)
{
    struct rng *of = ((struct sharing *)self)->of;
    return of->accept(of, num, den, at);
}

static int sharing_pick(struct rng *self, const double *weight, int n, struct address at)
{
    const struct sharing *s = (const struct sharing *)self;
    if (at.purpose == FOR_RESIDUAL)
        at = (struct address){ s->with, at.position, at.node + 1 };
    return s->of->pick(s->of, weight, n, at);
}

struct sharing sharing_source(struct rng *of, enum purpose with)
{
    return (struct sharing){ { sharing_accept, sharing_pick, of->root, NULL }, of, with };
}
