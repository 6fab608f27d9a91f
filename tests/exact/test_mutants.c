// test_mutants.c - every mutant of a rule and every misreport of a drafter is detected; equivalent changes are not.
//
// The share of instances in which a mutant shows is so large that it would survive two hundred instances with a
// probability below 10^-9.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "verifier/exact/law.h"
#include "tests/support/tests.h"
#include "tests/exact/mutants.h"

#define ROUNDING 1e-12
#define FLAW_SIZE 1e-6

static const struct sweep_size sweep_size = { 9, 9, 260, NULL };

TEST(reimplemented_rules_are_exact)
{
    enum flaw none = FLAWLESS;
    for (int i = 0; mutant_rules[i]; i++) {
        if (mutant_rules[i] == &accept_mutant) // not exact for siblings that repeat each other; E11 covers it
            continue;
        struct law_result f = law_sweep(mutant_rules[i], &none, NULL, sweep_size, ROUNDING);
        print_message("%s: distance %.1e over %lld instances\n", mutant_rules[i]->name, f.distance,
                      (long long)f.instances);
        assert_true(f.sound && f.lost <= ROUNDING);
        assert_true(f.distance <= ROUNDING);
    }
}

static void print_measured(const struct mutant *m, const struct measured *d)
{
    static const char *const words[] = {
        [KILLED] = "killed", [REPEATED_ADDRESS] = "address twice", [EQUIVALENT] = "equivalent"
    };
    print_message("%-5s %-13s f %.3f mean %.2e worst %.2e", m->id, words[m->expectation], d->seen, d->mean, d->worst);
    if (m->seen > 0)
        print_message(" (reference: %.3f %.2e %.2e)", m->seen, m->mean, m->worst);
    print_message("  %s\n", m->description);
}

// Within a factor of ten of the reference figures, which are of another generator: otherwise it is another flaw.
static bool is_near_reference(const struct mutant *m, const struct measured *d)
{
    return m->seen == 0 || (d->mean > m->mean / 10 && d->mean < m->mean * 10);
}

// Enumeration treats every draw as a new one: randomness that is used twice gives the right law, and shows only in the repeated address.
TEST(every_mutant_is_detected_and_equivalent_changes_are_not)
{
    for (const struct mutant *m = mutants; m->id; m++) {
        struct measured d = mutant_measure(m);
        print_measured(m, &d);
        assert_true(d.sound);
        if (m->expectation == KILLED) {
            assert_true(d.instances >= 200);
            assert_true(d.worst > FLAW_SIZE);
            if (!(pow(1 - d.seen, d.instances) < 1e-9))
                fail_msg("%s would survive: it shows in %g of the instances", m->id, d.seen);
            if (!is_near_reference(m, &d))
                fail_msg("%s: mean distance %g; the reference is %g", m->id, d.mean, m->mean);
            continue;
        }
        assert_true(d.worst <= ROUNDING);
        assert_true((d.repeated > 0) == (m->expectation == REPEATED_ADDRESS));
        assert_true(d.acceptance_difference <= ROUNDING);
    }
}

// ---- drafters, over every kind of draft

TEST(misreporting_drafters_are_detected)
{
    for (int misreport = TRUTHFUL + 1; misreport < MISREPORTS; misreport++) {
        struct law_result f =
            law_sweep(rule_named("rejection"), NULL, misreport_of((enum misreport)misreport), sweep_size, FLAW_SIZE);
        print_message("misreport %d: distance %.1e at instance %lld\n", misreport, f.distance, (long long)f.instances);
        assert_true(f.distance > FLAW_SIZE);
    }
}

TEST(match_is_exact_for_misreporting_drafters)
{
    assert_true(law_sweep(rule_named("match"), NULL, misreport_of(PRUNED_AS_SAMPLED), sweep_size, ROUNDING).distance <=
                ROUNDING);
}

RUN_TESTS(NULL, NULL)
