// small.c - a draft model: a smaller model, the original form of speculative decoding.
//
// Leviathan et al. 2023, Chen et al. 2023; trees by Miao et al. 2023 (SpecInfer) and, best-first, Li et al. 2024
// (EAGLE-2). The model has its own cache. Tokens of the sequence are run when they are known, and their rows are kept
// at once. Draft tokens are pending rows, of which advance keeps the accepted ones. tree_builder.h decides the shape of
// a draft.
//
// A draft model of another vocabulary may propose tokens that both vocabularies have (vocabulary: common). Its LM head
// is restricted to them, so q is its distribution over them, and the output remains exact (Timor et al. 2025). It reads
// each token of the text as its own token of the same bytes, or as several (models/tokenizers/vocabulary_map.h), so
// what it reads depends on the text alone. Alternatively it reads the text in its own tokens and drafts a chain of
// them, which is divided into the target's tokens (vocabulary: retokenize; draft_vocabulary.h).
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/draft_vocabulary.h"
#include "drafters/drafter.h"
#include "drafters/trees/draft_batch.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/kv_cache.h"
#include "models/paths.h"
#include "sampling/sampling.h"
#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/vocabulary_map.h"

enum { CHUNK = 256 }; // maximum tokens of one sequence in a pass

struct small_options {
    char *model, *device;
    struct tree_options tree;
    int activations, quantize, cache; // enum activations, enum quantize, enum kv_type
    int vocabulary;                   // enum vocabularies (draft_vocabulary.h)
};

struct own_text {      // state of a slot under RETOKENIZE
    struct ids id;     // the current text in the draft model's tokens
    struct ids cached; // the tokens that the cache has
    struct draft draft;
    struct own_rng rng;
};

struct small {
    struct drafter drafter; // must be first
    struct backend *backend;
    struct draft_batch draft_batch;
    struct model *model;
    struct kv_cache *cache;
    int vocab; // size of the draft model's vocabulary
    struct draft_vocabulary words;
    struct own_text *own;                    // (slots) used under RETOKENIZE; otherwise NULL
    int slots;                               // length of own
    struct sampling sampling;                // the stages that do not depend on ids, for RETOKENIZE; borrowed
    int length;                              // length of the cache, in the draft model's tokens
    int *read;                               // (slots) number of the text's tokens that the cache has
    struct tensor state;                     // (slots, width) states of the roots of the current requests
    int32_t *token, *slot, *parent, *picked; // (rows) arguments of a pass
    int *first;                              // (slots) first row of each request
};

static bool open_model(struct small *g, const struct drafter_env *env, const struct small_options *o, int frontier,
                       struct error *err)
{
    char *path = model_path(o->model, env->beside, err);
    if (path == NULL)
        return false;
    struct error why;
    g->model = model_open_as(path, g->backend, (enum activations)o->activations, (enum quantize)o->quantize,
                             frontier > CHUNK ? frontier : CHUNK, NULL, &why);
    bool ok = g->model != NULL || fail(err, "drafter small: %s", why.text);
    if (ok) {
        const struct model_shape *s = model_shape(g->model);
        g->vocab = s->vocab;
        g->drafter.identity = model_identity(g->model);
        if (s->context < env->length)
            ok = fail(err, "drafter small: %s has a context of %d tokens; %d are needed (limits: context)", path,
                      s->context, env->length);
        ok = ok && draft_vocabulary_open(&g->words, (enum vocabularies)o->vocabulary, g->model, CHUNK, env, path,
                                         &g->drafter.identity, err);
    }
    free(path);
    return ok;
}

// Allocates the draft model's tokens of a text, and a draft in them, for each slot. Stages that depend on ids do not
// apply to the draft model.
static void allocate_own(struct small *g, const struct drafter_env *env, int nodes)
{
    static const char *const kept[] = { "temperature", "top_k", "top_p", "min_p" };
    g->own = xcalloc((size_t)env->slots, sizeof(*g->own));
    g->slots = env->slots;
    for (int i = 0; i < env->slots; i++)
        g->own[i].draft = (struct draft){ .capacity = nodes,
                                          .token = xcalloc((size_t)nodes, sizeof(int32_t)),
                                          .parent = xcalloc((size_t)nodes, sizeof(int32_t)),
                                          .proposal = xcalloc((size_t)nodes, sizeof(uint8_t)) };
    g->sampling = *env->sampling;
    g->sampling.n = 0;
    for (int i = 0; i < env->sampling->n; i++)
        for (size_t k = 0; k < sizeof(kept) / sizeof(*kept); k++)
            if (strcmp(env->sampling->step[i].stage->name, kept[k]) == 0)
                g->sampling.step[g->sampling.n++] = env->sampling->step[i];
}

