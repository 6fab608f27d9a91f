#include "verifier/verifier.h"

#include <assert.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "verifier/decisions.h"
#include "verifier/rules/rule.h"
#include "verifier/target_cache.h"

struct verifier {
    struct verifier_setup s;
    struct backend *backend;
    struct kv_cache *cache;
    struct tensor logits;   // (slots * nodes, vocab)
    struct tensor features; // (slots * nodes, width * taps) states of the accepted rows
    struct decisions *decisions;
    struct verification *verification;       // (slots)
    int32_t *token, *slot, *parent, *picked; // (rows) arguments of a pass
    struct states states;                    // states of the last step's pass
    int first[MAX_SLOTS];                    // the first row of each draft in the pass
    struct device_rows *device_rows;         // (slots) rows of drafts that are on the device
    int32_t *top;                            // (rows, s.top) the most probable tokens of each row
    float *top_log_p;                        // (rows, s.top) their log-probabilities
    int chunk;
    int prefilled; // prompt tokens that are done, with a shared cache
    struct verifier_counts counts;
};

struct kv_shape verifier_cache_shape(const struct verifier_setup *s)
{
    int pending = target_chunk(s->target);
    pending = s->nodes > pending ? s->nodes : pending;
    pending = s->cache_rows > pending ? s->cache_rows : pending;
    struct kv_shape shape = model_kv_shape(s->target, s->slots, s->length + s->cache_rows, pending);
    shape.type = s->cache;
    shape.context = s->length;
    return shape;
}

size_t verifier_cache_bytes(const struct verifier_setup *s)
{
    const struct kv_shape shape = verifier_cache_shape(s);
    return s->shared != NULL ? 0 : kv_bytes(&shape);
}

size_t verifier_verify_bytes(const struct verifier_setup *s)
{
    return decisions_bytes(model_backend(s->target), s->rule, s->slots, s->nodes, model_shape(s->target)->vocab);
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
    v->chunk = target_chunk(s->target);
    const struct kv_shape cache = verifier_cache_shape(s);
    v->cache = s->shared != NULL ? target_cache_rows(s->shared) : kv_create(v->backend, &cache, err);
    bool ok = v->cache != NULL;
    if (ok && (!make(&v->logits, v->backend, rows, shape->vocab) ||
               (s->taps.n > 0 && !make(&v->features, v->backend, rows, (int64_t)s->taps.n * shape->width))))
        ok = fail(err, "%s: not enough memory for the logits of %d rows", v->backend->name, rows);
    v->verification = xcalloc((size_t)s->slots, sizeof(*v->verification));
    for (int i = 0; i < s->slots; i++)
        v->verification[i] = verification_create(s->nodes, shape->vocab);
    v->token = xcalloc((size_t)rows, sizeof(int32_t));
    v->slot = xcalloc((size_t)rows, sizeof(int32_t));
    v->parent = xcalloc((size_t)rows, sizeof(int32_t));
    v->picked = xcalloc((size_t)rows, sizeof(int32_t));
    v->device_rows = xcalloc((size_t)s->slots, sizeof(*v->device_rows));
    v->top = xcalloc((size_t)rows * (size_t)s->top, sizeof(*v->top));
    v->top_log_p = xcalloc((size_t)rows * (size_t)s->top, sizeof(*v->top_log_p));
    v->decisions = decisions_create(&(struct decisions_setup){ .backend = v->backend,
                                                               .rule = s->rule,
                                                               .rule_options = s->rule_options,
                                                               .sampling = s->sampling,
                                                               .slots = s->slots,
                                                               .nodes = s->nodes,
                                                               .length = s->length,
                                                               .vocab = shape->vocab,
                                                               .used_vocab = s->used_vocab });
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
    decisions_destroy(v->decisions);
    if (v->s.shared == NULL)
        kv_destroy(v->cache);
    v->backend->release(v->backend, v->logits.data);
    v->backend->release(v->backend, v->features.data);
    free(v->verification);
    free(v->token);
    free(v->slot);
    free(v->parent);
    free(v->picked);
    free(v->device_rows);
    free(v->top);
    free(v->top_log_p);
    free(v);
}

