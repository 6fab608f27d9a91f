// small.c - a draft model: a smaller model, the original form of speculative decoding.
//
// Leviathan et al. 2023, Chen et al. 2023; trees by Miao et al. 2023 (SpecInfer) and, best-first, Li et al. 2024
// (EAGLE-2). The model has a cache of its own. Tokens of the sequence are run when they are known, and their rows are kept at
// once; draft tokens are pending rows, of which advance keeps the accepted ones. tree_builder.h decides the shape of a draft.
//
// A draft model of another vocabulary (vocabulary: common) proposes tokens that both vocabularies have: its LM head is restricted to them, so
// q is its distribution over them, and exact as always (Timor et al. 2025). It reads each token of the text as its own token of the same
// bytes, or as several (tokenizers/vocabulary_map.h): what it reads depends on the text alone.
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
#include "tokenizers/vocabulary_map.h"

enum { CHUNK = 256 }; // maximum tokens of one sequence in a pass

struct small_options {
    char *model, *device;
    struct tree_options tree;
    int activations, quantize, cache; // enum activations, enum quantize, enum kv_type
    int vocabulary;                   // enum vocabularies
};

enum vocabularies { SAME, COMMON };

struct small {
    struct drafter drafter; // first
    struct backend *backend;
    struct draft_batch draft_batch;
    struct model *model;
    struct kv_cache *cache;
    int vocab;                 // of the draft model
    struct vocabulary_map map; // of COMMON
    bool mapped;
    int length;                              // of the cache, its own tokens
    int *read;                               // (slots) tokens of the text that the cache has
    struct tensor state;                     // (slots, width) states of the roots of the current requests
    int32_t *token, *slot, *parent, *picked; // (rows) of a pass
    int *first;                              // (slots) first row of each request
};

static bool fail_vocabulary(const char *path, const struct error *why, struct error *err)
{
    return fail(
        err,
        "drafter small: %s has another vocabulary than the target: %s (vocabulary: common drafts with the tokens of both)",
        path, why->text);
}

static bool same_vocabulary(const struct small *g, const struct drafter_env *env, const char *path, struct error *err)
{
    struct error ignored, why;
    struct tokenizer *own = env->tokenizer != NULL ? tokenizer_open(path, &ignored) : NULL;
    const int target = env->target != NULL ? model_shape(env->target)->vocab : g->vocab;
    bool ok = own != NULL ? tokenizer_same(env->tokenizer, own, &why) : g->vocab == target;
    if (own == NULL && !ok)
        fail(&why,
             "without a tokenizer, vocabularies must have the same size; the target has %d ids, the draft model %d",
             target, g->vocab);
    tokenizer_close(own);
    return ok || fail_vocabulary(path, &why, err);
}

