// small.c - a draft model: a smaller model of the same vocabulary, the original form of speculative decoding.
//
// Leviathan et al. 2023, Chen et al. 2023; trees by Miao et al. 2023 (SpecInfer) and, best-first, Li et al. 2024
// (EAGLE-2). The model has a cache of its own. Tokens of the sequence are run when they are known, and their rows are kept at
// once; draft tokens are pending rows, of which advance keeps the accepted ones. tree_builder.h decides the shape of a draft.
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "drafters/draft_batch.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/kv_cache.h"
#include "models/paths.h"
#include "tokenizers/tokenizer.h"

enum { CHUNK = 256 }; // maximum tokens of one sequence in a pass

struct small_options {
    char *model, *device;
    struct tree_options tree;
    int activations, quantize, cache; // enum activations, enum quantize, enum kv_type
};

struct small {
    struct drafter drafter; // first
    struct backend *backend;
    struct draft_batch draft_batch;
    struct model *model;
    struct kv_cache *cache;
    int vocab;                               // of the draft model
    struct tensor state;                     // (slots, width) states of the roots of the current requests
    int32_t *token, *slot, *parent, *picked; // (rows) of a pass
    int *first;                              // (slots) first row of each request
};

static bool same_vocabulary(const struct small *g, const struct drafter_env *env, const char *path, struct error *err)
{
    struct error ignored;
    struct tokenizer *own = env->tokenizer != NULL ? tokenizer_open(path, &ignored) : NULL;
    const int target = env->target != NULL ? model_shape(env->target)->vocab : g->vocab;
    bool ok = own != NULL ? tokenizer_same(env->tokenizer, own, err) : g->vocab == target;
    if (own == NULL && !ok)
        fail(err,
             "without a tokenizer, vocabularies must have the same size; the target has %d ids, the draft model %d",
             target, g->vocab);
    tokenizer_close(own);
    if (!ok) {
        struct error why = *err;
        fail(err, "drafter small: %s has another vocabulary than the target: %s", path, why.text);
    }
    return ok;
}

static bool open_model(struct small *g, const struct drafter_env *env, const struct small_options *o, int frontier,
                       struct error *err)
{
    char *path = model_path(o->model, env->beside, err);
    if (path == NULL)
        return false;
    struct error why;
    g->model = model_open_quantized(path, g->backend, (enum activations)o->activations, (enum quantize)o->quantize,
                                    frontier > CHUNK ? frontier : CHUNK, &why);
    bool ok = g->model != NULL || fail(err, "drafter small: %s", why.text);
    if (ok) {
        const struct model_shape *s = model_shape(g->model);
        g->vocab = s->vocab;
        g->drafter.identity = model_identity(g->model);
        if (s->context < env->length)
            ok = fail(err, "drafter small: %s has a context of %d tokens; %d are needed (limits: context)", path,
                      s->context, env->length);
        ok = ok && same_vocabulary(g, env, path, err);
    }
    free(path);
    return ok;
}

static bool allocate_workspace(struct small *g, const struct drafter_env *env, const struct tree_shape *shape,
                               enum type cache, struct error *err)
{
    const size_t rows = (size_t)model_rows(g->model);
    const int pending = shape->evaluated > CHUNK ? shape->evaluated : CHUNK;
    const int64_t width = model_shape(g->model)->width;
    struct kv_shape kv = model_kv_shape(g->model, env->slots, env->length + shape->evaluated, pending);
    kv.type = cache;
    struct error why;
    g->cache = kv_create(g->backend, &kv, &why);
    if (g->cache == NULL)
        return fail(err, "drafter small: %s", why.text);
    if (!draft_batch_create(&g->draft_batch, shape, env, g->vocab, NULL,
                            env->used_vocab < g->vocab ? env->used_vocab : g->vocab, err))
        return false;
    g->state = rows_on(g->backend, env->slots, width);
    g->drafter.bytes = g->draft_batch.bytes + model_bytes(g->model) + model_table_bytes(g->model) +
                       tensor_bytes(g->state) + model_scratch_bytes(model_shape(g->model), (int)rows) + kv_bytes(&kv);
    g->drafter.host_bytes = g->draft_batch.host_bytes;
    g->token = xcalloc(rows, sizeof(int32_t));
    g->slot = xcalloc(rows, sizeof(int32_t));
    g->parent = xcalloc(rows, sizeof(int32_t));
    g->picked = xcalloc(rows > (size_t)pending ? rows : (size_t)pending, sizeof(int32_t));
    g->first = xcalloc((size_t)env->slots, sizeof(int));
    return g->state.data != NULL || fail(err, "%s: not enough memory for the draft model's states", g->backend->name);
}

