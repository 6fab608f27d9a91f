#include "experiments/replay/replay_source.h"

#include <stddef.h>

#include "experiments/replay/recorded_drafts.h"

static bool source_accept(struct rng *self, double num, double den, struct address at)
{
    struct replay_source *s = (struct replay_source *)self;
    return s->philox.rng.accept(&s->philox.rng, num, den, at);
}

static int source_pick(struct rng *self, const double *weight, int n, struct address at)
{
    struct replay_source *s = (struct replay_source *)self;
    return s->philox.rng.pick(&s->philox.rng, weight, n, at);
}

static int source_pick_row(struct rng *self, const float *weight, int n, struct address at)
{
    struct replay_source *s = (struct replay_source *)self;
    const struct kept_row *r = at.purpose == FOR_TOKEN ? recorded_row_of(s->rows, weight) : NULL;
    if (r != NULL && r->rest > 0 && r->drawn.token >= 0 && r->drawn.position == at.position)
        return r->drawn.token;
    s->uncertain = s->uncertain || (r != NULL && r->rest > 0);
    return s->philox.rng.pick_row(&s->philox.rng, weight, n, at);
}

struct replay_source replay_source_of(uint64_t seed, int64_t sequence, int root, const struct recorded_rows *rows)
{
    return (struct replay_source){ .rng = { source_accept, source_pick, root, source_pick_row },
                                   .philox = philox_source(seed, (uint64_t)sequence),
                                   .rows = rows };
}
