#include "commands/text_passes.h"

#include <assert.h>
#include <stdlib.h>

#include "commands/features/texts.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"

enum { MAX_TEXTS = 8, LENGTH_UNIT = 64 };

bool text_passes_open(struct text_passes *p, struct error *err)
{
    struct backend *b = p->target->backend;
    assert(p->rows <= model_rows(p->target->model) && p->rows <= TARGET_ROWS && p->slots <= MAX_TEXTS);
    p->row = rows_on(b, p->logit_rows, model_shape(p->target->model)->vocab);
    return p->row.data != NULL || fail(err, "%s: not enough memory for the logits of %d rows", b->name, p->logit_rows);
}

void text_passes_close(struct text_passes *p)
{
    kv_destroy(p->cache);
    if (p->row.data != NULL)
        p->target->backend->release(p->target->backend, p->row.data);
    free(p->copy);
}

// A pass admits all its rows of a slot before any is kept, so nothing is needed beyond the longest text.
static bool reserve_cache(struct text_passes *p, const struct texts *t, struct error *err)
{
    int64_t longest = 1;
    for (int i = 0; i < t->n; i++)
        if (t->offset[i + 1] - t->offset[i] > longest)
            longest = t->offset[i + 1] - t->offset[i];
    if (p->cache == NULL || longest > p->length) {
        kv_destroy(p->cache);
        p->length = (int)((longest + LENGTH_UNIT - 1) / LENGTH_UNIT * LENGTH_UNIT);
        struct kv_shape shape = model_kv_shape(p->target->model, p->slots, p->length, p->rows);
        shape.type = p->target->cache;
        p->cache = kv_create(p->target->backend, &shape, err);
    }
    for (int i = 0; i < p->slots && p->cache != NULL; i++)
        kv_truncate(p->cache, i, 0);
    return p->cache != NULL;
}

static bool take_logits(struct text_passes *p, struct tensor last, int64_t first, struct error *err)
{
    for (int64_t at = 0; at < last.rows; at += p->logit_rows) {
        const int64_t n = last.rows - at < p->logit_rows ? last.rows - at : p->logit_rows;
        const struct tensor logits = tensor_rows(p->row, 0, n);
        model_logits(p->target->model, logits, tensor_rows(last, at, n));
        float *x = rows_read(p->target->backend, logits, &p->copy, err);
        if (x == NULL || !p->logits(p->self, first + at, n, x, err))
            return false;
    }
    return true;
}

// One pass over the next rows from token `first`, which is of text *c. Sets *c to that of the row after them. Returns
// the number of rows, 0 on failure.
static int run_rows(struct text_passes *p, const struct texts *t, int64_t first, int64_t from, int *c,
                    struct error *err)
{
    int32_t slot[TARGET_ROWS], parent[TARGET_ROWS], index[TARGET_ROWS];
    int n = 0, kept[MAX_TEXTS];
    const int begin = *c;
    for (; *c < t->n && *c < begin + p->slots && n < p->rows; ++*c) {
        const int64_t left = t->offset[*c + 1] - (first + n);
        const int rows = left < p->rows - n ? (int)left : p->rows - n;
        for (int i = 0; i < rows; i++, n++) {
            slot[n] = *c % p->slots;
            parent[n] = i - 1;
            index[i] = i;
        }
        kept[*c - begin] = rows;
        if (rows < left)
            break;
    }
    const struct pass pass = { .n = n, .token = t->id + first, .slot = slot, .parent = parent };
    struct states states;
    if (!model_forward(p->target->model, p->cache, &pass, &p->taps, &states, err) ||
        !p->target->backend->sync(p->target->backend, err))
        return 0;
    float *tapped = p->taps.n > 0 ? rows_read(p->target->backend, states.tapped, &p->copy, err) : NULL;
    if (p->taps.n > 0 && (tapped == NULL || !p->states(p->self, first, n, tapped, err)))
        return 0;
    for (int i = begin; i < t->n && i < begin + p->slots && t->offset[i] < first + n; i++) {
        kv_keep(p->cache, i % p->slots, index, kept[i - begin]);
        if (t->offset[i + 1] <= first + n)
            kv_truncate(p->cache, i % p->slots, 0);
    }
    const int64_t skipped = from <= first ? 0 : from < first + n ? from - first : n;
    const struct tensor last = skipped < n ? tensor_rows(states.last, skipped, n - skipped) : (struct tensor){ 0 };
    return take_logits(p, last, first + skipped, err) ? n : 0;
}

bool text_passes_run(struct text_passes *p, const struct texts *t, int64_t from, const volatile int *stop,
                     struct error *err)
{
    if (!reserve_cache(p, t, err))
        return false;
    int c = 0;
    for (int64_t first = 0; first < t->offset[t->n];) {
        const int n = interrupt_check(stop, err) ? run_rows(p, t, first, from, &c, err) : 0;
        if (n == 0)
            return false;
        first += n;
    }
    return true;
}

bool append_pass(struct model *m, struct kv_cache *c, int slot, const int32_t *token, int n, struct states *out,
                 struct error *err)
{
    int32_t slots[TARGET_ROWS], parent[TARGET_ROWS], index[TARGET_ROWS];
    for (int i = 0; i < n; i++) {
        slots[i] = slot;
        parent[i] = i - 1;
        index[i] = i;
    }
    const struct pass pass = { .n = n, .token = token, .slot = slots, .parent = parent };
    if (!model_forward(m, c, &pass, NULL, out, err) || !model_backend(m)->sync(model_backend(m), err))
        return false;
    kv_keep(c, slot, index, n);
    return true;
}
