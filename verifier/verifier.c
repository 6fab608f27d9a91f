#include "verifier/verifier.h"

#include <assert.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/rng.h"
#include "verifier/logit_rows.h"
#include "verifier/rules/rule.h"

struct verifier {
    struct verifier_setup s;
    struct backend *backend;
    struct kv_cache *cache;
    struct tensor logits;   // (slots * nodes, vocab)
    struct tensor features; // (slots * nodes, width * taps) of the rows that stood
    struct logit_rows p;
    struct verification *verification;       // (slots)
    int32_t *token, *slot, *parent, *picked; // (rows) of a pass
    struct states states;                    // of the pass that was scored last
    int first[MAX_SLOTS];                    // where each draft's rows begin in it
    bool verified_on_device[MAX_SLOTS];      // the device was told to judge this one
    int n_device_rows;                       // how many those are
    // Drafts that are on the device: their rows of the pass, and what is judged there; (slots) each.
    struct device_rows *there;
    struct verify_request *verify_request;
    struct verify_result *verify_result;
    int chunk;
    int64_t watched_ns;
};

static int chunk_of(const struct verifier_setup *s)
{
    return VERIFIER_CHUNK < model_rows(s->target) ? VERIFIER_CHUNK : model_rows(s->target);
}

static struct kv_shape cache_shape(const struct verifier_setup *s)
{
    int chunk = chunk_of(s);
    struct kv_shape shape = model_kv_shape(s->target, s->slots, s->length, s->nodes > chunk ? s->nodes : chunk);
    shape.type = s->cache;
    return shape;
}

size_t verifier_cache_bytes(const struct verifier_setup *s)
{
    struct kv_shape shape = cache_shape(s);
    return kv_bytes(&shape);
}

// Of drafts of as many nodes, in whatever form.
size_t verifier_verify_bytes(const struct verifier_setup *s)
{
    struct backend *b = model_backend(s->target);
    const struct device_draft d = { .most = s->nodes,
                                    .max_depth = s->nodes - 1,
                                    .branches = (s->rule->takes & (TAKES_TREES | TAKES_CHAINS)) != 0 };
    const struct verify_request j = { .device_rule = s->rule->device_rule,
                                      .n = s->nodes,
                                      .there = &d,
                                      .p = tensor_of(NULL, F32, s->nodes, model_shape(s->target)->vocab) };
    return b->verify_bytes != NULL && j.device_rule != DEVICE_NONE ? (size_t)s->slots * b->verify_bytes(b, &j) : 0;
}

size_t verifier_bytes(const struct verifier_setup *s)
{
    const size_t rows = (size_t)s->slots * (size_t)s->nodes;
    const struct model_shape *shape = model_shape(s->target);
    const size_t numbers = (size_t)shape->vocab + (size_t)s->taps.n * (size_t)shape->width;
    return verifier_cache_bytes(s) + rows * numbers * sizeof(float);
}

static bool make(struct tensor *t, struct backend *b, int64_t rows, int64_t width)
{
    *t = rows_on(b, rows, width);
    return t->data != NULL;
}

struct verifier *verifier_create(const struct verifier_setup *s, struct error *err)
{
    const struct model_shape *shape = model_shape(s->target);
    int rows = s->slots * s->nodes;
    assert(s->slots >= 1 && s->slots <= MAX_SLOTS && s->nodes >= 1 && s->nodes <= MAX_NODES);
    if (rows > model_rows(s->target)) {
        fail(err, "a pass over %d slots with drafts of %d nodes has %d rows; the target was opened for %d", s->slots,
             s->nodes, rows, model_rows(s->target));
        return NULL;
    }
    struct verifier *v = xcalloc(1, sizeof(*v));
    v->s = *s;
    v->backend = model_backend(s->target);
    v->chunk = chunk_of(s);
    struct kv_shape cache = cache_shape(s);
    v->cache = kv_create(v->backend, &cache, err);
    bool ok = v->cache != NULL;
    if (ok && (!make(&v->logits, v->backend, rows, shape->vocab) ||
               (s->taps.n > 0 && !make(&v->features, v->backend, rows, (int64_t)s->taps.n * shape->width))))
        ok = fail(err, "%s: no room for the logits of %d rows", v->backend->name, rows);
    logit_rows_create(&v->p, v->backend, s->sampling, s->used_vocab, shape->vocab, s->nodes, s->length);
    v->verification = xcalloc((size_t)s->slots, sizeof(*v->verification));
    for (int i = 0; i < s->slots; i++)
        v->verification[i] = verification_create(s->nodes, shape->vocab);
    size_t most = (size_t)(rows > v->chunk ? rows : v->chunk);
    v->token = xcalloc(most, sizeof(int32_t));
    v->slot = xcalloc(most, sizeof(int32_t));
    v->parent = xcalloc(most, sizeof(int32_t));
    v->picked = xcalloc(most, sizeof(int32_t));
    v->there = xcalloc((size_t)s->slots, sizeof(*v->there));
    v->verify_request = xcalloc((size_t)s->slots, sizeof(*v->verify_request));
    v->verify_result = xcalloc((size_t)s->slots, sizeof(*v->verify_result));
    if (ok)
        return v;
    verifier_destroy(v);
    return NULL;
}

