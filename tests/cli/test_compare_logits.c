// test_compare_logits.c - rows that differ on purpose: what is the same, what is a tie, what is a bug.
#include <math.h>
#include <string.h>
#include "commands/exact/compare_logits.h"
#include "tests/support/check.h"

enum { VOCAB = 6 };

// Mean 0.75, spread 2.341.
static const float row[VOCAB] = { 1, 3, 2.5f, -4, 0, 2 };

static struct compared after(const float *verified, double limit)
{
    struct compared c = compared_nothing(limit);
    compared_add(&c, row, verified, VOCAB, 7, 30);
    assert_int_equal(c.rows, 1);
    return c;
}

static void the_same_bits_are_the_same(void **unused)
{
    (void)unused;
    const struct compared c = after(row, 0);
    assert_int_equal(c.different, 0);
    assert_int_equal(compared_same(&c), SAME_BITS);
    assert_int_equal(c.first.sequence, -1);
}

static void one_unit_in_the_last_place_is_a_difference(void **unused)
{
    (void)unused;
    float other[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        memcpy(other, row, sizeof(row));
        other[i] = nextafterf(other[i], INFINITY);
        const struct compared c = after(other, 1e-3);
        assert_int_equal(c.different, 1);
        assert_true(c.largest == (double)other[i] - (double)row[i] && c.largest > 0);
        assert_int_equal(c.turned, 0);
        assert_int_equal(compared_same(&c), NEAR_TIES);
    }
    memcpy(other, row, sizeof(row));
    other[4] = -0.0f; // equal as a number, not as bits
    const struct compared c = after(other, 0);
    assert_int_equal(c.different, 1);
    assert_int_equal(compared_same(&c), NEAR_TIES);
    assert_true(c.largest == 0);
}

// 0.26 is 0.111 of the spread; the first two are 0.5 apart, and pass each other.
static void what_turns_is_a_tie_where_rounding_moves_so_far_and_a_bug_where_it_does_not(void **unused)
{
    (void)unused;
    const float other[VOCAB] = { 1, 2.74f, 2.76f, -4, 0, 2 };
    const struct compared coarse = after(other, 0.112), fine = after(other, 0.110);
    assert_int_equal(coarse.turned, 1);
    assert_int_equal(coarse.ties, 1);
    assert_int_equal(coarse.bugs, 0);
    assert_int_equal(compared_same(&coarse), NEAR_TIES);
    assert_int_equal(coarse.first.sequence, 7);
    assert_int_equal(coarse.first.place, 30);
    assert_false(coarse.first.bug);
    assert_true(fabs(coarse.first.apart - 0.5) < 1e-6 && fabs(coarse.first.moved - 0.26) < 1e-6);
    assert_int_equal(fine.bugs, 1);
    assert_true(fine.first.bug);
    assert_int_equal(compared_same(&fine), OTHERWISE);
}

static void a_row_of_another_place_is_a_bug_though_the_same_token_is_likeliest(void **unused)
{
    (void)unused;
    const float other[VOCAB] = { -4, 3, 0, 2, 2.5f, 1 };
    const struct compared c = after(other, 1);
    assert_int_equal(c.turned, 0);
    assert_int_equal(c.bugs, 1);
    assert_int_equal(compared_same(&c), OTHERWISE);
    assert_int_equal(c.first.place, 30);
}

static void the_first_is_kept_and_the_worst(void **unused)
{
    (void)unused;
    const float tie[VOCAB] = { 1, 2.74f, 2.76f, -4, 0, 2 }, bug[VOCAB] = { 9, 3, 2.5f, -4, 0, 2 };
    struct compared c = compared_nothing(0.3);
    compared_add(&c, row, row, VOCAB, 1, 1);
    compared_add(&c, row, tie, VOCAB, 2, 5);
    compared_add(&c, row, bug, VOCAB, 1, 2);
    compared_add(&c, row, row, VOCAB, 1, 3);
    assert_int_equal(c.rows, 4);
    assert_int_equal(c.different, 2);
    assert_int_equal(c.turned, 2);
    assert_int_equal(c.bugs, 1);
    assert_int_equal(c.first.sequence, 2);
    assert_int_equal(c.first.place, 5);
    assert_false(c.first.bug);
    assert_true(c.largest == 8);
    assert_int_equal(compared_same(&c), OTHERWISE);
}

static void no_number_is_a_bug(void **unused)
{
    (void)unused;
    const float bad[] = { NAN, INFINITY, -INFINITY };
    for (int k = 0; k < 3; k++) {
        float other[VOCAB];
        memcpy(other, row, sizeof(row));
        other[3] = bad[k];
        const struct compared c = after(other, 1);
        assert_true(isinf(c.largest));
        assert_int_equal(c.bugs, 1);
        assert_int_equal(compared_same(&c), OTHERWISE);
        struct compared turned_round = compared_nothing(1);
        compared_add(&turned_round, other, row, VOCAB, 0, 0);
        assert_int_equal(compared_same(&turned_round), OTHERWISE);
    }
}

static void coarser_precision_rounds_farther(void **unused)
{
    (void)unused;
    assert_true(rounding_limit(ACTIVATIONS_F32, F32) < rounding_limit(ACTIVATIONS_F32, BF16));
    assert_true(rounding_limit(ACTIVATIONS_F32, BF16) < rounding_limit(ACTIVATIONS_BF16, F32));
    assert_true(rounding_limit(ACTIVATIONS_BF16, Q8_0) < rounding_limit(ACTIVATIONS_INT8, F32));
    assert_true(rounding_limit(ACTIVATIONS_F32, Q8_0) == rounding_limit(ACTIVATIONS_BF16, F32)); // as coarse as another
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits_are_the_same),
        cmocka_unit_test(one_unit_in_the_last_place_is_a_difference),
        cmocka_unit_test(what_turns_is_a_tie_where_rounding_moves_so_far_and_a_bug_where_it_does_not),
        cmocka_unit_test(a_row_of_another_place_is_a_bug_though_the_same_token_is_likeliest),
        cmocka_unit_test(the_first_is_kept_and_the_worst),
        cmocka_unit_test(no_number_is_a_bug),
        cmocka_unit_test(coarser_precision_rounds_farther),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
