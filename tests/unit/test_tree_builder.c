// test_tree_builder.c - the shapes of drafts, and that what grow draws is what it says it drew.
//
// grow is given rows of a table instead of a model's, and a source of chance that walks through every outcome. What it
// drafts is judged by a rule, and the law of the text is added up: a token drawn in another way than its node says, a
// row that is not the one it was drawn from, an address used twice would all show. tests/exact/test_rules.c does the same for
// rules.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/draft.h"
#include "core/error.h"
#include "drafters/tree_builder.h"
#include "sampling/dist.h"
#include "sampling/outcomes.h"
#include "tests/support/check.h"
#include "verifier/rules/rule.h"

// texts of up to 4 tokens; the one behind text t by token x is t * VOCAB + 1 + x
enum { VOCAB = 3, DEPTH = 3, TEXTS = 121 };

struct table_instance {
    struct rows p, q;
    float p_row[TEXTS][VOCAB], q_row[TEXTS][VOCAB];
    int text[MAX_NODES]; // of each candidate, then of each node
    bool lies;           // what is drawn is drawn from the squares of the row that is reported
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

// Small whole numbers, many of them zero, and one that is not.
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
    *w = (struct table_instance){ .p = { VOCAB, p_row, NULL }, .q = { VOCAB, q_row, NULL } };
    for (int t = 0; t < TEXTS; t++) {
        make_row(w->p_row[t], &seed);
        make_row(w->q_row[t], &seed);
    }
}

// The k likeliest of a row, as a backend's `best` gives them.
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

// The row that children of a text are drawn from; room: (VOCAB)
static const float *sampled_from(const struct table_instance *w, int text, float *capacity)
{
    for (int x = 0; x < VOCAB; x++)
        capacity[x] = w->q_row[text][x] * (w->lies ? w->q_row[text][x] : 1);
    return capacity;
}

static struct tree_shape shape_of(const struct tree_options *o)
{
    struct error err;
    struct tree_shape s;
    if (!tree_shape(&s, o, "test", NULL, &err))
        fail_msg("%s", err.text);
    return s;
}

// How many rows were asked for.
static int build_draft(struct tree_builder *g, const struct request *r, struct table_instance *w)
{
    int asked = 0;
    builder_begin(g, r);
    w->text[0] = 0;
    for (bool more = g->n_frontier > 0; more; more = builder_next_level(g, r))
        for (int f = 0; f < g->n_frontier; f++, asked++) {
            int c = g->frontier[f], n = g->n;
            float capacity[VOCAB];
            if (g->shape->o.pick == PICK_GREEDY)
                give_top_k(g, c, w->q_row[w->text[c]]);
            else
                builder_sample_children(g, c, sampled_from(w, w->text[c], capacity), r);
            for (int i = n; i < g->n; i++)
                w->text[i] = w->text[c] * VOCAB + 1 + g->at[i].token;
        }
    builder_finish(g, r->draft);
    for (int c = 0; c < g->n; c++)
        if (g->at[c].node >= 0)
            w->text[g->at[c].node] = w->text[c];
    r->draft->q = &w->q;
    return asked;
}

// What the target alone would make of a text from here on, so many times.
static void go_on(const struct table_instance *w, int text, int length, double times, double *law)
{
    double p[VOCAB];
    if (length > DEPTH) {
        law[text] += times;
        return;
    }
    dist_from_row(p, w->p_row[text], VOCAB);
    for (int x = 0; x < VOCAB; x++)
        if (p[x] > 0)
            go_on(w, text * VOCAB + 1 + x, length + 1, times * p[x], law);
}

struct bench {
    struct draft draft;
    int32_t token[MAX_NODES], parent[MAX_NODES];
    uint8_t proposal[MAX_NODES];
    int32_t root;
};

