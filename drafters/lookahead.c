// lookahead.c - Lookahead decoding (Fu et al. 2024, arXiv 2402.02057): the target finds n-grams by Jacobi iteration, in
// the pass that verifies.
//
// A slot has a window of W columns and N - 1 levels of tokens. Column j of level l is the token that iteration l made
// for position 1 + j + l after the root. In a pass, level 0 is a chain below the root, and column j of the higher
// levels is a chain below column j of level 0. This is a tree of draft tokens like any other, whose nodes may be
// accepted. The target's most probable token after the last level completes an n-gram for each column and becomes the
// newest level; the oldest level is dropped. n-grams are stored by their first token. A draft also has the n-grams
// stored for the root, the newest first.
//
// Columns beyond the window's end, and level 0 at the beginning, are tokens of the text, chosen at random by their
// position.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"

enum { MAX_GRAM = 16, MAX_WINDOW = 64, NONE = -1 };

struct lookahead_options {
    int window, ngram, candidates; // the paper's W, N, G
    bool prompt;
};

struct lookahead_slot {
    bool begun; // the window has been filled
    int levels; // number of filled levels; an n-gram has N - 1
    int32_t level[MAX_GRAM][MAX_WINDOW];
    int node[MAX_GRAM][MAX_WINDOW]; // nodes of the last draft; NONE: not in it
    int n_draft;                    // number of nodes of that draft; 0: none since the last advance
    int32_t token[MAX_NODES], parent[MAX_NODES];
    int32_t *entry; // (vocab) number of the pool's entry for a first token, or NONE
    int n_pool;     // number of entries
    int *grams;     // (pool) number of n-grams of an entry
    int32_t *gram;  // (pool, G, N - 1) the n-grams without the first token; the newest last
    int read;       // number of prompt tokens whose n-grams are in the pool
};

struct lookahead {
    struct drafter drafter; // must be first
    struct lookahead_options o;
    int vocab, slots, pool;      // pool: number of first tokens for which a slot can have n-grams
    struct lookahead_slot *slot; // (slots)
};

// ---- the pool

// Returns the number of the token's entry; NONE: the pool is full.
static int entry_of(struct lookahead *g, struct lookahead_slot *s, int32_t token)
{
    if (s->entry[token] == NONE && s->n_pool < g->pool) {
        s->grams[s->n_pool] = 0;
        s->entry[token] = s->n_pool++;
    }
    return s->entry[token];
}

static int32_t *grams_of(const struct lookahead *g, const struct lookahead_slot *s, int entry)
{
    return s->gram + (size_t)entry * (size_t)g->o.candidates * (size_t)(g->o.ngram - 1);
}

// Makes `gram` (N) the newest n-gram of its first token. If it is already stored it moves; beyond G the oldest is
// dropped.
static void pool_add(struct lookahead *g, struct lookahead_slot *s, const int32_t *gram)
{
    const size_t width = (size_t)g->o.ngram - 1, bytes = width * sizeof(int32_t);
    for (int i = 0; i < g->o.ngram; i++)
        if (gram[i] < 0 || gram[i] >= g->vocab)
            return;
    const int entry = entry_of(g, s, gram[0]);
    if (entry == NONE)
        return;
    int32_t *all = grams_of(g, s, entry);
    int at = 0, *n = &s->grams[entry];
    while (at < *n && memcmp(all + (size_t)at * width, gram + 1, bytes) != 0)
        at++;
    if (at == *n && *n < g->o.candidates)
        ++*n;
    else {
        at = at == *n ? 0 : at;
        memmove(all + (size_t)at * width, all + (size_t)(at + 1) * width, (size_t)(*n - 1 - at) * bytes);
    }
    memcpy(all + (size_t)(*n - 1) * width, gram + 1, bytes);
}

static void read_prompt(struct lookahead *g, struct lookahead_slot *s, const int32_t *token, int n)
{
    for (; g->o.prompt && s->read + g->o.ngram <= n; s->read++)
        pool_add(g, s, token + s->read);
}

// ---- the window

static int32_t text_token(const struct request *r, int level, int column)
{
    uint64_t x =
        (uint64_t)r->n * 0x9E3779B97F4A7C15u + (uint64_t)(level * MAX_WINDOW + column + 1) * 0xBF58476D1CE4E5B9u;
    x ^= x >> 31;
    x *= 0x94D049BB133111EBu;
    x ^= x >> 29;
    return r->token[x % (uint64_t)r->n];
}

