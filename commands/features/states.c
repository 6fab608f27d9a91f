#include "commands/features/states.h"

#include <assert.h>
#include <stdlib.h>

#include "commands/features/texts.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/logits.h"

// SLOTS: texts in a pass. LOGIT_ROWS: rows whose logits exist at a time; 50 MB of logits would leave no cache to the
// probabilities.
enum { SLOTS = 8, LOGIT_ROWS = 64, LENGTH_UNIT = 64 };

static size_t row_bytes(const struct text_states *s)
{
    return type_row_bytes(s->type, (int64_t)s->taps.n * model_shape(s->target->model)->width);
}

static bool store_states(struct text_states *s, struct tensor tapped, int64_t first, struct error *err)
{
    const float *x = rows_read(s->target->backend, tapped, &s->copy, err);
    return x != NULL &&
           (quantize_floats(s->type, x, tapped.rows * tapped.width, (char *)s->state + (size_t)first * row_bytes(s)) ||
            fail(err, "a state of the target is not finite as %s", type_facts[s->type].name));
}

static bool store_top(struct text_states *s, struct tensor last, int64_t first, struct error *err)
{
    struct backend *b = s->target->backend;
    for (int64_t at = 0; at < last.rows; at += LOGIT_ROWS) {
        const int64_t n = last.rows - at < LOGIT_ROWS ? last.rows - at : LOGIT_ROWS;
        const struct tensor logits = tensor_rows(s->logits, 0, n);
        model_logits(s->target->model, logits, tensor_rows(last, at, n));
        float *x = rows_read(b, logits, &s->copy, err);
        if (x == NULL)
            return false;
        top_k_rows(b->workers(b), x, (int)n, (int)logits.width, s->target->used_vocab, s->top_k,
                   s->top_id + (first + at) * s->top_k, s->top_p + (first + at) * s->top_k);
    }
    return true;
}

bool text_states_open(struct text_states *s, int rows, struct error *err)
{
    struct backend *b = s->target->backend;
    assert(s->top_k <= s->target->used_vocab && rows <= model_rows(s->target->model) && rows <= TARGET_ROWS);
    s->rows = rows;
    s->logits = rows_on(b, LOGIT_ROWS, model_shape(s->target->model)->vocab);
    return s->logits.data != NULL || fail(err, "%s: not enough memory for the logits of %d rows", b->name, LOGIT_ROWS);
}

void text_states_close(struct text_states *s)
{
    kv_destroy(s->cache);
    if (s->logits.data != NULL)
        s->target->backend->release(s->target->backend, s->logits.data);
    free(s->copy);
    free(s->state);
    free(s->top_id);
    free(s->top_p);
}

// A pass admits all its rows of a slot before any is kept, so nothing is needed beyond the longest text.
static bool reserve_cache(struct text_states *s, const struct texts *t, struct error *err)
{
    int64_t longest = 1;
    for (int i = 0; i < t->n; i++)
        if (t->offset[i + 1] - t->offset[i] > longest)
            longest = t->offset[i + 1] - t->offset[i];
    if (s->cache == NULL || longest > s->length) {
        kv_destroy(s->cache);
        s->length = (int)((longest + LENGTH_UNIT - 1) / LENGTH_UNIT * LENGTH_UNIT);
        struct kv_shape shape = model_kv_shape(s->target->model, SLOTS, s->length, s->rows);
        shape.type = s->target->cache;
        s->cache = kv_create(s->target->backend, &shape, err);
    }
    for (int i = 0; i < SLOTS && s->cache != NULL; i++)
        kv_truncate(s->cache, i, 0);
    return s->cache != NULL;
}

// Runs a pass over the next rows from token `first`, which is of text *c. Sets *c to the text of the row after them.
// Returns the number of rows, 0 on failure.
static int run_rows(struct text_states *s, const struct texts *t, int64_t first, int *c, struct error *err)
{
    int32_t slot[TARGET_ROWS], parent[TARGET_ROWS], index[TARGET_ROWS];
    int n = 0, kept[SLOTS];
    const int begin = *c;
    for (; *c < t->n && *c < begin + SLOTS && n < s->rows; ++*c) {
        const int64_t left = t->offset[*c + 1] - (first + n);
        const int rows = left < s->rows - n ? (int)left : s->rows - n;
        for (int i = 0; i < rows; i++, n++) {
            slot[n] = *c % SLOTS;
            parent[n] = i - 1;
            index[i] = i;
        }
        kept[*c - begin] = rows;
        if (rows < left)
            break;
    }
    const struct pass pass = { .n = n, .token = t->id + first, .slot = slot, .parent = parent };
    struct states states;
    if (!model_forward(s->target->model, s->cache, &pass, &s->taps, &states, err) ||
        !s->target->backend->sync(s->target->backend, err))
        return 0;
    if (s->taps.n > 0 && !store_states(s, states.tapped, first, err))
        return 0;
    for (int i = begin; i < t->n && i < begin + SLOTS && t->offset[i] < first + n; i++) {
        kv_keep(s->cache, i % SLOTS, index, kept[i - begin]);
        if (t->offset[i + 1] <= first + n)
            kv_truncate(s->cache, i % SLOTS, 0);
    }
    return store_top(s, states.last, first, err) ? n : 0;
}

bool text_states_compute(struct text_states *s, const struct texts *t, const volatile int *stop, struct error *err)
{
    const int64_t tokens = t->offset[t->n];
    if (tokens > s->capacity) {
        s->capacity = tokens;
        s->state = xrealloc(s->state, (size_t)tokens * row_bytes(s));
        s->top_id = xrealloc(s->top_id, (size_t)(tokens * s->top_k) * sizeof(*s->top_id));
        s->top_p = xrealloc(s->top_p, (size_t)(tokens * s->top_k) * sizeof(*s->top_p));
    }
    if (!reserve_cache(s, t, err))
        return false;
    int c = 0;
    for (int64_t first = 0; first < tokens;) {
        const int n = interrupt_check(stop, err) ? run_rows(s, t, first, &c, err) : 0;
        if (n == 0)
            return false;
        first += n;
    }
    return true;
}
