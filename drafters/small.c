// small.c - a smaller model of the same vocabulary guesses: speculative decoding as it began.
//
// Leviathan et al. 2023, Chen et al. 2023; trees by Miao et al. 2024 (SpecInfer) and, best-first, Li et al. 2024
// (EAGLE-2). The model has a cache of its own. What is certain (the text) is fed when it is known and kept at once;
// guesses are pending rows, of which advance keeps those that came true. The shape of a draft is grow's business.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "drafters/grow.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/paths.h"
#include "models/tokenizer.h"
#include "sampling/sampling.h"

enum { STRETCH = 256 }; // tokens of certain text in one pass

struct small_options {
    char *model;
    struct grow_options grow;
    int activations, cache; // enum activations, enum kv_type
};

struct small_slot {
    struct rows q; // first: rows of the draft being judged
    struct grower grower;
    int *row;      // (candidates) pending row in our cache; -1: not evaluated
    float **after; // (candidates) if any are drawn: what each one's children were drawn from: (target's vocabulary)
};

struct small {
    struct drafter drafter; // first
    struct backend *backend;
    const struct sampling *sampling;
    struct grow_options grow;
    struct model *model;
    struct kv_cache *cache;
    int slots, live, vocab, target_vocab, k;
    struct small_slot *slot;               // (slots)
    struct tensor state;                   // (slots, width) of the roots
    struct tensor logits;                  // (slots * frontier, vocab)
    int32_t *token, *of, *parent, *picked; // (rows) of a pass
    int32_t *best;                         // (slots * frontier, k)
    float *best_log_p;
    float *host;   // (vocab)
    int32_t *path; // (length + depth)
    int *first;    // (slots) where a request's rows begin
};

static const float *q_row(struct rows *self, int node)
{
    // Shapes that draw are not pruned, so candidates and nodes are numbered alike.
    const struct small_slot *s = (struct small_slot *)self;
    assert(s->after[node] != NULL);
    return s->after[node];
}

static bool same_vocabulary(const struct small *g, const struct drafter_env *env, const char *path, struct error *err)
{
    struct error ignored;
    struct tokenizer *own = env->tokenizer != NULL ? tokenizer_open(path, &ignored) : NULL;
    bool ok = own != NULL ? tokenizer_same(env->tokenizer, own, err) : g->vocab == g->target_vocab;
    if (own == NULL && !ok)
        fail(err, "without a tokenizer to compare by, both must have as many ids; the target has %d and it %d",
             g->target_vocab, g->vocab);
    tokenizer_close(own);
    if (!ok) {
        struct error why = *err;
        fail(err, "drafter small: %s has another vocabulary than the target: %s", path, why.text);
    }
    return ok;
}

static bool open_model(struct small *g, const struct drafter_env *env, const struct small_options *o, struct error *err)
{
    char *path = model_path(o->model, env->beside, err);
    if (path == NULL)
        return false;
    int frontier = grow_frontier(&g->grow) * env->slots;
    g->model =
        model_open(path, g->backend, (enum activations)o->activations, frontier > STRETCH ? frontier : STRETCH, err);
    bool ok = g->model != NULL;
    if (ok) {
        const struct model_shape *s = model_shape(g->model);
        g->vocab = s->vocab;
        g->target_vocab = env->target != NULL ? model_shape(env->target)->vocab : s->vocab;
        g->live = env->live < s->vocab ? env->live : s->vocab;
        g->drafter.weights = model_hash(g->model);
        if (s->context < env->length)
            ok = fail(err, "drafter small: %s has a context of %d tokens; %d are asked for (limits: context)", path,
                      s->context, env->length);
        ok = ok && same_vocabulary(g, env, path, err);
    }
    free(path);
    return ok;
}

static bool make(struct tensor *t, struct backend *b, int64_t rows, int64_t width, struct error *err)
{
    *t = tensor_of(b->alloc(b, (size_t)(rows * width) * sizeof(float)), F32, rows, width);
    return t->data != NULL || fail(err, "%s: no room for the draft model's logits", b->name);
}

