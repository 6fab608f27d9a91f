// test_recycling.c - drafts of `recycling` and `lookahead` are those of plain references, on 200 random histories each: an adjacency matrix
// kept as a list of all observations, and a window kept by position. The target is a random function of the last two tokens.
#include <stdlib.h>
#include <string.h>

#include "core/draft.h"
#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "drafters/trees/tree.h"
#include "tests/support/tests.h"
#include "tests/support/numbers.h"
#include "tests/support/lone_drafter.h"

enum { LENGTH = 90, NODES = 256, VOCAB = 12, TEXTS = 3, TOP = 8 };

// ---- a history: texts, drafts, and what the target found most probable after each node

struct observed {
    struct own_draft own;
    int32_t top[NODES * TOP];
};

static int32_t most_probable(int32_t before, int32_t last, int rank)
{
    return (int32_t)((uint32_t)(before * 31 + last * 7 + 5) % VOCAB + (uint32_t)rank) % VOCAB;
}

static struct request begin(struct observed *o, int slot, const int32_t *text, int n)
{
    own_draft_begin(&o->own, text[n - 1], below(5) > 0 ? NODES : 1 + below(40));
    return (struct request){
        .slot = slot, .n = n, .token = text, .draft = &o->own.draft, .depth = below(5) > 0 ? 60 : below(6)
    };
}

// Accepts a path of the draft at random. Returns the advance; the text is extended.
static struct advance accept(struct observed *o, int slot, int32_t *text, int *n, int32_t *node, int k)
{
    struct draft *d = &o->own.draft;
    int at = 0, m = 0;
    for (int i = 0; i < d->n; i++)
        for (int rank = 0; rank < k; rank++)
            o->top[i * k + rank] =
                most_probable(d->parent[i] >= 0 ? d->token[d->parent[i]] : text[*n - 2], d->token[i], rank);
    for (;;) {
        node[m++] = at;
        int child = draft_next_child(d, at, at);
        while (child >= 0 && below(2))
            child = draft_next_child(d, at, child);
        if (child < 0)
            break;
        text[(*n)++] = d->token[child];
        at = child;
    }
    text[(*n)++] = below(3) ? o->top[at * k] : below(VOCAB);
    return (struct advance){
        .slot = slot, .n = m, .node = node, .draft = d, .top = o->top, .top_k = k, .sequence = text, .length = *n
    };
}

// line: freed
static struct drafter *open_with(char *line, int slots)
{
    struct error err;
    const struct drafter_env env = { .slots = slots, .length = LENGTH, .used_vocab = VOCAB };
    struct drafter *d = lone_drafter(line, &env, &err);
    assert_ok(d != NULL, err);
    free(line);
    return d;
}

static void same(const struct draft *a, const struct draft *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->token, b->token, (size_t)a->n * sizeof(int32_t));
    assert_memory_equal(a->parent, b->parent, (size_t)a->n * sizeof(int32_t));
    for (int i = 0; i < a->n; i++)
        assert_int_equal(a->proposal[i], DETERMINISTIC);
}

// ---- Token Recycling

struct seen { // an observation: what followed a token
    int32_t token, top[TOP];
};

static void recycling_of(struct draft *d, const struct tree *t, const struct seen *seen, int n, int depth)
{
    int node[MAX_NODES] = { 0 };
    for (int i = 1; i < t->n; i++) {
        const int parent = node[t->node[i].parent];
        int last = n - 1;
        node[i] = -1;
        if (parent < 0 || t->node[i].depth > depth)
            continue;
        while (last >= 0 && seen[last].token != d->token[parent])
            last--;
        if (last >= 0)
            node[i] = draft_add(d, parent, seen[last].top[t->node[i].rank], DETERMINISTIC);
    }
}

