#include "commands/features/states.h"

#include <assert.h>
#include <stdlib.h>

#include "commands/features/texts.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "sampling/sampling.h"

// LOGIT_ROWS: 50 MB of logits would leave no cache to the probabilities.
enum { SLOTS = 8, LOGIT_ROWS = 64 };

static size_t row_bytes(const struct text_states *s)
{
    return type_row_bytes(s->type, (int64_t)s->taps.n * model_shape(s->target->model)->width);
}

static bool store_states(void *self, int64_t first, int64_t n, float *x, struct error *err)
{
    const struct text_states *s = self;
    const int64_t width = (int64_t)s->taps.n * model_shape(s->target->model)->width;
    return quantize_floats(s->type, x, n * width, (char *)s->state + (size_t)first * row_bytes(s)) ||
           fail(err, "a state of the target is not finite as %s", type_facts[s->type].name);
}

static bool store_top(void *self, int64_t first, int64_t n, float *x, struct error *err)
{
    (void)err;
    const struct text_states *s = self;
    struct backend *b = s->target->backend;
    top_k_rows(b->workers(b), x, (int)n, model_shape(s->target->model)->vocab, s->target->used_vocab, s->top_k,
               s->top_id + first * s->top_k, s->top_p + first * s->top_k);
    return true;
}

bool text_states_open(struct text_states *s, int rows, struct error *err)
{
    assert(s->top_k <= s->target->used_vocab);
    s->pass = (struct text_passes){ .target = s->target,
                                    .taps = s->taps,
                                    .slots = SLOTS,
                                    .rows = rows,
                                    .logit_rows = LOGIT_ROWS,
                                    .states = store_states,
                                    .logits = store_top,
                                    .self = s };
    return text_passes_open(&s->pass, err);
}

void text_states_close(struct text_states *s)
{
    text_passes_close(&s->pass);
    free(s->state);
    free(s->top_id);
    free(s->top_p);
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
    return text_passes_run(&s->pass, t, 0, stop, err);
}