static bool make_room(struct small *g, const struct drafter_env *env, enum type cache, struct error *err)
{
    size_t candidates = (size_t)grow_candidates(&g->grow),
           frontier = (size_t)grow_frontier(&g->grow) * (size_t)env->slots;
    size_t rows = (size_t)model_rows(g->model);
    int asked = grow_asked(&g->grow), pending = asked > STRETCH ? asked : STRETCH;
    struct kv_shape shape = model_kv_shape(g->model, env->slots, env->length + asked, pending);
    shape.type = cache;
    g->cache = kv_create(g->backend, &shape, err);
    if (g->cache == NULL || !make(&g->state, g->backend, env->slots, model_shape(g->model)->width, err) ||
        !make(&g->logits, g->backend, (int64_t)frontier, g->vocab, err))
        return false;
    g->drafter.bytes = model_bytes(g->model) + model_scratch_bytes(model_shape(g->model), (int)rows) + kv_bytes(&shape);
    int widest = g->grow.nodes > 0 ? g->grow.top : 1;
    for (int d = 0; d < g->grow.widths.n; d++)
        widest = g->grow.widths.v[d] > widest ? g->grow.widths.v[d] : widest;
    int padding = g->vocab - g->live < 16 ? g->vocab - g->live : 16;
    g->k = widest + padding < g->vocab ? widest + padding : g->vocab;
    size_t width = (size_t)(g->vocab > g->target_vocab ? g->vocab : g->target_vocab);
    g->slot = xcalloc((size_t)env->slots, sizeof(*g->slot));
    for (int s = 0; s < env->slots; s++) {
        struct small_slot *q = &g->slot[s];
        q->q = (struct rows){ g->target_vocab, q_row, NULL };
        grower_create(&q->grower, &g->grow, g->vocab < g->target_vocab ? g->vocab : g->target_vocab);
        q->row = xcalloc(candidates, sizeof(*q->row));
        q->after = xcalloc(candidates, sizeof(*q->after));
        for (size_t c = 0; c < candidates && g->grow.pick != PICK_LIKELIEST; c++) // not touched before it is needed
            q->after[c] = xcalloc(width, sizeof(float));
    }
    g->token = xcalloc(rows, sizeof(int32_t));
    g->of = xcalloc(rows, sizeof(int32_t));
    g->parent = xcalloc(rows, sizeof(int32_t));
    g->picked = xcalloc(rows > (size_t)pending ? rows : (size_t)pending, sizeof(int32_t));
    g->best = xcalloc(frontier * (size_t)g->k, sizeof(int32_t));
    g->best_log_p = xcalloc(frontier * (size_t)g->k, sizeof(float));
    g->host = xcalloc((size_t)g->vocab, sizeof(float));
    g->path = xcalloc((size_t)env->length + candidates + 1, sizeof(int32_t));
    g->first = xcalloc((size_t)env->slots, sizeof(int));
    return true;
}

static void small_destroy(struct drafter *d)
{
    struct small *g = (struct small *)d;
    size_t candidates = (size_t)grow_candidates(&g->grow);
    for (int s = 0; g->slot != NULL && s < g->slots; s++) {
        for (size_t c = 0; c < candidates; c++)
            free(g->slot[s].after[c]);
        free(g->slot[s].after);
        free(g->slot[s].row);
        grower_destroy(&g->slot[s].grower);
    }
    g->backend->release(g->backend, g->state.data);
    g->backend->release(g->backend, g->logits.data);
    kv_destroy(g->cache);
    model_close(g->model);
    free(g->slot);
    free(g->token);
    free(g->of);
    free(g->parent);
    free(g->picked);
    free(g->best);
    free(g->best_log_p);
    free(g->host);
    free(g->path);
    free(g->first);
    free(g);
}

