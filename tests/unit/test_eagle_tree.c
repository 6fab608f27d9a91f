// test_eagle_tree.c - our trees against the original implementations: EAGLE-2's best-first trees and Medusa's fixed trees.
//
// The results of EAGLE's topK_genrate and Medusa's generate_candidates are in tests/cases (make_eagle_trees.py). Their rows are
// functions of seed and path, so that both sides use the same rows.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/draft.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "drafters/trees/tree_builder.h"
#include "verifier/exact/instance.h"
#include "tests/support/tests.h"
#include "tests/support/lone_drafter.h"
#include "tests/support/file_write.h"
#include "tests/support/numbers.h"

enum { VOCAB = 64, MAX_DEPTH = 8 };

static struct json *golden(const char *name)
{
    struct json *j = golden_json("%s.json", name);
    assert_int_equal(json_int(json_get(j, "vocab")), VOCAB);
    return j;
}

static int number(const struct json *object, const char *key)
{
    return (int)json_int(json_get(object, key));
}

static int at(const struct json *list, int i)
{
    return (int)json_int(json_at(list, (size_t)i));
}

// ---- rows

struct ranked { // tokens after a path by descending probability
    int32_t token[VOCAB];
    float log_p[VOCAB];
};

static struct ranked ranked_after(uint64_t seed, const int32_t *path, int n)
{
    double logit[VOCAB], total = 0;
    struct ranked r;
    for (int i = 0; i < n; i++)
        seed = seed * 1000003 + (uint64_t)path[i] + 1;
    for (int v = 0; v < VOCAB; v++) {
        logit[v] = (double)(splitmix(&seed) >> 40) * 0x1p-21 - 4;
        total += exp(logit[v]);
    }
    for (int k = 0; k < VOCAB; k++) {
        int best = 0;
        for (int v = 1; v < VOCAB; v++)
            if (logit[v] > logit[best])
                best = v;
        r.token[k] = best;
        r.log_p[k] = (float)(logit[best] - log(total));
        logit[best] = -INFINITY;
    }
    return r;
}

static struct ranked ranked_after_candidate(uint64_t seed, const struct tree_builder *g, int c)
{
    int32_t path[MAX_DEPTH];
    const int n = g->at[c].depth;
    for (int i = n; i > 0; i--, c = g->at[c].parent)
        path[i - 1] = g->at[c].token;
    return ranked_after(seed, path, n);
}

// Medusa's heads depend on the depth, not on the path.
static struct ranked ranked_at_depth(uint64_t seed, const struct tree_builder *g, int c)
{
    return ranked_after(seed, &(const int32_t){ g->at[c].depth }, 1);
}

// ---- a draft

struct bench {
    struct tree_shape shape;
    struct tree_builder tree_builder;
    struct own_draft own;
};

static void draft(struct bench *b, const struct tree_options *o, uint64_t seed,
                  struct ranked (*rows)(uint64_t seed, const struct tree_builder *g, int c))
{
    struct error err;
    const int32_t root = 0;
    assert_ok(tree_shape(&b->shape, o, "test", NULL, &err), err);
    builder_create(&b->tree_builder, &b->shape, VOCAB);
    const struct request r = {
        .n = 1, .token = &root, .draft = own_draft_begin(&b->own, root, MAX_NODES), .depth = MAX_DEPTH
    };
    builder_begin(&b->tree_builder, &r);
    for (bool more = b->tree_builder.n_frontier > 0; more; more = builder_next_level(&b->tree_builder, &r))
        for (int f = 0; f < b->tree_builder.n_frontier; f++) {
            const int c = b->tree_builder.frontier[f];
            const struct ranked row = rows(seed, &b->tree_builder, c);
            builder_add_top_k(&b->tree_builder, c, row.token, row.log_p, builder_top_k(&b->tree_builder, c), VOCAB);
        }
    builder_finish(&b->tree_builder, &b->own.draft);
}

static double score_of(const struct tree_builder *g, int node)
{
    int c = 0;
    while (g->at[c].node != node)
        c++;
    return g->at[c].score;
}

// ---- best-first trees

