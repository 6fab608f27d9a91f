// test_bisect.c - the law of rules seen from outside; and flaws in the use of uniforms, which no enumeration of
// decisions can see, are found out.
#include <math.h>

#include "exact/bisect.h"
#include "exact/law.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/exact/seeded_uniforms.h"
#include "tests/support/check.h"
#include "tests/exact/shared_randomness.h"

#define ROUNDING 1e-14
enum { INSTANCES = 200, TREES = 120 };

struct figure { // the shape of an instance
    int levels, widths[3], vocab;
};
static const struct figure chains[] = {
    { 2, { 1, 1 }, 2 }, { 1, { 1 }, 4 }, { 2, { 1, 1 }, 3 }, { 3, { 1, 1, 1 }, 2 }
};
static const struct figure trees[] = { { 2, { 2, 1 }, 2 }, { 1, { 2 }, 3 }, { 2, { 1, 2 }, 2 }, { 1, { 3 }, 2 } };
static const struct figure paths[] = { { 2, { 2, 1 }, 2 }, { 1, { 2 }, 4 }, { 1, { 3 }, 2 }, { 1, { 2 }, 3 } };
enum { FIGURES = 4 };

static struct instance instance(const struct figure *f, int i, enum way way)
{
    const struct figure *g = &f[i % FIGURES];
    return instance_create(g->widths, g->levels, g->vocab, way, (enum family)(i / FIGURES % (FAMILIES + 1)),
                           (uint64_t)i * 977 + 5);
}

// n instances of the figures, drawn in this way; WAYS: in each in turn.
static struct bisected sweep(struct black_box *box, const struct figure *f, int n, enum way way)
{
    struct bisected worst = { .instances = 0 };
    for (int i = 0; i < n; i++) {
        struct instance in = instance(f, i, way == WAYS ? (enum way)(i / 3 % WAYS) : way);
        struct bisected one = bisect_examine(&in, box);
        bisect_worse_of(&worst, &one);
        instance_free(&in);
    }
    return worst;
}

static void print(const char *name, const struct bisected *b)
{
    print_message(
        "%s: %d instances, %d drafts, %d cells, %d runs: distance %.1e, lost %.1e, impossible %.1e, turns %d, "
        "surprises %d, bend %.1e, contradictions %d\n",
        name, (int)b->instances, (int)b->drafts, (int)b->cells, (int)b->runs, b->distance, b->lost, b->impossible,
        b->turns, b->surprises, b->bend, b->contradictions);
}

static void assert_exact(const struct bisected *b)
{
    assert_true(b->sound);
    assert_true(b->distance <= ROUNDING);
    assert_true(b->lost <= ROUNDING);
    assert_true(b->bend <= ROUNDING);
    assert_true(b->impossible == 0);
    assert_true(b->turns <= 1);
    assert_int_equal(b->contradictions, 0);
}

// ---- rules

static void rules_keep_the_law_seen_from_outside(void **state)
{
    (void)state;
    for (int r = 0; rules[r] != NULL; r++) {
        if (!rules[r]->exact)
            continue;
        struct rule_box box = bisect_rule(rules[r], NULL);
        struct bisected all = { .instances = 0 };
        bool drawn = (rules[r]->takes & TAKES_DETERMINISTIC) == 0;
        if (!drawn || rules[r]->takes & TAKES_CHAINS) {
            struct bisected b = sweep(&box.box, drawn ? paths : chains, INSTANCES, drawn ? ALL_SAMPLED : WAYS);
            bisect_worse_of(&all, &b);
        }
        if (rules[r]->takes & TAKES_TREES) {
            struct bisected b = sweep(&box.box, trees, drawn ? INSTANCES : TREES, drawn ? ALL_SAMPLED : WAYS);
            bisect_worse_of(&all, &b);
        }
        print(rules[r]->name, &all);
        assert_exact(&all);
        assert_int_equal(all.surprises, 0);
        assert_true(all.instances >= INSTANCES);
    }
}

// As a kernel is seen, which does not tell what it looked at.
static void boxes_that_do_not_tell_have_the_same_law(void **state)
{
    (void)state;
    static const char *const names[] = { "rejection", "block" };
    for (int r = 0; r < 2; r++) {
        struct rule_box box = bisect_rule(rule_named(names[r]), NULL), silent = box;
        silent.tells = false;
        for (int i = 0; i < 40; i++) {
            struct instance in = instance(chains, i, (enum way)(i / 3 % WAYS));
            struct bisected a = bisect_examine(&in, &box.box), b = bisect_examine(&in, &silent.box);
            assert_exact(&b);
            assert_true(fabs(a.distance - b.distance) <= ROUNDING && a.drafts == b.drafts && b.cells >= a.cells);
            instance_free(&in);
        }
    }
}