static void small_destroy(struct drafter *d)
{
    struct small *g = (struct small *)d;
    draft_batch_destroy(&g->draft_batch);
    if (g->backend != NULL)
        g->backend->release(g->backend, g->state.data);
    kv_destroy(g->cache);
    model_close(g->model);
    free(g->token);
    free(g->slot);
    free(g->parent);
    free(g->picked);
    free(g->first);
    free(g);
}

static struct backend *backend_for(const struct drafter_env *env, const char *device, struct error *err)
{
    if (device == NULL)
        return env->backend;
    struct error why;
    struct backend *b = NULL;
    if (env->devices == NULL)
        fail(err, "drafter small: device: only the target's is available here, found \"%s\"", device);
    else if ((b = devices_get(env->devices, device, &why)) == NULL)
        fail(err, "drafter small: %s", why.text);
    return b;
}

static struct drafter *small_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct small_options *o = options;
    struct tree_shape shape;
    if (!tree_shape(&shape, &o->tree, "drafter small", env->beside, err))
        return NULL;
    struct small *g = xcalloc(1, sizeof(*g));
    struct drafter_env own = *env;
    g->backend = own.backend = g->drafter.backend = backend_for(env, o->device, err);
    g->drafter.nodes = shape.nodes;
    enum type cache = kv_type_resolve((enum kv_type)o->cache);
    if (g->backend != NULL && open_model(g, &own, o, shape.frontier * env->slots, err) &&
        allocate_workspace(g, &own, &shape, cache, err)) {
        g->drafter.resolved[0] = (struct resolved){ "activations", activations_names[model_activations(g->model)] };
        g->drafter.resolved[1] = (struct resolved){ "cache", type_facts[cache].name };
        if (g->draft_batch.tree != NULL)
            g->drafter.resolved[2] = (struct resolved){ "tree", g->draft_batch.tree };
        return &g->drafter;
    }
    small_destroy(&g->drafter);
    return NULL;
}

// Adds the next tokens of a slot's sequence, text[have .. upto), to a pass that has `rows` rows. Returns how many fit; the caller
// keeps their rows.
static int feed(struct small *g, int slot, const int32_t *text, int upto, int rows)
{
    int have = kv_length(g->cache, slot), n = upto - have, space = model_rows(g->model) - rows;
    if (n > space)
        n = space;
    if (n > CHUNK)
        n = CHUNK;
    for (int i = 0; i < n; i++) {
        // The target's vocabulary may be larger; tokens without a row in the draft model are read as token 0.
        g->token[rows + i] = text[have + i] < g->vocab ? text[have + i] : 0;
        g->slot[rows + i] = slot;
        g->parent[rows + i] = i - 1;
    }
    return n;
}

static void keep(struct small *g, int slot, int n)
{
    for (int i = 0; i < n; i++)
        g->picked[i] = i;
    kv_keep(g->cache, slot, g->picked, n);
}

// Runs a chunk of the prompt. Rows are kept pass by pass, as a long prompt would overflow the pending rows.
static bool feed_prompt(struct small *g, const struct advance *a, struct error *err)
{
    struct states states;
    for (;;) {
        int n = feed(g, a->slot, a->sequence, a->length - 1, 0);
        if (n <= 0)
            return true;
        const struct pass pass = { .n = n, .token = g->token, .slot = g->slot, .parent = g->parent };
        if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
            return false;
        keep(g, a->slot, n);
    }
}

