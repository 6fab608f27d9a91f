// check.h - cmocka and the headers it requires, without its macro `fail`, which hides the function of core/error.h; assert_ok().
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error("ERROR: " __VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

// cmocka hands every test a state, which few of them use.
#pragma GCC diagnostic ignored "-Wunused-parameter"

// Fails the test with the message of a `struct error` unless it worked.
#define assert_ok(worked, err) ((worked) ? (void)0 : fail_msg("%s", (err).text))
