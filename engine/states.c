// states.c - passes of the target over given texts, without a drafter, a rule or a sampling: hidden states, most
// probable tokens, logits, log-probabilities.
//
// A pass takes the next rows of the texts end to end, wherever texts begin and end. Its states are those that a drafter
// receives in `advance` while the same text is decoded, to the bit: a row of a pass does not depend on the others.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/mapped.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "sampling/logits.h"

// SLOTS: texts in a pass. LOGIT_ROWS: rows whose logits exist at a time; 50 MB of logits would leave no cache to the
// probabilities.
enum { SLOTS = 8, LOGIT_ROWS = 64, LENGTH_UNIT = 64 };

struct states_memory { // what a target keeps from one call to the next
    struct kv_cache *cache;
    int slots, length;    // its capacity: texts, tokens of each
    struct tensor logits; // (LOGIT_ROWS, vocab)
    float *copy;          // rows of a device with memory of its own
};

void states_memory_free(struct states_memory *s, struct backend *b)
{
    if (s == NULL)
        return;
    kv_destroy(s->cache);
    if (s->logits.data != NULL)
        b->release(b, s->logits.data);
    free(s->copy);
    free(s);
}

struct reading { // a call under way
    struct speclab_target *target;
    const int32_t *token;
    const int64_t *offset; // (n + 1)
    int n, rows;           // rows: maximum of a pass
    struct taps taps;
    const struct speclab_states *to;
    // Log-probabilities of the tokens from .. of one text; NULL: not wanted
    double *logprob;
    int64_t from;
};