static struct request request(struct bench *b, struct rng *rng, int capacity, int depth)
{
    b->draft = (struct draft){ 1, capacity, b->token, b->parent, b->proposal, NULL, NULL };
    b->token[0] = b->root = 1;
    b->parent[0] = -1;
    b->proposal[0] = DETERMINISTIC;
    return (struct request){ 0, 1, &b->root, rng, &b->draft, depth, NULL };
}

// Total variation between the text's law and the target's. No address comes twice.
static double distance_of(const struct tree_options *o, const char *rule_name, int capacity, int depth, uint64_t seed,
                          bool lies)
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
    w.lies = lies;
    go_on(&w, 0, 0, 1, expected);
    builder_create(&g, &shape, VOCAB);
    outcomes_begin(&out);
    while (outcomes_next(&out)) {
        struct request r = request(&b, &out.rng, capacity, depth);
        build_draft(&g, &r, &w);
        assert_true(b.draft.n <= capacity && draft_max_depth(&b.draft) <= depth);
        rule->verify(&b.draft, &w.p, NULL, &out.rng, &j);
        int text = 0;
        for (int i = 0; i < j.n; i++)
            text = text * VOCAB + 1 + j.token[i];
        go_on(&w, text, j.n, outcomes_probability(&out), found);
    }
    assert_int_equal(out.repeated, 0);
    for (int t = 0; t < TEXTS; t++)
        distance += fabs(expected[t] - found[t]) / 2;
    outcomes_end(&out);
    builder_destroy(&g);
    verification_destroy(&j);
    return distance;
}

static void check_law(const struct tree_options *o, const char *rule_name, int capacity, int depth, uint64_t seed)
{
    double distance = distance_of(o, rule_name, capacity, depth, seed, false);
    if (!(distance < 1e-12))
        fail_msg("%s, seed %d: the text's law is %g from the target's", rule_name, (int)seed, distance);
}

static void whatever_grows_the_text_has_the_targets_law(void **unused)
{
    (void)unused;
    const struct ints widths[] = {
        { 0 }, { 2, { 1, 1 } }, { 1, { 2 } }, { 1, { 4 } }, { 2, { 3, 1 } }, { 2, { 2, 2 } }
    };
    struct error err;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        for (int pick = PICK_SAMPLED; pick <= PICK_COUPLED; pick++)
            for (int distinct = 0; distinct < 2; distinct++) {
                struct tree_options o = { 2, widths[i], 0, 8, pick, distinct, NULL };
                struct tree_shape shape;
                if (!tree_shape(&shape, &o, "test", NULL, &err))
                    continue;
                for (uint64_t seed = 0; seed < (i >= 4 ? 2u : 20u); seed++) {
                    check_law(&o, "rejection", MAX_NODES, DEPTH, seed);
                    check_law(&o, "rejection", shape.nodes - 1, DEPTH, seed);
                    check_law(&o, "rejection", MAX_NODES, 1, seed);
                    check_law(&o, "rejection", 1, 0, seed);
                    if (pick == PICK_SAMPLED)
                        check_law(&o, "match", MAX_NODES, DEPTH, seed);
                }
            }
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int tokens = 1; tokens <= DEPTH; tokens++)
            for (int nodes = 1; nodes <= 20; nodes += 6) {
                struct tree_options o = {
                    tokens, { 0 }, nodes, 8, PICK_GREEDY, true, NULL
                }; // more than there are tokens
                check_law(&o, "rejection", MAX_NODES, DEPTH, seed);
                check_law(&o, "match", 3, 2, seed);
            }
    for (uint64_t seed = 0; seed < 20; seed++)
        for (int pick = PICK_SAMPLED; pick <= PICK_GREEDY; pick++)
            for (int distinct = 0; distinct < 2; distinct++) {
                struct tree_options o = { 4, { 0 }, 0, 8, pick, distinct, (char[]){ "[[0], [1], [1, 0], [0, 0]]" } };
                check_law(&o, "rejection", MAX_NODES, DEPTH, seed);
                check_law(&o, "traversal", MAX_NODES, DEPTH, seed);
                check_law(&o, "rejection", 4, DEPTH, seed);
                check_law(&o, "rejection", MAX_NODES, 1, seed);
            }
}

