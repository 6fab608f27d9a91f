// test_tree_builder.c - the shapes of drafts, and that sampled draft tokens are drawn as reported.
//
// The tree builder gets rows of a table instead of a model's, and a random source that enumerates every outcome. A rule verifies
// the drafts, and the output distribution is summed up: a token drawn in another way than its node reports, a row of q that it
// was not drawn from, or an address used twice would change it. tests/exact/test_rules.c does the same for rules.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/draft.h"
#include "core/error.h"
#include "drafters/trees/tree_builder.h"
#include "sampling/dist.h"
#include "sampling/outcomes.h"
#include "tests/support/tests.h"
#include "tests/support/lone_drafter.h"
#include "verifier/rules/rule.h"

// texts of up to 4 tokens; text t followed by token x is t * VOCAB + 1 + x
enum { VOCAB = 3, DEPTH = 3, TEXTS = 121 };

struct table_instance {
    struct rows p, q;
    float p_row[TEXTS][VOCAB], q_row[TEXTS][VOCAB];
    int text[MAX_NODES]; // of each candidate, then of each node
    bool misreports;     // tokens are drawn from the squares of the reported row
};

static const float *p_row(struct rows *self, int node)
{
    const struct table_instance *w = (struct table_instance *)self;
    return w->p_row[w->text[node]];
}

static const float *q_row(struct rows *self, int node)
{
    const struct table_instance *w = (struct table_instance *)((char *)self - offsetof(struct table_instance, q));
    return w->q_row[w->text[node]];
}

// Small integers, many of them zero, at least one positive.
static void make_row(float *row, uint64_t *state)
{
    int sure = 0;
    for (int x = 0; x < VOCAB; x++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        int weight = (int)(*state >> 33) & 7;
        row[x] = weight < 3 ? 0 : (float)weight;
        sure = (int)(*state >> 40) & 1 ? x : sure;
    }
    row[sure] += 1;
}

static void make_table_instance(struct table_instance *w, uint64_t seed)
{
    *w = (struct table_instance){ .p = { VOCAB, p_row }, .q = { VOCAB, q_row } };
    for (int t = 0; t < TEXTS; t++) {
        make_row(w->p_row[t], &seed);
        make_row(w->q_row[t], &seed);
    }
}

// The tokens of a row by descending probability, as a backend returns the top k.
static void give_top_k(struct tree_builder *g, int c, const float *row)
{
    int32_t token[VOCAB];
    float log_p[VOCAB];
    double left[VOCAB];
    dist_from_row(left, row, VOCAB);
    for (int k = 0; k < VOCAB; k++) {
        int best = 0;
        for (int x = 1; x < VOCAB; x++)
            if (left[x] > left[best])
                best = x;
        token[k] = best;
        log_p[k] = (float)log(left[best]);
        left[best] = -1;
    }
    for (int k = 0; k < VOCAB; k++)
        log_p[k] = isnan(log_p[k]) ? -INFINITY : log_p[k];
    builder_add_top_k(g, c, token, log_p, VOCAB, VOCAB);
}

// The row that children of a text are drawn from; row: (VOCAB)
static const float *sampled_from(const struct table_instance *w, int text, float *row)
{
    for (int x = 0; x < VOCAB; x++)
        row[x] = w->q_row[text][x] * (w->misreports ? w->q_row[text][x] : 1);
    return row;
}

static struct tree_shape shape_of(const struct tree_options *o)
{
    struct error err;
    struct tree_shape s;
    assert_ok(tree_shape(&s, o, "test", NULL, &err), err);
    return s;
}

// Returns the number of rows requested.
static int build_draft(struct tree_builder *g, const struct request *r, struct table_instance *w)
{
    int requested = 0;
    builder_begin(g, r);
    w->text[0] = 0;
    for (bool more = g->n_frontier > 0; more; more = builder_next_level(g, r))
        for (int f = 0; f < g->n_frontier; f++, requested++) {
            int c = g->frontier[f], n = g->n;
            float row[VOCAB];
            if (g->shape->o.pick == PICK_GREEDY)
                give_top_k(g, c, w->q_row[w->text[c]]);
            else
                builder_sample_children(g, c, sampled_from(w, w->text[c], row), r);
            for (int i = n; i < g->n; i++)
                w->text[i] = w->text[c] * VOCAB + 1 + g->at[i].token;
        }
    builder_finish(g, r->draft);
    for (int c = 0; c < g->n; c++)
        if (g->at[c].node >= 0)
            w->text[g->at[c].node] = w->text[c];
    r->draft->q = &w->q;
    return requested;
}