const struct verifier_setup *verifier_setup(const struct verifier *v)
{
    return &v->s;
}

void verifier_observe(struct verifier *v, struct step_observer o)
{
    v->s.observer = o;
}

const struct verifier_counts *verifier_counts(const struct verifier *v)
{
    return &v->counts;
}

// Skips the first tokens of a prompt, which have their rows already.
static void share(struct verifier *v, int tokens)
{
    v->counts.shared_tokens = tokens;
    v->counts.shared_ns = tokens > 0 ? target_cache_ns(v->s.shared, 0, tokens) : 0;
}

// Prefills with the rows of an earlier prompt in the cache: the tokens with which both begin are not computed again.
static bool prefill_shared(struct verifier *v, const int32_t *token, int n, struct advance *a, struct error *err)
{
    const int from = v->prefilled;
    if (from == 0)
        share(v, target_cache_common(v->s.shared, token, n));
    int count = from < v->counts.shared_tokens ? v->counts.shared_tokens - from : n - 1 - from;
    if (count > v->chunk)
        count = v->chunk;
    *a = (struct advance){ .slot = 0, .n = count > 0 ? count : 0, .token = token + from + 1 };
    if (count <= 0)
        return true;
    if (from >= v->counts.shared_tokens && !target_cache_extend(v->s.shared, token, from, count, err))
        return false;
    a->features = target_cache_states(v->s.shared, &v->s.taps, from, count);
    v->prefilled = from + count;
    return true;
}

static bool shares_prompts(const struct verifier *v)
{
    return v->s.shared != NULL && target_cache_shares(v->s.shared);
}

bool verifier_prefill(struct verifier *v, int slot, const int32_t *token, int n, struct advance *a, struct error *err)
{
    if (shares_prompts(v))
        return prefill_shared(v, token, n, a, err);
    struct states states;
    const int from = kv_length(v->cache, slot);
    int count = n - 1 - from;
    if (count > v->chunk)
        count = v->chunk;
    *a = (struct advance){ .slot = slot, .n = count, .token = token + from + 1 };
    if (count <= 0) {
        a->n = 0;
        return true;
    }
    if (!model_append(v->s.target, v->cache, slot, token + from, count, &v->s.taps, &states, err))
        return false;
    a->features = states.tapped;
    return true;
}

// ---- the observer, outside the measured time

static void observe_scored(struct verifier *v, const struct scored *s)
{
    const struct step_observer *w = &v->s.observer;
    int64_t from = clock_ns();
    for (int i = 0; i < s->n; i++)
        w->scored(w->self, &s->request[i], tensor_rows(s->logits, s->first[i], s->request[i].draft->n));
    v->counts.observer_ns += clock_ns() - from;
}

static void observe_verified(struct verifier *v, const struct request *r, const struct verification *j)
{
    const struct step_observer *w = &v->s.observer;
    if (w->verified == NULL)
        return;
    int64_t from = clock_ns();
    w->verified(w->self, &(struct verified){ r, decisions_rows(v->decisions), j });
    v->counts.observer_ns += clock_ns() - from;
}

// An observer of logits sees them, and the drafts, before they become probabilities, so decisions begin after it.
static bool observe(struct verifier *v, const struct scored *s, struct error *err)
{
    if (v->s.observer.scored == NULL)
        return true;
    if (!v->backend->sync(v->backend, err))
        return false;
    const int64_t from = clock_ns();
    for (int i = 0; i < s->n; i++)
        draft_fetch(v->backend, s->request[i].draft);
    v->counts.observer_ns += clock_ns() - from;
    if (!v->backend->sync(v->backend, err))
        return false;
    observe_scored(v, s);
    decisions_begin(v->decisions, s);
    return true;
}

// ---- a step

static struct scored scored_of(struct verifier *v, const struct request *r, int n)
{
    return (struct scored){ r, n, v->first, v->logits, v->verification };
}

