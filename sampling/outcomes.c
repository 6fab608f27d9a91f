// outcomes.c - depth-first enumeration: repeat a prefix of decisions, then take the first branch of each new one.
#include "sampling/outcomes.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include "core/memory.h"

static bool same_address(struct address a, struct address b)
{
    return a.purpose == b.purpose && a.position == b.position && a.node == b.node;
}

// Decisions from the i-th on are new ones.
static void stray(struct outcomes *o, int i)
{
    assert(o->may_stray);
    o->strayed = true;
    o->prefix = i;
}

// Returns the next decision of this run: one of the prefix, or a new one whose first branch is `first`.
static struct decision *decide(struct outcomes *o, struct address at, int first)
{
    for (int i = 0; i < o->n; i++)
        o->repeated += same_address(o->decision[i].at, at);
    array_reserve(o->decision, o->capacity, o->n + 1);
    struct decision *d = &o->decision[o->n];
    if (o->n < o->prefix && !same_address(d->at, at))
        stray(o, o->n);
    if (o->n >= o->prefix)
        *d = (struct decision){ .at = at, .taken = first, .probability = NAN };
    o->n++;
    return d;
}

static void set_probability(struct outcomes *o, struct decision *d, double probability)
{
    if (!isnan(d->probability) && d->probability != probability)
        stray(o, o->n);
    d->probability = probability;
}

static bool outcomes_accept(struct rng *self, double num, double den, struct address at)
{
    struct outcomes *o = (struct outcomes *)self;
    if (num <= 0)
        return false;
    if (num >= den)
        return true;
    struct decision *d = decide(o, at, 0);
    set_probability(o, d, d->taken == 0 ? num / den : 1 - num / den);
    d->next = d->taken == 0 ? 1 : -1;
    return d->taken == 0;
}

static int next_possible(const double *weight, int n, int after)
{
    for (int i = after + 1; i < n; i++)
        if (weight[i] > 0)
            return i;
    return -1;
}

static int outcomes_pick(struct rng *self, const double *weight, int n, struct address at)
{
    struct outcomes *o = (struct outcomes *)self;
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += weight[i];
    assert(sum > 0);
    const int first = next_possible(weight, n, -1);
    struct decision *d = decide(o, at, first);
    if (d->taken >= n || !(weight[d->taken] > 0)) {
        stray(o, o->n);
        d->taken = first;
    }
    set_probability(o, d, weight[d->taken] / sum);
    d->next = next_possible(weight, n, d->taken);
    return d->taken;
}

void outcomes_begin(struct outcomes *o)
{
    *o = (struct outcomes){ .rng = { outcomes_accept, outcomes_pick, 0, NULL } };
}

// The last decision with another branch takes it; earlier decisions form the prefix, later ones are dropped.
bool outcomes_next(struct outcomes *o)
{
    if (o->runs > 0) {
        outcomes_ended(o);
        while (o->n > 0 && o->decision[o->n - 1].next < 0)
            o->n--;
        if (o->n == 0)
            return false;
        o->decision[o->n - 1].taken = o->decision[o->n - 1].next;
        o->decision[o->n - 1].probability = NAN;
    }
    o->prefix = o->n;
    o->n = 0;
    o->runs++;
    return true;
}

void outcomes_again(struct outcomes *o)
{
    o->prefix = o->n;
    o->n = 0;
}

bool outcomes_ended(struct outcomes *o)
{
    if (o->n < o->prefix)
        stray(o, o->n);
    return !o->strayed;
}

double outcomes_probability(const struct outcomes *o)
{
    double p = 1;
    for (int i = 0; i < o->n; i++)
        p *= o->decision[i].probability;
    return p;
}

void outcomes_end(struct outcomes *o)
{
    free(o->decision);
    o->decision = NULL;
    o->n = o->capacity = 0;
}