static void drawn_from_another_row_than_reported_it_has_not(void **unused)
{
    (void)unused;
    double worst[2] = { 0, 0 };
    for (int distinct = 0; distinct < 2; distinct++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            struct tree_options o = { 2, { 2, { 2, 1 } }, 0, 8, PICK_SAMPLED, distinct, NULL };
            worst[distinct] = fmax(worst[distinct], distance_of(&o, "rejection", MAX_NODES, DEPTH, seed, true));
            assert_true(distance_of(&o, "match", MAX_NODES, DEPTH, seed, true) < 1e-12); // it believes no one
        }
    assert_true(worst[0] > 1e-2 && worst[1] > 1e-2);
}

// What a cache must have room for. A best-first tree finds many more candidates than it asks after.
static void no_more_rows_are_asked_for_than_room_is_made_for(void **unused)
{
    (void)unused;
    static struct table_instance w;
    static struct bench b;
    const struct tree_options shapes[] = {
        { 3, { 0 }, 0, 8, PICK_GREEDY, true, NULL },
        { 1, { 0 }, 0, 8, PICK_GREEDY, true, NULL },
        { 4, { 3, { 3, 2, 1 } }, 0, 8, PICK_GREEDY, true, NULL },
        { 3, { 0 }, 9, 2, PICK_GREEDY, true, NULL },
        { 1, { 0 }, 9, 3, PICK_GREEDY, true, NULL },
        { 1, { 0 }, 0, 8, PICK_GREEDY, true, (char[]){ "[[0], [1], [2], [1, 0], [0, 0], [0, 0, 2], [0, 1]]" } },
    };
    const int most[] = { 2, 0, 9, 4, 0, 3 }, widest[] = { 1, 1, 3, 2, 3, 3 };
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct tree_builder g;
        make_table_instance(&w, 5);
        for (int t = 0; t < TEXTS; t++)
            for (int x = 0; x < VOCAB; x++)
                w.q_row[t][x] += 1; // every row has tokens enough
        const struct tree_shape shape = shape_of(&shapes[i]);
        builder_create(&g, &shape, VOCAB);
        struct request r = request(&b, NULL, MAX_NODES, DEPTH);
        assert_int_equal(build_draft(&g, &r, &w), 1 + most[i]);
        assert_int_equal(shape.asked, most[i]);
        assert_int_equal(shape.widest, widest[i]); // so many of the likeliest tokens are asked for
        builder_destroy(&g);
    }
}

static void independent_siblings_may_repeat_and_distinct_ones_run_out(void **unused)
{
    (void)unused;
    static struct table_instance w;
    static struct bench b;
    for (int distinct = 0; distinct < 2; distinct++) {
        const struct tree_options o = { 1, { 1, { 3 } }, 0, 8, PICK_SAMPLED, distinct, NULL };
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
            assert_int_equal(b.draft.n, distinct ? 3 : 4);
            for (int c = 1; c < b.draft.n; c++)
                assert_int_equal(b.proposal[c], distinct ? SAMPLED_WITHOUT_REPLACEMENT : SAMPLED);
            repeated += b.token[1] == b.token[2];
        }
        assert_true(fabs(all - 1) < 1e-12);
        assert_int_equal(repeated, distinct ? 0 : 4);
        outcomes_end(&out);
        builder_destroy(&g);
    }
}

struct log {
    struct rng rng; // first
    struct address at[200];
    int n;
};

static int first_possible(struct rng *self, const double *weight, int n, struct address at)
{
    struct log *l = (struct log *)self;
    int x = 0;
    l->at[l->n++] = at;
    while (x + 1 < n && !(weight[x] > 0))
        x++;
    return x;
}

