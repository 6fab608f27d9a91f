#include "exact/bisect.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "exact/bisect_parts.h"
#include "exact/law.h"
#include "sampling/outcomes.h"

enum { MOST_CELLS = 200000 };

// ---- asking

struct outcome bisect_ask(struct survey *s, const uint64_t *k)
{
    double u[BISECT_PLACES];
    struct outcome o = { 0 };
    for (int i = 0; i < s->places; i++)
        u[i] = (double)k[i] * 0x1p-53;
    s->box->verify(s->box, &s->draft_batch.draft, &s->draft_batch.p.rows, u, &s->out);
    s->found.runs++;
    o.n = s->out.n < 0 ? 0 : s->out.n > LAW_NODES ? LAW_NODES : s->out.n;
    memcpy(o.token, s->out.token, (size_t)o.n * sizeof(o.token[0]));
    memcpy(o.node, s->out.node, (size_t)o.n * sizeof(o.node[0]));
    return o;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    size_t size = (size_t)a->n * sizeof(a->token[0]);
    return a->n == b->n && memcmp(a->token, b->token, size) == 0 && memcmp(a->node, b->node, size) == 0;
}

void bisect_put_out(struct survey *s, const struct outcome *o, double share)
{
    size_t text = 0;
    s->found.cells++;
    s->found.sound = s->found.sound && draft_is_path(&s->draft_batch.draft, o->node, o->token, o->n, s->in->vocab);
    for (int i = 0; s->found.sound && i < o->n; i++)
        text = text * (size_t)s->in->vocab + 1 + (size_t)o->token[i];
    s->mass[text] += s->probability * share;
}

// ---- cells

struct cell {
    uint64_t low[BISECT_PLACES], high[BISECT_PLACES]; // (places) the first and the last in it
    int turns[BISECT_PLACES];                         // (places) how often it was cut there
};

struct edge {
    int place;
    uint64_t last; // of the lower part
};

// At k the outcome is `here`, with k[place] = to it is another: where it changes.
static struct edge bisect(struct survey *s, uint64_t *k, int place, uint64_t to, const struct outcome *here)
{
    uint64_t from = k[place];
    while (from + 1 != to && to + 1 != from) {
        k[place] = from < to ? from + (to - from) / 2 : to + (from - to) / 2;
        struct outcome o = bisect_ask(s, k);
        *(same(&o, here) ? &from : &to) = k[place];
    }
    return (struct edge){ place, from < to ? from : to };
}

// Along the axis of one place through k.
static bool edge_on_axis(struct survey *s, const struct cell *c, uint64_t *k, int place, const struct outcome *here,
                         struct edge *e)
{
    const uint64_t middle = k[place], end[] = { c->low[place], c->high[place] };
    for (int i = 0; i < 2; i++) {
        if (end[i] == middle)
            continue;
        k[place] = end[i];
        struct outcome there = bisect_ask(s, k);
        k[place] = middle;
        if (same(&there, here))
            continue;
        *e = bisect(s, k, place, end[i], here);
        return true;
    }
    return false;
}

// At a corner or a point by chance. The way there goes along one axis after another.
static bool edge_on_the_way(struct survey *s, const struct cell *c, uint64_t *k, bool corner,
                            const struct outcome *here, struct edge *e)
{
    uint64_t to[BISECT_PLACES];
    for (int i = 0; i < s->places; i++) {
        uint64_t at_random = splitmix(&s->dice), width = c->high[i] - c->low[i];
        to[i] = corner ? (at_random >> 63 ? c->high[i] : c->low[i]) : c->low[i] + at_random % (width + 1);
    }
    struct outcome there = bisect_ask(s, to);
    if (same(&there, here))
        return false;
    s->found.surprises++;
    for (int i = 0; i < s->places; i++) {
        uint64_t from = k[i];
        k[i] = to[i];
        there = bisect_ask(s, k);
        if (same(&there, here))
            continue;
        k[i] = from;
        *e = bisect(s, k, i, to[i], here);
        return true;
    }
    s->found.sound = false; // or it is not a function of its uniforms
    return false;
}

