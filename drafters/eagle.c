// eagle.c - a decoder layer that reads hidden states of the target: EAGLE-1, EAGLE-2 and EAGLE-3
// (models/heads/eagle.h).
//
// Every token of the sequence except the first has a row in the head's cache, computed from the target's state that
// predicted it. `advance` brings both, so the tokens of a step are one pass, whatever was drafted. Draft tokens are
// pending rows that read the head's own state of the parent row. They are never kept, since rows of the sequence must
// be computed from the target's states.
//
// EAGLE-1 is a fixed tree (tree: eagle_25), EAGLE-2 a best-first tree: its total_token is nodes + 1, its depth tokens -
// 1, its top_k top. Both propose deterministic tokens; chains and trees by widths may be sampled, with the head's rows
// as q.
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "drafters/trees/draft_batch.h"
#include "kernels/backend.h"
#include "models/heads/eagle.h"
#include "models/kv_cache.h"
#include "models/paths.h"

enum { CHUNK = 256 }; // maximum tokens of one sequence in a pass of `advance`

struct eagle_options {
    char *weights;
    struct tree_options tree;
    int activations, quantize, cache;    // enum activations, enum quantize, enum kv_type
    int layer_ids, norm_before_residual; // enum layer_ids, enum tri; EAGLE-3 only
};

struct eagle_drafter {
    struct drafter drafter; // must be first
    struct backend *backend;
    struct eagle *head;
    struct kv_cache *cache;
    struct draft_batch draft_batch;
    int evaluated; // maximum number of a slot's draft tokens that have a state
    struct eagle_states states;
    struct tensor root;                             // (slots, width) root states of the current requests
    struct tensor features;                         // (rows, taps * the target's width) gathered for a pass
    int32_t *token, *slot, *parent, *from, *picked; // (rows) arguments of a pass
    int *first;                                     // (slots) first row of each request
    int rows;                                       // maximum rows of a pass
};

// ---- creation

static bool allocate(struct eagle_drafter *g, struct tensor *t, int64_t rows, int64_t width, struct error *err)
{
    *t = rows_on(g->backend, rows, width);
    g->drafter.bytes += tensor_bytes(*t);
    return t->data != NULL || fail(err, "%s: not enough memory for the states of an EAGLE head", g->backend->name);
}

static bool open_head(struct eagle_drafter *g, const struct drafter_env *env, const struct eagle_options *o,
                      enum head_kind kind, struct error *err)
{
    const struct eagle_setup setup = { .kind = kind,
                                       .activations = (enum activations)o->activations,
                                       .quantize = (enum quantize)o->quantize,
                                       .layer_ids = (enum layer_ids)o->layer_ids,
                                       .norm_before_residual = (enum tri)o->norm_before_residual,
                                       .rows = g->rows };
    if (env->backend != env->target_backend)
        return fail(err, "drafter %s: its head reads the target's states, and must be on the target's device",
                    head_drafters[kind]);
    char *path = model_path(o->weights, env->beside, err);
    if (path != NULL)
        g->head = eagle_open(path, env->target, g->backend, &setup, err);
    free(path);
    return g->head != NULL;
}

static bool allocate_workspace(struct eagle_drafter *g, const struct drafter_env *env, enum type cache,
                               struct error *err)
{
    const int64_t width = eagle_facts(g->head)->width, slots = env->slots;
    const int pending = g->evaluated > CHUNK ? g->evaluated : CHUNK;
    struct kv_shape kv = eagle_kv_shape(g->head, env->slots, env->length + g->evaluated, pending);
    kv.type = cache;
    kv.context = env->length; // LongRoPE's divisors are those that a target would choose
    g->cache = kv_create(g->backend, &kv, err);
    g->drafter.taps = eagle_facts(g->head)->taps;
    g->drafter.host_bytes = g->draft_batch.host_bytes;
    g->drafter.bytes = g->draft_batch.bytes + eagle_facts(g->head)->memory + (g->cache != NULL ? kv_bytes(&kv) : 0);
    g->token = xcalloc((size_t)g->rows, sizeof(int32_t));
    g->slot = xcalloc((size_t)g->rows, sizeof(int32_t));
    g->parent = xcalloc((size_t)g->rows, sizeof(int32_t));
    g->from = xcalloc((size_t)g->rows, sizeof(int32_t));
    g->picked = xcalloc((size_t)pending, sizeof(int32_t));
    g->first = xcalloc((size_t)env->slots, sizeof(int));
    g->states.of_slot = g->evaluated + 1;
    return g->cache != NULL && allocate(g, &g->states.rows, slots * g->states.of_slot, width, err) &&
           allocate(g, &g->root, slots, width, err) &&
           allocate(g, &g->features, g->rows, (int64_t)g->drafter.taps.n * model_shape(env->target)->width, err);
}