// Adds to `total` the distribution of the target's continuations of a text, times `probability`.
static void continue_text(const struct table_instance *w, int text, int length, double probability, double *total)
{
    double p[VOCAB];
    if (length > DEPTH) {
        total[text] += probability;
        return;
    }
    dist_from_row(p, w->p_row[text], VOCAB);
    for (int x = 0; x < VOCAB; x++)
        if (p[x] > 0)
            continue_text(w, text * VOCAB + 1 + x, length + 1, probability * p[x], total);
}

struct bench {
    struct own_draft own;
    int32_t root;
};

static struct request request(struct bench *b, struct rng *rng, int capacity, int depth)
{
    b->root = 1;
    return (struct request){
        .n = 1, .token = &b->root, .rng = rng, .draft = own_draft_begin(&b->own, 1, capacity), .depth = depth
    };
}

// Total variation distance between the output distribution and the target's. Also checks that no address is used twice.
static double distance_of(const struct tree_options *o, const char *rule_name, int capacity, int depth, uint64_t seed,
                          bool misreports)
{
    static struct table_instance w;
    static struct bench b;
    const struct rule *rule = rule_named(rule_name);
    const struct tree_shape shape = shape_of(o);
    struct verification j = verification_create(shape.nodes, VOCAB);
    struct tree_builder g;
    struct outcomes out;
    double expected[TEXTS] = { 0 }, found[TEXTS] = { 0 }, distance = 0;
    make_table_instance(&w, seed);
    w.misreports = misreports;
    continue_text(&w, 0, 0, 1, expected);
    builder_create(&g, &shape, VOCAB);
    outcomes_begin(&out);
    while (outcomes_next(&out)) {
        struct request r = request(&b, &out.rng, capacity, depth);
        build_draft(&g, &r, &w);
        assert_true(b.own.draft.n <= capacity && draft_max_depth(&b.own.draft) <= depth);
        rule->verify(rule, &b.own.draft, &w.p, NULL, &out.rng, &j);
        int text = 0;
        for (int i = 0; i < j.n; i++)
            text = text * VOCAB + 1 + j.token[i];
        continue_text(&w, text, j.n, outcomes_probability(&out), found);
    }
    assert_int_equal(out.repeated, 0);
    for (int t = 0; t < TEXTS; t++)
        distance += fabs(expected[t] - found[t]) / 2;
    outcomes_end(&out);
    builder_destroy(&g);
    verification_destroy(&j);
    return distance;
}

static void check_distribution(const struct tree_options *o, const char *rule_name, int capacity, int depth,
                               uint64_t seed)
{
    double distance = distance_of(o, rule_name, capacity, depth, seed, false);
    if (!(distance < 1e-12))
        fail_msg("%s, seed %d: the output distribution is %g from the target's", rule_name, (int)seed, distance);
}

TEST(every_draft_keeps_the_output_distribution)
{
    const struct ints widths[] = {
        { 0 }, { 2, { 1, 1 } }, { 1, { 2 } }, { 1, { 4 } }, { 2, { 3, 1 } }, { 2, { 2, 2 } }
    };
    struct error err;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        for (int pick = PICK_SAMPLED; pick <= PICK_COUPLED; pick++)
            for (int distinct = 0; distinct < 2; distinct++) {
                struct tree_options o = { 2, widths[i], 0, 8, pick, distinct, NULL, 0 };
                struct tree_shape shape;
                if (!tree_shape(&shape, &o, "test", NULL, &err))
                    continue;
                for (uint64_t seed = 0; seed < (i >= 4 ? 2u : 20u); seed++) {
                    check_distribution(&o, "rejection", MAX_NODES, DEPTH, seed);
                    check_distribution(&o, "rejection", shape.nodes - 1, DEPTH, seed);
                    check_distribution(&o, "rejection", MAX_NODES, 1, seed);
                    check_distribution(&o, "rejection", 1, 0, seed);
                    if (pick == PICK_SAMPLED)
                        check_distribution(&o, "match", MAX_NODES, DEPTH, seed);
                }
            }
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int tokens = 1; tokens <= DEPTH; tokens++)
            for (int nodes = 1; nodes <= 20; nodes += 6) {
                struct tree_options o = {
                    tokens, { 0 }, nodes, 8, PICK_GREEDY, true, NULL, 0
                }; // more nodes than tokens in some cases
                check_distribution(&o, "rejection", MAX_NODES, DEPTH, seed);
                check_distribution(&o, "match", 3, 2, seed);
            }
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int pick = PICK_SAMPLED; pick <= PICK_GREEDY; pick++)
            for (int distinct = 0; distinct < 2; distinct++) {
                struct tree_options o = { 4, { 0 }, 0, 8, pick, distinct, (char[]){ "[[0], [1], [1, 0], [0, 0]]" }, 0 };
                check_distribution(&o, "rejection", MAX_NODES, DEPTH, seed);
                check_distribution(&o, "traversal", MAX_NODES, DEPTH, seed);
                check_distribution(&o, "rejection", 4, DEPTH, seed);
                check_distribution(&o, "rejection", MAX_NODES, 1, seed);
            }
}

