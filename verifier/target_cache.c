#include "verifier/target_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"

struct target_cache {
    struct model *model;
    struct backend *backend;
    struct kv_cache *cache;
    struct taps taps;
    int most;              // maximum rows of a prompt: the cache's length; 0: prompts are not kept
    int n;                 // number of rows of the slot's prompt
    int32_t *token;        // (most)
    int64_t *ns;           // (most) time until row i was computed, counted from the first one
    struct tensor states;  // (most, width * taps.n)
    struct tensor one, of; // the taps of a verifier: (chunk, width) and (chunk, width * taps.n)
    int32_t *row;          // (chunk) 0, 1, ..
};

int target_chunk(const struct model *target)
{
    return TARGET_CHUNK < model_rows(target) ? TARGET_CHUNK : model_rows(target);
}

size_t target_cache_bytes(const struct model *m, const struct kv_shape *shape, const struct taps *taps, bool prompts)
{
    const size_t width = (size_t)model_shape(m)->width, chunk = (size_t)target_chunk(m), n = (size_t)taps->n;
    const size_t rows = prompts && shape->slots == 1 && n > 0 ? ((size_t)shape->length + chunk) * n + chunk : 0;
    return kv_bytes(shape) + rows * width * sizeof(float);
}

static bool keep_prompts(struct target_cache *t, const struct kv_shape *shape, struct error *err)
{
    const int chunk = target_chunk(t->model), width = model_shape(t->model)->width;
    t->most = shape->length;
    t->token = xcalloc((size_t)t->most, sizeof(*t->token));
    t->ns = xcalloc((size_t)t->most + 1, sizeof(*t->ns));
    t->row = xcalloc((size_t)chunk, sizeof(*t->row));
    for (int i = 0; i < chunk; i++)
        t->row[i] = i;
    if (t->taps.n == 0)
        return true;
    t->states = rows_on(t->backend, t->most, (int64_t)width * t->taps.n);
    t->one = rows_on(t->backend, chunk, width);
    t->of = rows_on(t->backend, chunk, (int64_t)width * t->taps.n);
    return (t->states.data != NULL && t->one.data != NULL && t->of.data != NULL) ||
           fail(err, "%s: not enough memory for the states of a prompt of %d tokens", t->backend->name, t->most);
}

struct target_cache *target_cache_create(struct model *m, const struct kv_shape *shape, const struct taps *taps,
                                         bool prompts, struct error *err)
{
    struct target_cache *t = xcalloc(1, sizeof(*t));
    *t = (struct target_cache){ .model = m, .backend = model_backend(m), .taps = *taps };
    t->cache = kv_create(t->backend, shape, err);
    if (t->cache != NULL && (!prompts || shape->slots > 1 || keep_prompts(t, shape, err)))
        return t;
    target_cache_destroy(t);
    return NULL;
}

void target_cache_destroy(struct target_cache *t)
{
    if (t == NULL)
        return;
    kv_destroy(t->cache);
    t->backend->release(t->backend, t->states.data);
    t->backend->release(t->backend, t->one.data);
    t->backend->release(t->backend, t->of.data);
    free(t->token);
    free(t->ns);
    free(t->row);
    free(t);
}

struct kv_cache *target_cache_rows(struct target_cache *t)
{
    return t->cache;
}

bool target_cache_shares(const struct target_cache *t)
{
    return t->most > 0;
}

static void cut(struct target_cache *t, int n)
{
    const int has = kv_length(t->cache, 0);
    t->n = kv_truncate(t->cache, 0, n < has ? n : has);
}

void target_cache_forget(struct target_cache *t)
{
    cut(t, t->n);
}

void target_cache_clear(struct target_cache *t)
{
    if (t->most > 0)
        cut(t, 0);
}

int target_cache_common(struct target_cache *t, const int32_t *token, int n)
{
    int common = 0;
    while (common < t->n && common < n - 1 && t->token[common] == token[common])
        common++;
    if (common < t->n)
        cut(t, common); // the slot keeps nothing where the window before these rows is gone
    return t->n;
}

bool target_cache_extend(struct target_cache *t, const int32_t *token, int from, int n, struct error *err)
{
    struct states states;
    assert(from == t->n && from + n <= t->most && n <= target_chunk(t->model));
    if (!t->backend->sync(t->backend, err)) // the times must not include a drafter's queued work on earlier rows
        return false;
    const int64_t began = clock_ns();
    if (!model_append(t->model, t->cache, 0, token + from, n, &t->taps, &states, err))
        return false;
    if (t->taps.n > 0)
        t->backend->take(t->backend, tensor_rows(t->states, from, n), states.tapped, t->row);
    if (!t->backend->sync(t->backend, err))
        return false;
    const int64_t took = clock_ns() - began;
    memcpy(t->token + from, token + from, (size_t)n * sizeof(*token));
    for (int i = 1; i <= n; i++)
        t->ns[from + i] = t->ns[from] + took * i / n;
    t->n = from + n;
    return true;
}

struct tensor target_cache_states(struct target_cache *t, const struct taps *taps, int from, int n)
{
    if (taps->n == 0)
        return (struct tensor){ 0 };
    const int width = model_shape(t->model)->width;
    const struct tensor states = tensor_rows(t->states, from, n), one = tensor_rows(t->one, 0, n);
    struct tensor of = t->of;
    of.width = (int64_t)width * taps->n;
    of.rows = n;
    for (int i = 0; i < taps->n; i++) {
        int k = 0;
        while (k < t->taps.n && t->taps.layer[k] != taps->layer[i])
            k++;
        assert(k < t->taps.n);
        t->backend->cut(t->backend, one, states, k * width);
        t->backend->place(t->backend, of, i * width, one);
    }
    return of;
}

int64_t target_cache_ns(const struct target_cache *t, int from, int n)
{
    return t->ns[from + n] - t->ns[from];
}
