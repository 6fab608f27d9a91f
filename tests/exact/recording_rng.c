// recording_rng.c - records the picks of a drafter.
#include "tests/exact/recording_rng.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/memory.h"
#include "sampling/dist.h"
#include "tests/exact/mutants.h"
#include "tests/support/numbers.h"

static bool recording_accept(struct rng *self, double num, double den, struct address at)
{
    struct rng *source = ((struct recording_rng *)self)->source;
    return source->accept(source, num, den, at);
}

// Takes ownership of weight.
static void record(struct recording_rng *w, int token, double *weight, int n)
{
    assert(w->n < MAX_NODES);
    w->recorded_pick[w->n++] = (struct recorded_pick){ token, n, weight };
}

static int recording_pick(struct rng *self, const double *weight, int n, struct address at)
{
    struct recording_rng *w = (struct recording_rng *)self;
    int x = w->source->pick(w->source, weight, n, at);
    if (at.purpose != FOR_DRAFT)
        return x;
    double *copy = xcalloc((size_t)n, sizeof(*copy));
    memcpy(copy, weight, (size_t)n * sizeof(*copy));
    dist_normalize(copy, n);
    record(w, x, copy, n);
    return x;
}

static int recording_pick_row(struct rng *self, const float *weight, int n, struct address at)
{
    struct recording_rng *w = (struct recording_rng *)self;
    double *copy = xcalloc((size_t)n, sizeof(*copy));
    int x = rng_pick_row(w->source, weight, n, at, copy);
    dist_from_row(copy, weight, n);
    if (at.purpose == FOR_DRAFT)
        record(w, x, copy, n);
    else
        free(copy);
    return x;
}

void recording_rng_begin(struct recording_rng *w, struct rng *source)
{
    w->rng = (struct rng){
        .accept = recording_accept, .pick = recording_pick, .root = source->root, .pick_row = recording_pick_row
    };
    w->source = source;
    w->n = 0;
}

void recording_rng_end(struct recording_rng *w)
{
    for (int i = 0; i < w->n; i++)
        free(w->recorded_pick[i].weight);
    w->n = 0;
}

static double distance(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += fabs(a[i] - b[i]) / 2;
    return sum;
}

// The row's mass without the tokens of node's earlier siblings.
static double mass_left(const struct draft *d, int node)
{
    const int parent = d->parent[node], vocab = d->q->vocab;
    const float *row = d->q->row(d->q, parent);
    double left = dist_row_sum(row, vocab);
    for (int s = draft_next_child(d, parent, parent); s < node && d->proposal[node] == SAMPLED_WITHOUT_REPLACEMENT;
         s = draft_next_child(d, parent, s))
        left -= (double)row[d->token[s]];
    return left;
}

struct proposal_error recording_rng_compare(const struct recording_rng *w, const struct draft *d)
{
    struct proposal_error h = { 0, 0 };
    int sampled = 0;
    for (int node = 1; node < d->n; node++) {
        if (d->proposal[node] == DETERMINISTIC)
            continue;
        const struct recorded_pick *g = &w->recorded_pick[sampled++];
        if (sampled > w->n || g->token != d->token[node] || g->n != d->q->vocab) {
            h.foreign_tokens++;
            continue;
        }
        double *q = xcalloc((size_t)g->n, sizeof(*q));
        declared_row(d, node, q, g->n);
        h.distance = worse(h.distance, distance(q, g->weight, g->n) * mass_left(d, node));
        free(q);
    }
    h.foreign_tokens += w->n > sampled ? w->n - sampled : 0;
    return h;
}