// Runs all tokens up to the roots. The state of request i's root goes to row i of g->state.
static bool feed_roots(struct small *g, struct request *r, int n, struct error *err)
{
    struct states states;
    for (bool more = true; more;) {
        int rows = 0, fed[MAX_SLOTS];
        more = false;
        for (int i = 0; i < n; i++) {
            fed[i] = feed(g, r[i].slot, r[i].token, r[i].n, rows);
            rows += fed[i];
        }
        if (rows == 0)
            return true;
        const struct pass pass = { .n = rows, .token = g->token, .slot = g->slot, .parent = g->parent };
        if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
            return false;
        for (int i = 0, at = 0; i < n; at += fed[i], i++) {
            if (fed[i] > 0)
                keep(g, r[i].slot, fed[i]);
            if (kv_length(g->cache, r[i].slot) < r[i].n)
                more = true; // the pass was full
            else if (fed[i] > 0)
                g->backend->take(g->backend, tensor_rows(g->state, i, 1), states.last,
                                 &(const int32_t){ at + fed[i] - 1 });
        }
    }
    return true;
}

// Runs one pass over the frontiers of all requests, and computes their logits.
static bool feed_frontiers(struct small *g, struct request *r, int n, struct error *err)
{
    struct states states;
    const struct pass pass = draft_batch_rows(&g->draft_batch, r, n, g->cache, g->first, g->token, g->slot, g->parent);
    if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
        return false;
    model_logits(g->model, draft_batch_logits(&g->draft_batch, pass.n), states.last);
    return true;
}

static bool small_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct small *g = (struct small *)d;
    struct request active[MAX_SLOTS];
    const int m = draft_batch_begin(&g->draft_batch, r, n, active);
    int frontier;
    if (m == 0)
        return true;
    if (!feed_roots(g, active, m, err))
        return false;
    for (int i = 0; i < m; i++)
        g->first[i] = i;
    model_logits(g->model, draft_batch_logits(&g->draft_batch, m), tensor_rows(g->state, 0, m));
    do {
        if (!draft_batch_children(&g->draft_batch, active, m, g->first, 1, err))
            return false;
        frontier = draft_batch_level(&g->draft_batch, active, m);
    } while (frontier > 0 && feed_frontiers(g, active, m, err));
    draft_batch_end(&g->draft_batch, active, m);
    return frontier == 0;
}

// Keeps the rows of the accepted draft tokens, as far as the draft model has evaluated them.
static void keep_path(struct small *g, const struct advance *a)
{
    int n = 0;
    for (int i = 1; i < a->n; i++) {
        const int row = draft_batch_row(&g->draft_batch, a->slot, a->node[i]);
        if (row < 0)
            break;
        g->picked[n++] = row;
    }
    kv_keep(g->cache, a->slot, g->picked, n);
}

static bool small_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    struct small *g = (struct small *)d;
    for (int i = 0; i < n; i++) {
        if (a[i].node != NULL)
            keep_path(g, &a[i]);
        else if (!feed_prompt(g, &a[i], err))
            return false;
    }
    return true;
}

static void small_forget(struct drafter *d, int slot)
{
    kv_truncate(((struct small *)d)->cache, slot, 0);
}

static unsigned small_makes(const void *options)
{
    return tree_options_kinds(&((const struct small_options *)options)->tree);
}

// clang-format off
static const struct option small_options[] = {
    { "model", OPTION_PATH, offsetof(struct small_options, model), NULL, "the draft model: a file, a folder or a name", 0, 0, NULL },
    TREE_OPTIONS(struct small_options, tree),
    { "activations", OPTION_CHOICE, offsetof(struct small_options, activations), "default",
      "type that matmul inputs are rounded to; default: by the type of its weights", 0, 0, ACTIVATIONS_CHOICES },
    { "quantize", OPTION_CHOICE, offsetof(struct small_options, quantize), "none",
      "type that its matrices of floats are quantized to as they are loaded", 0, 0, QUANTIZE_CHOICES },
    { "cache", OPTION_CHOICE, offsetof(struct small_options, cache), "default",
      "element type of its KV cache", 0, 0, KV_CHOICES },
    { "device", OPTION_TEXT, offsetof(struct small_options, device), "",
      "where it runs: " DEVICE_NAMES "; default: the target's device", 0, 0, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type small_drafter = {
    .name = "small",
    .summary = "a draft model of the same vocabulary: greedy or sampled chains and trees",
    .options = small_options,
    .options_size = sizeof(struct small_options),
    .create = small_create,
    .propose = small_propose,
    .advance = small_advance,
    .forget = small_forget,
    .destroy = small_destroy,
    .makes = small_makes,
};
