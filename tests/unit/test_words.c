// test_words.c - the words by which `datastore --exclude` compares texts (`distill` has them in Python: python/tests/test_distill.py).
#include "commands/datastore/words.h"
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
    struct words w = { 0 };
    for (size_t i = 0; i < sizeof(text) / sizeof(*text); i++) {
        words_read(&w, text[i][0]);
        assert_string_equal(w.text.s != NULL && w.n > 0 ? w.text.s : "", text[i][1]);
    }
    words_read(&w, "one two three four");
    assert_true(hash_equal(words_hash(&w, 1, 2), hash_of("two three", 9)));
    assert_true(hash_equal(words_hash(&w, 2, 2), hash_of("three four", 10)));
    words_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(words_ignore_case_and_punctuation) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