static bool allocate_workspace(struct small *g, const struct drafter_env *env, const struct tree_shape *shape,
                               enum type cache, struct error *err)
{
    const size_t rows = (size_t)model_rows(g->model);
    const int pending = shape->evaluated > CHUNK ? shape->evaluated : CHUNK;
    const int64_t width = model_shape(g->model)->width;
    // With several tokens for one of the target's, a text may outgrow the cache. Then it gets no more drafts.
    const bool other = g->words.mapped || g->words.retokenizer.draft != NULL;
    const int context = model_shape(g->model)->context;
    const int length = !other ? env->length : 2 * env->length < context ? 2 * env->length : context;
    g->length = length;
    struct kv_shape kv = model_kv_shape(g->model, env->slots, length + shape->evaluated, pending);
    kv.type = cache;
    kv.context = length;
    struct error why;
    g->cache = kv_create(g->backend, &kv, &why);
    if (g->cache == NULL)
        return fail(err, "drafter small: %s", why.text);
    struct drafter_env own = *env;
    own.drafts_on_host = other; // tokens must be mapped before they are run, or before they are verified
    int used = env->used_vocab < g->vocab ? env->used_vocab : g->vocab;
    if (g->words.retokenizer.draft != NULL) {
        const int size = tokenizer_size(g->words.retokenizer.draft);
        allocate_own(g, env, shape->nodes);
        own.sampling = &g->sampling;
        own.target = NULL; // ids are the draft model's
        used = size < g->vocab ? size : g->vocab;
    }
    if (!draft_batch_create(&g->draft_batch, shape, &own, g->words.mapped ? g->words.map.common : g->vocab,
                            g->words.mapped ? g->words.map.target_id : NULL, g->words.mapped ? env->used_vocab : used,
                            err))
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
    draft_vocabulary_close(&g->words);
    for (int i = 0; i < g->slots; i++) {
        free(g->own[i].id.id);
        free(g->own[i].cached.id);
        free(g->own[i].draft.token);
        free(g->own[i].draft.parent);
        free(g->own[i].draft.proposal);
    }
    free(g->own);
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

// Returns the draft model's ids for a token of the text.
static int own_ids(const struct small *g, const int32_t *token, const int32_t **id)
{
    static const int32_t none = 0;
    if (g->words.mapped && *token < g->words.map.tokens) {
        *id = g->words.map.id + g->words.map.first[*token];
        return g->words.map.first[*token + 1] - g->words.map.first[*token];
    }
    *id = !g->words.mapped && *token < g->vocab ? token
                                                : &none; // padding, or an id beyond a smaller vocabulary, is read as
                                                         // token 0
    return 1;
}

static void add_row(struct small *g, int row, int slot, int parent, int32_t id)
{
    g->token[row] = id;
    g->slot[row] = slot;
    g->parent[row] = parent;
}

// Adds the next tokens of a slot's sequence, from the first that was not read up to `upto`, to a pass that has `rows`
// rows. Returns the number of rows, and in *tokens that of tokens. The caller keeps the rows.
static int feed(struct small *g, int slot, const int32_t *text, int upto, int rows, int *tokens)
{
    int space = model_rows(g->model) - rows, n = 0;
    const int left = g->length - kv_length(g->cache, slot);
    space = space < CHUNK ? space : CHUNK;
    space = space < left ? space : left;
    if (g->own != NULL) {
        const struct own_text *own = &g->own[slot];
        for (; n < space && own->cached.n + (size_t)n < own->id.n; n++)
            add_row(g, rows + n, slot, n - 1, own->id.id[own->cached.n + (size_t)n]);
        *tokens = n;
        return n;
    }
    for (*tokens = 0; g->read[slot] + *tokens < upto; ++*tokens) {
        const int32_t *id;
        const int some = own_ids(g, &text[g->read[slot] + *tokens], &id);
        if (n + some > space)
            break;
        for (int k = 0; k < some; k++, n++)
            add_row(g, rows + n, slot, n - 1, id[k]);
    }
    return n;
}

static bool is_behind(const struct small *g, const struct request *r)
{
    return g->own != NULL ? g->own[r->slot].cached.n < g->own[r->slot].id.n : g->read[r->slot] < r->n;
}

static void keep(struct small *g, int slot, int n, int tokens)
{
    for (int i = 0; i < n; i++)
        g->picked[i] = i;
    kv_keep(g->cache, slot, g->picked, n);
    if (g->own == NULL)
        g->read[slot] += tokens;
    for (int i = 0; i < n && g->own != NULL; i++)
        ids_add(&g->own[slot].cached, g->own[slot].id.id[g->own[slot].cached.n]);
}

// Runs a chunk of the prompt. Rows are kept after each pass, since a long prompt would overflow the pending rows.
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
static bool feed_roots(void *self, const struct request *r, int n, struct error *err)
{
    struct small *g = self;
    struct states states;
    for (bool more = true; more;) {
        int rows = 0, fed[MAX_SLOTS], tokens[MAX_SLOTS];
        more = false;
        for (int i = 0; i < n; i++) {
            fed[i] = feed(g, r[i].slot, r[i].token, r[i].n, rows, &tokens[i]);
            rows += fed[i];
        }
        if (rows == 0)
            break;
        const struct pass pass = { .n = rows, .token = g->token, .slot = g->slot, .parent = g->parent };
        if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
            return false;
        for (int i = 0, at = 0; i < n; at += fed[i], i++) {
            if (fed[i] > 0)
                keep(g, r[i].slot, fed[i], tokens[i]);
            if (is_behind(g, &r[i]))
                more = true; // the pass was full
            else if (fed[i] > 0)
                g->backend->take(g->backend, tensor_rows(g->state, i, 1), states.last,
                                 &(const int32_t){ at + fed[i] - 1 });
        }
    }
    model_logits(g->model, draft_batch_logits(&g->draft_batch, n), tensor_rows(g->state, 0, n));
    return true;
}

// Runs one pass over the frontiers of all requests, and computes their logits.
static bool feed_frontiers(void *self, const struct request *r, int n, struct error *err)
{
    struct small *g = self;
    struct states states;
    const struct pass pass = draft_batch_rows(&g->draft_batch, r, n, g->cache, g->first, g->token, g->slot, g->parent);
    for (int i = 0; i < pass.n && g->words.mapped; i++)
        g->token[i] = g->words.map.id[g->words.map.first[g->token[i]]]; // one id, since the token is shared
    if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
        return false;
    model_logits(g->model, draft_batch_logits(&g->draft_batch, pass.n), states.last);
    return true;
}

// Returns whether the text and a draft after it fit into the cache. A text may not if it has several tokens for each of
// the target's.
static bool fits_cache(const struct small *g, const struct request *r)
{
    int n = kv_length(g->cache, r->slot);
    for (int i = g->read[r->slot]; i < r->n; i++) {
        const int32_t *id;
        n += own_ids(g, &r->token[i], &id);
    }
    return n <= g->length;
}

// Reads the text in the draft model's own tokens. Its cache keeps those that they have in common with the previous
// ones, except the last, which is the root. Returns false if there are none, or too many.
static bool read_own(struct small *g, int slot, const int32_t *token, int n)
{
    struct own_text *own = &g->own[slot];
    size_t same = 0;
    own->id.n = 0;
    if (!retokenize_text(&g->words.retokenizer, token, n, &own->id) || own->id.n > (size_t)g->length) {
        own->id.n = 0;
        return false;
    }
    while (same + 1 < own->id.n && same < own->cached.n && own->id.id[same] == own->cached.id[same])
        same++;
    own->cached.n = (size_t)kv_truncate(g->cache, slot, (int)same);
    return true;
}

static void begin_own(struct small *g, struct request *r)
{
    struct own_text *own = &g->own[r->slot];
    struct draft *d = &own->draft;
    if (r->depth > 0 && read_own(g, r->slot, r->token, r->n)) {
        d->token[0] = own->id.id[own->id.n - 1];
        r->depth = g->draft_batch.shape.levels;
    } else
        r->depth = 0;
    d->n = 1;
    d->parent[0] = -1;
    d->proposal[0] = DETERMINISTIC;
    own->rng = retokenize_rng(r->rng);
    r->draft = d;
    r->rng = &own->rng.rng;
    r->forced = NULL;
}

static void end_own(struct small *g, const struct request *r)
{
    const struct draft *own = &g->own[r->slot].draft;
    struct ids ids = { 0 };
    if (own->n > 1)
        retokenize_draft(&g->words.retokenizer, r->token, r->n, own->token + 1, own->n - 1, &ids);
    for (int i = 0, at = 0; i < (int)ids.n && i < r->depth && at >= 0; i++)
        at = draft_add(r->draft, at, ids.id[i], DETERMINISTIC);
    free(ids.id);
}

// Teacher forcing ends with the first token that the draft model lacks: it could not draft after it.
static void end_forced(const struct small *g, const struct forced *given, struct forced *to)
{
    *to = *given;
    for (int i = 0; i < to->n; i++)
        if (!vocabulary_map_shares(&g->words.map, to->token[i]))
            to->n = i + 1;
}

static bool small_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    static const struct draft_logits by = { feed_roots, feed_frontiers, 1 };
    struct small *g = (struct small *)d;
    struct request some[MAX_SLOTS] = { 0 };
    struct forced forced[MAX_SLOTS];
    for (int i = 0; i < n; i++) {
        some[i] = r[i];
        if (kv_pending(g->cache, r[i].slot) > 0) // the rows of a draft that was not verified
            kv_truncate(g->cache, r[i].slot, kv_length(g->cache, r[i].slot));
        if (g->own != NULL)
            begin_own(g, &some[i]);
        else if (g->words.mapped && !fits_cache(g, &r[i]))
            some[i].depth = 0;
        if (g->words.mapped && r[i].forced != NULL) {
            end_forced(g, r[i].forced, &forced[i]);
            some[i].forced = &forced[i];
        }
    }
    if (!draft_batch_build(&g->draft_batch, some, n, g->first, &by, g, err))
        return false;
    for (int i = 0; i < n && g->own != NULL; i++)
        end_own(g, &r[i]);
    return true;
}

