// oracle.c - drafts the target's own next tokens, wrong at a given rate. It shows how fast decoding would be with a
// drafter of a known acceptance that costs nothing, and tests the measurement of acceptance.
//
// Each draft token is drawn from q = (1 - w) p + w e: p is the target's distribution there, e a token that it finds
// least probable, w the rate of its depth. Under the rule `rejection` a draft token is accepted with probability 1 - w,
// up to p(e). The drafter computes p by the target's own passes and cache (layer_drafts.c does so with fewer layers),
// and neither the time of drafting nor that of decoding includes them (drafter.untimed_ns).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "sampling/rng.h"
#include "sampling/sampling.h"

enum { MAX_TOKENS = 64 };

struct oracle_options {
    int tokens;
    char *wrong;
};

struct oracle_slot {
    struct rows q; // must be first
    int vocab;
    float *row;  // (tokens, vocab) q by node
    double path; // product of q along the draft
};

struct oracle {
    struct drafter drafter; // must be first
    struct backend *backend;
    struct model *model;
    struct kv_cache *cache; // the target's cache
    const struct sampling *sampling;
    int vocab, used_vocab, tokens, slots;
    double wrong[MAX_TOKENS]; // rate by depth
    struct tensor logits;     // (slots, vocab)
    struct oracle_slot *slot; // (slots)
    int32_t *path;            // (length + tokens)
    double *weight;           // (vocab)
};

// ---- options

// Reads one rate, or a list of rates by depth; the last one applies beyond the list.
static bool read_rates(const struct oracle_options *o, double *to, struct error *err)
{
    const char *at = o->wrong + strspn(o->wrong, " [");
    char *end;
    int n = 0;
    for (; n < o->tokens; at = end + 1) {
        const double rate = strtod(at, &end);
        if (end == at || !(rate >= 0 && rate <= 1))
            break;
        to[n++] = rate;
        end += strspn(end, " ]");
        if (*end == '\0') {
            for (; n < o->tokens; n++)
                to[n] = rate;
            return true;
        }
        if (*end != ',')
            break;
    }
    return fail(
        err,
        "drafter oracle: wrong: expected a rate from 0 to 1, or a list of at most %d by depth as in [0.1, 0.2], found \"%s\"",
        o->tokens, o->wrong);
}

static bool oracle_check(const void *options, struct error *err)
{
    double rate[MAX_TOKENS];
    return read_rates(options, rate, err);
}

// ---- the drafter

static void oracle_destroy(struct drafter *d)
{
    struct oracle *g = (struct oracle *)d;
    g->backend->release(g->backend, g->logits.data);
    for (int i = 0; i < g->slots; i++)
        free(g->slot[i].row);
    free(g->slot);
    free(g->path);
    free(g->weight);
    free(g);
}

static const float *q_row(struct rows *self, int node)
{
    const struct oracle_slot *s = (struct oracle_slot *)self;
    return s->row + (size_t)node * (size_t)s->vocab;
}

static struct drafter *oracle_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct oracle_options *o = options;
    struct oracle *g = xcalloc(1, sizeof(*g));
    g->backend = env->target_backend;
    g->model = env->target;
    g->sampling = env->sampling;
    g->vocab = model_shape(g->model)->vocab;
    g->used_vocab = env->used_vocab;
    g->tokens = o->tokens;
    g->slots = env->slots;
    const size_t row = (size_t)g->tokens * (size_t)g->vocab;
    g->slot = xcalloc((size_t)g->slots, sizeof(*g->slot));
    for (int i = 0; i < g->slots; i++)
        g->slot[i] =
            (struct oracle_slot){ .q = { g->vocab, q_row }, .vocab = g->vocab, .row = xcalloc(row, sizeof(float)) };
    g->path = xcalloc((size_t)env->length + (size_t)g->tokens + 1, sizeof(int32_t));
    g->weight = xcalloc((size_t)g->vocab, sizeof(*g->weight));
    g->logits = rows_on(g->backend, g->slots, g->vocab);
    g->drafter.nodes = 1 + g->tokens;
    g->drafter.cache_rows = 1 + g->tokens;
    g->drafter.bytes = tensor_bytes(g->logits);
    g->drafter.host_bytes = (size_t)g->slots * row * sizeof(float);
    if (read_rates(o, g->wrong, err) &&
        (g->logits.data != NULL || fail(err, "%s: not enough memory for the logits of a draft", g->backend->name)))
        return &g->drafter;
    oracle_destroy(&g->drafter);
    return NULL;
}

static void oracle_attach(struct drafter *d, struct kv_cache *target_cache)
{
    ((struct oracle *)d)->cache = target_cache;
}

// ---- a draft