static struct drafter *small_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct small_options *o = options;
    if (!grow_check(&o->grow, "drafter small", err))
        return NULL;
    struct small *g = xcalloc(1, sizeof(*g));
    g->backend = env->backend;
    g->sampling = env->sampling;
    g->grow = o->grow;
    g->slots = env->slots;
    g->drafter.nodes = grow_nodes(&o->grow);
    enum type cache = kv_settle((enum kv_type)o->cache);
    if (open_model(g, env, o, err) && make_room(g, env, cache, err)) {
        g->drafter.settled[0] = (struct settled){ "activations", activations_names[model_activations(g->model)] };
        g->drafter.settled[1] = (struct settled){ "cache", type_facts[cache].name };
        return &g->drafter;
    }
    small_destroy(&g->drafter);
    return NULL;
}

// Feeds the next certain tokens of one slot: text[have .. upto), as many as fit into a pass that has `rows` already.
// What is fed is kept by the caller. Returns how many.
static int feed(struct small *g, int slot, const int32_t *text, int upto, int rows)
{
    int have = kv_length(g->cache, slot), n = upto - have, space = model_rows(g->model) - rows;
    if (n > space)
        n = space;
    if (n > STRETCH)
        n = STRETCH;
    for (int i = 0; i < n; i++) {
        // The target's vocabulary may be the longer one: what we have no row for, we read as our first token.
        g->token[rows + i] = text[have + i] < g->vocab ? text[have + i] : 0;
        g->of[rows + i] = slot;
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

// Certain rows are kept at once: a drafter catching up on a long prompt would overflow the pending rows.
static bool feed_prompt(struct small *g, const struct advance *a, struct error *err)
{
    struct states states;
    for (;;) {
        int n = feed(g, a->slot, a->sequence, a->length - 1, 0);
        if (n <= 0)
            return true;
        struct pass pass = { n, g->token, g->of, g->parent };
        if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
            return false;
        keep(g, a->slot, n);
    }
}

// Everything up to the roots goes into the cache, and the roots' states to g->state, row i being request i's.
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
        struct pass pass = { rows, g->token, g->of, g->parent };
        if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
            return false;
        for (int i = 0, at = 0; i < n; at += fed[i], i++) {
            if (fed[i] > 0)
                keep(g, r[i].slot, fed[i]);
            if (kv_length(g->cache, r[i].slot) < r[i].n)
                more = true; // the pass was full, perhaps before it came to this one
            else if (fed[i] > 0)
                g->backend->take(g->backend, tensor_rows(g->state, i, 1), states.last,
                                 &(const int32_t){ at + fed[i] - 1 });
        }
    }
    return true;
}

// The rows of all requests' frontiers, one pass.
static bool feed_frontiers(struct small *g, struct request *r, int n, struct error *err)
{
    struct states states;
    int rows = 0;
    for (int i = 0; i < n; i++) {
        struct small_slot *s = &g->slot[r[i].slot];
        int pending = kv_pending(g->cache, r[i].slot);
        g->first[i] = rows;
        for (int f = 0; f < s->grower.n_frontier; f++, rows++) {
            const struct candidate *c = &s->grower.at[s->grower.frontier[f]];
            g->token[rows] = c->token;
            g->of[rows] = r[i].slot;
            g->parent[rows] = c->parent == 0 ? -1 : s->row[c->parent];
            s->row[s->grower.frontier[f]] = pending + f;
        }
    }
    struct pass pass = { rows, g->token, g->of, g->parent };
    if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
        return false;
    g->logits.rows = rows;
    model_logits(g->model, g->logits, states.last);
    return true;
}

// The probabilities after candidate c, by the same stages that the target's rows go through: kept as row c of q.
static const float *row_after(struct small *g, struct small_slot *s, int c, int logit_row, const struct request *r)
{
    int depth = s->grower.at[c].depth;
    memcpy(g->path, r->token, (size_t)r->n * sizeof(int32_t));
    for (int at = c, i = r->n + depth - 1; at > 0; at = s->grower.at[at].parent, i--)
        g->path[i] = s->grower.at[at].token;
    struct path before = { r->n + depth, g->path };
    g->backend->download(g->backend, s->after[c], tensor_rows(g->logits, logit_row, 1).data,
                         (size_t)g->vocab * sizeof(float));
    sampling_row(g->sampling, s->after[c], g->vocab, g->live, &before);
    return s->after[c];
}