// k: the middle, where the outcome is `here`. Used up.
static bool find_edge(struct survey *s, const struct cell *c, uint64_t *k, const struct outcome *here, struct edge *e)
{
    int look[BISECT_PLACES], looks = s->box->looks; // of the run in the middle, which was the last
    memcpy(look, s->box->look, sizeof(look));
    for (int i = 0; i < (looks < 0 ? s->places : looks); i++)
        if (edge_on_axis(s, c, k, looks < 0 ? i : look[i], here, e))
            return true;
    for (int i = 0; i < BISECT_CHECKS; i++)
        if (edge_on_the_way(s, c, k, i % 2 == 0, here, e))
            return true;
    return false;
}

static void cut(struct survey *s, struct cell *c)
{
    uint64_t k[BISECT_PLACES];
    double share = 1;
    struct edge e;
    for (int i = 0; i < s->places; i++) {
        k[i] = c->low[i] + (c->high[i] - c->low[i]) / 2;
        share *= (double)(c->high[i] - c->low[i] + 1) * 0x1p-53;
    }
    struct outcome here = bisect_ask(s, k);
    s->found.sound = s->found.sound && s->found.cells < MOST_CELLS;
    if (!s->found.sound || !find_edge(s, c, k, &here, &e)) {
        bisect_put_out(s, &here, share);
        return;
    }
    const uint64_t high = c->high[e.place], low = c->low[e.place];
    c->turns[e.place]++;
    if (bisect_purpose(&s->draft_batch.draft, e.place, false) == FOR_ACCEPT && c->turns[e.place] > s->found.turns)
        s->found.turns = c->turns[e.place];
    c->high[e.place] = e.last;
    cut(s, c);
    c->high[e.place] = high;
    c->low[e.place] = e.last + 1;
    cut(s, c);
    c->low[e.place] = low;
    c->turns[e.place]--;
}

// ---- the law

static void survey_draft(struct survey *s)
{
    s->places = bisect_places(&s->draft_batch.draft, s->in->vocab, s->box->races);
    assert(s->places <= BISECT_PLACES);
    s->found.drafts++;
    struct cell c = { .turns = { 0 } };
    for (int i = 0; i < s->places; i++)
        c.high[i] = BISECT_LAST;
    if (s->box->races)
        bisect_race(s, c.low, 0, 1);
    else
        cut(s, &c);
}

struct bisected bisect_examine(const struct instance *in, struct black_box *box)
{
    size_t texts = (size_t)in->prefixes * (size_t)in->vocab + 1;
    struct survey s = { .in = in, .box = box, .found = { .sound = true, .instances = 1 } };
    double *own = xcalloc(texts, sizeof(*own)), all = 0;
    struct outcomes o;
    s.mass = xcalloc(texts, sizeof(*s.mass));
    s.out = verification_create(LAW_NODES, in->vocab);
    outcomes_begin(&o);
    o.rng.root = BISECT_ROOT;
    while (outcomes_next(&o)) {
        instance_draft(in, &o.rng, 0, &s.draft_batch);
        s.probability = outcomes_probability(&o);
        survey_draft(&s);
    }
    outcomes_end(&o);
    for (size_t i = 0; i < texts; i++)
        all += s.mass[i];
    s.found.lost = fabs(1 - all);
    s.found.distance = law_distance(in, s.mass, own);
    for (size_t i = 0; i < texts; i++)
        if (own[i] == 0)
            s.found.impossible = law_greater(s.found.impossible, s.mass[i]);
    verification_destroy(&s.out);
    free(s.mass);
    free(own);
    return s.found;
}

void bisect_worse_of(struct bisected *worst, const struct bisected *one)
{
    worst->distance = law_greater(worst->distance, one->distance);
    worst->lost = law_greater(worst->lost, one->lost);
    worst->impossible = law_greater(worst->impossible, one->impossible);
    worst->bend = law_greater(worst->bend, one->bend);
    worst->sound = (worst->instances == 0 || worst->sound) && one->sound;
    worst->turns = one->turns > worst->turns ? one->turns : worst->turns;
    worst->surprises += one->surprises;
    worst->contradictions += one->contradictions;
    worst->instances += one->instances;
    worst->drafts += one->drafts;
    worst->cells += one->cells;
    worst->runs += one->runs;
}