// Fills the empty columns.
static void fill(struct lookahead *g, struct lookahead_slot *s, const struct request *r)
{
    if (!s->begun) {
        memset(s->level, -1, sizeof(s->level));
        s->levels = 1;
        s->begun = true;
    }
    for (int l = 0; l < s->levels; l++)
        for (int j = 0; j < g->o.window; j++)
            if (s->level[l][j] < 0)
                s->level[l][j] = text_token(r, l, j);
}

// Returns the target's most probable token after the newest level of column j, if the last draft, which was verified,
// contained it.
static int32_t newest(const struct lookahead *g, const struct lookahead_slot *s, const struct advance *a, int j)
{
    const int node = s->node[s->levels - 1][j];
    const int32_t token = node != NONE ? a->top[(size_t)node * (size_t)a->top_k] : NONE;
    return token < g->vocab ? token : NONE;
}

// Shifts the window by `by` tokens.
static void shift(struct lookahead *g, struct lookahead_slot *s, int by)
{
    for (int l = 0; l < s->levels; l++)
        for (int j = 0; j < g->o.window; j++)
            s->level[l][j] = j + by < g->o.window ? s->level[l][j + by] : NONE;
}

static void iterate(struct lookahead *g, struct lookahead_slot *s, const struct advance *a)
{
    int32_t next[MAX_WINDOW], gram[MAX_GRAM];
    const int last = g->o.ngram - 2;
    int by = a->n;
    for (int j = 0; j < g->o.window; j++)
        next[j] = newest(g, s, a, j);
    for (int j = 0; j < g->o.window && s->levels == g->o.ngram - 1; j++) {
        for (int l = 0; l <= last; l++)
            gram[l] = s->level[l][j];
        gram[last + 1] = next[j];
        pool_add(g, s, gram);
    }
    if (s->levels == g->o.ngram - 1) { // level l + 1 becomes level l, shifted by one token
        memmove(s->level[0], s->level[1], (size_t)last * sizeof(s->level[0]));
        by--;
    } else
        s->levels++;
    memcpy(s->level[s->levels - 1], next, sizeof(next));
    shift(g, s, by);
}

// Finds the nodes of the slot's last draft in the verified one, which may be another drafter's or have more nodes
// (parts.h). Returns whether it has the newest level of any column.
static bool find_nodes(const struct lookahead *g, struct lookahead_slot *s, const struct draft *d)
{
    int found[MAX_NODES];
    bool any = false;
    for (int i = 0; i < s->n_draft; i++) {
        const int parent = i > 0 ? found[s->parent[i]] : NONE;
        found[i] = i == 0 ? 0 : parent != NONE ? draft_child(d, parent, s->token[i]) : NONE;
    }
    for (int l = 0; l < s->levels; l++)
        for (int j = 0; j < g->o.window; j++) {
            const int node = s->node[l][j];
            s->node[l][j] = node != NONE ? found[node] : NONE;
            any = any || (l == s->levels - 1 && s->node[l][j] != NONE);
        }
    return any;
}

static bool lookahead_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    (void)err;
    struct lookahead *g = (struct lookahead *)d;
    for (int i = 0; i < n; i++) {
        struct lookahead_slot *s = &g->slot[a[i].slot];
        if (a[i].draft != NULL && s->n_draft > 0 && find_nodes(g, s, a[i].draft))
            iterate(g, s, &a[i]);
        else if (s->begun)
            shift(g, s, a[i].n);
        s->n_draft = 0;
    }
    return true;
}

static void lookahead_forget(struct drafter *d, int slot)
{
    struct lookahead *g = (struct lookahead *)d;
    struct lookahead_slot *s = &g->slot[slot];
    memset(s->entry, -1, (size_t)g->vocab * sizeof(*s->entry));
    s->n_pool = s->read = s->n_draft = 0;
    s->begun = false;
}

// ---- drafts

// Returns the node of `token` below `parent`, which is added if it does not exist; NONE: it does not fit.
static int add(const struct request *r, int parent, int depth, int32_t token)
{
    struct draft *d = r->draft;
    if (parent == NONE || depth > r->depth)
        return NONE;
    const int child = draft_child(d, parent, token);
    return child >= 0 ? child : draft_add(d, parent, token, DETERMINISTIC);
}

static void add_candidates(struct lookahead *g, const struct lookahead_slot *s, const struct request *r)
{
    const int32_t root = r->token[r->n - 1];
    if (root >= g->vocab || s->entry[root] == NONE)
        return;
    const int32_t *gram = grams_of(g, s, s->entry[root]);
    for (int i = s->grams[s->entry[root]] - 1; i >= 0; i--)
        for (int k = 0, node = 0; k < g->o.ngram - 1; k++)
            node = add(r, node, k + 1, gram[i * (g->o.ngram - 1) + k]);
}