// Nor that of a draft behind another root: chance used twice ties what is guessed to what came of the guesses before.
static void no_draw_has_the_address_of_another(void **unused)
{
    (void)unused;
    static struct table_instance w;
    static struct bench b;
    static const int32_t text[] = { 1, 2, 0, 1, 1 };
    const struct tree_options o = { 0, { 3, { 2, 2, 2 } }, 0, 8, PICK_SAMPLED, false, NULL };
    const struct tree_shape shape = shape_of(&o);
    struct tree_builder g;
    struct log l = { .rng = { .pick = first_possible } };
    make_table_instance(&w, 3);
    builder_create(&g, &shape, VOCAB);
    for (int root = 0; root < 5; root++) {
        struct request r = request(&b, &l.rng, MAX_NODES, DEPTH);
        r.token = text;
        r.n = root + 1;
        l.rng.root = root;
        build_draft(&g, &r, &w);
    }
    assert_int_equal(l.n, 5 * 14);
    for (int i = 0; i < l.n; i++) {
        assert_int_equal(l.at[i].purpose, FOR_DRAFT);
        for (int k = 0; k < i; k++)
            assert_false(l.at[i].position == l.at[k].position && l.at[i].node == l.at[k].node);
    }
    builder_destroy(&g);
}

// All texts of up to `depth` tokens, best first: the tree that keeps the likeliest must keep just the first of these.
static void a_best_first_tree_keeps_the_likeliest_texts(void **unused)
{
    (void)unused;
    static struct table_instance w;
    static struct bench b;
    for (uint64_t seed = 0; seed < 40; seed++)
        for (int nodes = 1; nodes <= 39; nodes += 2) {
            // nothing is left out of a frontier
            const struct tree_options o = { DEPTH, { 0 }, nodes, 27, PICK_GREEDY, true, NULL };
            const struct tree_shape shape = shape_of(&o);
            struct tree_builder g;
            double score[40] = { 1 };
            int above = 0;
            make_table_instance(&w, seed);
            builder_create(&g, &shape, VOCAB);
            struct request r = request(&b, NULL, MAX_NODES, DEPTH);
            build_draft(&g, &r, &w);
            assert_int_equal(b.draft.n, 1 + nodes);
            for (int t = 0; t < 13; t++) {
                double q[VOCAB];
                dist_from_row(q, w.q_row[t], VOCAB);
                for (int x = 0; x < VOCAB; x++)
                    score[t * VOCAB + 1 + x] = score[t] * q[x];
            }
            double least = 1;
            for (int node = 1; node < b.draft.n; node++) {
                assert_int_equal(w.text[node], w.text[b.parent[node]] * VOCAB + 1 + b.token[node]);
                least = score[w.text[node]] < least ? score[w.text[node]] : least;
            }
            for (int t = 1; t < 40; t++)
                above += score[t] > least * (1 + 1e-5);
            assert_true(above < nodes);
            builder_destroy(&g);
        }
}

// Each node of a fixed tree is the token of its rank after its parent, whatever the order of the paths.
static void a_fixed_tree_has_the_likeliest_of_its_ranks(void **unused)
{
    (void)unused;
    static struct table_instance w;
    static struct bench b;
    const int parents[] = { -1, 0, 0, 1, 1, 2, 4 }, ranks[] = { 0, 0, 2, 0, 1, 2, 1 };
    const struct tree_options o = {
        4, { 0 }, 0, 8, PICK_GREEDY, true, (char[]){ "[[2, 2], [0], [0, 1, 1], [0, 1], [2], [0, 0]]" }
    };
    const struct tree_shape shape = shape_of(&o);
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct tree_builder g;
        make_table_instance(&w, seed);
        builder_create(&g, &shape, VOCAB);
        struct request r = request(&b, NULL, MAX_NODES, DEPTH);
        build_draft(&g, &r, &w);
        assert_int_equal(b.draft.n, 7);
        for (int node = 1; node < 7; node++) {
            const float *row = w.q_row[w.text[parents[node]]];
            int above = 0;
            for (int x = 0; x < VOCAB; x++)
                above += row[x] > row[b.token[node]] || (row[x] == row[b.token[node]] && x < b.token[node]);
            assert_int_equal(b.parent[node], parents[node]);
            assert_int_equal(b.proposal[node], DETERMINISTIC);
            assert_int_equal(above, ranks[node]);
        }
        builder_destroy(&g);
    }
}

