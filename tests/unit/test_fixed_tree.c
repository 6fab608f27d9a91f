// test_fixed_tree.c - fixed trees: the published trees, lists of paths, and invalid lists.
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/trees/tree.h"
#include "verifier/exact/instance.h"
#include "tests/support/tests.h"

// Medusa's and EAGLE's are compared with the originals in test_eagle_tree.c.
TEST(published_trees_are_in_the_order_of_their_levels)
{
    static const int recycling[] = { 1, 8, 21, 25, 15, 8, 3 }; // nodes per level, from the paper's repository
    static struct tree t;
    struct error err;
    int level[7] = { 0 };
    for (const struct published_tree *p = published_trees; p->name != NULL; p++) {
        assert_true(tree_read(p->name, NULL, &t, &err));
        for (int node = 1; node < t.n; node++) {
            const struct tree_node *a = &t.node[node], *b = &t.node[node - 1];
            assert_true(a->parent < node && a->depth == t.node[a->parent].depth + 1 && a->rank <= 9);
            assert_true(a->depth > b->depth || a->parent > b->parent || a->rank > b->rank);
        }
    }
    assert_true(tree_read("recycling_80", NULL, &t, &err));
    for (int node = 0; node < t.n; node++)
        level[t.node[node].depth]++;
    assert_memory_equal(level, recycling, sizeof(level));
}

TEST(a_list_of_paths_may_be_in_any_order)
{
    static struct tree t;
    struct error err;
    assert_true(tree_read("[[1], [0, 3], [0], [0, 0], [0, 3, 63]]", NULL, &t, &err));
    const struct tree_node expected[] = {
        { -1, 0, 0 }, { 0, 0, 1 }, { 0, 1, 1 }, { 1, 0, 2 }, { 1, 3, 2 }, { 4, 63, 3 }
    };
    assert_int_equal(t.n, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(t.node[i].parent, expected[i].parent);
        assert_int_equal(t.node[i].rank, expected[i].rank);
        assert_int_equal(t.node[i].depth, expected[i].depth);
    }
    assert_int_equal(tree_max_depth(&t), 3);
    assert_int_equal(tree_children(&t, 1), 2);
    assert_int_equal(tree_children(&t, 2), 0);
    assert_true(tree_has_gaps(&t));
    assert_true(tree_read("[[0], [1], [0, 0]]", NULL, &t, &err));
    assert_false(tree_has_gaps(&t));
}

TEST(a_file_holds_a_list_or_an_object_with_a_list)
{
    static const char *const texts[] = { "[[0], [1]]", "{\"heads\": 2, \"tree\": [[0], [1]]}" };
    char folder[] = "/tmp/speclab-tree-XXXXXX";
    static struct tree t;
    struct error err;
    assert_non_null(mkdtemp(folder));
    char *path = xformat("%s/t.json", folder);
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        fputs(texts[i], f);
        fclose(f);
        assert_true(tree_read(path, NULL, &t, &err));
        assert_int_equal(t.n, 3);
        assert_true(tree_read("t.json", folder, &t, &err));
        assert_int_equal(t.n, 3);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    free(path);
}

TEST(invalid_trees_are_refused)
{
    static const struct {
        const char *text, *message;
    } wrong[] = {
        { "eagle", "tree: eagle is not a published tree (eagle_25, mc_sim_7b_63, " },
        { "", "tree:  is not a published tree" },
        { "[]", "tree: expected a list of 1 to 511 paths, as in [[0], [0, 0], [1]]" },
        { "[[0], 1]", "tree: path 2: expected a list of 1 to 16 ranks" },
        { "[[]]", "tree: path 1: expected a list of 1 to 16 ranks" },
        { "[[0], [0, -1]]", "tree: path 2: expected ranks from 0 to 63" },
        { "[[0], [64]]", "tree: path 2: expected ranks from 0 to 63" },
        { "[[0], [0.5]]", "tree: path 2: expected ranks from 0 to 63" },
        { "[[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]]", "tree: path 1: expected a list of 1 to 16 ranks" },
        { "[[0], [0]]", "tree: path [0] appears twice" },
        { "[[0], [1, 2]]", "tree: path [1, 2]: its parent, the path without the last rank, is not in the tree" },
        { "[[0], ", "tree:" },
        { "/nowhere/tree.json", "/nowhere/tree.json:" },
    };
    static struct tree t;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct error err = { "" };
        assert_false(tree_read(wrong[i].text, NULL, &t, &err));
        if (strncmp(err.text, wrong[i].message, strlen(wrong[i].message)) != 0)
            fail_msg("%s: %s", wrong[i].text, err.text);
    }
}