// A pass admits all its rows of a slot before any is kept, so nothing is needed beyond the longest text.
static bool reserve(const struct reading *r, struct error *err)
{
    struct speclab_target *t = r->target;
    int64_t longest = 1;
    for (int i = 0; i < r->n; i++)
        if (r->offset[i + 1] - r->offset[i] > longest)
            longest = r->offset[i + 1] - r->offset[i];
    if (t->states == NULL)
        t->states = xcalloc(1, sizeof(*t->states));
    struct states_memory *s = t->states;
    if (s->logits.data == NULL)
        s->logits = rows_on(t->backend, LOGIT_ROWS, model_shape(t->model)->vocab);
    if (s->logits.data == NULL)
        return fail(err, "%s: not enough memory for the logits of %d rows", t->backend->name, LOGIT_ROWS);
    const int slots = r->n < SLOTS ? r->n : SLOTS;
    if (s->cache == NULL || longest > s->length || slots > s->slots) {
        kv_destroy(s->cache);
        s->length = (int)((longest + LENGTH_UNIT - 1) / LENGTH_UNIT * LENGTH_UNIT);
        s->slots = slots;
        struct kv_shape shape = model_kv_shape(t->model, slots, s->length, model_rows(t->model));
        shape.type = t->cache;
        s->cache = kv_create(t->backend, &shape, err);
    }
    for (int i = 0; i < s->slots && s->cache != NULL; i++)
        kv_truncate(s->cache, i, 0);
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

static bool store_states(const struct reading *r, struct tensor tapped, int64_t first, struct error *err)
{
    const float *x = rows_read(r->target->backend, tapped, &r->target->states->copy, err);
    if (x != NULL)
        memcpy(r->to->state + first * tapped.width, x, tensor_bytes(tapped));
    return x != NULL;
}

// Stores what follows from the logits of the rows from `first`. top_k_rows overwrites them.
static bool store_rows(const struct reading *r, struct tensor last, int64_t first, struct error *err)
{
    const struct speclab_states *to = r->to;
    struct speclab_target *t = r->target;
    struct backend *b = t->backend;
    int64_t at = r->logprob != NULL && r->from - 1 > first ? r->from - 1 - first : 0;
    for (; at < last.rows; at += LOGIT_ROWS) {
        const int64_t n = last.rows - at < LOGIT_ROWS ? last.rows - at : LOGIT_ROWS, row = first + at;
        const struct tensor logits = tensor_rows(t->states->logits, 0, n);
        model_logits(t->model, logits, tensor_rows(last, at, n));
        float *x = rows_read(b, logits, &t->states->copy, err);
        if (x == NULL)
            return false;
        for (int64_t i = 0; r->logprob != NULL && i < n; i++)
            r->logprob[row + i + 1 - r->from] =
                log_softmax(x + i * logits.width, (int)logits.width, r->token[row + i + 1]);
        if (to->logits != NULL)
            memcpy(to->logits + row * logits.width, x, tensor_bytes(logits));
        if (to->top_k > 0)
            top_k_rows(b->workers(b), x, (int)n, (int)logits.width, t->used_vocab, to->top_k,
                       to->top_id + row * to->top_k, to->top_p + row * to->top_k);
    }
    return true;
}

// Runs a pass over the next rows from token `first`, which is of text *c. Sets *c to the text of the row after them.
// Returns the number of rows, 0 on failure.
static int run_rows(const struct reading *r, int64_t first, int *c, struct error *err)
{
    int32_t slot[TARGET_ROWS], parent[TARGET_ROWS], index[TARGET_ROWS];
    struct speclab_target *t = r->target;
    struct kv_cache *cache = t->states->cache;
    int n = 0, kept[SLOTS];
    const int begin = *c, slots = t->states->slots;
    for (; *c < r->n && *c < begin + slots && n < r->rows; ++*c) {
        const int64_t left = r->offset[*c + 1] - (first + n);
        const int rows = left < r->rows - n ? (int)left : r->rows - n;
        for (int i = 0; i < rows; i++, n++) {
            slot[n] = *c % slots;
            parent[n] = i - 1;
            index[i] = i;
        }
        kept[*c - begin] = rows;
        if (rows < left)
            break;
    }
    const struct pass pass = { .n = n, .token = r->token + first, .slot = slot, .parent = parent };
    struct states states;
    if (!model_forward(t->model, cache, &pass, &r->taps, &states, err) || !t->backend->sync(t->backend, err))
        return 0;
    if (r->taps.n > 0 && !store_states(r, states.tapped, first, err))
        return 0;
    for (int i = begin; i < r->n && i < begin + slots && r->offset[i] < first + n; i++) {
        kv_keep(cache, i % slots, index, kept[i - begin]);
        if (r->offset[i + 1] <= first + n)
            kv_truncate(cache, i % slots, 0);
    }
    const bool logits = r->logprob != NULL || r->to->logits != NULL || r->to->top_k > 0;
    return !logits || store_rows(r, states.last, first, err) ? n : 0;
}

static bool read_texts(struct reading *r, struct error *err)
{
    const int most = model_rows(r->target->model);
    r->rows = TARGET_ROWS < most ? TARGET_ROWS : most;
    if (!reserve(r, err))
        return false;
    int c = 0, n = 0;
    for (int64_t first = 0; first < r->offset[r->n]; first += n)
        if ((n = run_rows(r, first, &c, err)) == 0)
            return false;
    return mapped_unchanged(err);
}

// ---- the interface

static bool check_ids(const struct speclab_target *t, const int32_t *token, int64_t n, struct error *err)
{
    const int vocab = model_shape(t->model)->vocab;
    for (int64_t i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= vocab)
            return fail(err, "token %lld is %d, expected an id from 0 to %d", (long long)i, token[i], vocab - 1);
    return true;
}

static bool check_length(const struct speclab_target *t, int64_t n, struct error *err)
{
    const int context = model_shape(t->model)->context;
    return n <= context ||
           fail(err, "the text has %lld tokens, the context of %s is %d", (long long)n, t->path, context);
}

bool speclab_score(struct speclab_target *t, const int32_t *token, int n, int from, double *logprob,
                   struct speclab_error *error)
{
    struct error ignored, why, *err = error != NULL ? error : &ignored;
    if (n < 0 || from < 1)
        return fail(err, "expected a text of at least 0 tokens, scored from token 1 or later, found %d and %d", n,
                    from);
    if (!check_length(t, n, err))
        return false;
    if (!check_ids(t, token, n, &why))
        return fail(err, "text: %s", why.text);
    const int64_t offset[] = { 0, n - 1 }; // a row predicts the token after it, so nothing is asked of the last one
    struct reading r = { t,           token, offset, 1, .to = &(const struct speclab_states){ 0 }, .logprob = logprob,
                         .from = from };
    return n < 2 || read_texts(&r, err);
}

static bool read_taps(const struct speclab_target *t, const struct speclab_states *to, struct taps *taps,
                      struct error *err)
{
    const int layers = model_shape(t->model)->layers;
    if (to->layers < 0 || to->layers > MAX_TAPS)
        return fail(err, "layers: expected at most %d, found %d", MAX_TAPS, to->layers);
    for (int i = 0; i < to->layers; i++) {
        if (to->layer[i] < FINAL_STATE || to->layer[i] > layers)
            return fail(err, "layers: expected numbers from 0 to %d, or -1 for the final state, found %d", layers,
                        to->layer[i]);
        taps->layer[taps->n++] = to->layer[i];
    }
    return true;
}

bool speclab_states(struct speclab_target *t, const int32_t *token, const int64_t *offset, int n,
                    const struct speclab_states *to, struct speclab_error *error)
{
    struct error ignored, why, *err = error != NULL ? error : &ignored;
    struct reading r = { t, token, offset, n, .to = to };
    if (!read_taps(t, to, &r.taps, err))
        return false;
    if (to->top_k < 0 || to->top_k > t->used_vocab)
        return fail(err, "top_k: expected at most %d, the vocabulary of %s, found %d", t->used_vocab, t->path,
                    to->top_k);
    for (int i = 0; i < n; i++) {
        const int64_t length = offset[i + 1] - offset[i];
        if (offset[0] != 0 || length < 1)
            return fail(err, "text %d: expected at least one token, after those of the texts before it", i);
        if (!check_length(t, length, &why) || !check_ids(t, token + offset[i], length, &why))
            return fail(err, "text %d: %s", i, why.text);
    }
    return n < 1 || read_texts(&r, err);
}
