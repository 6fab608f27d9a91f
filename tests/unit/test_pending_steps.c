// test_pending_steps.c - the steps that a decode loop keeps until their times are known: which is the oldest, and what is kept of a
// judgement (decode/steps.h).
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode/steps.h"
#include "tests/support/check.h"
#include "verifier/rules/rule.h"

enum { SLOTS = 2, NODES = 4 };

// Notes and drops by chance, beside two numbers: how many were noted, and how many of these were dropped.
static void steps_come_back_in_the_order_in_which_they_were_noted(void **state)
{
    (void)state;
    struct steps s;
    int64_t noted = 0, dropped = 0;
    steps_create(&s, SLOTS, NODES);
    for (int64_t i = 0; i < 200; i++) {
        if (noted - dropped < STEPS_NOTED && i * 7 % 5 < 3) {
            struct noted_step *step = steps_at_hand(&s);
            for (int k = 0; noted - dropped > 0 && k < noted - dropped; k++)
                assert_true(step != &s.step[(dropped + k) % STEPS_NOTED]); // none of those that are kept
            assert_true(step->number >= 0 && step->number < STEPS_NOTED);  // numbers of stamps: no two have the same
            step->watched_ns = noted;
            steps_note(&s);
            noted++;
        } else if (noted > dropped) {
            assert_int_equal(steps_oldest(&s)->watched_ns, dropped);
            steps_drop(&s);
            dropped++;
        }
        assert_int_equal(s.n, noted - dropped);
    }
    assert_true(noted > 50 && s.step[0].number != s.step[1].number && s.step[1].number != s.step[2].number);
    steps_destroy(&s);
}

static void a_judgement_is_kept_number_by_number(void **state)
{
    (void)state;
    struct steps s;
    struct verification j = verification_create(NODES, 3);
    steps_create(&s, SLOTS, NODES);
    struct note *to = &steps_at_hand(&s)->of[SLOTS - 1];
    verification_clear(&j, NODES);
    to->draft.n = NODES;
    j.n = 3;
    j.empty = 5;
    for (int i = 0; i < NODES; i++) {
        j.node[i] = i;
        j.token[i] = 70 + i;
        j.trial_p[i] = 0.25 * i;
        j.trial_q[i] = 8 + 0.25 * i;
    }
    note_verification(to, &j);
    j.n = j.empty = 0;
    assert_int_equal(to->verification.n, 3);
    assert_int_equal(to->verification.empty, 5);
    for (int i = 0; i < NODES; i++) {
        if (i < 3) {
            assert_int_equal(to->verification.node[i], i);
            assert_int_equal(to->verification.token[i], 70 + i);
        }
        assert_true(to->verification.trial_p[i] == 0.25 * i && to->verification.trial_q[i] == 8 + 0.25 * i);
        j.node[i] = j.token[i] = -1; // the note has its own
        j.trial_p[i] = j.trial_q[i] = -1;
        assert_true(to->verification.trial_p[i] == 0.25 * i);
    }
    verification_destroy(&j);
    steps_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_come_back_in_the_order_in_which_they_were_noted),
        cmocka_unit_test(a_judgement_is_kept_number_by_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
