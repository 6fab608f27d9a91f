// states.c - passes over conversations end to end: a pass takes the next rows of them, wherever conversations begin and end.
//
// A conversation has a slot while it has rows in the cache. Logits exist for a few rows at a time: 50 MB of them would leave no
// cache to the probabilities.
#include "commands/features/states.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "commands/features/texts.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/top_k.h"

enum { SLOTS = 8, LOGIT_ROWS = 64 };

struct states_pass {
    struct states_setup s;
    struct backend *backend;
    struct kv_cache *cache;        // recreated for a longer conversation
    int length;                    // its capacity, tokens of a conversation
    int rows;                      // of a pass
    struct tensor logits;          // (LOGIT_ROWS, vocab)
    float *copy;                   // (rows, taps * width), (LOGIT_ROWS, vocab) of a device with memory of its own
    int32_t *slot, *parent, *kept; // (rows)
};

void text_states_free(struct text_states *s)
{
    free(s->state);
    free(s->top_id);
    free(s->top_p);
    *s = (struct text_states){ 0 };
}

static int64_t state_width(const struct states_setup *s)
{
    return (int64_t)s->taps.n * model_shape(s->target->model)->width;
}

size_t states_row_bytes(const struct states_setup *s)
{
    return (size_t)state_width(s) * (s->type == BF16 ? sizeof(uint16_t) : sizeof(float));
}

struct states_pass *states_create(const struct states_setup *s, int rows, struct error *err)
{
    struct states_pass *p = xcalloc(1, sizeof(*p));
    const int64_t vocab = model_shape(s->target->model)->vocab;
    const int64_t states = rows * state_width(s), logits = LOGIT_ROWS * vocab;
    assert(rows <= model_rows(s->target->model) && s->top_k <= s->target->used_vocab);
    p->s = *s;
    p->backend = s->target->backend;
    p->rows = rows;
    p->slot = xcalloc((size_t)rows, sizeof(*p->slot));
    p->parent = xcalloc((size_t)rows, sizeof(*p->parent));
    p->kept = xcalloc((size_t)rows, sizeof(*p->kept));
    for (int i = 0; i < rows; i++)
        p->kept[i] = i;
    p->logits = rows_on(p->backend, LOGIT_ROWS, vocab);
    if (p->logits.data == NULL) {
        fail(err, "%s: not enough memory for the logits of %d rows", p->backend->name, LOGIT_ROWS);
        states_destroy(p);
        return NULL;
    }
    if (p->backend->host(p->backend, p->logits.data) == NULL)
        p->copy = xmalloc((size_t)(states > logits ? states : logits) * sizeof(*p->copy));
    return p;
}

void states_destroy(struct states_pass *p)
{
    if (p == NULL)
        return;
    kv_destroy(p->cache);
    p->backend->release(p->backend, p->logits.data);
    free(p->copy);
    free(p->slot);
    free(p->parent);
    free(p->kept);
    free(p);
}

// A pass admits all its rows of a slot before any is kept, so nothing is needed beyond the longest conversation.
static bool reserve_cache(struct states_pass *p, const struct texts *t, struct error *err)
{
    int64_t longest = 1;
    for (int i = 0; i < t->n; i++)
        if (t->offset[i + 1] - t->offset[i] > longest)
            longest = t->offset[i + 1] - t->offset[i];
    if (p->cache != NULL && longest <= p->length)
        return true;
    kv_destroy(p->cache);
    p->length = (int)longest;
    struct kv_shape shape = model_kv_shape(p->s.target->model, SLOTS, p->length, p->rows);
    shape.type = p->s.target->cache;
    p->cache = kv_create(p->backend, &shape, err);
    return p->cache != NULL;
}

static void reserve_states(struct states_pass *p, int64_t tokens, struct text_states *to)
{
    if (tokens <= to->capacity)
        return;
    text_states_free(to);
    to->capacity = tokens;
    to->state = xmalloc((size_t)tokens * states_row_bytes(&p->s));
    to->top_id = xmalloc((size_t)(tokens * p->s.top_k) * sizeof(*to->top_id));
    to->top_p = xmalloc((size_t)(tokens * p->s.top_k) * sizeof(*to->top_p));
}

