// recycling.c - Token Recycling (Luo et al. 2024, arXiv 2408.08696): stores for each token the tokens that the target
// last found most probable after it.
//
// The target's pass predicts what may follow every node of a draft, accepted or not. The most probable tokens after the
// last node with some token replace those that were stored for it (an adjacency matrix), and a fixed tree over ranks
// takes the next draft from the matrix. With `past` all texts share one matrix, as in the paper. Without it each text
// begins with an empty one, so that it does not depend on earlier texts.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "drafters/trees/tree.h"

struct recycling_options {
    char *tree;
    bool past;
};

struct recycling {
    struct drafter drafter; // must be first
    struct tree tree;
    char *shown; // the tree as a list in text
    bool past;
    int vocab, k;  // k: number of ranks in the tree
    int32_t *next; // (slots, or 1, vocab, k) -1: not known
};

static int ranks(const struct tree *t)
{
    int most = 0;
    for (int i = 1; i < t->n; i++)
        most = t->node[i].rank > most ? t->node[i].rank : most;
    return most + 1;
}

static void recycling_destroy(struct drafter *d)
{
    struct recycling *g = (struct recycling *)d;
    free(g->shown);
    free(g->next);
    free(g);
}

static struct drafter *recycling_create(const struct drafter_env *env, const void *options, struct error *err)
{
    struct recycling *g = xcalloc(1, sizeof(*g));
    struct error why;
    if (!tree_read(((const struct recycling_options *)options)->tree, env->beside, &g->tree, &why)) {
        fail(err, "drafter recycling: %s", why.text);
        recycling_destroy(&g->drafter);
        return NULL;
    }
    g->vocab = env->used_vocab;
    g->k = ranks(&g->tree);
    if (g->k > g->vocab && g->vocab > 0) {
        fail(err, "drafter recycling: tree: has rank %d; the vocabulary has %d ids", g->k - 1, g->vocab);
        recycling_destroy(&g->drafter);
        return NULL;
    }
    g->past = ((const struct recycling_options *)options)->past;
    const size_t n = (g->past ? 1 : (size_t)env->slots) * (size_t)g->vocab * (size_t)g->k;
    g->next = xcalloc(n, sizeof(*g->next));
    memset(g->next, -1, n * sizeof(*g->next));
    g->shown = tree_write(&g->tree);
    g->drafter.nodes = g->tree.n;
    g->drafter.top = g->k;
    g->drafter.host_bytes = n * sizeof(*g->next);
    g->drafter.resolved[0] = (struct resolved){ "tree", g->shown };
    return &g->drafter;
}

// Returns the matrix of the slot's tokens: (vocab, k).
static int32_t *matrix(const struct recycling *g, int slot)
{
    return g->next + (g->past ? 0 : (size_t)slot * (size_t)g->vocab * (size_t)g->k);
}

static void recycling_forget(struct drafter *d, int slot)
{
    struct recycling *g = (struct recycling *)d;
    if (!g->past)
        memset(matrix(g, slot), -1, (size_t)g->vocab * (size_t)g->k * sizeof(*g->next));
}

static bool recycling_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    (void)err;
    struct recycling *g = (struct recycling *)d;
    for (int i = 0; i < n; i++)
        for (int node = 0; a[i].draft != NULL && node < a[i].draft->n; node++) {
            const int32_t token = a[i].draft->token[node];
            if (token < g->vocab)
                memcpy(matrix(g, a[i].slot) + (size_t)token * (size_t)g->k,
                       a[i].top + (size_t)node * (size_t)a[i].top_k, (size_t)g->k * sizeof(*g->next));
        }
    return true;
}

// Returns the draft token for a tree's node, below draft node `parent`; -1: none.
static int32_t successor(const struct recycling *g, const int32_t *matrix, const struct draft *d, int parent, int rank)
{
    const int32_t token = parent >= 0 ? d->token[parent] : g->vocab;
    const int32_t next = token < g->vocab ? matrix[(size_t)token * (size_t)g->k + (size_t)rank] : -1;
    return next < g->vocab ? next : -1; // excludes padding
}

static bool recycling_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    (void)err;
    const struct recycling *g = (struct recycling *)d;
    int node[MAX_NODES];
    for (int i = 0; i < n; i++) {
        node[0] = 0;
        for (int t = 1; t < g->tree.n; t++) {
            const struct tree_node *of = &g->tree.node[t];
            const int parent = node[of->parent];
            const int32_t token =
                of->depth <= r[i].depth ? successor(g, matrix(g, r[i].slot), r[i].draft, parent, of->rank) : -1;
            node[t] = token >= 0 ? draft_add(r[i].draft, parent, token, DETERMINISTIC) : -1;
        }
    }
    return true;
}

static enum draft_memory recycling_remembers(const void *options)
{
    return ((const struct recycling_options *)options)->past ? DRAFTS_OF_OTHERS : DRAFTS_OF_PASSES;
}

// clang-format off
static const struct option recycling_options[] = {
    { "tree", OPTION_TEXT, offsetof(struct recycling_options, tree), "recycling_80", "ranks of draft tokens: a published tree's name, a list of paths as in [[0], [0, 0], [1]], or a .json file", 0, 0, NULL },
    { "past", OPTION_BOOL, offsetof(struct recycling_options, past), "false", "one matrix for all texts; then drafts depend on what was decoded before", 0, 0, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type recycling_drafter = {
    .name = "recycling",
    .summary = "Token Recycling: a tree of the tokens that the target last found most probable after each token",
    .options = recycling_options,
    .options_size = sizeof(struct recycling_options),
    .create = recycling_create,
    .propose = recycling_propose,
    .advance = recycling_advance,
    .forget = recycling_forget,
    .destroy = recycling_destroy,
    .kinds = TAKES_DETERMINISTIC | TAKES_TREES,
    .remembers = recycling_remembers,
};