// Vocabularies of the same tokens need no map.
static bool map_vocabulary(struct small *g, const struct drafter_env *env, const char *path, struct error *err)
{
    struct error why;
    if (same_vocabulary(g, env, path, &why))
        return true;
    struct tokenizer *own = env->tokenizer != NULL ? tokenizer_open(path, &why) : NULL;
    bool ok = env->tokenizer != NULL || fail(&why, "the target has no tokenizer");
    ok = ok && own != NULL && vocabulary_map_create(&g->map, env->tokenizer, env->used_vocab, own, g->vocab, &why) &&
         (g->map.longest <= CHUNK ||
          fail(&why, "a token of the target is %d tokens of the draft model", g->map.longest)) &&
         model_restrict_head(g->model, g->map.draft_id, g->map.common, &why);
    tokenizer_close(own);
    g->mapped = ok;
    return ok || fail(err, "drafter small: %s: vocabulary: %s", path, why.text);
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
        ok = ok && (o->vocabulary == COMMON ? map_vocabulary(g, env, path, err) : same_vocabulary(g, env, path, err));
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
    // A text of several tokens for one of the target's may outgrow this; then it gets no drafts any more.
    const int length = g->mapped && 2 * env->length < model_shape(g->model)->context ? 2 * env->length
                       : g->mapped                                                   ? model_shape(g->model)->context
                                                                                     : env->length;
    g->length = length;
    struct kv_shape kv = model_kv_shape(g->model, env->slots, length + shape->evaluated, pending);
    kv.type = cache;
    struct error why;
    g->cache = kv_create(g->backend, &kv, &why);
    if (g->cache == NULL)
        return fail(err, "drafter small: %s", why.text);
    struct drafter_env own = *env;
    own.drafts_on_host = g->mapped; // its tokens must be mapped before they are run
    const int used = env->used_vocab < g->vocab ? env->used_vocab : g->vocab;
    if (!draft_batch_create(&g->draft_batch, shape, &own, g->mapped ? g->map.common : g->vocab,
                            g->mapped ? g->map.target_id : NULL, g->mapped ? env->used_vocab : used, err))
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
    g->read = xcalloc((size_t)env->slots, sizeof(int));
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
    free(g->read);
    vocabulary_map_free(&g->map);
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

// The draft model's ids of a token of the text.
static int own_ids(const struct small *g, const int32_t *token, const int32_t **id)
{
    static const int32_t none = 0;
    if (g->mapped) {
        *id = g->map.id + g->map.first[*token];
        return g->map.first[*token + 1] - g->map.first[*token];
    }
    *id = *token < g->vocab ? token : &none; // the target's vocabulary may be larger; such tokens are read as token 0
    return 1;
}

// Adds the next tokens of a slot's sequence, from the first that was not read up to `upto`, to a pass that has `rows` rows. Returns the
// number of rows, *tokens is that of tokens. The caller keeps the rows.
static int feed(struct small *g, int slot, const int32_t *text, int upto, int rows, int *tokens)
{
    int space = model_rows(g->model) - rows, n = 0;
    const int left = g->length - kv_length(g->cache, slot);
    space = space < CHUNK ? space : CHUNK;
    space = space < left ? space : left;
    for (*tokens = 0; g->read[slot] + *tokens < upto; ++*tokens) {
        const int32_t *id;
        const int some = own_ids(g, &text[g->read[slot] + *tokens], &id);
        if (n + some > space)
            break;
        for (int k = 0; k < some; k++, n++) {
            g->token[rows + n] = id[k];
            g->slot[rows + n] = slot;
            g->parent[rows + n] = n - 1;
        }
    }
    return n;
}

static void keep(struct small *g, int slot, int n, int tokens)
{
    for (int i = 0; i < n; i++)
        g->picked[i] = i;
    kv_keep(g->cache, slot, g->picked, n);
    g->read[slot] += tokens;
}

// Runs a chunk of the prompt. Rows are kept pass by pass, as a long prompt would overflow the pending rows.
static bool feed_prompt(struct small *g, const struct advance *a, struct error *err)
{
    struct states states;
    for (;;) {
        int tokens;
        const int n = feed(g, a->slot, a->sequence, a->length - 1, 0, &tokens);
        if (n <= 0)
            return true;
        const struct pass pass = { .n = n, .token = g->token, .slot = g->slot, .parent = g->parent };
        if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
            return false;
        keep(g, a->slot, n, tokens);
    }
}

// Runs all tokens up to the roots. The state of request i's root goes to row i of g->state.
static bool feed_roots(struct small *g, struct request *r, int n, struct error *err)
{
    struct states states;
    for (bool more = true; more;) {
        int rows = 0, fed[MAX_SLOTS], tokens[MAX_SLOTS];
        more = false;
        for (int i = 0; i < n; i++) {
            fed[i] = feed(g, r[i].slot, r[i].token, r[i].n, rows, &tokens[i]);
            rows += fed[i];
        }
        if (rows == 0)
            return true;
        const struct pass pass = { .n = rows, .token = g->token, .slot = g->slot, .parent = g->parent };
        if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
            return false;
        for (int i = 0, at = 0; i < n; at += fed[i], i++) {
            if (fed[i] > 0)
                keep(g, r[i].slot, fed[i], tokens[i]);
            if (g->read[r[i].slot] < r[i].n)
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
    for (int i = 0; i < pass.n && g->mapped; i++)
        g->token[i] = g->map.id[g->map.first[g->token[i]]]; // one id: the token is shared
    if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
        return false;
    model_logits(g->model, draft_batch_logits(&g->draft_batch, pass.n), states.last);
    return true;
}

// Whether the text fits into the cache with a draft behind it. One that is several tokens for each of the target's may not.
static bool has_room(const struct small *g, const struct request *r)
{
    int n = kv_length(g->cache, r->slot);
    for (int i = g->read[r->slot]; i < r->n; i++) {
        const int32_t *id;
        n += own_ids(g, &r->token[i], &id);
    }
    return n <= g->length;
}

static bool small_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct small *g = (struct small *)d;
    struct request some[MAX_SLOTS], active[MAX_SLOTS];
    for (int i = 0; i < n; i++) {
        some[i] = r[i];
        if (g->mapped && !has_room(g, &r[i]))
            some[i].depth = 0;
    }
    const int m = draft_batch_begin(&g->draft_batch, some, n, active);
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
    g->read[a->slot] += n;
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
    struct small *g = (struct small *)d;
    kv_truncate(g->cache, slot, 0);
    g->read[slot] = 0;
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
    { "vocabulary", OPTION_CHOICE, offsetof(struct small_options, vocabulary), "same",
      "common: of another vocabulary than the target's, the tokens of both are drafted", 0, 0, "same|common" },
    { 0 },
};
// clang-format on

const struct drafter_type small_drafter = {
    .name = "small",
    .summary = "a draft model: greedy or sampled chains and trees",
    .options = small_options,
    .options_size = sizeof(struct small_options),
    .create = small_create,
    .propose = small_propose,
    .advance = small_advance,
    .forget = small_forget,
    .destroy = small_destroy,
    .makes = small_makes,
};
