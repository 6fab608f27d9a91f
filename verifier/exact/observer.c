#include "verifier/exact/observer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/rejection.h"
#include "verifier/rules/rule.h"
#include "verifier/verifier.h"

// ---- negative controls

static const double lenience = 1.1, deterministic_q = 0.75;

static void verify_leniently(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                             struct rng *rng, struct verification *out)
{
    (void)options;
    rejection_walk(rule, d, rows, &(struct acceptance_test){ lenience, 0 }, rng, out);
}

// Replaces q by q^(3/4), normalised: q at temperature 4/3.
static void flatten(double *q, int vocab)
{
    for (int i = 0; i < vocab; i++) {
        double root = sqrt(q[i]);
        q[i] = root * sqrt(root);
    }
    dist_normalize(q, vocab);
}

// Writes the row that child c of node is assumed to be sampled from to q, and returns its entry of c's token. For a
// DETERMINISTIC child q is not written.
static double assumed_q(const struct draft *d, int node, int c, bool wrong, double *q, int vocab)
{
    if (d->proposal[c] == DETERMINISTIC)
        return wrong ? deterministic_q : 1;
    proposal_row(d, node, c, q, vocab);
    if (wrong)
        flatten(q, vocab);
    return q[d->token[c]];
}

// A plain version of the walk of rejection.c, with two optional mistakes.
static void walk(const struct draft *d, struct rows *rows, bool wrong, bool resample, struct rng *rng,
                 struct verification *out)
{
    const int vocab = rows->vocab;
    double *p = out->work, *q = p + vocab;
    int node = 0;
    verification_clear(out, d->n);
    for (int accepted = 0; accepted >= 0;) {
        dist_from_row(p, rows->row(rows, node), vocab);
        accepted = -1;
        for (int c = draft_next_child(d, node, node); c >= 0 && accepted < 0; c = draft_next_child(d, node, c)) {
            double m = assumed_q(d, node, c, wrong, q, vocab);
            if (rng->accept(rng, p[d->token[c]], m, (struct address){ FOR_ACCEPT, rng->root, c }))
                accepted = c;
            else if (d->proposal[c] == DETERMINISTIC)
                dist_remove(p, vocab, d->token[c]);
            else
                dist_residual(p, q, vocab);
        }
        if (accepted >= 0) {
            verification_add(out, node, d->token[accepted]);
            node = accepted;
        }
    }
    if (resample)
        dist_from_row(p, rows->row(rows, node), vocab);
    verification_add(out, node, rng->pick(rng, p, vocab, (struct address){ FOR_RESIDUAL, rng->root, node }));
}

static void verify_and_resample(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                                struct rng *rng, struct verification *out)
{
    (void)rule;
    (void)options;
    walk(d, rows, false, true, rng, out);
}

static void verify_by_wrong_q(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                              struct rng *rng, struct verification *out)
{
    (void)rule;
    (void)options;
    walk(d, rows, true, false, rng, out);
}

static const struct rule lenient = { .name = "lenience 1.1",
                                     .summary = "accepts with probability min(1, 1.1 p / q)",
                                     .verify = verify_leniently };
static const struct rule resampling = { .name = "resampling from p",
                                        .summary = "after a rejection samples from p itself",
                                        .verify = verify_and_resample };
static const struct rule wrong_q = { .name = "a wrong q",
                                     .summary = "q at temperature 4/3; q = 3/4 for deterministic tokens",
                                     .verify = verify_by_wrong_q };

const struct rule *const negative_control[NEGATIVE_CONTROLS] = {
    [CONTROL_LENIENT] = &lenient, [CONTROL_RESAMPLE] = &resampling, [CONTROL_WRONG_Q] = &wrong_q
};

// ---- the observer

struct observed_text {
    int64_t sequence;
    struct uniforms last[STREAMS];
    struct observed seen;
};

struct observer {
    struct observer_setup s;
    struct observed_text *text;       // (slots)
    struct verification verification; // the decision of the current stream
    float *masked;                    // (vocab) a row of q without earlier siblings
    double *p, *q;                    // (vocab) scratch
    double *end;                      // (nodes) end_probabilities
    char *failed;                     // why the control could not decide; NULL: it could
};