// A row may have fewer tokens left than a family wants: what lies behind its k is another row's.
static void no_more_children_than_likeliest_tokens_are_given(void **unused)
{
    (void)unused;
    static struct bench b;
    const int32_t token[] = { 2, 7, 0, 1, 3 };
    const float log_p[] = { -1, -2, -3, -4, -5 };
    const struct tree_options o = { 4, { 1, { 4 } }, 0, 8, PICK_GREEDY, true, NULL };
    const struct tree_shape shape = shape_of(&o);
    for (int k = 0; k <= 5; k++) {
        struct tree_builder g;
        struct request r = request(&b, NULL, MAX_NODES, DEPTH);
        builder_create(&g, &shape, 8);
        builder_begin(&g, &r);
        builder_add_top_k(&g, 0, token, log_p, k, 5); // 7 is no token
        const int expected = k == 0 ? 0 : k == 1 ? 1 : k - 1;
        assert_int_equal(g.n, 1 + expected);
        for (int c = 1; c < g.n; c++)
            assert_int_equal(g.at[c].token, token[c == 1 ? 0 : c]);
        builder_destroy(&g);
    }
}

static void options_that_do_not_go_together_are_refused(void **unused)
{
    (void)unused;
    char gaps[] = "[[0], [2]]", orphan[] = "[[0], [1, 0]]", unknown[] = "eagle_26";
    const struct {
        struct tree_options o;
        const char *says;
    } wrong[] = {
        { { 4, { 1, { 2 } }, 9, 8, PICK_GREEDY, true, NULL }, "test: widths, nodes and tree are different trees; " },
        { { 4, { 1, { 2 } }, 0, 8, PICK_GREEDY, true, gaps }, "test: widths, nodes and tree are different trees; " },
        { { 4, { 0 }, 9, 8, PICK_SAMPLED, true, NULL }, "test: a best-first tree (nodes: 9) keeps the likeliest" },
        { { 4, { 0 }, 0, 8, PICK_SAMPLED, true, gaps }, "test: this tree leaves out some of the likeliest tokens" },
        { { 4, { 0 }, 0, 8, PICK_COUPLED, true, gaps }, "test: pick: coupled has one token for each place" },
        { { 4, { 0 }, 0, 8, PICK_GREEDY, true, orphan }, "test: tree: path [1, 0]: its beginning" },
        { { 4, { 0 }, 0, 8, PICK_GREEDY, true, unknown }, "test: tree: eagle_26 is no published tree (eagle_25, " },
        { { 64, { 2, { 64, 64 } }, 0, 8, PICK_GREEDY, true, NULL }, "test: a draft of 513 nodes; at most 512 fit" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct tree_shape s;
        struct error err = { "" };
        assert_false(tree_shape(&s, &wrong[i].o, "test", NULL, &err));
        if (strncmp(err.text, wrong[i].says, strlen(wrong[i].says)) != 0)
            fail_msg("%s", err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fixed_tree_has_the_likeliest_of_its_ranks),
        cmocka_unit_test(no_more_children_than_likeliest_tokens_are_given),
        cmocka_unit_test(options_that_do_not_go_together_are_refused),
        cmocka_unit_test(whatever_grows_the_text_has_the_targets_law),
        cmocka_unit_test(drawn_from_another_row_than_reported_it_has_not),
        cmocka_unit_test(no_more_rows_are_asked_for_than_room_is_made_for),
        cmocka_unit_test(independent_siblings_may_repeat_and_distinct_ones_run_out),
        cmocka_unit_test(no_draw_has_the_address_of_another),
        cmocka_unit_test(a_best_first_tree_keeps_the_likeliest_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
