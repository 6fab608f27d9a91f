// test_layer_list.c - lists of layers as "0-3,26-29".
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "models/layer_list.h"
#include "tests/support/tests.h"

static struct error err;

TEST(layers_are_listed_in_ranges)
{
    static const int expected[] = { 0, 1, 2, 5, 7, 8 };
    int n;
    int *keep = layer_list_parse("0-2,5,7-8", 9, &n, &err);
    assert_int_equal(n, 6);
    assert_memory_equal(keep, expected, sizeof(expected));
    free(keep);
    static const char *const bad[] = { "",      "x",    "1,",  ",1",  "1-",
                                       "-1",    "1--2", "3-2", "2,2", "2,1",
                                       "0-3,3", "9",    "0-9", "1 2", "99999999999999999999",
                                       "1.5",   "0-2;4" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_null(layer_list_parse(bad[i], 9, &n, &err));
        print_message("%s\n", err.text);
        assert_non_null(strstr(err.text, bad[i]));
    }
}

RUN_TESTS(NULL, NULL)