const char *stream_name(int stream)
{
    static const char *const names[] = { "text", "control", "drafter" };
    return stream < STREAM_NEGATIVE_CONTROLS ? names[stream]
                                             : negative_control[stream - STREAM_NEGATIVE_CONTROLS]->name;
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
    free(o->failed);
    free(o);
}

const char *observer_failed(const struct observer *o)
{
    return o->failed;
}

void observer_start(struct observer *o, int slot, int64_t sequence)
{
    struct observed_text *t = &o->text[slot];
    *t = (struct observed_text){ .sequence = sequence };
    for (int k = 0; k < STREAMS; k++)
        t->last[k] = evidence_start;
}

// Returns the Philox key of a stream. Odd multiples make the keys of all streams, and of the run, distinct.
static uint64_t key(const struct observer *o, int stream)
{
    return o->s.seed ^ (2 * (uint64_t)stream + 1) * 0x9e3779b97f4a7c15u;
}

static double uniform(const struct observer *o, const struct observed_text *t, int stream, struct address at,
                      uint32_t index)
{
    return philox_uniform(key(o, stream) + 1, (uint64_t)t->sequence, at, index);
}

// ---- tokens against the rows of their places

// Writes the tokens of node's deterministic children to `deterministic` (MAX_NODES) and returns their number. *sampled:
// whether node has sampled children.
static int draft_tokens(const struct draft *d, int node, int32_t *deterministic, bool *sampled)
{
    int n = 0;
    *sampled = false;
    for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c))
        if (d->proposal[c] == DETERMINISTIC)
            deterministic[n++] = d->token[c];
        else
            *sampled = true;
    return n;
}

static void add_tokens(struct observer *o, struct observed_text *t, int stream, const struct verified *step,
                       const struct verification *v)
{
    const struct draft *d = step->request->draft;
    const int vocab = step->p->vocab;
    int32_t deterministic[MAX_NODES];
    for (int i = 0; i < v->n; i++) {
        const int node = v->node[i];
        bool sampled;
        struct observed_token s = {
            .vocab = vocab, .p = step->p->row(step->p, node), .deterministic = deterministic, .index = i
        };
        s.n_deterministic = draft_tokens(d, node, deterministic, &sampled);
        s.p_sum = dist_row_sum(s.p, vocab);
        s.q = sampled ? d->q->row(d->q, node) : NULL;
        s.q_sum = sampled ? dist_row_sum(s.q, vocab) : 0;
        s.token = v->token[i];
        s.before = d->token[node];
        s.end = o->s.end;
        s.bonus = draft_next_child(d, node, node) < 0;
        s.u = uniform(o, t, stream, (struct address){ FOR_TOKEN, step->request->n, i }, 0);
        t->last[stream] = evidence_add(&t->seen.of[stream], &s, t->last[stream]);
    }
}

// ---- draft tokens against the rows that the drafter declared

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

// Adds the evidence with p and q exchanged: the draft token against the row q that it must have been sampled from.
static void add_draft_tokens(struct observer *o, struct observed_text *t, const struct verified *step)
{
    const struct draft *d = step->request->draft;
    for (int c = 1; c < d->n; c++) {
        if (d->proposal[c] == DETERMINISTIC)
            continue;
        const int parent = d->parent[c];
        struct observed_token s = { .vocab = step->p->vocab,
                                    .p = declared_row(o, d, c),
                                    .q = step->p->row(step->p, parent) };
        s.p_sum = dist_row_sum(s.p, s.vocab);
        s.q_sum = dist_row_sum(s.q, s.vocab);
        s.token = d->token[c];
        s.before = d->token[parent];
        s.end = o->s.end;
        s.index = draft_depth(d, c) - 1;
        s.u = uniform(o, t, STREAM_DRAFTER, (struct address){ FOR_DRAFT, step->request->n, c }, 0);
        t->last[STREAM_DRAFTER] = evidence_add(&t->seen.of[STREAM_DRAFTER], &s, t->last[STREAM_DRAFTER]);
    }
}