static void add_window(struct lookahead *g, struct lookahead_slot *s, const struct request *r)
{
    for (int l = 0; l < s->levels; l++)
        for (int j = 0; j < g->o.window; j++) {
            const int parent = l > 0 ? s->node[l - 1][j] : j > 0 ? s->node[0][j - 1] : 0;
            s->node[l][j] = add(r, parent, 1 + j + l, s->level[l][j]);
        }
}

static bool lookahead_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    (void)err;
    struct lookahead *g = (struct lookahead *)d;
    for (int i = 0; i < n; i++) {
        struct lookahead_slot *s = &g->slot[r[i].slot];
        const struct draft *draft = r[i].draft;
        if (!s->begun)
            read_prompt(g, s, r[i].token, r[i].n);
        fill(g, s, &r[i]);
        add_candidates(g, s, &r[i]);
        add_window(g, s, &r[i]);
        s->n_draft = draft->n;
        memcpy(s->token, draft->token, (size_t)draft->n * sizeof(int32_t));
        memcpy(s->parent, draft->parent, (size_t)draft->n * sizeof(int32_t));
    }
    return true;
}

// ---- the drafter

static int most_nodes(const struct lookahead_options *o)
{
    return 1 + (o->window + o->candidates) * (o->ngram - 1);
}

static bool lookahead_check(const void *options, struct error *err)
{
    const struct lookahead_options *o = options;
    return most_nodes(o) <= MAX_NODES ||
           fail(
               err,
               "drafter lookahead: a draft has 1 + (window + candidates) (ngram - 1) = %d nodes; at most %d are possible",
               most_nodes(o), MAX_NODES);
}

static struct drafter *lookahead_create(const struct drafter_env *env, const void *options, struct error *err)
{
    (void)err;
    struct lookahead *g = xcalloc(1, sizeof(*g));
    g->o = *(const struct lookahead_options *)options;
    g->vocab = env->used_vocab;
    g->slots = env->slots;
    // Each position gives n-grams for its token and, at most, for the tokens of a window.
    const long most = (long)env->length * (1 + g->o.window);
    g->pool = most < g->vocab ? (int)most : g->vocab;
    const size_t grams = (size_t)g->pool * (size_t)g->o.candidates * (size_t)(g->o.ngram - 1);
    g->slot = xcalloc((size_t)g->slots, sizeof(*g->slot));
    for (int i = 0; i < g->slots; i++) {
        g->slot[i].entry = xcalloc((size_t)g->vocab, sizeof(int32_t));
        g->slot[i].grams = xcalloc((size_t)g->pool, sizeof(int));
        g->slot[i].gram = xcalloc(grams, sizeof(int32_t));
        lookahead_forget(&g->drafter, i);
    }
    g->drafter.nodes = most_nodes(&g->o);
    g->drafter.top = 1;
    g->drafter.host_bytes =
        (size_t)g->slots * (sizeof(*g->slot) + ((size_t)g->vocab + (size_t)g->pool + grams) * sizeof(int32_t));
    return &g->drafter;
}

static void lookahead_destroy(struct drafter *d)
{
    struct lookahead *g = (struct lookahead *)d;
    for (int i = 0; i < g->slots; i++) {
        free(g->slot[i].entry);
        free(g->slot[i].grams);
        free(g->slot[i].gram);
    }
    free(g->slot);
    free(g);
}

// clang-format off
static const struct option lookahead_options[] = {
    { "window", OPTION_INT, offsetof(struct lookahead_options, window), "7", "W: columns of the window, positions of an iteration", 1, MAX_WINDOW, NULL },
    { "ngram", OPTION_INT, offsetof(struct lookahead_options, ngram), "5", "N: tokens of an n-gram", 2, MAX_GRAM, NULL },
    { "candidates", OPTION_INT, offsetof(struct lookahead_options, candidates), "7", "G: n-grams stored for each first token, all of which are verified", 1, MAX_WINDOW, NULL },
    { "prompt", OPTION_BOOL, offsetof(struct lookahead_options, prompt), "true", "the prompt's n-grams are stored as well", 0, 0, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type lookahead_drafter = {
    .name = "lookahead",
    .summary = "Lookahead decoding: n-grams that the target finds by Jacobi iteration in its own pass",
    .options = lookahead_options,
    .options_size = sizeof(struct lookahead_options),
    .check = lookahead_check,
    .create = lookahead_create,
    .propose = lookahead_propose,
    .advance = lookahead_advance,
    .forget = lookahead_forget,
    .destroy = lookahead_destroy,
    .kinds = TAKES_DETERMINISTIC | TAKES_TREES,
    .memory = DRAFTS_OF_PASSES,
};
