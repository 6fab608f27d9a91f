// test_compare_logits.c - rows that differ on purpose: equal, a tie, or a bug.
#include <math.h>
#include <string.h>
#include "commands/exact/compare_logits.h"
#include "tests/support/tests.h"

enum { VOCAB = 6 };

// Mean 0.75, spread 2.341.
static const float row[VOCAB] = { 1, 3, 2.5f, -4, 0, 2 };

static struct logit_comparison compare(const float *verified, double limit)
{
    struct logit_comparison c = comparison_start(limit);
    comparison_add(&c, row, verified, VOCAB, 7, 30);
    assert_int_equal(c.rows, 1);
    return c;
}

TEST(equal_bits_are_bitwise_equal)
{
    const struct logit_comparison c = compare(row, 0);
    assert_int_equal(c.different, 0);
    assert_int_equal(comparison_result(&c), BITWISE_EQUAL);
    assert_int_equal(c.first.sequence, -1);
}

TEST(one_unit_in_the_last_place_is_a_difference)
{
    float other[VOCAB];
    for (int i = 0; i < VOCAB; i++) {
        memcpy(other, row, sizeof(row));
        other[i] = nextafterf(other[i], INFINITY);
        const struct logit_comparison c = compare(other, 1e-3);
        assert_int_equal(c.different, 1);
        assert_true(c.largest == (double)other[i] - (double)row[i] && c.largest > 0);
        assert_int_equal(c.turned, 0);
        assert_int_equal(comparison_result(&c), DIFFER_AT_TIES);
    }
    memcpy(other, row, sizeof(row));
    other[4] = -0.0f; // equal as a number, not as bits
    const struct logit_comparison c = compare(other, 0);
    assert_int_equal(c.different, 1);
    assert_int_equal(comparison_result(&c), DIFFER_AT_TIES);
    assert_true(c.largest == 0);
}

// 0.26 is 0.111 of the spread; the top two are 0.5 apart, and swap.
TEST(another_argmax_is_a_tie_within_rounding_and_a_bug_beyond_it)
{
    const float other[VOCAB] = { 1, 2.74f, 2.76f, -4, 0, 2 };
    const struct logit_comparison coarse = compare(other, 0.112), fine = compare(other, 0.110);
    assert_int_equal(coarse.turned, 1);
    assert_int_equal(coarse.ties, 1);
    assert_int_equal(coarse.bugs, 0);
    assert_int_equal(comparison_result(&coarse), DIFFER_AT_TIES);
    assert_int_equal(coarse.first.sequence, 7);
    assert_int_equal(coarse.first.position, 30);
    assert_false(coarse.first.bug);
    assert_true(fabs(coarse.first.apart - 0.5) < 1e-6 && fabs(coarse.first.moved - 0.26) < 1e-6);
    assert_int_equal(fine.bugs, 1);
    assert_true(fine.first.bug);
    assert_int_equal(comparison_result(&fine), DIFFER_BEYOND_ROUNDING);
}

TEST(a_row_of_another_position_is_a_bug_despite_an_equal_argmax)
{
    const float other[VOCAB] = { -4, 3, 0, 2, 2.5f, 1 };
    const struct logit_comparison c = compare(other, 1);
    assert_int_equal(c.turned, 0);
    assert_int_equal(c.bugs, 1);
    assert_int_equal(comparison_result(&c), DIFFER_BEYOND_ROUNDING);
    assert_int_equal(c.first.position, 30);
}

TEST(the_first_and_the_largest_difference_are_kept)
{
    const float tie[VOCAB] = { 1, 2.74f, 2.76f, -4, 0, 2 }, bug[VOCAB] = { 9, 3, 2.5f, -4, 0, 2 };
    struct logit_comparison c = comparison_start(0.3);
    comparison_add(&c, row, row, VOCAB, 1, 1);
    comparison_add(&c, row, tie, VOCAB, 2, 5);
    comparison_add(&c, row, bug, VOCAB, 1, 2);
    comparison_add(&c, row, row, VOCAB, 1, 3);
    assert_int_equal(c.rows, 4);
    assert_int_equal(c.different, 2);
    assert_int_equal(c.turned, 2);
    assert_int_equal(c.bugs, 1);
    assert_int_equal(c.first.sequence, 2);
    assert_int_equal(c.first.position, 5);
    assert_false(c.first.bug);
    assert_true(c.largest == 8);
    assert_int_equal(comparison_result(&c), DIFFER_BEYOND_ROUNDING);
}

TEST(not_a_number_is_a_bug)
{
    const float bad[] = { NAN, INFINITY, -INFINITY };
    for (int k = 0; k < 3; k++) {
        float other[VOCAB];
        memcpy(other, row, sizeof(row));
        other[3] = bad[k];
        const struct logit_comparison c = compare(other, 1);
        assert_true(isinf(c.largest));
        assert_int_equal(c.bugs, 1);
        assert_int_equal(comparison_result(&c), DIFFER_BEYOND_ROUNDING);
        struct logit_comparison exchanged = comparison_start(1);
        comparison_add(&exchanged, other, row, VOCAB, 0, 0);
        assert_int_equal(comparison_result(&exchanged), DIFFER_BEYOND_ROUNDING);
    }
}

TEST(coarser_precision_has_a_larger_limit)
{
    assert_true(rounding_limit(ACTIVATIONS_F32, F32) < rounding_limit(ACTIVATIONS_F32, BF16));
    assert_true(rounding_limit(ACTIVATIONS_F32, BF16) < rounding_limit(ACTIVATIONS_BF16, F32));
    assert_true(rounding_limit(ACTIVATIONS_BF16, Q8_0) < rounding_limit(ACTIVATIONS_INT8, F32));
    assert_true(rounding_limit(ACTIVATIONS_F32, Q8_0) == rounding_limit(ACTIVATIONS_BF16, F32)); // equally coarse
}

RUN_TESTS(NULL, NULL)
