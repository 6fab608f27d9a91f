// test_words.c - the words by which `features --datastore --exclude` compares texts (`distill` has them in Python: python/tests/test_distill.py).
#include <stdlib.h>

#include "commands/features/datastore.h"
#include "core/memory.h"
#include "tests/support/check.h"

static void words_ignore_case_and_punctuation(void **state)
{
    static const char *const text[][2] = {
        { "  The CAT, sat\ton -- the \"mat\".\n", "the cat sat on the mat" },
        { "\xE2\x80\x9C"
          "Don\xE2\x80\x99t\xE2\x80\x9D \xE2\x80\x94 4.5%",
          "don t 4 5" },
        { "caf\xC3\xA9\xC2\xA0Z\xC3\xBCrich", "caf\xC3\xA9 z\xC3\xBCrich" },
        { "...", "" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof(text) / sizeof(*text); i++) {
        struct text words = { 0 };
        words_read(&words, text[i][0]);
        assert_string_equal(words.s, text[i][1]);
        free(words.s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(words_ignore_case_and_punctuation) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
