#include "exact/observer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/proposal.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

struct observed_text {
    int64_t sequence;
    int drawn; // guesses looked at so far: numbers their uniforms
    struct uniforms last[STREAMS];
    struct observed seen;
};

struct observer {
    struct observer_setup s;
    struct observed_text *text;       // (slots)
    struct verification verification; // of the stream in hand
    float *masked;                    // (vocab) a row of q without earlier siblings
    double *p, *q;                    // (vocab) to work in
    double *end;                      // (nodes) a law
};

const char *stream_name(int stream)
{
    static const char *const names[] = { "text", "control", "drafter" };
    return stream < NEGATIVE_CONTROL_SET ? names[stream] : negative_control[stream - NEGATIVE_CONTROL_SET]->name;
}

struct observer *observer_create(const struct observer_setup *s)
{
    struct observer *o = xcalloc(1, sizeof(*o));
    const size_t vocab = (size_t)s->vocab;
    o->s = *s;
    o->text = xcalloc((size_t)s->slots, sizeof(*o->text));
    o->verification = verification_create(s->nodes, s->vocab);
    o->masked = xcalloc(vocab, sizeof(*o->masked));
    o->p = xcalloc(vocab, sizeof(*o->p));
    o->q = xcalloc(vocab, sizeof(*o->q));
    o->end = xcalloc((size_t)s->nodes, sizeof(*o->end));
    return o;
}

void observer_destroy(struct observer *o)
{
    if (o == NULL)
        return;
    verification_destroy(&o->verification);
    free(o->text);
    free(o->masked);
    free(o->p);
    free(o->q);
    free(o->end);
    free(o);
}

void observer_start(struct observer *o, int slot, int64_t sequence)
{
    struct observed_text *t = &o->text[slot];
    *t = (struct observed_text){ .sequence = sequence };
    for (int k = 0; k < STREAMS; k++)
        t->last[k] = evidence_start;
}

// Chance of a stream's own. Odd multiples keep the keys of streams, and of the run, apart.
static uint64_t key(const struct observer *o, int stream)
{
    return o->s.seed ^ (2 * (uint64_t)stream + 1) * 0x9e3779b97f4a7c15u;
}

static double uniform(const struct observer *o, const struct observed_text *t, int stream, struct address at,
                      uint32_t index)
{
    return philox_uniform(key(o, stream) + 1, (uint64_t)t->sequence, at, index);
}

// ---- tokens beside the rows they came from

// The guesses for the place behind node: chosen (room for MAX_NODES), and whether any was drawn.
static int draft_tokens(const struct draft *d, int node, int32_t *chosen, bool *drawn)
{
    int n = 0;
    *drawn = false;
    for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c))
        if (d->proposal[c] == DETERMINISTIC)
            chosen[n++] = d->token[c];
        else
            *drawn = true;
    return n;
}

static void see_tokens(struct observer *o, struct observed_text *t, int stream, const struct verified *j,
                       const struct verification *said)
{
    const struct draft *d = j->request->draft;
    const int vocab = j->p->vocab;
    int32_t chosen[MAX_NODES];
    for (int i = 0; i < said->n; i++) {
        const int node = said->node[i];
        bool drawn;
        struct token_seen s = { .vocab = vocab, .p = j->p->row(j->p, node), .chosen = chosen, .index = i };
        s.n_deterministic = draft_tokens(d, node, chosen, &drawn);
        s.p_sum = dist_row_sum(s.p, vocab);
        s.q = drawn ? d->q->row(d->q, node) : NULL;
        s.q_sum = drawn ? dist_row_sum(s.q, vocab) : 0;
        s.token = said->token[i];
        s.before = d->token[node];
        s.end = o->s.end;
        s.bonus = draft_next_child(d, node, node) < 0;
        s.u = uniform(o, t, stream, (struct address){ FOR_TOKEN, j->request->n, i }, 0);
        t->last[stream] = evidence_add(&t->seen.of[stream], &s, t->last[stream]);
    }
}

// ---- the drafter's word

static const float *declared_row(struct observer *o, const struct draft *d, int c)
{
    const int parent = d->parent[c];
    const float *q = d->q->row(d->q, parent);
    if (d->proposal[c] != SAMPLED_WITHOUT_REPLACEMENT || c == draft_next_child(d, parent, parent))
        return q;
    memcpy(o->masked, q, (size_t)d->q->vocab * sizeof(*q));
    for (int s = draft_next_child(d, parent, parent); s < c; s = draft_next_child(d, parent, s))
        o->masked[d->token[s]] = 0;
    return o->masked;
}

