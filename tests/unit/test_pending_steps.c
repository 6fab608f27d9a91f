// test_pending_steps.c - the queue of steps whose times are not known yet (decode/steps.h): their order, and the copy of a
// verification.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode/steps.h"
#include "tests/support/check.h"
#include "verifier/rules/rule.h"

enum { SLOTS = 2, NODES = 4 };

// Pushes and pops in an irregular order, and counts both.
static void steps_are_first_in_first_out(void **state)
{
    struct steps s;
    int64_t pushed = 0, popped = 0;
    steps_create(&s, SLOTS, NODES);
    for (int64_t i = 0; i < 200; i++) {
        if (pushed - popped < MAX_PENDING_STEPS && i * 7 % 5 < 3) {
            struct step_record *step = steps_current(&s);
            for (int k = 0; pushed - popped > 0 && k < pushed - popped; k++)
                assert_true(step != &s.step[(popped + k) % MAX_PENDING_STEPS]); // not a pending one
            assert_true(step->number >= 0 && step->number < MAX_PENDING_STEPS); // selects time stamps: unique
            step->observer_ns = pushed;
            steps_push(&s);
            pushed++;
        } else if (pushed > popped) {
            assert_int_equal(steps_oldest(&s)->observer_ns, popped);
            steps_pop(&s);
            popped++;
        }
        assert_int_equal(s.n, pushed - popped);
    }
    assert_true(pushed > 50 && s.step[0].number != s.step[1].number && s.step[1].number != s.step[2].number);
    steps_destroy(&s);
}

static void a_record_copies_the_whole_verification(void **state)
{
    struct steps s;
    struct verification j = verification_create(NODES, 3);
    steps_create(&s, SLOTS, NODES);
    struct sequence_record *to = &steps_current(&s)->of[SLOTS - 1];
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
    record_verification(to, &j);
    j.n = j.empty = 0;
    assert_int_equal(to->verification.n, 3);
    assert_int_equal(to->verification.empty, 5);
    for (int i = 0; i < NODES; i++) {
        if (i < 3) {
            assert_int_equal(to->verification.node[i], i);
            assert_int_equal(to->verification.token[i], 70 + i);
        }
        assert_true(to->verification.trial_p[i] == 0.25 * i && to->verification.trial_q[i] == 8 + 0.25 * i);
        j.node[i] = j.token[i] = -1; // the record has arrays of its own
        j.trial_p[i] = j.trial_q[i] = -1;
        assert_true(to->verification.trial_p[i] == 0.25 * i);
    }
    verification_destroy(&j);
    steps_destroy(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_first_in_first_out),
        cmocka_unit_test(a_record_copies_the_whole_verification),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
