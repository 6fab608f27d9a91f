// test_typical.c - Medusa's typical acceptance on rows computed by hand: threshold, depth, and the choice among several
// paths. The rule's end_probabilities and verify share one function, so comparing them would test nothing.
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "sampling/rng.h"
#include "tests/support/check.h"
#include "verifier/rules/rule.h"

enum { NODES = 8, WIDE = 64 };

struct table { // rows of nodes: all of them the same, or one each
    struct rows rows;
    const float *row[NODES];
};

static const float *table_row(struct rows *self, int node)
{
    return ((const struct table *)self)->row[node];
}

struct scene {
    struct draft draft;
    int32_t token[NODES], parent[NODES];
    uint8_t proposal[NODES];
    struct table p;
    struct verification out;
    double end[NODES];
};

static void begin(struct scene *s, int vocab, const float *root)
{
    *s = (struct scene){ 0 };
    s->draft =
        (struct draft){ .n = 1, .capacity = NODES, .token = s->token, .parent = s->parent, .proposal = s->proposal };
    s->parent[0] = -1;
    s->p = (struct table){ { vocab, table_row }, { root } };
    s->out = verification_create(NODES, vocab);
}

// Adds a draft token, with the target's row after it.
static int child(struct scene *s, int parent, int token, const float *row)
{
    const int node = draft_add(&s->draft, parent, token, DETERMINISTIC);
    s->p.row[node] = row;
    return node;
}

// The node at which the path ends, by verify and by end_probabilities.
static int end_node(struct scene *s)
{
    const struct rule *typical = rule_named("typical");
    void *options = xcalloc(1, typical->options_size);
    struct philox source = philox_source(3, 0);
    assert_true(options_read(NULL, "typical", typical->options, options, NULL)); // epsilon 0.09, delta 0.3
    typical->verify(typical, &s->draft, &s->p.rows, options, &source.rng, &s->out);
    typical->end_probabilities(typical, &s->draft, &s->p.rows, options, s->end);
    const int last = s->out.node[s->out.n - 1];
    for (int node = 0; node < s->draft.n; node++)
        assert_true(s->end[node] == (node == last));
    options_free(typical->options, options);
    free(options);
    return last;
}

// One draft token after the root: whether it is accepted, and its threshold.
static bool is_accepted(int vocab, const float *row, int token, double *threshold)
{
    struct scene s;
    begin(&s, vocab, row);
    const int only = child(&s, 0, token, row);
    const bool yes = end_node(&s) == only;
    assert_true(fabs(s.out.trial_p[only] - (double)row[token]) < 1e-8); // rows are normalised
    *threshold = s.out.trial_q[only];
    verification_destroy(&s.out);
    return yes;
}

// H is the entropy in nats; the threshold is the smaller one of 0.09 and 0.3 e^-H.
static void a_draft_token_above_the_lower_threshold_is_accepted(void **unused)
{
    double t;
    // H = 1/2 ln 2 + 1/2 ln 2 = ln 2: 0.3 / 2 = 0.15 is more than 0.09.
    static const float even[2] = { 0.5F, 0.5F };
    assert_true(is_accepted(2, even, 1, &t) && fabs(t - 0.09) < 1e-15);
    // 7/8 and 1/8: H = 3 ln 2 - 7/8 ln 7 = 0.3768, 0.3 e^-H = 0.2058. 1/8 is between the two: it is accepted.
    static const float steep[2] = { 0.875F, 0.125F };
    assert_true(is_accepted(2, steep, 1, &t) && fabs(t - 0.09) < 1e-15);
    // 15/16 and 1/16: the threshold is 0.09 again, and 0.0625 is below it.
    static const float steeper[2] = { 0.9375F, 0.0625F };
    assert_false(is_accepted(2, steeper, 1, &t));
    assert_true(fabs(t - 0.09) < 1e-15);
    // 64 equal ones: H = ln 64, 0.3 / 64 = 0.0046875, and 1/64 = 0.015625 is above it, though far below 0.09.
    static float flat[WIDE];
    for (int i = 0; i < WIDE; i++)
        flat[i] = 1.0F / WIDE;
    assert_true(is_accepted(WIDE, flat, 63, &t) && fabs(t - 0.0046875) < 1e-15);
    // 1/2, and 63 of 1/126: H = 1/2 ln 2 + 1/2 ln 126 = ln(252) / 2, 0.3 / sqrt(252) = 0.018898; 1/126 is below it.
    flat[0] = 0.5F;
    for (int i = 1; i < WIDE; i++)
        flat[i] = 1.0F / 126;
    assert_false(is_accepted(WIDE, flat, 63, &t));
    assert_true(fabs(t - 0.3 / sqrt(252)) < 1e-8); // 1/126 is no float
    // A token of probability 0 adds nothing to the entropy, and is never accepted.
    static const float certain[3] = { 0, 1, 0 };
    assert_true(is_accepted(3, certain, 1, &t) && t == 0.09);
    assert_false(is_accepted(3, certain, 2, &t));
}