TEST(a_misreported_row_changes_the_output_distribution)
{
    double worst[2] = { 0, 0 };
    for (int distinct = 0; distinct < 2; distinct++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            struct tree_options o = { 2, { 2, { 2, 1 } }, 0, 8, PICK_SAMPLED, distinct, NULL, 0 };
            worst[distinct] = fmax(worst[distinct], distance_of(&o, "rejection", MAX_NODES, DEPTH, seed, true));
            assert_true(distance_of(&o, "match", MAX_NODES, DEPTH, seed, true) < 1e-12); // does not use q
        }
    assert_true(worst[0] > 1e-2 && worst[1] > 1e-2);
}

// The cache is sized by this number. A best-first tree has many more candidates than rows.
TEST(no_more_rows_are_requested_than_the_capacity)
{
    static struct table_instance w;
    static struct bench b;
    const struct tree_options shapes[] = {
        { 3, { 0 }, 0, 8, PICK_GREEDY, true, NULL, 0 },
        { 1, { 0 }, 0, 8, PICK_GREEDY, true, NULL, 0 },
        { 4, { 3, { 3, 2, 1 } }, 0, 8, PICK_GREEDY, true, NULL, 0 },
        { 3, { 0 }, 9, 2, PICK_GREEDY, true, NULL, 0 },
        { 1, { 0 }, 9, 3, PICK_GREEDY, true, NULL, 0 },
        { 1, { 0 }, 0, 8, PICK_GREEDY, true, (char[]){ "[[0], [1], [2], [1, 0], [0, 0], [0, 0, 2], [0, 1]]" }, 0 },
    };
    const int max_rows[] = { 2, 0, 9, 4, 0, 3 }, widest[] = { 1, 1, 3, 2, 3, 3 };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct tree_builder g;
        make_table_instance(&w, 5);
        for (int t = 0; t < TEXTS; t++)
            for (int x = 0; x < VOCAB; x++)
                w.q_row[t][x] += 1; // every token has a positive probability
        const struct tree_shape shape = shape_of(&shapes[i]);
        builder_create(&g, &shape, VOCAB);
        struct request r = request(&b, NULL, shape.nodes, DEPTH); // a draft that just fits
        assert_int_equal(build_draft(&g, &r, &w), 1 + max_rows[i]);
        assert_int_equal(shape.evaluated, max_rows[i]);
        assert_int_equal(shape.max_children, widest[i]); // the k of the top k
        builder_destroy(&g);
    }
}

TEST(siblings_repeat_with_replacement_and_run_out_without)
{
    static struct table_instance w;
    static struct bench b;
    for (int distinct = 0; distinct < 2; distinct++) {
        const struct tree_options o = { 1, { 1, { 3 } }, 0, 8, PICK_SAMPLED, distinct, NULL, 0 };
        const struct tree_shape shape = shape_of(&o);
        struct tree_builder g;
        struct outcomes out;
        make_table_instance(&w, 1);
        memcpy(w.q_row[0], (float[VOCAB]){ 0.5f, 0, 0.5f }, sizeof(w.q_row[0]));
        builder_create(&g, &shape, VOCAB);
        outcomes_begin(&out);
        int repeated = 0;
        double all = 0;
        while (outcomes_next(&out)) {
            struct request r = request(&b, &out.rng, MAX_NODES, DEPTH);
            build_draft(&g, &r, &w);
            all += outcomes_probability(&out);
            assert_int_equal(b.own.draft.n, distinct ? 3 : 4);
            for (int c = 1; c < b.own.draft.n; c++)
                assert_int_equal(b.own.proposal[c], distinct ? SAMPLED_WITHOUT_REPLACEMENT : SAMPLED);
            repeated += b.own.token[1] == b.own.token[2];
        }
        assert_true(fabs(all - 1) < 1e-12);
        assert_int_equal(repeated, distinct ? 0 : 4);
        outcomes_end(&out);
        builder_destroy(&g);
    }
}

