#include "experiments/replay/replay_source.h"

#include <math.h>
#include <stddef.h>

#include "core/acceptance.h"
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

static double race_uniform(const struct philox *p, struct address at, int token) // as in rng.c: never 0
{
    return philox_uniform(p->seed, p->sequence, at, (uint32_t)token) + 0x1p-54;
}

// The winner among the entries that are there; its time.
static int kept_winner(const struct philox *p, const struct kept_row *r, struct address at, double *best)
{
    int winner = r->token[0];
    *best = INFINITY;
    for (int i = 0; i < r->n; i++) {
        const double u = race_uniform(p, at, r->token[i]), w = grid_round((double)r->p[i]);
        const double time = w > 0 ? race_time(u, w) : INFINITY;
        if (time < *best) {
            *best = time;
            winner = r->token[i];
        }
    }
    return winner;
}

static int incomplete_race(struct replay_source *s, const struct kept_row *r, int n, struct address at)
{
    double best;
    const int winner = kept_winner(&s->philox, r, at, &best);
    const double most = fmin((double)r->bound, r->rest), margin = 1 + 0x1p-40;
    for (int x = 0, i = 0; x < n && !s->uncertain; x++) {
        if (i < r->n && r->token[i] == x)
            i++;
        else
            s->uncertain = race_may_win(race_uniform(&s->philox, at, x), most, best * margin);
    }
    return winner;
}

static int source_pick_row(struct rng *self, const float *weight, int n, struct address at)
{
    struct replay_source *s = (struct replay_source *)self;
    const struct kept_row *r = at.purpose == FOR_TOKEN ? recorded_row_of(s->rows, weight) : NULL;
    if (r != NULL && r->rest > 0)
        return incomplete_race(s, r, n, at);
    return s->philox.rng.pick_row(&s->philox.rng, weight, n, at);
}

struct replay_source replay_source_of(uint64_t seed, int64_t sequence, int root, const struct recorded_rows *rows)
{
    return (struct replay_source){ .rng = { source_accept, source_pick, root, source_pick_row },
                                   .philox = philox_source(seed, (uint64_t)sequence),
                                   .rows = rows };
}
