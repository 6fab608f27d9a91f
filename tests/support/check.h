// check.h - cmocka and the headers it requires; its macro `fail` is removed, as it hides the function of core/error.h.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error("ERROR: " __VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))