// The expected number of accepted draft tokens of a tree.
static double expected_depth(const struct tree *t, const double *share, int ranks)
{
    double product[MAX_NODES] = { 1 }, sum = 0;
    for (int node = 1; node < t->n; node++) {
        const struct tree_node *a = &t->node[node];
        product[node] = product[a->parent] * share[(a->depth - 1) * ranks + a->rank];
        sum += product[node];
    }
    return sum;
}

// Against all trees of n draft tokens with at most two levels and three children per node, siblings in order. In every second round a later
// sibling may be accepted more often.
TEST(no_tree_has_a_larger_expected_depth_than_tree_best)
{
    enum { RANKS = 3, PATHS = RANKS + RANKS * RANKS };
    uint64_t seed = 1;
    for (int round = 0; round < 20; round++) {
        double share[2 * RANKS];
        for (int i = 0; i < 2 * RANKS; i++) // descending by rank, roughly
            share[i] =
                (double)(splitmix(&seed) >> 11) * 0x1p-53 / (round % 2 == 0 ? (1 + i % RANKS) * (1 + i % RANKS) : 1);
        for (int d = 0; d < 2 && round % 2 == 0; d++)
            for (int r = 1; r < RANKS; r++)
                if (share[d * RANKS + r] > share[d * RANKS + r - 1])
                    share[d * RANKS + r] = share[d * RANKS + r - 1];
        double best[PATHS + 1] = { 0 };
        for (int set = 0; set < 1 << PATHS; set++) {
            double sum = 0;
            int n = 0;
            bool connected = true;
            for (int i = 0; i < PATHS; i++) {
                if (!(set >> i & 1))
                    continue;
                const int parent = (i - RANKS) / RANKS;
                n++;
                sum += i < RANKS ? share[i] : share[parent] * share[RANKS + (i - RANKS) % RANKS];
                connected = connected && (i < RANKS || (set >> parent & 1)) && (i % RANKS == 0 || (set >> (i - 1) & 1));
            }
            if (connected && sum > best[n])
                best[n] = sum;
        }
        for (int n = 1; n <= PATHS; n++) {
            static struct tree t, again;
            struct error err;
            const double expected = tree_best(share, 2, RANKS, n, &t);
            assert_int_equal(t.n, n + 1);
            assert_true(fabs(expected_depth(&t, share, RANKS) - best[n]) <= 1e-12 * best[n]);
            assert_true(fabs(expected - best[n]) <= 1e-12 * best[n]);
            char *text = tree_write(&t);
            assert_true(tree_read(text, NULL, &again, &err));
            assert_memory_equal(&t, &again, sizeof(t));
            free(text);
        }
    }
}

// No node is deeper than the given shares, and memory after them is not read.
TEST(the_best_tree_is_no_deeper_than_the_given_shares)
{
    static struct tree t;
    const double share[] = { 0.5, 0.4, 0.3, 0.2, 1, 1, 1, 1 };
    tree_best(share, 2, 2, 20, &t);
    assert_int_equal(t.n, 7);
    assert_int_equal(tree_max_depth(&t), 2);
    tree_best(share, 1, 2, 20, &t);
    assert_int_equal(t.n, 3);
    assert_int_equal(tree_max_depth(&t), 1);
    assert_int_equal(tree_max_depth(&(struct tree){ 0 }), 0);
}

TEST(nodes_of_probability_0_are_in_no_tree)
{
    static struct tree t;
    const double share[] = { 0.5, 0.2, 0, 0 };
    tree_best(share, 2, 2, 9, &t);
    assert_int_equal(t.n, 3);
}

RUN_TESTS(NULL, NULL)
