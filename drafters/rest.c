// rest.c - REST (He et al. 2024, arXiv 2311.08252): a tree of the continuations that the last tokens have in a
// datastore.
//
// The longest suffix of the text that occurs in the datastore is looked up, with at most `longest` and at least
// `shortest` tokens. Its occurrences are adjacent in the suffix array. If there are more than `choices`, that many are
// taken, evenly spaced. Their continuations form a prefix tree, whose most frequent nodes are the draft. A node is
// never less frequent than its children.
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/formats/datastore.h"
#include "drafters/drafter.h"
#include "models/paths.h"
#include "models/tokenizers/tokenizer.h"

enum { MAX_DEPTH = 64 };

struct rest_options {
    char *datastore;
    int longest, shortest, choices, nodes, tokens;
};

struct continuations { // the continuations after one draft token: a range of the choices, which share the tokens up to
                       // it
    int from, to, depth, parent;
    int32_t token;
};

struct rest {
    struct drafter drafter; // must be first
    struct rest_options o;
    struct datastore store;
    int32_t *choice;            // (choices, tokens) continuations in their order; -1 after the end of a document
    struct continuations *heap; // (choices * tokens) the most frequent first
    int n_heap;
};

static void rest_destroy(struct drafter *d)
{
    struct rest *g = (struct rest *)d;
    datastore_close(&g->store);
    free(g->choice);
    free(g->heap);
    free(g);
}

static bool open_store(struct rest *g, const struct drafter_env *env, const char *name, struct error *err)
{
    struct error why;
    char *path = model_path(name, env->beside, &why);
    const bool ok =
        path != NULL ? datastore_open(&g->store, path, &why) : fail(&why, "%s: there is no such file", name);
    free(path);
    if (!ok)
        return fail(err, "drafter rest: datastore: %s", why.text);
    if (env->tokenizer != NULL && !hash_equal(g->store.header->vocabulary, tokenizer_tokens_hash(env->tokenizer)))
        return fail(err, "drafter rest: datastore: %s was made with another vocabulary than the target's", name);
    if (g->store.header->vocab > (uint32_t)env->used_vocab)
        return fail(err, "drafter rest: datastore: %s has a vocabulary of %u ids, the target %d", name,
                    (unsigned)g->store.header->vocab, env->used_vocab);
    return true;
}

static struct drafter *rest_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct rest_options *o = options;
    struct rest *g = xcalloc(1, sizeof(*g));
    g->o = *o;
    g->drafter.nodes = 1 + o->nodes;
    const size_t choices = (size_t)o->choices;
    g->choice = xcalloc(choices * (size_t)o->tokens, sizeof(*g->choice));
    g->heap = xcalloc(choices * (size_t)o->tokens, sizeof(*g->heap));
    if (o->shortest > o->longest)
        fail(err, "drafter rest: shortest (%d) is more than longest (%d)", o->shortest, o->longest);
    else if (open_store(g, env, o->datastore, err)) {
        g->drafter.identity = g->store.header->text;
        return &g->drafter;
    }
    rest_destroy(&g->drafter);
    return NULL;
}

// ---- the lookup

// Finds the longest suffix of the text in the datastore: *n tokens, and where its occurrences begin in the suffix
// array. A suffix matches only if the shorter ones do, so its length is found by bisection. Returns the number of
// occurrences.
static uint64_t longest_match(const struct rest *g, const struct request *r, int *n, uint64_t *from)
{
    int low = g->o.shortest - 1, high = g->o.longest < r->n ? g->o.longest : r->n;
    uint64_t found = 0, at;
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        const uint64_t count = datastore_find(&g->store, r->token + r->n - middle, middle, &at);
        if (count == 0) {
            high = middle - 1;
            continue;
        }
        low = *n = middle;
        found = count;
        *from = at;
    }
    return found;
}

// Takes the tokens after some of the occurrences, in their order. Returns how many these are.
static int take_choices(struct rest *g, uint64_t from, uint64_t found, int n)
{
    const int m = found < (uint64_t)g->o.choices ? (int)found : g->o.choices;
    const int32_t end = (int32_t)g->store.header->vocab;
    for (int i = 0; i < m; i++) // prefetches: all first reads are under way before the first is needed
        __builtin_prefetch(&g->store.suffix[from + found * (uint64_t)i / (uint64_t)m]);
    for (int i = 0; i < m; i++) {
        int32_t *to = g->choice + (size_t)i * (size_t)g->o.tokens;
        const uint64_t at = (uint64_t)g->store.suffix[from + found * (uint64_t)i / (uint64_t)m] + (uint64_t)n;
        bool more = true;
        for (int k = 0; k < g->o.tokens; k++) {
            const int32_t token = more ? datastore_token(&g->store, at + (uint64_t)k) : end;
            more = token != end;
            to[k] = more ? token : -1;
        }
    }
    return m;
}