// Returns the largest difference of a score from the original's.
static double check_case(const struct json *j)
{
    static struct bench b;
    const struct json *tokens = json_get(j, "tokens"), *parents = json_get(j, "parents"),
                      *scores = json_get(j, "scores");
    const int n = number(j, "total_token"), seed = number(j, "seed");
    const struct tree_options o = { .tokens = number(j, "depth") + 1,
                                    .nodes = n - 1,
                                    .top = number(j, "top_k"),
                                    .pick = PICK_GREEDY,
                                    .distinct = true };
    double worst = 0;
    draft(&b, &o, (uint64_t)seed, ranked_after_candidate);
    assert_int_equal(json_count(tokens), n - 1);
    assert_int_equal(b.own.draft.n, n);
    for (int node = 1; node < n; node++) {
        const double score = json_number(json_at(scores, (size_t)node - 1)), ours = score_of(&b.tree_builder, node);
        if (b.own.token[node] != at(tokens, node - 1) || b.own.parent[node] != at(parents, node - 1))
            fail_msg("case %d: node %d is token %d below %d (%.7f), expected %d below %d (%.7f)", seed, node,
                     b.own.token[node], b.own.parent[node], ours, at(tokens, node - 1), at(parents, node - 1), score);
        worst = worse(worst, fabs(ours - score));
    }
    builder_destroy(&b.tree_builder);
    return worst;
}

TEST(best_first_trees_equal_those_of_eagle)
{
    enum { N_CASES = 200 };
    struct json *j = golden("eagle_trees");
    const struct json *cases = json_get(j, "cases");
    int near_ties = 0;
    double worst = 0;
    assert_int_equal(json_count(cases), N_CASES);
    for (size_t i = 0; i < N_CASES; i++) {
        if (json_number(json_get(json_at(cases, i), "margin")) < 1e-6) {
            near_ties++; // decided by rounding in the original
            continue;
        }
        worst = worse(worst, check_case(json_at(cases, i)));
    }
    printf("    %d trees, %d near-ties skipped; scores differ by at most %.2g\n", N_CASES, near_ties, worst);
    assert_true(worst <= 1e-5);
    assert_true(near_ties <= N_CASES / 100);
    json_free(j);
}

// ---- fixed trees

static int leaves(const struct draft *d)
{
    int n = 0;
    for (int node = 1; node < d->n; node++)
        n += draft_next_child(d, node, node) < 0;
    return n;
}

static void check_fixed(const char *name, const struct json *tree)
{
    static struct bench b;
    const struct json *nodes = json_get(tree, "nodes"), *inputs = json_get(tree, "candidates");
    char *text = xstrdup(name);
    const struct tree_options o = { .tokens = 4, .top = 8, .pick = PICK_GREEDY, .distinct = true, .tree = text };
    assert_int_equal(json_count(inputs), 20);
    for (int seed = 0; seed < 20; seed++) {
        const struct json *candidates = json_at(inputs, (size_t)seed);
        draft(&b, &o, (uint64_t)seed, ranked_at_depth);
        assert_int_equal(b.own.draft.n, json_count(candidates));
        assert_int_equal(leaves(&b.own.draft), json_count(nodes));
        for (size_t i = 0; i < json_count(nodes); i++) {
            const struct json *path = json_at(nodes, i); // the root's number, .., a leaf's
            for (int k = 1; k < (int)json_count(path); k++)
                if (b.own.parent[at(path, k)] != at(path, k - 1))
                    fail_msg("%s, input %d: node %d is below %d, expected %d", name, seed, at(path, k),
                             b.own.parent[at(path, k)], at(path, k - 1));
        }
        for (int node = 1; node < b.own.draft.n; node++) // in the same order
            assert_int_equal(b.own.token[node], at(candidates, node));
        builder_destroy(&b.tree_builder);
    }
    free(text);
}

TEST(fixed_trees_equal_those_of_medusa)
{
    struct json *j = golden("eagle_trees_fixed");
    const struct json *trees = json_get(j, "trees");
    int n = 0;
    for (const struct published_tree *t = published_trees; t->name != NULL; t++) {
        if (strcmp(t->name, "recycling_80") == 0) // not Medusa's
            continue;
        n++;
        if (json_get(trees, t->name) == NULL)
            fail_msg("tests/cases has no tree %s", t->name);
        check_fixed(t->name, json_get(trees, t->name));
    }
    assert_int_equal(json_count(trees), n);
    json_free(j);
}

RUN_TESTS(NULL, NULL)