static void eagle_destroy(struct drafter *d)
{
    struct eagle_drafter *g = (struct eagle_drafter *)d;
    struct tensor *workspace[] = { &g->states.rows, &g->root, &g->features };
    draft_batch_destroy(&g->draft_batch);
    for (size_t i = 0; i < sizeof(workspace) / sizeof(*workspace); i++)
        g->backend->release(g->backend, workspace[i]->data);
    kv_destroy(g->cache);
    eagle_close(g->head);
    free(g->token);
    free(g->slot);
    free(g->parent);
    free(g->from);
    free(g->picked);
    free(g->first);
    free(g);
}

static struct drafter *create(const struct drafter_env *env, const struct eagle_options *o, enum head_kind kind,
                              struct error *err)
{
    struct tree_shape shape;
    if (!tree_shape(&shape, &o->tree, kind == HEAD_EAGLE ? "drafter eagle" : "drafter eagle3", env->beside, err))
        return NULL;
    struct eagle_drafter *g = xcalloc(1, sizeof(*g));
    const int frontier = shape.frontier * env->slots, advanced = shape.nodes * env->slots;
    const enum type cache = kv_type_resolve((enum kv_type)o->cache);
    g->backend = env->backend;
    g->evaluated = shape.evaluated;
    g->drafter.nodes = shape.nodes;
    g->rows = frontier > advanced ? frontier : advanced;
    g->rows = g->rows > CHUNK ? g->rows : CHUNK;
    if (open_head(g, env, o, kind, err) &&
        draft_batch_create(&g->draft_batch, &shape, env, eagle_facts(g->head)->vocab, eagle_facts(g->head)->target_id,
                           env->used_vocab, err) &&
        allocate_workspace(g, env, cache, err)) {
        g->drafter.identity = eagle_facts(g->head)->hash;
        g->drafter.resolved[0] =
            (struct resolved){ "activations", activations_names[eagle_facts(g->head)->activations] };
        g->drafter.resolved[1] = (struct resolved){ "cache", type_facts[cache].name };
        if (g->draft_batch.tree != NULL)
            g->drafter.resolved[2] = (struct resolved){ "tree", g->draft_batch.tree };
        return &g->drafter;
    }
    eagle_destroy(&g->drafter);
    return NULL;
}

// ---- rows of the sequence

// Adds tokens of an advance, from number `from` on, to a pass that has `rows` rows. Returns how many fit.
static int add_tokens(struct eagle_drafter *g, const struct advance *a, int from, int rows)
{
    int n = a->n - from < g->rows - rows ? a->n - from : g->rows - rows;
    if (n > CHUNK)
        n = CHUNK;
    for (int i = 0; i < n; i++) {
        g->token[rows + i] = a->token[from + i];
        g->slot[rows + i] = a->slot;
        g->parent[rows + i] = i - 1;
    }
    return n;
}

// Returns the target's states of a pass's tokens: in place if the advances' states follow each other, as in most steps,
// otherwise gathered.
static struct tensor states_of(struct eagle_drafter *g, const struct advance *a, int n, const int *done, const int *fed)
{
    const int64_t width = g->features.width;
    const float *from = NULL, *next = NULL;
    bool adjacent = true;
    int rows = 0;
    for (int i = 0; i < n; rows += fed[i], i++) {
        const float *own = (const float *)a[i].features.data + done[i] * width;
        if (fed[i] == 0)
            continue;
        adjacent = adjacent && (from == NULL || own == next);
        from = from == NULL ? own : from;
        next = own + fed[i] * width;
    }
    if (adjacent)
        return tensor_of((float *)from, F32, rows, width);
    for (int i = 0, at = 0; i < n; at += fed[i], i++)
        if (fed[i] > 0)
            g->backend->place(g->backend, tensor_rows(g->features, at, fed[i]), 0,
                              tensor_rows(a[i].features, done[i], fed[i]));
    return tensor_rows(g->features, 0, rows);
}

static void keep_rows(struct eagle_drafter *g, int slot, int n)
{
    for (int i = 0; i < n; i++)
        g->picked[i] = i;
    kv_keep(g->cache, slot, g->picked, n);
}

// Runs one pass over as many tokens of the advances as fit. done[i]: tokens of advance i that are done. Returns false
// if all were done before.
static bool feed(struct eagle_drafter *g, const struct advance *a, int n, int *done)
{
    int rows = 0, fed[MAX_SLOTS];
    for (int i = 0; i < n; i++) {
        fed[i] = done[i] < a[i].n ? add_tokens(g, &a[i], done[i], rows) : 0;
        rows += fed[i];
    }
    if (rows == 0)
        return false;
    const struct pass pass = { .n = rows, .token = g->token, .slot = g->slot, .parent = g->parent };
    eagle_forward(g->head, g->cache, &pass, states_of(g, a, n, done, fed), &g->states);
    for (int i = 0; i < n; i++) {
        if (fed[i] > 0)
            keep_rows(g, a[i].slot, fed[i]);
        done[i] += fed[i];
    }
    return true;
}

