// recording_rng.c - what was drawn from what.
#include "tests/exact/recording_rng.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/memory.h"
#include "sampling/dist.h"
#include "tests/exact/mutants.h"
#include "tests/support/numbers.h"

static bool pass_accept(struct rng *self, double num, double den, struct address at)
{
    struct rng *source = ((struct witness *)self)->source;
    return source->accept(source, num, den, at);
}

// Takes weight over.
static void note(struct witness *w, int token, double *weight, int n)
{
    assert(w->n < MAX_NODES);
    w->drawing[w->n++] = (struct drawing){ token, n, weight };
}

static int noting_pick(struct rng *self, const double *weight, int n, struct address at)
{
    struct witness *w = (struct witness *)self;
    int x = w->source->pick(w->source, weight, n, at);
    if (at.purpose != FOR_DRAFT)
        return x;
    double *copy = xcalloc((size_t)n, sizeof(*copy));
    memcpy(copy, weight, (size_t)n * sizeof(*copy));
    dist_normalize(copy, n);
    note(w, x, copy, n);
    return x;
}

static int noting_pick_row(struct rng *self, const float *weight, int n, struct address at)
{
    struct witness *w = (struct witness *)self;
    double *copy = xcalloc((size_t)n, sizeof(*copy));
    int x = rng_pick_row(w->source, weight, n, at, copy);
    dist_from_row(copy, weight, n);
    if (at.purpose == FOR_DRAFT)
        note(w, x, copy, n);
    else
        free(copy);
    return x;
}

void witness_begin(struct witness *w, struct rng *source)
{
    w->rng =
        (struct rng){ .accept = pass_accept, .pick = noting_pick, .root = source->root, .pick_row = noting_pick_row };
    w->source = source;
    w->n = 0;
}

void witness_end(struct witness *w)
{
    for (int i = 0; i < w->n; i++)
        free(w->drawing[i].weight);
    w->n = 0;
}

static double distance(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += fabs(a[i] - b[i]) / 2;
    return sum;
}

struct honesty witness_compare(const struct witness *w, const struct draft *d)
{
    struct honesty h = { 0, 0 };
    int drawn = 0;
    for (int node = 1; node < d->n; node++) {
        if (d->proposal[node] == DETERMINISTIC)
            continue;
        const struct drawing *g = &w->drawing[drawn++];
        if (drawn > w->n || g->token != d->token[node] || g->n != d->q->vocab) {
            h.foreign_tokens++;
            continue;
        }
        double *q = xcalloc((size_t)g->n, sizeof(*q));
        declared_row(d, node, q, g->n);
        h.distance = worse(h.distance, distance(q, g->weight, g->n));
        free(q);
    }
    h.foreign_tokens += w->n > drawn ? w->n - drawn : 0;
    return h;
}