void verifier_destroy(struct verifier *v)
{
    if (v == NULL)
        return;
    for (int i = 0; i < v->s.slots; i++)
        verification_destroy(&v->verification[i]);
    logit_rows_destroy(&v->p);
    kv_destroy(v->cache);
    v->backend->release(v->backend, v->logits.data);
    v->backend->release(v->backend, v->features.data);
    free(v->verification);
    free(v->token);
    free(v->slot);
    free(v->parent);
    free(v->picked);
    free(v->there);
    free(v->verify_request);
    free(v->verify_result);
    free(v);
}

const struct verifier_setup *verifier_setup(const struct verifier *v)
{
    return &v->s;
}

bool verifier_prefill(struct verifier *v, int slot, const int32_t *token, int n, struct advance *a, struct error *err)
{
    struct states states;
    int from = kv_length(v->cache, slot), count = n - 1 - from;
    if (count > v->chunk)
        count = v->chunk;
    *a = (struct advance){ .slot = slot, .n = count, .token = token + from + 1 };
    if (count <= 0) {
        a->n = 0;
        return true;
    }
    for (int i = 0; i < count; i++) {
        v->slot[i] = slot;
        v->parent[i] = i - 1;
        v->picked[i] = i;
    }
    const struct pass pass = { .n = count, .token = token + from, .slot = v->slot, .parent = v->parent };
    if (!model_forward(v->s.target, v->cache, &pass, &v->s.taps, &states, err) || !v->backend->sync(v->backend, err))
        return false;
    kv_keep(v->cache, slot, v->picked, count);
    a->features = states.tapped;
    return true;
}

void verifier_stamp(struct verifier *v, int number)
{
    v->backend->stamp(v->backend, number);
}

bool verifier_queues(const struct verifier *v)
{
    return v->backend->queues;
}

bool verifier_finish(struct verifier *v, struct error *err)
{
    return v->backend->sync(v->backend, err);
}

int64_t verifier_between(struct verifier *v, int from, int to)
{
    return v->backend->between(v->backend, from, to);
}

int64_t verifier_watched_ns(const struct verifier *v)
{
    return v->watched_ns;
}

// ---- looking on, off the clock

static void tell_scored(struct verifier *v, const struct request *r, int first)
{
    const struct step_observer *w = &v->s.observer;
    if (w->scored == NULL)
        return;
    int64_t from = clock_ns();
    w->scored(w->self, r, tensor_rows(v->logits, first, r->draft->n));
    v->watched_ns += clock_ns() - from;
}

static void tell_verified(struct verifier *v, const struct request *r, const struct verification *j)
{
    const struct step_observer *w = &v->s.observer;
    if (w->verified == NULL)
        return;
    int64_t from = clock_ns();
    w->verified(w->self, &(struct verified){ r, &v->p.rows, j });
    v->watched_ns += clock_ns() - from;
}

// ---- drafts that are on the device

static int rows_of(const struct draft *d)
{
    return d->there != NULL ? d->there->most : d->n;
}

