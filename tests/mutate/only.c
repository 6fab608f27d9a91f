// Linked into the test programs that ./run mutate runs: runs a single test, and writes the coverage of children that call _exit.
#include <stdlib.h>

extern void cmocka_set_test_filter(const char *pattern) __attribute__((weak));
extern void __gcov_dump(void) __attribute__((weak));
extern void __real__exit(int status) __attribute__((noreturn, weak));
void __wrap__exit(int status) __attribute__((noreturn));

__attribute__((constructor)) static void only(void)
{
    const char *name = getenv("MUTATE_ONLY");
    if (name != NULL && cmocka_set_test_filter != NULL)
        cmocka_set_test_filter(name);
}

void __wrap__exit(int status)
{
    if (__gcov_dump != NULL)
        __gcov_dump();
    __real__exit(status);
}