static bool eagle_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    (void)err;
    struct eagle_drafter *g = (struct eagle_drafter *)d;
    int done[MAX_SLOTS] = { 0 };
    for (int i = 0; i < n; i++)
        kv_keep(g->cache, a[i].slot, NULL, 0); // drops the rows of draft tokens
    while (feed(g, a, n, done))
        ;
    return true;
}

// ---- draft tokens

static bool logits_of_roots(void *self, const struct request *r, int n, struct error *err)
{
    struct eagle_drafter *g = self;
    const struct tensor root = tensor_rows(g->root, 0, n);
    (void)err;
    for (int i = 0; i < n; i++)
        g->from[i] = r[i].slot * g->states.of_slot;
    g->backend->take(g->backend, root, g->states.rows, g->from);
    eagle_logits(g->head, draft_batch_logits(&g->draft_batch, n), root);
    return true;
}

// Runs one pass over the frontiers of all requests.
static bool logits_of_frontiers(void *self, const struct request *r, int n, struct error *err)
{
    struct eagle_drafter *g = self;
    const struct pass pass = draft_batch_rows(&g->draft_batch, r, n, g->cache, g->first, g->token, g->slot, g->parent);
    (void)err;
    const struct tensor out = eagle_forward(g->head, g->cache, &pass, (struct tensor){ 0 }, &g->states);
    eagle_logits(g->head, draft_batch_logits(&g->draft_batch, pass.n), out);
    return true;
}

static bool eagle_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    static const struct draft_logits by = { logits_of_roots, logits_of_frontiers, 1 };
    struct eagle_drafter *g = (struct eagle_drafter *)d;
    struct request usable[MAX_SLOTS]; // requests whose root has a state
    int k = 0;
    for (int i = 0; i < n; i++)
        if (kv_length(g->cache, r[i].slot) > 0) // no state predicted the only token of a sequence
            usable[k++] = r[i];
    return draft_batch_build(&g->draft_batch, usable, k, g->first, &by, g, err);
}

static void eagle_forget(struct drafter *d, int slot)
{
    kv_truncate(((struct eagle_drafter *)d)->cache, slot, 0);
}

// ---- the two drafters

static struct drafter *eagle_create(const struct drafter_env *env, const void *options, struct error *err)
{
    return create(env, options, HEAD_EAGLE, err);
}

static struct drafter *eagle3_create(const struct drafter_env *env, const void *options, struct error *err)
{
    return create(env, options, HEAD_EAGLE3, err);
}

// clang-format off
#define HEAD_OPTIONS \
    { "weights", OPTION_PATH, offsetof(struct eagle_options, weights), NULL, "the head: a folder with config.json and its tensors", 0, 0, NULL }, \
    TREE_OPTIONS(struct eagle_options, tree), \
    { "activations", OPTION_CHOICE, offsetof(struct eagle_options, activations), "default", \
      "type that matmul inputs are rounded to; default: by the type of its weights", 0, 0, ACTIVATIONS_CHOICES }, \
    { "quantize", OPTION_CHOICE, offsetof(struct eagle_options, quantize), "none", \
      "type that its matrices of floats are quantized to as they are loaded", 0, 0, QUANTIZE_CHOICES }, \
    { "cache", OPTION_CHOICE, offsetof(struct eagle_options, cache), "default", \
      "element type of its KV cache", 0, 0, KV_CHOICES }

static const struct option eagle_options[] = {
    HEAD_OPTIONS,
    { 0 },
};

static const struct option eagle3_options[] = {
    HEAD_OPTIONS,
    { "layer_ids", OPTION_CHOICE, offsetof(struct eagle_options, layer_ids), "entered",
      "meaning of layer ids in its configuration: the state entering or leaving the layer", 0, 0, "entered|left" },
    { "norm_before_residual", OPTION_CHOICE, offsetof(struct eagle_options, norm_before_residual), "checkpoint",
      "whether the residual that attention is added to is normed; overrides its configuration", 0, 0, "checkpoint|true|false" },
    { 0 },
};
// clang-format on

const struct drafter_type eagle_drafter = {
    .name = "eagle",
    .summary =
        "a decoder layer on the target's last hidden state: EAGLE-1's fixed tree, EAGLE-2's best-first tree, or sampled",
    .options = eagle_options,
    .options_size = sizeof(struct eagle_options),
    .tree = offsetof(struct eagle_options, tree),
    .create = eagle_create,
    .propose = eagle_propose,
    .advance = eagle_advance,
    .forget = eagle_forget,
    .destroy = eagle_destroy,
};

const struct drafter_type eagle3_drafter = {
    .name = "eagle3",
    .summary =
        "a decoder layer on hidden states of three of the target's layers, with a vocabulary of its own: EAGLE-3",
    .options = eagle3_options,
    .options_size = sizeof(struct eagle_options),
    .tree = offsetof(struct eagle_options, tree),
    .create = eagle3_create,
    .propose = eagle_propose,
    .advance = eagle_advance,
    .forget = eagle_forget,
    .destroy = eagle_destroy,
};
