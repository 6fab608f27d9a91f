// test_bisect.c - the law of rules as black boxes; and misuses of uniforms, which enumeration of decisions cannot
// detect, are detected.
#include <math.h>

#include "core/acceptance.h"
#include "tests/support/bisect.h"
#include "verifier/exact/law.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "tests/exact/seeded_uniforms.h"
#include "tests/support/tests.h"
#include "tests/support/rule_defaults.h"
#include "tests/exact/shared_randomness.h"
#include "verifier/rules/rejection.h"

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

static struct instance instance(const struct figure *f, int i, enum proposal_mix mix)
{
    const struct figure *g = &f[i % FIGURES];
    return instance_create(g->widths, g->levels, g->vocab, mix, (enum family)(i / FIGURES % (FAMILIES + 1)),
                           (uint64_t)i * 977 + 5);
}

// n instances of the figures, of this proposal mix; PROPOSAL_MIXES: of each in turn.
static struct bisected sweep(struct black_box *box, const struct figure *f, int n, enum proposal_mix mix)
{
    struct bisected worst = { .instances = 0 };
    for (int i = 0; i < n; i++) {
        struct instance in = instance(f, i, mix == PROPOSAL_MIXES ? (enum proposal_mix)(i / 3 % PROPOSAL_MIXES) : mix);
        struct bisected one = bisect_examine(&in, box);
        bisect_merge_worst(&worst, &one);
        instance_free(&in);
    }
    return worst;
}

static void print(const char *name, const struct bisected *b)
{
    print_message("%s: %d instances, %d drafts, %d cells, %d runs: distance %.1e, lost %.1e, impossible %.1e, cuts %d, "
                  "hidden edges %d, ratio spread %.1e, contradictions %d\n",
                  name, (int)b->instances, (int)b->drafts, (int)b->cells, (int)b->runs, b->distance, b->lost,
                  b->impossible, b->max_cuts, b->hidden_edges, b->ratio_spread, b->contradictions);
}

static void assert_exact(const struct bisected *b)
{
    assert_true(b->sound);
    assert_true(b->distance <= ROUNDING);
    assert_true(b->lost <= ROUNDING);
    assert_true(b->ratio_spread <= ROUNDING);
    assert_true(b->impossible == 0);
    assert_true(b->max_cuts <= 1);
    assert_int_equal(b->contradictions, 0);
}

// ---- rules

TEST(exact_rules_keep_the_law_as_black_boxes)
{
    for (int r = 0; rules[r] != NULL; r++) {
        if (!rules[r]->exact)
            continue;
        void *options = rule_defaults(rules[r]);
        struct rule_box box = bisect_rule(rules[r], options);
        struct bisected all = { .instances = 0 };
        bool sampled = (rules[r]->takes & TAKES_DETERMINISTIC) == 0;
        if (!sampled || rules[r]->takes & TAKES_CHAINS) {
            struct bisected b =
                sweep(&box.box, sampled ? paths : chains, INSTANCES, sampled ? ALL_SAMPLED : PROPOSAL_MIXES);
            bisect_merge_worst(&all, &b);
        }
        if (rules[r]->takes & TAKES_TREES) {
            struct bisected b =
                sweep(&box.box, trees, sampled ? INSTANCES : TREES, sampled ? ALL_SAMPLED : PROPOSAL_MIXES);
            bisect_merge_worst(&all, &b);
        }
        print(rules[r]->name, &all);
        assert_exact(&all);
        assert_int_equal(all.hidden_edges, 0);
        assert_true(all.instances >= INSTANCES);
        rule_defaults_free(rules[r], options);
    }
}

// Like a kernel, which does not report the uniforms that it reads.
TEST(boxes_without_read_lists_have_the_same_law)
{
    static const char *const names[] = { "rejection", "block" };
    for (int r = 0; r < 2; r++) {
        struct rule_box box = bisect_rule(rule_named(names[r]), NULL), silent = box;
        silent.reports_reads = false;
        for (int i = 0; i < 40; i++) {
            struct instance in = instance(chains, i, (enum proposal_mix)(i / 3 % PROPOSAL_MIXES));
            struct bisected a = bisect_examine(&in, &box.box), b = bisect_examine(&in, &silent.box);
            assert_exact(&b);
            assert_true(fabs(a.distance - b.distance) <= ROUNDING && a.drafts == b.drafts && b.cells >= a.cells);
            instance_free(&in);
        }
    }
}

TEST(lossy_rules_are_detected)
{
    const struct acceptance_test options = { .lenience = 1.1 };
    struct rule_box box = bisect_rule(rule_named("lenient"), &options);
    struct bisected b = sweep(&box.box, chains, 16, ALL_SAMPLED);
    print("lenient", &b);
    assert_true(b.sound && b.distance > 1e-3);
}

// ---- boxes that misuse their uniforms