// Keeps the rows of the accepted draft tokens that the draft model has evaluated.
static void keep_path(struct small *g, const struct advance *a)
{
    int n = 0;
    for (int i = 1; i < a->n && g->own == NULL; i++) {
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
        else if ((g->own == NULL || read_own(g, a[i].slot, a[i].sequence, a[i].length)) && !feed_prompt(g, &a[i], err))
            return false;
    }
    return true;
}

static void small_forget(struct drafter *d, int slot)
{
    struct small *g = (struct small *)d;
    kv_truncate(g->cache, slot, 0);
    g->read[slot] = 0;
    if (g->own != NULL)
        g->own[slot].cached.n = 0;
}

static bool small_check(const void *options, struct error *err)
{
    const struct small_options *o = options;
    if (o->vocabulary != RETOKENIZE)
        return true;
    if (o->tree.widths.n > 0 || o->tree.nodes > 0 || o->tree.tree != NULL)
        return fail(err, "drafter small: vocabulary: retokenize drafts chains, not trees");
    if (o->tree.pick == PICK_COUPLED)
        return fail(err,
                    "drafter small: vocabulary: retokenize has no token to couple: expected pick greedy or sampled");
    return true;
}

static unsigned small_makes(const void *options)
{
    const struct small_options *o = options;
    return o->vocabulary == RETOKENIZE ? TAKES_DETERMINISTIC : tree_options_kinds(&o->tree) | CONTINUES;
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
      "of another tokenizer than the target's: common drafts the tokens of both, retokenize text", 0, 0, "same|common|retokenize" },
    { 0 },
};
// clang-format on

const struct drafter_type small_drafter = {
    .name = "small",
    .summary = "a draft model: greedy or sampled chains and trees",
    .options = small_options,
    .options_size = sizeof(struct small_options),
    .tree = offsetof(struct small_options, tree),
    .check = small_check,
    .create = small_create,
    .propose = small_propose,
    .advance = small_advance,
    .forget = small_forget,
    .destroy = small_destroy,
    .makes = small_makes,
};
