// score.c - log-probabilities of given texts: passes of the target over them, without a drafter, a rule or a sampling.
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/model.h"

struct score_memory { // what a target keeps from one text to the next
    struct kv_cache *cache;
    int length;           // its capacity, tokens of a text
    int rows;             // the most rows of a pass
    struct tensor logits; // (rows, vocab)
    float *copy;          // the logits, on a device with memory of its own
};

void score_memory_free(struct score_memory *s, struct backend *b)
{
    if (s == NULL)
        return;
    kv_destroy(s->cache);
    if (s->logits.data != NULL)
        b->release(b, s->logits.data);
    free(s->copy);
    free(s);
}

static bool reserve(struct speclab_target *t, int length, struct error *err)
{
    enum { LENGTH_UNIT = 64 };
    if (t->score == NULL)
        t->score = xcalloc(1, sizeof(*t->score));
    struct score_memory *s = t->score;
    s->rows = SCORE_ROWS < model_rows(t->model) ? SCORE_ROWS : model_rows(t->model);
    if (s->logits.data == NULL)
        s->logits = rows_on(t->backend, s->rows, model_shape(t->model)->vocab);
    if (s->logits.data == NULL)
        return fail(err, "%s: not enough memory for the logits of %d rows", t->backend->name, s->rows);
    if (s->cache == NULL || length > s->length) {
        kv_destroy(s->cache);
        s->length = (length + LENGTH_UNIT - 1) / LENGTH_UNIT * LENGTH_UNIT;
        struct kv_shape shape = model_kv_shape(t->model, 1, s->length, s->rows);
        shape.type = t->cache;
        s->cache = kv_create(t->backend, &shape, err);
    }
    if (s->cache != NULL)
        kv_truncate(s->cache, 0, 0);
    return s->cache != NULL;
}

static double log_softmax(const float *logit, int n, int of)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        if (logit[i] > max)
            max = logit[i];
    for (int i = 0; i < n; i++)
        sum += exp((double)logit[i] - max);
    return (double)logit[of] - max - log(sum);
}

// A row predicts the token after it, so nothing is asked of the last one.
static bool score(struct speclab_target *t, const int32_t *token, int n, int from, double *logprob, struct error *err)
{
    if (!reserve(t, n, err))
        return false;
    struct score_memory *s = t->score;
    for (int first = 0; first < n - 1; first += s->rows) {
        const int rows = n - 1 - first < s->rows ? n - 1 - first : s->rows;
        const int skipped = from - 1 <= first ? 0 : from - 1 < first + rows ? from - 1 - first : rows;
        struct states states;
        if (!model_append(t->model, s->cache, 0, token + first, rows, NULL, &states, err))
            return false;
        if (skipped == rows)
            continue;
        const struct tensor logits = tensor_rows(s->logits, 0, rows - skipped);
        model_logits(t->model, logits, tensor_rows(states.last, skipped, rows - skipped));
        const float *x = rows_read(t->backend, logits, &s->copy, err);
        if (x == NULL)
            return false;
        for (int i = first + skipped; i < first + rows; i++, x += logits.width)
            logprob[i + 1 - from] = log_softmax(x, (int)logits.width, token[i + 1]);
    }
    return true;
}

bool speclab_score(struct speclab_target *t, const int32_t *token, int n, int from, double *logprob,
                   struct speclab_error *error)
{
    struct error ignored, *err = error != NULL ? error : &ignored;
    const int vocab = model_shape(t->model)->vocab, context = model_shape(t->model)->context;
    if (n < 0 || from < 1)
        return fail(err, "expected a text of at least 0 tokens, scored from token 1 or later, found %d and %d", n,
                    from);
    if (n > context)
        return fail(err, "the text has %d tokens, the context of %s is %d", n, t->path, context);
    for (int i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= vocab)
            return fail(err, "text: token %d is %d, expected an id from 0 to %d", i, token[i], vocab - 1);
    return n < 2 || score(t, token, n, from, logprob, err);
}