static void rules_that_are_not_exact_are_found_out(void **state)
{
    (void)state;
    const double lenience = 1.1;
    struct rule_box box = bisect_rule(rule_named("lenient"), &lenience);
    struct bisected b = sweep(&box.box, chains, 16, ALL_SAMPLED);
    print("lenient", &b);
    assert_true(b.sound && b.distance > 1e-3);
}

// ---- boxes that misuse their uniforms

static struct bisected slip_sweep(const char *name, enum slip slip, int n, enum way way)
{
    struct slipping_box box = slipping_box(slip);
    struct bisected b = sweep(&box.box, slip >= SHARED_ACCEPT ? trees : chains, n, way);
    print(name, &b);
    assert_true(b.sound);
    return b;
}

static void a_plain_copy_without_a_slip_is_exact(void **state)
{
    (void)state;
    struct bisected b = slip_sweep("plain", NO_SLIP, 60, WAYS);
    assert_exact(&b);
    b = slip_sweep("one coin for siblings", SHARED_ACCEPT, 60, ALL_DETERMINISTIC);
    assert_true(b.turns == 2); // it says which of two stands
    b.turns = 1;
    assert_exact(&b);
}

static void a_uniform_used_twice_is_found_out(void **state)
{
    (void)state;
    assert_true(slip_sweep("M43, one uniform for coin and residual", ONE_UNIFORM, 40, ALL_SAMPLED).distance > 1e-3);
    assert_true(
        slip_sweep("M41, the coin of siblings used again", SHARED_ACCEPT_AGAIN, 40, ALL_DETERMINISTIC).distance > 1e-3);
    assert_true(slip_sweep("one uniform for all coins", SHARED_ACCEPT_ONLY, 40, ALL_SAMPLED).distance > 1e-3);
}

static void a_uniform_that_is_always_zero_is_found_out(void **state)
{
    (void)state;
    assert_true(slip_sweep("M11, u = 0", ALWAYS_ZERO, 40, ALL_SAMPLED).distance > 1e-3);
}

static void coarse_uniforms_are_found_out(void **state)
{
    (void)state;
    assert_true(slip_sweep("M45, coins of 11 bits", COARSE_COINS, 40, ALL_SAMPLED).distance > 1e-6);
    assert_true(slip_sweep("M46, picks of 24 bits", COARSE_PICKS, 40, ALL_SAMPLED).distance > 1e-10);
}

// Far below rounding, and yet never to happen.
static void a_token_that_is_impossible_is_found_out_though_its_chance_is_2_to_the_minus_53(void **state)
{
    (void)state;
    struct bisected b = slip_sweep("M48, u <= p / q", INCLUSIVE, 40, ALL_SAMPLED);
    assert_true(b.distance <= ROUNDING);
    assert_true(b.impossible > 0 && b.impossible <= 0x1p-52);
}

static void a_coin_that_turns_twice_is_found_out_though_its_chance_is_right(void **state)
{
    (void)state;
    struct bisected b = slip_sweep("coins that turn twice", TURNS_TWICE, 40, ALL_SAMPLED);
    assert_true(b.distance <= ROUNDING && b.turns == 2);
}

// ---- decisions that leave no trace

// Token 1 where one uniform is below 1/4 and another below 4 p: through the middle no axis comes there.
static void corner_judge(struct black_box *self, const struct draft *d, struct rows *rows, const double *u,
                         struct verification *out)
{
    (void)self;
    double p[2];
    dist_from_row(p, rows->row(rows, 0), 2);
    verification_clear(out, d->n);
    verification_add(out, 0, u[0] < 0.25 && u[2] < 4 * p[1]);
}

static void what_no_axis_shows_is_found_at_a_corner(void **state)
{
    (void)state;
    float p[] = { 0.9f, 0.1f };
    struct instance in = { .vocab = 2, .nodes = 1, .prefixes = 1, .p = p, .q = p };
    struct black_box box = { false, corner_judge, -1, { 0 } };
    struct bisected b = bisect_examine(&in, &box);
    print("a corner", &b);
    assert_int_equal(b.surprises, 1);
    assert_exact(&b);
}

// ---- boxes that race

static struct bisected race_sweep(const char *name, enum gait gait)
{
    struct racing_box box = racing_box(gait);
    struct bisected b = sweep(&box.box, chains, 40, ALL_SAMPLED);
    print(name, &b);
    return b;
}

static void races_that_are_none_are_found_out(void **state)
{
    (void)state;
    struct bisected b = race_sweep("a plain race", AS_MATCH);
    assert_exact(&b);
    b = race_sweep("a race of uniforms", BY_UNIFORMS);
    assert_true(b.bend > 1e-3 && b.contradictions > 0);
    assert_true(race_sweep("one race for all places", SAME_EVERYWHERE).distance > 1e-3);
}