// Computes the target's row after the draft so far, from its logits.
static void target_row(struct oracle *g, float *row, const struct request *r)
{
    const struct draft *d = r->draft;
    memcpy(g->path, r->token, (size_t)r->n * sizeof(int32_t));
    for (int node = 1; node < d->n; node++)
        g->path[r->n + node - 1] = d->token[node];
    const struct path before = { r->n + d->n - 1, g->path, r->prompt };
    sampling_row(r->sampling != NULL ? r->sampling : g->sampling, row, g->vocab, g->used_vocab, &before);
}

// Turns p into q, as logits, which become probabilities on the grid again (core/grid.h).
static void make_wrong(struct oracle *g, float *row, double rate)
{
    static const struct sampling as_it_is;
    int least = 0;
    for (int x = 0; x < g->used_vocab; x++)
        least = row[x] < row[least] ? x : least;
    for (int x = 0; x < g->used_vocab; x++)
        row[x] = logf((float)((1 - rate) * (double)row[x] + (x == least ? rate : 0)));
    sampling_row(&as_it_is, row, g->vocab, g->used_vocab, &(const struct path){ 0 });
}

static void add_token(struct oracle *g, const struct request *r, const struct tensor *logits)
{
    struct oracle_slot *s = &g->slot[r->slot];
    struct draft *d = r->draft;
    const int node = d->n - 1;
    float *row = s->row + (size_t)node * (size_t)g->vocab;
    g->backend->download(g->backend, row, logits->data, (size_t)g->vocab * sizeof(float));
    target_row(g, row, r);
    if (g->wrong[node] > 0)
        make_wrong(g, row, g->wrong[node]);
    const struct address at = { FOR_DRAFT, r->rng->root, node };
    const int32_t token = rng_pick_row(r->rng, row, g->vocab, at, g->weight);
    draft_add(d, node, token, SAMPLED);
    s->path = (node > 0 ? s->path : 1) * (double)row[token];
    d->q = &s->q;
}

// Collects the requests that get another token. Their last nodes are a pass.
static int unfinished(const struct oracle *g, struct request *r, int n, struct request **open)
{
    int m = 0;
    for (int i = 0; i < n; i++) {
        const int nodes = r[i].draft->n;
        if (nodes - 1 < (g->tokens < r[i].depth ? g->tokens : r[i].depth) && nodes < r[i].draft->capacity &&
            (nodes == 1 || g->slot[r[i].slot].path >= r[i].least))
            open[m++] = &r[i];
    }
    return m;
}

static bool extend(struct oracle *g, struct request **open, int m, struct error *err)
{
    int32_t token[MAX_SLOTS], slot[MAX_SLOTS], parent[MAX_SLOTS];
    struct states states;
    for (int i = 0; i < m; i++) {
        const struct draft *d = open[i]->draft;
        token[i] = d->token[d->n - 1];
        slot[i] = open[i]->slot;
        parent[i] = d->n - 2;
    }
    const struct pass pass = { .n = m, .token = token, .slot = slot, .parent = parent };
    if (!model_forward(g->model, g->cache, &pass, NULL, &states, err))
        return false;
    g->logits.rows = m;
    model_logits(g->model, g->logits, states.last);
    if (!g->backend->sync(g->backend, err))
        return false;
    for (int i = 0; i < m; i++) {
        const struct tensor row = tensor_rows(g->logits, i, 1);
        add_token(g, open[i], &row);
    }
    return true;
}

static bool oracle_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct oracle *g = (struct oracle *)d;
    struct request *open[MAX_SLOTS];
    d->untimed_ns = 0;
    if (unfinished(g, r, n, open) == 0)
        return true;
    bool ok = g->backend->sync(g->backend, err); // work that was queued before is not the oracle's
    const int64_t from = clock_ns();
    for (int m; ok && (m = unfinished(g, r, n, open)) > 0;)
        ok = extend(g, open, m, err);
    for (int i = 0; i < n; i++)
        kv_truncate(g->cache, r[i].slot, kv_length(g->cache, r[i].slot));
    d->untimed_ns = clock_ns() - from;
    return ok;
}

// clang-format off
static const struct option oracle_options[] = {
    { "tokens", OPTION_INT, offsetof(struct oracle_options, tokens), "4", "depth of the chain", 1, MAX_TOKENS, NULL },
    { "wrong", OPTION_TEXT, offsetof(struct oracle_options, wrong), "0", "probability that a draft token is wrong: one, or a list by depth, as in [0.1, 0.2]", 0, 0, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type oracle_drafter = {
    .name = "oracle",
    .summary =
        "the target's own next tokens, wrong at a given rate; the time to find them is not counted: an upper bound",
    .options = oracle_options,
    .options_size = sizeof(struct oracle_options),
    .check = oracle_check,
    .create = oracle_create,
    .propose = oracle_propose,
    .attach = oracle_attach,
    .destroy = oracle_destroy,
    .kinds = TAKES_SAMPLED,
};