TEST(recycling_drafts_what_was_last_seen)
{
    static const char *const trees[] = { "recycling_80", "[[0],[1],[0,0],[2],[0,0,0],[0,1]]", "[[0],[0,0],[0,0,0]]" };
    static struct observed o;
    static struct own_draft plain;
    static struct seen seen[TEXTS * LENGTH * NODES];
    struct error err;
    int drafted = 0;
    for (int history = 0; history < 200; history++) {
        const char *name = trees[below(3)];
        struct tree tree;
        const bool past = below(2);
        struct drafter *d = open_with(xformat("recycling:tree=%s,past=%s", name, past ? "true" : "false"), 2);
        int n_seen = 0, k = d->top;
        assert_ok(tree_read(name, NULL, &tree, &err), err);
        for (int t = 0; t < TEXTS; t++) {
            int32_t text[LENGTH + NODES], node[NODES];
            int n = 2 + below(10);
            const int slot = below(2);
            for (int i = 0; i < n; i++)
                text[i] = below(VOCAB);
            while (n < LENGTH) {
                struct request r = begin(&o, slot, text, n);
                own_draft_begin(&plain, text[n - 1], o.own.draft.capacity);
                assert_ok(d->type->propose(d, &r, 1, &err), err);
                recycling_of(&plain.draft, &tree, seen, n_seen, r.depth);
                same(&o.own.draft, &plain.draft);
                drafted += o.own.draft.n - 1;
                const struct advance a = accept(&o, slot, text, &n, node, k);
                assert_ok(d->type->advance(d, &a, 1, &err), err);
                for (int i = 0; i < o.own.draft.n; i++, n_seen++) {
                    seen[n_seen].token = o.own.token[i];
                    memcpy(seen[n_seen].top, o.top + i * k, (size_t)k * sizeof(int32_t));
                }
            }
            d->type->forget(d, slot);
            n_seen = past ? n_seen : 0;
        }
        drafter_destroy(d);
    }
    print_message("%d draft tokens\n", drafted);
    assert_true(drafted > 10000);
}

// ---- Lookahead: a token for a position of the text, made by so many iterations

struct plain_window {
    int w, n, g;
    int of[16][2 * LENGTH + 2 * NODES]; // [level][position of the text]; -1: none
    int filled, steps;                  // levels
    int32_t gram[20000][16];            // all n-grams found, in order; found again: at the end
    int grams;
};

static void plain_gram(struct plain_window *p, const int *gram)
{
    int same_first = 0, oldest = -1;
    for (int i = 0; i < p->grams; i++) {
        bool equal = true;
        for (int k = 0; k < p->n; k++)
            equal = equal && p->gram[i][k] == gram[k];
        if (equal) {
            memmove(p->gram[i], p->gram[i + 1], (size_t)(p->grams - i - 1) * sizeof(p->gram[0]));
            p->grams--;
            break;
        }
    }
    for (int i = p->grams - 1; i >= 0; i--)
        if (p->gram[i][0] == gram[0]) {
            same_first++;
            oldest = i;
        }
    if (same_first == p->g) {
        memmove(p->gram[oldest], p->gram[oldest + 1], (size_t)(p->grams - oldest - 1) * sizeof(p->gram[0]));
        p->grams--;
    }
    for (int k = 0; k < p->n; k++)
        p->gram[p->grams][k] = gram[k];
    p->grams++;
}

static int plain_add(struct draft *d, int parent, int depth, int limit, int token)
{
    for (int i = 1; i < d->n && parent >= 0; i++)
        if (d->parent[i] == parent && d->token[i] == token && depth <= limit)
            return i;
    return parent < 0 || depth > limit ? -1 : draft_add(d, parent, token, DETERMINISTIC);
}

// The token of the text that stands for a place that no iteration filled (splitmix64's constants).
static int32_t token_of_text(const int32_t *text, int n, int level, int column)
{
    uint64_t x = (uint64_t)n * 0x9E3779B97F4A7C15u + (uint64_t)(level * 64 + column + 1) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 31) * 0x94D049BB133111EBu;
    return text[(x ^ x >> 29) % (uint64_t)n];
}

