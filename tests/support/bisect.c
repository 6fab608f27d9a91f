#include "tests/support/bisect.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "verifier/exact/law.h"
#include "sampling/outcomes.h"
#include "tests/support/bisect_parts.h"

enum { MAX_CELLS = 200000 };

// ---- runs of the box

struct outcome bisect_run(struct survey *s, const uint64_t *k)
{
    double u[BISECT_UNIFORMS];
    struct outcome o = { 0 };
    for (int i = 0; i < s->uniforms; i++)
        u[i] = (double)k[i] * 0x1p-53;
    s->box->verify(s->box, &s->table_draft.draft, &s->table_draft.p.rows, u, &s->out);
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

void bisect_add_mass(struct survey *s, const struct outcome *o, double share)
{
    size_t text = 0;
    s->found.cells++;
    s->found.sound = s->found.sound && draft_is_path(&s->table_draft.draft, o->node, o->token, o->n, s->in->vocab);
    for (int i = 0; s->found.sound && i < o->n; i++)
        text = text * (size_t)s->in->vocab + 1 + (size_t)o->token[i];
    s->mass[text] += s->probability * share;
}

// ---- cells

struct cell {
    uint64_t low[BISECT_UNIFORMS], high[BISECT_UNIFORMS]; // (uniforms) its first and last grid number
    int cuts[BISECT_UNIFORMS];                            // (uniforms) number of cuts along the axis
};

struct edge {
    int axis;      // number of the uniform
    uint64_t last; // grid number of the lower part
};

// Finds the edge between k, where the outcome is `here`, and k[axis] = to, where it is another.
static struct edge bisect(struct survey *s, uint64_t *k, int axis, uint64_t to, const struct outcome *here)
{
    uint64_t from = k[axis];
    while (from + 1 != to && to + 1 != from) {
        k[axis] = from < to ? from + (to - from) / 2 : to + (from - to) / 2;
        struct outcome o = bisect_run(s, k);
        *(same(&o, here) ? &from : &to) = k[axis];
    }
    return (struct edge){ axis, from < to ? from : to };
}

// Finds an edge along one axis through k. Returns false if there is none.
static bool edge_on_axis(struct survey *s, const struct cell *c, uint64_t *k, int axis, const struct outcome *here,
                         struct edge *e)
{
    const uint64_t middle = k[axis], end[] = { c->low[axis], c->high[axis] };
    for (int i = 0; i < 2; i++) {
        if (end[i] == middle)
            continue;
        k[axis] = end[i];
        struct outcome o = bisect_run(s, k);
        k[axis] = middle;
        if (same(&o, here))
            continue;
        *e = bisect(s, k, axis, end[i], here);
        return true;
    }
    return false;
}

// Tries a corner or a random point. If its outcome differs, moves there along one axis after another until an edge is
// crossed.
static bool edge_towards_point(struct survey *s, const struct cell *c, uint64_t *k, bool corner,
                               const struct outcome *here, struct edge *e)
{
    uint64_t to[BISECT_UNIFORMS];
    for (int i = 0; i < s->uniforms; i++) {
        uint64_t at_random = splitmix(&s->random_state), width = c->high[i] - c->low[i];
        to[i] = corner ? (at_random >> 63 ? c->high[i] : c->low[i]) : c->low[i] + at_random % (width + 1);
    }
    struct outcome o = bisect_run(s, to);
    if (same(&o, here))
        return false;
    s->found.hidden_edges++;
    for (int i = 0; i < s->uniforms; i++) {
        uint64_t from = k[i];
        k[i] = to[i];
        o = bisect_run(s, k);
        if (same(&o, here))
            continue;
        k[i] = from;
        *e = bisect(s, k, i, to[i], here);
        return true;
    }
    s->found.sound = false; // the box is not a function of its uniforms
    return false;
}

// k: the middle of the cell, where the outcome is `here`; overwritten.
static bool find_edge(struct survey *s, const struct cell *c, uint64_t *k, const struct outcome *here, struct edge *e)
{
    int read[BISECT_UNIFORMS], n_reads = s->box->n_reads; // of the last run, in the middle
    memcpy(read, s->box->read, sizeof(read));
    for (int i = 0; i < (n_reads < 0 ? s->uniforms : n_reads); i++)
        if (edge_on_axis(s, c, k, n_reads < 0 ? i : read[i], here, e))
            return true;
    for (int i = 0; i < BISECT_CHECKS; i++)
        if (edge_towards_point(s, c, k, i % 2 == 0, here, e))
            return true;
    return false;
}

static void cut(struct survey *s, struct cell *c)
{
    uint64_t k[BISECT_UNIFORMS];
    double share = 1;
    struct edge e;
    for (int i = 0; i < s->uniforms; i++) {
        k[i] = c->low[i] + (c->high[i] - c->low[i]) / 2;
        share *= (double)(c->high[i] - c->low[i] + 1) * 0x1p-53;
    }
    struct outcome here = bisect_run(s, k);
    s->found.sound = s->found.sound && s->found.cells < MAX_CELLS;
    if (!s->found.sound || !find_edge(s, c, k, &here, &e)) {
        bisect_add_mass(s, &here, share);
        return;
    }
    const uint64_t high = c->high[e.axis], low = c->low[e.axis];
    c->cuts[e.axis]++;
    if (bisect_purpose(&s->table_draft.draft, e.axis, false) == FOR_ACCEPT && c->cuts[e.axis] > s->found.max_cuts)
        s->found.max_cuts = c->cuts[e.axis];
    c->high[e.axis] = e.last;
    cut(s, c);
    c->high[e.axis] = high;
    c->low[e.axis] = e.last + 1;
    cut(s, c);
    c->low[e.axis] = low;
    c->cuts[e.axis]--;
}

// ---- the law

static void survey_draft(struct survey *s)
{
    s->uniforms = bisect_uniforms(&s->table_draft.draft, s->in->vocab, s->box->races);
    assert(s->uniforms <= BISECT_UNIFORMS);
    s->found.drafts++;
    struct cell c = { .cuts = { 0 } };
    for (int i = 0; i < s->uniforms; i++)
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
        instance_draft(in, &o.rng, 0, &s.table_draft);
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
            s.found.impossible = law_max(s.found.impossible, s.mass[i]);
    verification_destroy(&s.out);
    free(s.mass);
    free(own);
    return s.found;
}

void bisect_merge_worst(struct bisected *worst, const struct bisected *one)
{
    worst->distance = law_max(worst->distance, one->distance);
    worst->lost = law_max(worst->lost, one->lost);
    worst->impossible = law_max(worst->impossible, one->impossible);
    worst->ratio_spread = law_max(worst->ratio_spread, one->ratio_spread);
    worst->sound = (worst->instances == 0 || worst->sound) && one->sound;
    worst->max_cuts = one->max_cuts > worst->max_cuts ? one->max_cuts : worst->max_cuts;
    worst->hidden_edges += one->hidden_edges;
    worst->contradictions += one->contradictions;
    worst->instances += one->instances;
    worst->drafts += one->drafts;
    worst->cells += one->cells;
    worst->runs += one->runs;
}
