// runner.c - one program for the tests of a folder or several (CMakeLists.txt): each test_*.c has a main, which is compiled
// under the name run_test_*. The program's own name, which is a link to it, says which runs; otherwise its first argument does.
#include <stdio.h>
#include <string.h>

#include "runner_tests.h" // ALL_TESTS(T): T(name) for each test

#define DECLARE(name) int run_##name(int argc, char **argv);
ALL_TESTS(DECLARE)

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} tests[] = {
#define ROW(name) { #name, run_##name },
    ALL_TESTS(ROW)
};

int main(int argc, char **argv)
{
    for (int first = 0; first < 2 && first < argc; first++) {
        const char *slash = strrchr(argv[first], '/'), *name = slash != NULL ? slash + 1 : argv[first];
        for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
            if (strcmp(tests[i].name, name) == 0)
                return tests[i].run(argc - first, argv + first);
    }
    fprintf(stderr, "expected the name of a test, as the first argument or as the program's:\n");
    for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
        fprintf(stderr, "  %s\n", tests[i].name);
    return 2;
}