static bool grow_all(struct small *g, struct request *r, int n, struct error *err)
{
    if (g->grow.pick == PICK_LIKELIEST)
        g->backend->best(g->backend, g->logits, g->k, g->best, g->best_log_p);
    if (!g->backend->sync(g->backend, err))
        return false;
    for (int i = 0; i < n; i++) {
        struct small_slot *s = &g->slot[r[i].slot];
        for (int f = 0; f < s->grower.n_frontier; f++) {
            int c = s->grower.frontier[f], row = g->first[i] + f;
            if (g->grow.pick == PICK_LIKELIEST)
                grow_likeliest(&s->grower, c, g->best + (size_t)row * (size_t)g->k,
                               g->best_log_p + (size_t)row * (size_t)g->k, g->k, g->live);
            else
                grow_children(&s->grower, c, row_after(g, s, c, row, &r[i]), &r[i]);
        }
    }
    return true;
}

static bool small_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct small *g = (struct small *)d;
    struct request live[MAX_SLOTS];
    int m = 0, frontiers = 0;
    for (int i = 0; i < n; i++) {
        struct small_slot *s = &g->slot[r[i].slot];
        grow_begin(&s->grower, &r[i]);
        for (int c = 0; c < s->grower.room; c++)
            s->row[c] = -1;
        if (s->grower.n_frontier > 0)
            live[m++] = r[i];
    }
    if (m == 0)
        return true;
    if (!feed_roots(g, live, m, err))
        return false;
    for (int i = 0; i < m; i++)
        g->first[i] = i;
    g->logits.rows = m;
    model_logits(g->model, g->logits, tensor_rows(g->state, 0, m));
    do {
        if (!grow_all(g, live, m, err))
            return false;
        frontiers = 0;
        for (int i = 0; i < m; i++) {
            struct small_slot *s = &g->slot[live[i].slot];
            if (s->grower.n_frontier > 0)
                frontiers += grow_level(&s->grower, &live[i]);
        }
    } while (frontiers > 0 && feed_frontiers(g, live, m, err));
    for (int i = 0; i < m; i++) {
        struct small_slot *s = &g->slot[live[i].slot];
        grow_end(&s->grower, live[i].draft);
        live[i].draft->q = &s->q;
    }
    return frontiers == 0;
}

// Keeps the rows of the guesses that came true: those of the accepted path that were evaluated.
static void keep_path(struct small *g, const struct advance *a)
{
    struct small_slot *s = &g->slot[a->slot];
    int n = 0;
    for (int i = 1; i < a->n; i++) {
        int c = 0;
        while (s->grower.at[c].node != a->node[i] || c == 0)
            c++;
        if (s->row[c] < 0)
            break;
        g->picked[n++] = s->row[c];
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
    kv_cut(((struct small *)d)->cache, slot, 0);
}

static unsigned small_makes(const void *options)
{
    return grow_makes(&((const struct small_options *)options)->grow);
}

// clang-format off
static const struct option small_options[] = {
    { "model", OPTION_PATH, offsetof(struct small_options, model), NULL, "the draft model: a file, a folder or a name", 0, 0, NULL },
    GROW_OPTIONS(struct small_options, grow),
    { "activations", OPTION_CHOICE, offsetof(struct small_options, activations), "preset",
      "what its products round their input to; preset: as its weights allow", 0, 0, ACTIVATIONS_CHOICES },
    { "cache", OPTION_CHOICE, offsetof(struct small_options, cache), "preset",
      "element type of its keys and values", 0, 0, KV_CHOICES },
    { 0 },
};
// clang-format on

const struct drafter_type small_drafter = {
    .name = "small",
    .summary = "a smaller model of the same vocabulary: chains and trees, drawn or likeliest",
    .options = small_options,
    .options_size = sizeof(struct small_options),
    .create = small_create,
    .propose = small_propose,
    .advance = small_advance,
    .forget = small_forget,
    .destroy = small_destroy,
    .makes = small_makes,
};