// Brings a draft for whoever looks on, or for a rule that the device does not have.
static void fetch(struct verifier *v, struct draft *d)
{
    struct backend *b = v->backend;
    const struct device_draft *t = d->there;
    int32_t n = 1;
    if (t == NULL)
        return;
    b->download(b, &n, t->n, sizeof(n));
    d->n = n >= 1 && n <= t->most ? n : 1; // a device that failed says so at the next sync
    const size_t ids = (size_t)d->n * sizeof(int32_t);
    b->download(b, d->token, t->token, ids);
    b->download(b, d->parent, t->parent, ids);
    b->download(b, t->tag_here, t->tag, ids);
    b->download(b, d->proposal, t->proposal, (size_t)d->n);
}

// Whether the device can judge this draft: it makes the rows, it has the rule, nothing was drawn from rows of the host's.
static bool verified_on_device(const struct verifier *v, const struct request *r)
{
    const struct draft *d = r->draft;
    bool known = true;
    for (int node = 1; node < d->n && d->there == NULL; node++)
        known = known && d->proposal[node] == DETERMINISTIC;
    // A guess of `match` stands however it came about.
    return v->backend->verify != NULL && v->p.on_device && philox_of(r->rng) != NULL &&
           v->s.rule->device_rule != DEVICE_NONE && (known || v->s.rule->device_rule == DEVICE_MATCH);
}

// Draft i, whose rows of probabilities are p, as the device is told of it.
static void put_to_device(struct verifier *v, const struct request *r, int i, struct tensor p, int at)
{
    const struct draft *d = r->draft;
    const struct rule *rule = v->s.rule;
    const struct philox *chance = philox_of(r->rng);
    struct verification *j = &v->verification[i];
    v->verify_request[at] =
        (struct verify_request){ .device_rule = rule->device_rule,
                                 .lenience = rule->lenience != NULL ? rule->lenience(v->s.rule_options) : 1,
                                 .rate = rule->rate != NULL ? rule->rate(v->s.rule_options) : 0,
                                 .n = rows_of(d),
                                 .token = d->token,
                                 .parent = d->parent,
                                 .proposal = d->proposal,
                                 .there = d->there,
                                 .p = p,
                                 .seed = chance->seed,
                                 .sequence = chance->sequence,
                                 .root = chance->rng.root };
    v->verify_result[at] =
        (struct verify_result){ .token = j->token, .node = j->node, .trial_p = j->trial_p, .trial_q = j->trial_q };
    if (d->there != NULL) {
        v->verify_result[at].draft_token = d->token;
        v->verify_result[at].draft_parent = d->parent;
        v->verify_result[at].proposal = d->proposal;
        v->verify_result[at].tag = d->there->tag_here;
    }
}

// The device is to judge all drafts that it can.
static void verify_on_device(struct verifier *v, const struct request *r, int n)
{
    v->n_device_rows = 0;
    for (int i = 0; i < n; i++)
        v->n_device_rows += v->verified_on_device[i] = verified_on_device(v, &r[i]);
    const bool all = v->n_device_rows == n;
    if (v->n_device_rows == 0)
        return;
    if (all)
        logit_rows_make(&v->p, v->logits);
    for (int i = 0, at = 0; i < n; i++)
        if (v->verified_on_device[i]) {
            const struct tensor p = tensor_rows(v->logits, v->first[i], rows_of(r[i].draft));
            if (!all)
                logit_rows_make(&v->p, p);
            put_to_device(v, &r[i], i, p, at++);
        }
    v->backend->verify(v->backend, v->verify_request, v->n_device_rows);
}

// Waits for what it says. false: it failed.
static bool verify_wait(struct verifier *v, const struct request *r, int n, struct error *err)
{
    if (v->n_device_rows == 0)
        return true;
    v->backend->verify_wait(v->backend, v->verify_request, v->verify_result, v->n_device_rows);
    for (int i = 0, at = 0; i < n; i++)
        if (v->verified_on_device[i]) {
            const struct verify_result *from = &v->verify_result[at++];
            if (from->n == 0)
                return v->backend->sync(v->backend, err) ? fail(err, "the device did not judge a draft") : false;
            v->verification[i].n = from->n;
            v->verification[i].empty = from->empty;
            if (r[i].draft->there != NULL)
                r[i].draft->n = from->nodes;
        }
    return true;
}

// ---- a step