// A row may have fewer tokens than a family has children: memory after its k belongs to another row.
TEST(no_more_children_are_added_than_the_top_k)
{
    static struct bench b;
    const int32_t token[] = { 2, 5, 0, 1, 3 };
    const float log_p[] = { -1, -2, -3, -4, -5 };
    const struct tree_options o = { 4, { 1, { 4 } }, 0, 8, PICK_GREEDY, true, NULL, 0 };
    const struct tree_shape shape = shape_of(&o);
    for (int k = 0; k <= 5; k++) {
        struct tree_builder g;
        struct request r = request(&b, NULL, MAX_NODES, DEPTH);
        builder_create(&g, &shape, 8);
        builder_begin(&g, &r);
        builder_add_top_k(&g, 0, token, log_p, k, 5); // 5 is a padding id
        const int expected = k == 0 ? 0 : k == 1 ? 1 : k - 1;
        assert_int_equal(g.n, 1 + expected);
        for (int c = 1; c < g.n; c++)
            assert_int_equal(g.at[c].token, token[c == 1 ? 0 : c]);
        builder_destroy(&g);
        builder_create(&g, &shape, 1 + k);
        builder_begin(&g, &r);
        assert_int_equal(builder_top_k(&g, 0), k < 4 ? 1 + k : 4); // of a vocabulary of 1 + k ids
        builder_destroy(&g);
    }
}

// A row's rounded log-probability may be above 0; no child is better than its parent. The root has no pending row.
TEST(scores_do_not_increase_along_a_path)
{
    static struct bench b;
    const int32_t token[] = { 2, 0 };
    const float log_p[] = { 0x1p-20f, -14 };
    const struct tree_options o = { 3, { 0 }, 4, 2, PICK_GREEDY, true, NULL, 0 };
    const struct tree_shape shape = shape_of(&o);
    struct tree_builder g;
    struct request r = request(&b, NULL, MAX_NODES, DEPTH);
    builder_create(&g, &shape, VOCAB);
    builder_begin(&g, &r);
    assert_int_equal(g.at[0].row, -1);
    for (bool more = true; more; more = builder_next_level(&g, &r))
        for (int f = 0; f < g.n_frontier; f++)
            builder_add_top_k(&g, g.frontier[f], token, log_p, 2, VOCAB);
    for (int c = 1; c < g.n; c++)
        assert_true(g.at[c].score == g.at[g.at[c].parent].score + (g.at[c].token == 0 ? -14 : 0));
    builder_destroy(&g);
}

TEST(inconsistent_options_are_refused)
{
    char gaps[] = "[[0], [2]]", orphan[] = "[[0], [1, 0]]", unknown[] = "eagle_26";
    const struct {
        struct tree_options o;
        const char *message;
    } wrong[] = {
        { { 4, { 1, { 2 } }, 9, 8, PICK_GREEDY, true, NULL, 0 }, "test: widths, nodes and tree are different trees; " },
        { { 4, { 1, { 2 } }, 0, 8, PICK_GREEDY, true, gaps, 0 }, "test: widths, nodes and tree are different trees; " },
        { { 4, { 0 }, 9, 8, PICK_SAMPLED, true, NULL, 0 },
          "test: a best-first tree (nodes: 9) keeps the most probable" },
        { { 4, { 0 }, 0, 8, PICK_SAMPLED, true, gaps, 0 }, "test: this tree skips some of the top-k tokens" },
        { { 4, { 0 }, 0, 8, PICK_GREEDY, true, NULL, 0.5 },
          "test: temperature is that of sampled draft tokens; pick: greedy" },
        { { 4, { 0 }, 0, 8, PICK_COUPLED, true, gaps, 0 }, "test: pick: coupled has one token per position" },
        { { 4, { 0 }, 0, 8, PICK_GREEDY, true, orphan, 0 }, "test: tree: path [1, 0]: its parent" },
        { { 4, { 0 }, 0, 8, PICK_GREEDY, true, unknown, 0 },
          "test: tree: eagle_26 is not a published tree (eagle_25, " },
        { { 64, { 2, { 64, 64 } }, 0, 8, PICK_GREEDY, true, NULL, 0 },
          "test: expected a draft of at most 512 nodes, found more" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct tree_shape s;
        struct error err = { "" };
        assert_false(tree_shape(&s, &wrong[i].o, "test", NULL, &err));
        if (strncmp(err.text, wrong[i].message, strlen(wrong[i].message)) != 0)
            fail_msg("%s", err.text);
    }
}

RUN_TESTS(NULL, NULL)
