// tests.h - the tests of a file, which run in the order in which they are written:
//
//     TEST(what_is_tested)
//     {
//     }
//     RUN_TESTS(set_up, tear_down)
#pragma once
#include "tests/support/check.h"

static struct CMUnitTest own_tests[64];
static int n_own_tests;

#define TEST(name) \
    static void name(void **state); \
    __attribute__((constructor)) static void add_##name(void) \
    { \
        assert_true(n_own_tests < (int)(sizeof(own_tests) / sizeof(*own_tests))); \
        own_tests[n_own_tests++] = (struct CMUnitTest)cmocka_unit_test(name); \
    } \
    static void name(void **state)

// The set-up and tear-down of the group, or of each test; NULL: none.
static inline int tests_run(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    return _cmocka_run_group_tests("tests", own_tests, (size_t)n_own_tests, set_up, tear_down);
}

static inline int tests_run_each(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    for (int i = 0; i < n_own_tests; i++) {
        own_tests[i].setup_func = set_up;
        own_tests[i].teardown_func = tear_down;
    }
    return tests_run(NULL, NULL);
}

#define RUN_TESTS(set_up, tear_down) \
    int main(void) \
    { \
        return tests_run(set_up, tear_down); \
    }
#define RUN_EACH_TEST(set_up, tear_down) \
    int main(void) \
    { \
        return tests_run_each(set_up, tear_down); \
    }