bool verifier_score(struct verifier *v, const struct request *r, int n, struct error *err)
{
    int rows = 0, there = 0;

    for (int i = 0; i < n; i++) { // one pass: the drafts' own arrays, end to end
        const struct draft *d = r[i].draft;
        assert(rows_of(d) >= d->n && d->n >= 1 && rows_of(d) <= v->s.nodes);
        v->first[i] = rows;
        if (d->there != NULL)
            v->there[there++] = (struct device_rows){
                .first = rows, .n = d->there->most, .token = d->there->token, .parent = d->there->parent
            };
        for (int k = 0; k < rows_of(d); k++, rows++) {
            v->token[rows] = k < d->n ? d->token[k] : 0;
            v->parent[rows] = k < d->n ? d->parent[k] : -1; // node numbers are the slot's pending rows
            v->slot[rows] = r[i].slot;
        }
    }
    const struct pass pass = {
        .n = rows, .token = v->token, .slot = v->slot, .parent = v->parent, .there = v->there, .n_device_rows = there
    };
    if (!model_forward(v->s.target, v->cache, &pass, &v->s.taps, &v->states, err))
        return false;
    v->logits.rows = rows;
    model_logits(v->s.target, v->logits, v->states.last);
    if (v->s.observer.scored == NULL)
        verify_on_device(v, r, n);
    return true;
}

// Tells, keeps what stood of draft i, and notes its rows in picked[kept..]. Answers how many there are then.
static int keep(struct verifier *v, const struct request *r, int i, int kept, struct advance *a)
{
    const bool made = v->verified_on_device[i];
    struct verification *j = &v->verification[i];
    logit_rows_point(&v->p, v->logits, v->first[i], r, made);
    if (!made)
        v->s.rule->verify(r->draft, &v->p.rows, v->s.rule_options, r->rng, j);
    assert(j->node[0] == 0);
    r->draft->there = NULL;
    tell_verified(v, r, j);
    kv_keep(v->cache, r->slot, j->node, j->n);
    *a = (struct advance){ .slot = r->slot, .n = j->n, .token = j->token, .node = j->node };
    for (int k = 0; k < j->n; k++)
        v->picked[kept++] = v->first[i] + j->node[k];
    return kept;
}

// Whoever wants to see logits sees them before they become probabilities, with the drafts.
static bool look_on(struct verifier *v, const struct request *r, int n, struct error *err)
{
    if (v->s.observer.scored == NULL)
        return true;
    if (!v->backend->sync(v->backend, err))
        return false;
    const int64_t from = clock_ns();
    for (int i = 0; i < n; i++)
        fetch(v, r[i].draft);
    v->watched_ns += clock_ns() - from;
    if (!v->backend->sync(v->backend, err))
        return false;
    for (int i = 0; i < n; i++)
        tell_scored(v, &r[i], v->first[i]);
    verify_on_device(v, r, n);
    return true;
}

bool verifier_accept(struct verifier *v, const struct request *r, int n, struct advance *a, struct error *err)
{
    int kept = 0;
    v->watched_ns = 0;
    if (!look_on(v, r, n, err) || !verify_wait(v, r, n, err))
        return false;
    for (int i = 0; i < n; i++)
        if (!v->verified_on_device[i])
            fetch(v, r[i].draft);
    if (v->n_device_rows < n && !v->backend->sync(v->backend, err)) // judging is not charged for the pass
        return false;
    for (int i = 0; i < n; i++)
        kept = keep(v, &r[i], i, kept, &a[i]);
    if (v->s.taps.n == 0)
        return true;
    v->features.rows = kept;
    v->backend->take(v->backend, v->features, v->states.tapped, v->picked);
    for (int i = 0, at = 0; i < n; at += a[i].n, i++)
        a[i].features = tensor_rows(v->features, at, a[i].n);
    return true;
}

bool verifier_verify(struct verifier *v, const struct request *r, int n, struct advance *a, struct error *err)
{
    return verifier_score(v, r, n, err) && verifier_accept(v, r, n, a, err);
}

const struct verification *verifier_verification(const struct verifier *v, int i)
{
    return &v->verification[i];
}

void verifier_forget(struct verifier *v, int slot)
{
    kv_cut(v->cache, slot, 0);
}
