// test_mutants.c - every flaw that a rule or a drafter's word can have is found out, and what is no flaw is not.
//
// The share of instances in which a mutant shows is so large that it would survive two hundred of them less than once
// in 10^9 times.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "exact/law.h"
#include "tests/support/check.h"
#include "tests/exact/mutants.h"

#define ROUNDING 1e-12
#define FLAW_SIZE 1e-6

static const struct effort effort = { 9, 9, 260 };

static void written_once_more_the_rules_are_exact(void **state)
{
    (void)state;
    enum flaw none = FLAWLESS;
    for (int i = 0; mutant_rules[i]; i++) {
        if (mutant_rules[i] == &accept_mutant) // not for siblings that repeat each other; E11 is its instance
            continue;
        struct finding f = law_sweep(mutant_rules[i], &none, HONEST, effort, ROUNDING);
        print_message("%s: distance %.1e over %lld instances\n", mutant_rules[i]->name, f.distance,
                      (long long)f.instances);
        assert_true(f.sound && f.lost <= ROUNDING);
        assert_true(f.distance <= ROUNDING);
    }
}

static void print_measured(const struct mutant *m, const struct measured *d)
{
    static const char *const words[] = {
        [KILLED] = "killed", [SEEN_TWICE] = "address twice", [EQUIVALENT] = "equivalent"
    };
    print_message("%-5s %-13s f %.3f mean %.2e worst %.2e", m->id, words[m->fate], d->seen, d->mean, d->worst);
    if (m->seen > 0)
        print_message(" (list: %.3f %.2e %.2e)", m->seen, m->mean, m->worst);
    print_message("  %s\n", m->says);
}

// Within a factor of ten of what others measured on instances of another make; what shows much less is another flaw.
static bool is_of_the_lists_order(const struct mutant *m, const struct measured *d)
{
    return m->seen == 0 || (d->mean > m->mean / 10 && d->mean < m->mean * 10);
}

static void every_mutant_is_found_out(void **state)
{
    (void)state;
    for (const struct mutant *m = mutants; m->id; m++) {
        if (m->fate != KILLED)
            continue;
        struct measured d = mutant_measure(m);
        print_measured(m, &d);
        assert_true(d.sound);
        assert_true(d.instances >= 200);
        assert_true(d.worst > FLAW_SIZE);
        if (!(pow(1 - d.seen, d.instances) < 1e-9))
            fail_msg("%s would survive: it shows in %g of the instances", m->id, d.seen);
        if (!is_of_the_lists_order(m, &d))
            fail_msg("%s: mean distance %g; the list has %g", m->id, d.mean, m->mean);
    }
}

static void what_changes_nothing_survives(void **state)
{
    (void)state;
    for (const struct mutant *m = mutants; m->id; m++) {
        if (m->fate != EQUIVALENT)
            continue;
        struct measured d = mutant_measure(m);
        print_measured(m, &d);
        assert_true(d.sound);
        assert_int_equal(d.repeated, 0);
        assert_true(d.worst <= ROUNDING);
        assert_true(d.unlike <= ROUNDING);
    }
}

// The walk takes every draw for a new one, so its law is right; that an address came twice is all that shows.
static void chance_used_twice_shows_in_its_addresses(void **state)
{
    (void)state;
    for (const struct mutant *m = mutants; m->id; m++) {
        if (m->fate != SEEN_TWICE)
            continue;
        struct measured d = mutant_measure(m);
        print_measured(m, &d);
        assert_true(d.worst <= ROUNDING);
        assert_true(d.repeated > 0);
    }
}

static int listed(const char *id)
{
    int n = 0;
    for (const struct mutant *m = mutants; m->id; m++)
        n += strcmp(m->id, id) == 0;
    return n;
}

static void no_number_of_the_list_is_missing_or_stands_twice(void **state)
{
    (void)state;
    static const char *const words[] = { [ELSEWHERE] = "another test's", [NOT_ANNOUNCED] = "not there yet" };
    char id[16];
    int fates[NOT_ANNOUNCED + 1] = { 0 };
    for (int i = 1; i <= 63; i++) {
        snprintf(id, sizeof(id), "M%02d", i);
        assert_int_equal(listed(id), 1);
    }
    for (const struct mutant *m = mutants; m->id; m++) {
        assert_int_equal(listed(m->id), 1);
        assert_true((m->rule == NULL) == (m->fate == ELSEWHERE || m->fate == NOT_ANNOUNCED));
        fates[m->fate]++;
        if (m->rule == NULL)
            print_message("%-5s %-13s %s  %s\n", m->id, words[m->fate], m->note, m->says);
    }
    print_message(
        "%d killed by the law, %d by an address, %d equivalent, %d by other tests, %d with nothing to be in\n",
        fates[KILLED], fates[SEEN_TWICE], fates[EQUIVALENT], fates[ELSEWHERE], fates[NOT_ANNOUNCED]);
}

// ---- drafters, over every kind of draft

static void drafters_that_break_their_word_are_found_out(void **state)
{
    (void)state;
    for (int lie = HONEST + 1; lie < LIES; lie++) {
        struct finding f = law_sweep(rule_named("rejection"), NULL, (enum lie)lie, effort, FLAW_SIZE);
        print_message("%s: distance %.1e at instance %lld\n", lie_names[lie], f.distance, (long long)f.instances);
        assert_true(f.distance > FLAW_SIZE);
    }
}

static void match_does_not_care_how_a_drafter_drew(void **state)
{
    (void)state;
    assert_true(law_sweep(rule_named("match"), NULL, PRUNED_AS_SAMPLED, effort, ROUNDING).distance <= ROUNDING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_once_more_the_rules_are_exact),
        cmocka_unit_test(every_mutant_is_found_out),
        cmocka_unit_test(what_changes_nothing_survives),
        cmocka_unit_test(chance_used_twice_shows_in_its_addresses),
        cmocka_unit_test(no_number_of_the_list_is_missing_or_stands_twice),
        cmocka_unit_test(drafters_that_break_their_word_are_found_out),
        cmocka_unit_test(match_does_not_care_how_a_drafter_drew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