bool verifier_score(struct verifier *v, const struct request *r, int n, struct error *err)
{
    int rows = 0, on_device = 0;

    for (int i = 0; i < n; i++) { // one pass takes the drafts' own arrays, end to end
        const struct draft *d = r[i].draft;
        const int nodes = draft_max_nodes(d);
        assert(nodes >= d->n && d->n >= 1 && nodes <= v->s.nodes);
        v->first[i] = rows;
        if (d->on_device != NULL)
            v->device_rows[on_device++] = (struct device_rows){
                .first = rows, .n = nodes, .token = d->on_device->token, .parent = d->on_device->parent
            };
        for (int k = 0; k < nodes; k++, rows++) {
            v->token[rows] = k < d->n ? d->token[k] : 0;
            v->parent[rows] = k < d->n ? d->parent[k] : -1; // node numbers are the slot's pending rows
            v->slot[rows] = r[i].slot;
        }
    }
    const struct pass pass = { .n = rows,
                               .token = v->token,
                               .slot = v->slot,
                               .parent = v->parent,
                               .device_rows = v->device_rows,
                               .n_device_rows = on_device };
    const int64_t before = model_experts_touched(v->s.target);
    if (!model_forward(v->s.target, v->cache, &pass, &v->s.taps, &v->states, err))
        return false;
    v->counts.experts = model_experts_touched(v->s.target) - before;
    v->logits.rows = rows;
    model_logits(v->s.target, v->logits, v->states.last);
    if (v->s.top > 0) // top tokens are read before the logits become probabilities
        v->backend->best(v->backend, v->logits, v->s.top, v->top, v->top_log_p);
    const struct scored s = scored_of(v, r, n);
    if (v->s.observer.scored == NULL)
        decisions_begin(v->decisions, &s);
    return true;
}

// Decides request i, keeps the accepted rows of the cache, and appends them to picked[*kept..].
static bool keep(struct verifier *v, const struct scored *s, int i, int *kept, struct advance *a, struct error *err)
{
    const struct request *r = &s->request[i];
    struct verification *j = &v->verification[i];
    if (!decisions_decide(v->decisions, s, i, err))
        return false;
    assert(j->node[0] == 0);
    observe_verified(v, r, j);
    kv_keep(v->cache, r->slot, j->node, j->n);
    *a = (struct advance){ .slot = r->slot,
                           .n = j->n,
                           .token = j->token,
                           .node = j->node,
                           .draft = r->draft,
                           .top = v->top + (size_t)v->first[i] * (size_t)v->s.top,
                           .top_k = v->s.top };
    for (int k = 0; k < j->n; k++)
        v->picked[(*kept)++] = v->first[i] + j->node[k];
    return true;
}

bool verifier_accept(struct verifier *v, const struct request *r, int n, struct advance *a, struct error *err)
{
    const struct scored s = scored_of(v, r, n);
    int kept = 0;
    v->counts.observer_ns = 0;
    if (!observe(v, &s, err) || !decisions_wait(v->decisions, &s, err))
        return false;
    for (int i = 0; i < n; i++)
        if (!keep(v, &s, i, &kept, &a[i], err))
            return false;
    if (v->s.taps.n == 0)
        return true;
    v->features.rows = kept;
    v->backend->take(v->backend, v->features, v->states.tapped, v->picked);
    for (int i = 0, at = 0; i < n; at += a[i].n, i++)
        a[i].features = tensor_rows(v->features, at, a[i].n);
    return true;
}

struct verification *verifier_verification(struct verifier *v, int i)
{
    return &v->verification[i];
}

struct kv_cache *verifier_cache(struct verifier *v)
{
    return v->cache;
}

void verifier_forget(struct verifier *v, int slot)
{
    v->prefilled = 0;
    share(v, 0);
    if (shares_prompts(v))
        target_cache_forget(v->s.shared);
    else
        kv_truncate(v->cache, slot, 0);
}