TEST(boxes_that_misuse_uniforms_are_detected)
{
    enum { IMPOSSIBLE = -1, CUTS = -2 }; // what shows instead of a distance
    static const struct {
        const char *name;
        enum misuse misuse;
        enum proposal_mix mix;
        double shows; // 0: it is exact; a distance above this
    } cases[] = {
        { "plain", NO_MISUSE, PROPOSAL_MIXES, 0 },
        { "one uniform for siblings", SHARED_ACCEPT, ALL_DETERMINISTIC, 0 },
        { "M43, one uniform for acceptance test and residual", RESIDUAL_REUSES_ACCEPT, ALL_SAMPLED, 1e-3 },
        { "M41, the uniform of siblings reused", SHARED_ACCEPT_AND_PICK, ALL_DETERMINISTIC, 1e-3 },
        { "one uniform for all acceptance tests", SHARED_ACCEPT_ONLY, ALL_SAMPLED, 1e-3 },
        { "M11, u = 0", ACCEPT_ALWAYS_ZERO, ALL_SAMPLED, 1e-3 },
        { "M45, acceptance tests of 11 bits", COARSE_ACCEPT, ALL_SAMPLED, 1e-6 },
        { "M46, picks of 24 bits", COARSE_PICK, ALL_SAMPLED, 1e-10 },
        { "M48, u <= p / q", INCLUSIVE_ACCEPT, ALL_SAMPLED, IMPOSSIBLE }, // far below rounding, but it must be 0
        { "acceptance tests with two thresholds", ACCEPTS_MIDDLE, ALL_SAMPLED, CUTS },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const enum misuse misuse = cases[i].misuse;
        const double shows = cases[i].shows;
        struct misusing_box box = misusing_box(misuse);
        struct bisected b =
            sweep(&box.box, misuse >= SHARED_ACCEPT ? trees : chains, shows == 0 ? 60 : 40, cases[i].mix);
        print(cases[i].name, &b);
        assert_true(b.sound && (shows > 0 ? b.distance > shows : b.distance <= ROUNDING));
        assert_true(shows != IMPOSSIBLE ? shows > 0 || b.impossible == 0 : b.impossible > 0 && b.impossible <= 0x1p-52);
        assert_true(shows > 0 ||
                    b.max_cuts == (shows == CUTS || misuse == SHARED_ACCEPT ? 2 : 1)); // two siblings: two cuts
        b.max_cuts = 1;
        if (shows == 0)
            assert_exact(&b);
    }
}

// ---- edges off all axes

// Emits token 1 where one uniform is below 1/4 and another below 4 p: no axis through the middle meets that region.
static void corner_verify(struct black_box *self, const struct draft *d, struct rows *rows, const double *u,
                          struct verification *out)
{
    double p[2];
    dist_from_row(p, rows->row(rows, 0), 2);
    verification_clear(out, d->n);
    verification_add(out, 0, u[0] < 0.25 && u[2] < 4 * p[1]);
}

TEST(an_edge_off_all_axes_is_found_at_a_corner)
{
    float p[] = { 0.9f, 0.1f };
    struct instance in = { .vocab = 2, .nodes = 1, .prefixes = 1, .p = p, .q = p };
    struct black_box box = { false, corner_verify, -1, { 0 } };
    struct bisected b = bisect_examine(&in, &box);
    print("a corner", &b);
    assert_int_equal(b.hidden_edges, 1);
    assert_exact(&b);
}

// ---- boxes that race

static struct bisected race_sweep(const char *name, enum race_variant race_variant)
{
    struct racing_box box = racing_box(race_variant);
    struct bisected b = sweep(&box.box, chains, 40, ALL_SAMPLED);
    print(name, &b);
    return b;
}

TEST(wrong_races_are_detected)
{
    struct bisected b = race_sweep("a plain race", RACE_AS_MATCH);
    assert_exact(&b);
    b = race_sweep("a race of uniforms", RACE_BY_UNIFORMS);
    assert_true(b.ratio_spread > 1e-3 && b.contradictions > 0);
    assert_true(race_sweep("one race for all places", RACE_SAME_UNIFORMS).distance > 1e-3);
}

// ---- limits of enumeration

// Rejection that samples the residual at the address of the acceptance test: M43 as a rule. The addresses of a rule
// show it (struct law_result: repeated); a kernel has none.
static void sharing_verify(const struct rule *rule, const struct draft *d, struct rows *p, const void *options,
                           struct rng *rng, struct verification *out)
{
    struct sharing s = sharing_source(rng, FOR_ACCEPT);
    const struct rule *rejection = rule_named("rejection");
    rejection->verify(rejection, d, p, options, &s.rng, out);
}

TEST(enumeration_does_not_detect_a_shared_address)
{
    static const struct rule sharing = { .name = "sharing", .verify = sharing_verify };
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

// ---- the map from uniforms to decisions

TEST(given_uniforms_decide_as_philox_uniforms_do)
{
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
        assert_int_equal(pick_by_uniforms(u, w, n, at), s.rng.pick(&s.rng, w, n, at));
        at.purpose = FOR_ACCEPT;
        u[0] = philox_uniform(3, 4, at, 0);
        for (int k = 0; k < 12; k++)
            assert_int_equal(acceptance_of(u[0], 0.1 * k, 1), s.rng.accept(&s.rng, 0.1 * k, 1, at));
    }
}

// As in verifier/exact/law.c: NAN fails every bound.
TEST(nan_is_the_worst_measure)
{
    const struct bisected good = { .sound = true, .instances = 1 };
    for (int i = 0; i < 4; i++)
        for (int first = 0; first < 2; first++) {
            struct bisected bad = good, worst = { .instances = 0 };
            *(i == 0 ? &bad.distance : i == 1 ? &bad.lost : i == 2 ? &bad.impossible : &bad.ratio_spread) = NAN;
            bisect_merge_worst(&worst, first ? &bad : &good);
            bisect_merge_worst(&worst, first ? &good : &bad);
            assert_true(isnan(worst.distance) == (i == 0) && isnan(worst.lost) == (i == 1));
            assert_true(isnan(worst.impossible) == (i == 2) && isnan(worst.ratio_spread) == (i == 3));
        }
}

RUN_TESTS(NULL, NULL)