// ---- the tree

static bool is_before(const struct continuations *a, const struct continuations *b)
{
    const int more = (a->to - a->from) - (b->to - b->from);
    return more != 0 ? more > 0 : a->depth != b->depth ? a->depth < b->depth : a->from < b->from;
}

static void push(struct rest *g, struct continuations c)
{
    int at = g->n_heap++;
    for (; at > 0 && is_before(&c, &g->heap[(at - 1) / 2]); at = (at - 1) / 2)
        g->heap[at] = g->heap[(at - 1) / 2];
    g->heap[at] = c;
}

static struct continuations pop(struct rest *g)
{
    const struct continuations top = g->heap[0], last = g->heap[--g->n_heap];
    int at = 0;
    for (int child; (child = 2 * at + 1) < g->n_heap; at = child) {
        child += child + 1 < g->n_heap && is_before(&g->heap[child + 1], &g->heap[child]);
        if (!is_before(&g->heap[child], &last))
            break;
        g->heap[at] = g->heap[child];
    }
    g->heap[at] = last;
    return top;
}

// Adds the tokens at `depth` of choices from .. to - 1 to the heap. Equal ones are adjacent, since the choices are
// sorted.
static void push_children(struct rest *g, int from, int to, int depth, int parent)
{
    for (int i = from, end; i < to; i = end) {
        const int32_t token = g->choice[i * g->o.tokens + depth];
        for (end = i + 1; end < to && g->choice[end * g->o.tokens + depth] == token;)
            end++;
        if (token >= 0)
            push(g, (struct continuations){ i, end, depth, parent, token });
    }
}

static void build(struct rest *g, const struct request *r, int choices)
{
    const int depth = g->o.tokens < r->depth ? g->o.tokens : r->depth;
    g->n_heap = 0;
    if (depth > 0)
        push_children(g, 0, choices, 0, 0);
    for (int nodes = 0; nodes < g->o.nodes && g->n_heap > 0; nodes++) {
        const struct continuations c = pop(g);
        const int node = draft_add(r->draft, c.parent, c.token, DETERMINISTIC);
        if (node < 0)
            return;
        if (c.depth + 1 < depth)
            push_children(g, c.from, c.to, c.depth + 1, node);
    }
}

static bool rest_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    (void)err;
    struct rest *g = (struct rest *)d;
    for (int i = 0; i < n; i++) {
        uint64_t from;
        int length;
        const uint64_t found = longest_match(g, &r[i], &length, &from);
        if (found > 0)
            build(g, &r[i], take_choices(g, from, found, length));
    }
    return true;
}

// clang-format off
static const struct option rest_options[] = {
    { "datastore", OPTION_PATH, offsetof(struct rest_options, datastore), NULL, "a file that `speclab features --datastore` wrote", 0, 0, NULL },
    { "longest", OPTION_INT, offsetof(struct rest_options, longest), "16", "maximum number of tokens to match", 1, 256, NULL },
    { "shortest", OPTION_INT, offsetof(struct rest_options, shortest), "2", "minimum number of tokens to match", 1, 256, NULL },
    { "choices", OPTION_INT, offsetof(struct rest_options, choices), "500", "maximum number of occurrences whose continuations are counted", 1, 100000, NULL },
    { "nodes", OPTION_INT, offsetof(struct rest_options, nodes), "64", "maximum number of draft tokens", 1, MAX_NODES - 1, NULL },
    { "tokens", OPTION_INT, offsetof(struct rest_options, tokens), "10", "depth of the tree", 1, MAX_DEPTH, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type rest_drafter = {
    .name = "rest",
    .summary = "REST: a tree of the continuations of the last tokens in a datastore (speclab features --datastore)",
    .options = rest_options,
    .options_size = sizeof(struct rest_options),
    .create = rest_create,
    .propose = rest_propose,
    .destroy = rest_destroy,
    .kinds = TAKES_DETERMINISTIC | TAKES_TREES,
};