// The rows of t on the host, valid until the next call.
static float *on_host(struct states_pass *p, struct tensor t)
{
    float *host = p->backend->host(p->backend, t.data);
    if (host != NULL)
        return host;
    p->backend->download(p->backend, p->copy, t.data, tensor_bytes(t));
    return p->copy;
}

static bool store_states(const struct states_pass *p, const float *from, int64_t first, int64_t rows, void *to,
                         struct error *err)
{
    void *at = (char *)to + (size_t)first * states_row_bytes(&p->s);
    return quantize_floats(p->s.type, from, rows * state_width(&p->s), at) ||
           fail(err, "a state of the target is not finite as %s", type_facts[p->s.type].name);
}

static bool store_top(struct states_pass *p, struct tensor last, int64_t first, struct text_states *to,
                      struct error *err)
{
    struct backend *b = p->backend;
    const int vocab = (int)p->logits.width, k = p->s.top_k;
    for (int64_t at = 0; at < last.rows; at += LOGIT_ROWS) {
        const int64_t n = last.rows - at < LOGIT_ROWS ? last.rows - at : LOGIT_ROWS;
        const struct tensor logits = tensor_rows(p->logits, 0, n);
        model_logits(p->s.target->model, logits, tensor_rows(last, at, n));
        if (!b->sync(b, err))
            return false;
        float *x = on_host(p, logits);
        if (!b->sync(b, err))
            return false;
        top_k_rows(b->workers(b), x, (int)n, vocab, p->s.target->used_vocab, k, to->top_id + (first + at) * k,
                   to->top_p + (first + at) * k);
    }
    return true;
}

// One pass over the next rows from token `first`, which is of conversation *c. Sets *c to that of the row after them. Returns the
// number of rows, 0 on failure.
static int compute_rows(struct states_pass *p, const struct texts *t, int64_t first, int *c, struct text_states *to,
                        struct error *err)
{
    struct backend *b = p->backend;
    int n = 0, kept[SLOTS];
    const int begin = *c;
    for (; *c < t->n && *c < begin + SLOTS && n < p->rows; ++*c) {
        const int64_t left = t->offset[*c + 1] - (first + n);
        const int rows = left < p->rows - n ? (int)left : p->rows - n;
        for (int i = 0; i < rows; i++) {
            p->slot[n + i] = *c % SLOTS;
            p->parent[n + i] = i - 1;
        }
        kept[*c - begin] = rows;
        n += rows;
        if (rows < left)
            break;
    }
    const struct pass pass = { .n = n, .token = t->id + first, .slot = p->slot, .parent = p->parent };
    struct states states;
    if (!model_forward(p->s.target->model, p->cache, &pass, &p->s.taps, &states, err) || !b->sync(b, err))
        return 0;
    if (p->s.taps.n > 0) {
        const float *tapped = on_host(p, states.tapped);
        if (!b->sync(b, err))
            return 0;
        if (!store_states(p, tapped, first, n, to->state, err))
            return 0;
    }
    for (int i = begin; i < t->n && i < begin + SLOTS && t->offset[i] < first + n; i++) {
        kv_keep(p->cache, i % SLOTS, p->kept, kept[i - begin]);
        if (t->offset[i + 1] <= first + n)
            kv_truncate(p->cache, i % SLOTS, 0);
    }
    return store_top(p, states.last, first, to, err) ? n : 0;
}

bool states_compute(struct states_pass *p, const struct texts *t, struct text_states *to, const volatile int *stop,
                    struct error *err)
{
    if (!reserve_cache(p, t, err))
        return false;
    reserve_states(p, t->offset[t->n], to);
    for (int i = 0; i < SLOTS; i++) // an earlier call may have failed halfway
        kv_truncate(p->cache, i, 0);
    int c = 0;
    for (int64_t first = 0; first < t->offset[t->n];) {
        const int n = interrupt_check(stop, err) ? compute_rows(p, t, first, &c, to, err) : 0;
        if (n == 0)
            return false;
        first += n;
    }
    return true;
}