// The same evidence with the parts exchanged: the guess is the token, q the row that it must have come from.
static void see_guesses(struct observer *o, struct observed_text *t, const struct verified *j)
{
    const struct draft *d = j->request->draft;
    for (int c = 1; c < d->n; c++) {
        if (d->proposal[c] == DETERMINISTIC)
            continue;
        const int parent = d->parent[c];
        struct token_seen s = { .vocab = j->p->vocab, .p = declared_row(o, d, c), .q = j->p->row(j->p, parent) };
        s.p_sum = dist_row_sum(s.p, s.vocab);
        s.q_sum = dist_row_sum(s.q, s.vocab);
        s.token = d->token[c];
        s.before = d->token[parent];
        s.end = o->s.end;
        s.index = draft_depth(d, c) - 1;
        s.u = uniform(o, t, THE_DRAFTER, (struct address){ FOR_DRAFT, j->request->n, c }, 0);
        t->last[THE_DRAFTER] = evidence_add(&t->seen.of[THE_DRAFTER], &s, t->last[THE_DRAFTER]);
    }
}

// Where x falls in the law w (vocab, not normalised), by id: its cell of SQUARE.
static int cell(const double *w, int vocab, int x, double u)
{
    double before = 0, all = 0;
    for (int i = 0; i < vocab; i++) {
        before += i < x ? w[i] : 0;
        all += w[i];
    }
    int at = (int)(SQUARE * ((before + u * w[x]) / all));
    return at < SQUARE ? at : SQUARE - 1;
}

// Under rejection a single drawn guess that fell has the law (q - p)+, and what came instead (p - q)+, each given that
// it fell, and neither knows of the other: chance that drafter and rule share shows here.
static void see_what_fell(struct observer *o, struct observed_text *t, const struct verified *j)
{
    const struct draft *d = j->request->draft;
    const struct verification *said = j->verification;
    const int vocab = j->p->vocab, node = said->node[said->n - 1], c = draft_next_child(d, node, node);
    if (strcmp(o->s.rule->name, "rejection") != 0 || c < 0 || d->proposal[c] != SAMPLED ||
        draft_next_child(d, node, c) >= 0)
        return;
    dist_from_row(o->p, j->p->row(j->p, node), vocab);
    dist_from_row(o->q, d->q->row(d->q, node), vocab);
    for (int i = 0; i < vocab; i++) {
        double more = o->p[i] - o->q[i];
        o->p[i] = more > 0 ? more : 0;
        o->q[i] = more < 0 ? -more : 0;
    }
    const int rejected = d->token[c], came = said->token[said->n - 1];
    if (o->q[rejected] <= 0 || o->p[came] <= 0)
        return; // rounding: the evidence of the text speaks of what is impossible
    const struct address at = { FOR_RESIDUAL, j->request->n, node };
    t->seen.rejected[cell(o->q, vocab, rejected, uniform(o, t, THE_TEXT, at, 0))]
                    [cell(o->p, vocab, came, uniform(o, t, THE_TEXT, at, 1))]++;
}

// ---- a step

static void see_acceptance(struct observer *o, struct observed_text *t, const struct verified *j)
{
    const struct draft *d = j->request->draft;
    double mean = 0, square = 0;
    t->seen.steps++;
    t->seen.drafted += d->n - 1;
    t->seen.max_depth = fmax(t->seen.max_depth, draft_max_depth(d));
    if (o->s.rule->law == NULL)
        return;
    o->s.rule->law(d, j->p, o->s.rule_options, o->end);
    for (int v = 0; v < d->n; v++) {
        const double depth = draft_depth(d, v);
        mean += o->end[v] * depth;
        square += o->end[v] * depth * depth;
    }
    t->seen.accepted += j->verification->n - 1;
    t->seen.expected += mean;
    t->seen.variance += fmax(square - mean * mean, 0);
}

static void judge_once_more(struct observer *o, struct observed_text *t, int stream, const struct verified *j)
{
    const bool again = stream == THE_CONTROL;
    const struct rule *rule = again ? o->s.rule : negative_control[stream - NEGATIVE_CONTROL_SET];
    struct philox source = philox_source(key(o, stream), (uint64_t)t->sequence);
    // not the run's root: what this judge says goes nowhere, and `match` would draw for the same places in the next
    // step
    source.rng.root = (int32_t)t->seen.steps * MAX_NODES;
    rule->verify(j->request->draft, j->p, again ? o->s.rule_options : NULL, &source.rng, &o->verification);
    see_tokens(o, t, stream, j, &o->verification);
}

void observer_verified(void *self, const struct verified *j)
{
    struct observer *o = self;
    struct observed_text *t = &o->text[j->request->slot];
    see_tokens(o, t, THE_TEXT, j, j->verification);
    see_guesses(o, t, j);
    see_what_fell(o, t, j);
    see_acceptance(o, t, j);
    judge_once_more(o, t, THE_CONTROL, j);
    for (int k = 0; k < NEGATIVE_CONTROLS; k++)
        judge_once_more(o, t, NEGATIVE_CONTROL_SET + k, j);
}

// ---- sums

void observed_join(struct observed *to, const struct observed *from)
{
    const double max_depth = fmax(to->max_depth, from->max_depth);
    evidence_sum((double *)to, (const double *)from, OBSERVED_DOUBLES);
    to->max_depth = max_depth;
}

void observer_take(struct observer *o, int slot, struct observed *to)
{
    observed_join(to, &o->text[slot].seen);
}
