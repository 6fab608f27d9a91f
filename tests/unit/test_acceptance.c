// test_acceptance.c - the functions of core/acceptance.h on numbers at their edges. That rules built on them are exact is shown by
// tests/exact; that a device has the same bits by tests/device.
#include <math.h>

#include "core/acceptance.h"
#include "core/philox.h"
#include "sampling/rng.h"
#include "tests/support/tests.h"

TEST(shares_are_rounded_down_and_a_single_entry_is_1)
{
    for (int k = 1; k < 1000; k++) {
        const double whole = k * 0x1p-52;
        assert_true(grid_share(whole, whole, 1 / whole) == 1);
    }
    for (int k = 1; k < 100; k++) {
        const double quotient = k * (1.0 / 100), share = grid_share(k, 100, 1.0 / 100);
        assert_true(share <= quotient && quotient - share < 0x1p-52);
    }
    assert_true(grid_share(0, 0.25, 4) == 0);
    assert_true(grid_excess(0.5, 0.25) == 0.25 && grid_excess(0.25, 0.5) == 0 && grid_excess(0.5, 0.5) == 0);
}

TEST(uniforms_are_those_of_the_random_source)
{
    assert_true(uniform_of_bits(0) == 0 && uniform_of_bits(0x1p53 - 1) == 1 - 0x1p-53);
    assert_true(race_uniform_of_bits(0) == 0x1p-54);
    for (uint32_t i = 0; i < 1000; i++) {
        const struct address at = { FOR_TOKEN, 7, 0 };
        const double u = philox_uniform(3, 9, at, i);
        const double bits =
            philox_bits53(philox_block(3, grid_word0(at.purpose, at.node, i / 2), at.position, 9), (int)(i % 2));
        assert_true(uniform_of_bits(bits) == u && race_uniform_of_bits(bits) == u + 0x1p-54);
    }
}

TEST(a_test_is_certain_at_0_and_from_1_on)
{
    const double last = 1 - 0x1p-53;
    assert_true(acceptance_is_certain(0, 1) && acceptance_is_certain(1, 1) && acceptance_is_certain(2, 1));
    assert_false(acceptance_is_certain(0x1p-52, 1) || acceptance_is_certain(last, 1));
    assert_false(acceptance_of(0, 0, 1) || acceptance_of(0, -1, 1) || acceptance_of(0.5, 0.5, 1));
    assert_true(acceptance_of(last, 1, 1) && acceptance_of(last, 3, 1) && acceptance_of(0.5 - 0x1p-53, 0.5, 1));
    for (double p = 0.1; p < 1; p += 0.1)
        for (double q = 0.1; q < 1; q += 0.1) {
            assert_true(lenient_numerator(1, 0, p, q) == p);
            assert_true(lenient_numerator(1.5, 0, p, q) == 1.5 * p);
            assert_true(lenient_numerator(0, 0.5, p, q) == q / 2); // accepted with the rate, whatever q is
        }
}

TEST(a_draw_skips_weights_of_zero_and_ends_with_the_last_token)
{
    static const double w[] = { 0, 0.25, 0, 0.5, 0.25, 0 };
    static const struct {
        double target, from, below;
        int token;
    } cases[] = {
        { 0, 0, 0, 1 },    { 0.25 - 0x1p-54, 0, 0, 1 }, { 0.25, 0, 0.25, 3 }, { 0.75, 0, 0.75, 4 },
        { 1, 0, 0.75, 4 }, { 7, 0, 0.75, 4 },           { 3, 2.5, 2.75, 3 },  { 2, 2.5, 2.5, 1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double below = cases[i].from;
        assert_int_equal(pick_cumulative(w, 6, cases[i].target, &below), cases[i].token);
        assert_true(below == cases[i].below);
    }
    double below = 0;
    assert_int_equal(pick_cumulative(w, 1, 0, &below), -1);
}

TEST(a_race_rules_out_no_time_that_is_smaller)
{
    for (double u = 0x1p-54; u < 1; u *= 1.7)
        for (double w = 0x1p-52; w <= 1; w *= 8) {
            const double time = race_time(u, w);
            assert_true(time == grid_exponential(u) / w);
            assert_true(race_may_win(u, w, time * (1 + 0x1p-50)));
            assert_false(race_may_win(u, w, u / w * (1 - 0x1p-50)));
        }
}

TEST(rejected_tokens_are_struck_out_while_others_have_mass)
{
    static const double entry[] = { 0.5, 0.25, 0.25, 0 };
    struct strikes s;
    strikes_clear(&s, 1);
    assert_true(strikes_share(&s, 0, entry[0]) == 0.5);
    assert_true(strike(&s, 0, entry[0]) && s.sum == 0.5 && is_struck(&s, 0) && !is_struck(&s, 1));
    assert_true(strikes_share(&s, 0, entry[0]) == 0 && strikes_share(&s, 1, entry[1]) == 0.5);
    assert_true(strike(&s, 0, entry[0]) && s.sum == 0.5); // a sibling of the same token
    assert_true(strike(&s, 3, entry[3]) && s.sum == 0.5);
    assert_true(strike(&s, 1, entry[1]) && s.sum == 0.25 && strikes_share(&s, 2, entry[2]) == 1);
    assert_false(strike(&s, 2, entry[2]) || strike(&s, 2, entry[2]));
    assert_true(s.last == 2 && s.sum == 0.25 && strikes_share(&s, 2, entry[2]) == 1);
}

TEST(siblings_and_nodes_pass_on_what_is_left)
{
    double left = 1;
    assert_true(match_probability(0.5, false, &left) == 0.5 && left == 0.5);
    assert_true(match_probability(0.5, true, &left) == 0 && left == 0.5);
    assert_true(match_probability(0, false, &left) == 0 && left == 0.5);
    assert_true(match_probability(0.25, false, &left) == 0.5 && left == 0.25);
    assert_true(match_probability(0.25 + 0x1p-30, false, &left) == 1); // rows of floats add up to 1 up to rounding
    assert_true(share_handed_down(0.25, 0.5) == 0.5 && share_handed_down(0.5, 0.5) == 1 &&
                share_handed_down(0.7, 0.5) == 1 && share_handed_down(0, 0.5) == 0);
    assert_true(share_left(0.3, 1) == 1 && share_left(0.25, 0.5) == 0.25 / 0.75);
    assert_true(share_left(0, 0.5) == 0 && share_left(0, 1) == -1);
}

RUN_TESTS(NULL, NULL)