// The draft for a text of n tokens: tokens for the positions n + j + l, column j and level l.
static void plain_lookahead(struct plain_window *p, struct draft *d, const struct request *r, int node[16][64])
{
    for (int i = p->grams - 1; i >= 0; i--)
        for (int k = 1, at = 0; k < p->n && p->gram[i][0] == d->token[0]; k++)
            at = plain_add(d, at, k, r->depth, p->gram[i][k]);
    for (int l = 0; l < p->filled; l++)
        for (int j = 0; j < p->w; j++)
            node[l][j] = plain_add(d,
                                   l > 0   ? node[l - 1][j]
                                   : j > 0 ? node[0][j - 1]
                                           : 0,
                                   1 + j + l, r->depth, p->of[l][r->n + j + l]);
}

TEST(lookahead_drafts_its_window_and_its_ngrams)
{
    static struct observed o;
    static struct own_draft plain;
    static struct plain_window p;
    struct error err;
    int drafted = 0, found = 0;
    for (int history = 0; history < 200; history++) {
        p.w = 1 + below(6), p.n = 2 + below(4), p.g = 1 + below(5);
        const bool prompt = below(2);
        struct drafter *d = open_with(
            xformat("lookahead:window=%d,ngram=%d,candidates=%d,prompt=%s", p.w, p.n, p.g, prompt ? "true" : "false"),
            1);
        for (int t = 0; t < TEXTS; t++) {
            int32_t text[LENGTH + NODES], accepted[NODES];
            int n = 2 + below(10), node[16][64];
            memset(p.of, -1, sizeof(p.of));
            p.grams = 0;
            p.filled = 1;
            for (int i = 0; i < n; i++)
                text[i] = below(VOCAB);
            for (int i = 0; prompt && i + p.n <= n; i++) {
                int gram[16];
                for (int k = 0; k < p.n; k++)
                    gram[k] = text[i + k];
                plain_gram(&p, gram);
            }
            while (n < LENGTH) {
                struct request r = begin(&o, 0, text, n);
                own_draft_begin(&plain, text[n - 1], o.own.draft.capacity);
                assert_ok(d->type->propose(d, &r, 1, &err), err);
                for (int l = 0; l < p.filled; l++)
                    for (int j = 0; j < p.w; j++)
                        if (p.of[l][n + j + l] < 0)
                            p.of[l][n + j + l] = token_of_text(text, n, l, j);
                plain_lookahead(&p, &plain.draft, &r, node);
                same(&o.own.draft, &plain.draft);
                drafted += o.own.draft.n - 1;
                const int before = n;
                const struct advance a = accept(&o, 0, text, &n, accepted, 1);
                assert_ok(d->type->advance(d, &a, 1, &err), err);
                bool any = false; // without any leaf nothing was iterated
                for (int j = 0; j < p.w; j++)
                    any = any || node[p.filled - 1][j] >= 0;
                for (int j = 0; j < p.w && any; j++) { // the target's token after the newest level of each column
                    const int at = before + j + p.filled, leaf = node[p.filled - 1][j];
                    int gram[16];
                    p.of[p.filled][at] = leaf >= 0 ? o.top[leaf] : -1;
                    bool whole = p.filled == p.n - 1 && leaf >= 0;
                    for (int l = 0; l < p.filled; l++)
                        gram[l] = p.of[l][before + j + l];
                    gram[p.filled] = p.of[p.filled][at];
                    for (int l = 0; l <= p.filled; l++)
                        whole = whole && gram[l] >= 0;
                    if (whole) {
                        plain_gram(&p, gram);
                        found++;
                    }
                }
                if (!any)
                    continue;
                if (p.filled < p.n - 1)
                    p.filled++;
                else
                    memmove(p.of[0], p.of[1], sizeof(p.of[0]) * (size_t)p.filled);
            }
            d->type->forget(d, 0);
        }
        drafter_destroy(d);
    }
    print_message("%d draft tokens, %d n-grams\n", drafted, found);
    assert_true(drafted > 10000 && found > 1000);
}

RUN_TESTS(NULL, NULL)