// Both children are accepted leaves: the more probable one is taken, in either order.
static void among_equally_deep_paths_the_more_probable_is_taken(void **unused)
{
    static const float row[4] = { 0.25F, 0.5F, 0.125F, 0.125F };
    for (int first = 0; first < 2; first++) {
        struct scene s;
        begin(&s, 4, row);
        const int a = child(&s, 0, first, row), b = child(&s, 0, 1 - first, row);
        assert_int_equal(end_node(&s), first == 1 ? a : b);
        assert_int_equal(s.out.n, 2);
        assert_int_equal(s.out.token[0], 1);
        verification_destroy(&s.out);
    }
}

// Paths of two: 0.5 * 0.25 = 1/8 against 0.25 * 0.75 = 3/16. The whole path counts, not its end or its beginning.
static void a_paths_probability_is_the_product_along_it(void **unused)
{
    static const float root[4] = { 0.5F, 0.25F, 0.125F, 0.125F }, a[4] = { 0.25F, 0.25F, 0.25F, 0.25F },
                       b[4] = { 0.75F, 0.25F, 0, 0 }, sure[4] = { 1, 0, 0, 0 };
    struct scene s;
    begin(&s, 4, root);
    const int first = child(&s, 0, 0, a), second = child(&s, 0, 1, b);
    child(&s, first, 2, sure);
    const int best = child(&s, second, 0, sure);
    child(&s, first, 3, sure); // as likely as the other child
    assert_int_equal(end_node(&s), best);
    verification_destroy(&s.out);
    // Ties go to the first.
    begin(&s, 4, a);
    const int early = child(&s, 0, 3, sure);
    child(&s, 0, 1, sure);
    assert_int_equal(end_node(&s), early);
    verification_destroy(&s.out);
}

// Root: 1/2 for token 0, whose child is rejected; 1/8 for token 2, whose child is accepted. The deeper one is taken,
// though it is less probable: 1/8 * 1/4 = 1/32. Tokens below a rejected token do not count, however probable they are.
static void the_deepest_fully_accepted_path_is_taken(void **unused)
{
    static const float root[4] = { 0.5F, 0.3125F, 0.125F, 0.0625F }, sure[4] = { 1, 0, 0, 0 },
                       even[4] = { 0.25F, 0.25F, 0.25F, 0.25F };
    struct scene s;
    begin(&s, 4, root);
    const int likely = child(&s, 0, 0, sure), unlikely = child(&s, 0, 2, even), rejected = child(&s, 0, 3, sure);
    child(&s, likely, 1, sure);
    const int deep = child(&s, unlikely, 3, even), below = child(&s, rejected, 0, sure);
    child(&s, below, 0, sure);
    assert_int_equal(end_node(&s), deep);
    assert_int_equal(s.out.n, 3);
    assert_int_equal(s.out.token[0], 2);
    assert_int_equal(s.out.token[1], 3);
    assert_true(isnan(s.out.trial_p[below])); // it was not tried
    verification_destroy(&s.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draft_token_above_the_lower_threshold_is_accepted),
        cmocka_unit_test(among_equally_deep_paths_the_more_probable_is_taken),
        cmocka_unit_test(a_paths_probability_is_the_product_along_it),
        cmocka_unit_test(the_deepest_fully_accepted_path_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