// Returns the cell, one of SQUARE, of token x in the distribution w (vocab, not normalised), by id.
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

// A single sampled draft token that was rejected has the distribution (q - p)+, and its replacement (p - q)+. The two
// are independent: shared randomness of drafter and rule shows here.
static void add_rejected(struct observer *o, struct observed_text *t, const struct verified *step)
{
    const struct draft *d = step->request->draft;
    const struct verification *v = step->verification;
    const int vocab = step->p->vocab, node = v->node[v->n - 1], c = draft_next_child(d, node, node);
    if (!o->s.rule->replaces_by_residual || c < 0 || d->proposal[c] != SAMPLED || draft_next_child(d, node, c) >= 0)
        return;
    dist_from_row(o->p, step->p->row(step->p, node), vocab);
    dist_from_row(o->q, d->q->row(d->q, node), vocab);
    for (int i = 0; i < vocab; i++) {
        double more = o->p[i] - o->q[i];
        o->p[i] = more > 0 ? more : 0;
        o->q[i] = more < 0 ? -more : 0;
    }
    const int rejected = d->token[c], replacement = v->token[v->n - 1];
    if (o->q[rejected] <= 0 || o->p[replacement] <= 0)
        return; // rounding: impossible tokens are counted in the evidence of the text
    const struct address at = { FOR_RESIDUAL, step->request->n, node };
    t->seen.rejected[cell(o->q, vocab, rejected, uniform(o, t, STREAM_TEXT, at, 0))]
                    [cell(o->p, vocab, replacement, uniform(o, t, STREAM_TEXT, at, 1))]++;
}

// ---- a step

static void add_acceptance(struct observer *o, struct observed_text *t, const struct verified *step)
{
    const struct draft *d = step->request->draft;
    double mean = 0, square = 0;
    t->seen.steps++;
    t->seen.drafted += d->n - 1;
    t->seen.max_depth = fmax(t->seen.max_depth, draft_max_depth(d));
    if (o->s.rule->end_probabilities == NULL)
        return;
    o->s.rule->end_probabilities(o->s.rule, d, step->p, o->s.rule_options, o->end);
    for (int v = 0; v < d->n; v++) {
        const double depth = draft_depth(d, v);
        mean += o->end[v] * depth;
        square += o->end[v] * depth * depth;
    }
    t->seen.accepted += step->verification->n - 1;
    t->seen.expected += mean;
    t->seen.variance += fmax(square - mean * mean, 0);
}

static void verify_again(struct observer *o, struct observed_text *t, int stream, const struct verified *step)
{
    const bool again = stream == STREAM_CONTROL;
    const struct rule *rule = again ? o->s.rule : negative_control[stream - STREAM_NEGATIVE_CONTROLS];
    struct philox source = philox_source(key(o, stream), (uint64_t)t->sequence);
    // The root differs from the run's: these tokens do not advance the text, and `match` would draw for the same places
    // in the next step.
    source.rng.root = (int32_t)t->seen.steps * MAX_NODES;
    rule->verify(rule, step->request->draft, step->p, again ? o->s.rule_options : NULL, &source.rng, &o->verification);
    if (again && o->verification.failed != NULL && o->failed == NULL)
        o->failed = xstrdup(o->verification.failed);
    add_tokens(o, t, stream, step, &o->verification);
}

void observer_verified(struct observer *o, const struct verified *step)
{
    struct observed_text *t = &o->text[step->request->slot];
    add_tokens(o, t, STREAM_TEXT, step, step->verification);
    add_draft_tokens(o, t, step);
    add_rejected(o, t, step);
    add_acceptance(o, t, step);
    verify_again(o, t, STREAM_CONTROL, step);
    for (int k = 0; k < NEGATIVE_CONTROLS; k++)
        verify_again(o, t, STREAM_NEGATIVE_CONTROLS + k, step);
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