// ---- what an enumeration sees

// Rejection that draws what follows a guess that fell at the address by which it fell: M43 as a rule. A rule's
// addresses give it away (struct finding: repeated); a kernel has none to look at.
static void sharing_judge(const struct draft *d, struct rows *p, const void *options, struct rng *rng,
                          struct verification *out)
{
    struct sharing s = sharing_source(rng, FOR_ACCEPT);
    rule_named("rejection")->verify(d, p, options, &s.rng, out);
}

static void what_shares_an_address_is_exact_to_an_enumeration_of_decisions(void **state)
{
    (void)state;
    static const struct rule sharing = { .name = "sharing", .verify = sharing_judge };
    struct rule_box box = bisect_rule(&sharing, NULL);
    double enumerated = 0;
    for (int i = 0; i < 40; i++) {
        struct instance in = instance(chains, i, ALL_SAMPLED);
        enumerated = fmax(enumerated, law_examine(&in, &sharing, NULL).distance);
        instance_free(&in);
    }
    struct bisected b = sweep(&box.box, chains, 40, ALL_SAMPLED);
    print_message("M43 as a rule: distance %.1e by enumeration, %.1e by bisection\n", enumerated, b.distance);
    assert_true(enumerated <= 1e-12 && b.distance > 1e-3);
}

// ---- the map from uniforms to answers

static void given_uniforms_decide_as_philoxs_do(void **state)
{
    (void)state;
    enum { N = 1300 };
    double w[N], u[N];
    struct philox s = philox_source(3, 4);
    for (int t = 0; t < 2000; t++) {
        int n = 1 + (t % 10 == 0 ? 611 * t % N : t % 40);
        struct address at = { t % 3 ? FOR_TOKEN : FOR_RESIDUAL, t, 0 };
        for (int i = 0; i < n; i++) {
            u[i] = philox_uniform(3, 4, at, (uint32_t)i);
            w[i] = philox_uniform(5, 6, at, (uint32_t)i) - 0.3;
            w[i] = w[i] < 0 && i != t % n ? 0 : fabs(w[i]);
        }
        assert_int_equal(rng_pick_of(u, w, n, at), s.rng.pick(&s.rng, w, n, at));
        at.purpose = FOR_ACCEPT;
        u[0] = philox_uniform(3, 4, at, 0);
        for (int k = 0; k < 12; k++)
            assert_int_equal(rng_accept_of(u[0], 0.1 * k, 1), s.rng.accept(&s.rng, 0.1 * k, 1, at));
    }
}

// As exact/law.c has it: what cannot be compared must not pass for good.
static void a_measure_that_is_no_number_is_the_worst(void **state)
{
    (void)state;
    const struct bisected good = { .sound = true, .instances = 1 };
    for (int i = 0; i < 4; i++)
        for (int first = 0; first < 2; first++) {
            struct bisected bad = good, worst = { .instances = 0 };
            *(i == 0 ? &bad.distance : i == 1 ? &bad.lost : i == 2 ? &bad.impossible : &bad.bend) = NAN;
            bisect_worse_of(&worst, first ? &bad : &good);
            bisect_worse_of(&worst, first ? &good : &bad);
            assert_true(isnan(worst.distance) == (i == 0) && isnan(worst.lost) == (i == 1));
            assert_true(isnan(worst.impossible) == (i == 2) && isnan(worst.bend) == (i == 3));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_measure_that_is_no_number_is_the_worst),
        cmocka_unit_test(rules_keep_the_law_seen_from_outside),
        cmocka_unit_test(boxes_that_do_not_tell_have_the_same_law),
        cmocka_unit_test(rules_that_are_not_exact_are_found_out),
        cmocka_unit_test(a_plain_copy_without_a_slip_is_exact),
        cmocka_unit_test(a_uniform_used_twice_is_found_out),
        cmocka_unit_test(a_uniform_that_is_always_zero_is_found_out),
        cmocka_unit_test(coarse_uniforms_are_found_out),
        cmocka_unit_test(a_token_that_is_impossible_is_found_out_though_its_chance_is_2_to_the_minus_53),
        cmocka_unit_test(a_coin_that_turns_twice_is_found_out_though_its_chance_is_right),
        cmocka_unit_test(what_no_axis_shows_is_found_at_a_corner),
        cmocka_unit_test(races_that_are_none_are_found_out),
        cmocka_unit_test(what_shares_an_address_is_exact_to_an_enumeration_of_decisions),
        cmocka_unit_test(given_uniforms_decide_as_philoxs_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
