// test_stop_strings.c - where a stop string cuts a text: all short texts of two letters, against a search at every position.
#include "tests/support/tests.h"

#include <stdio.h>
#include <string.h>

#include "engine/stop_strings.h"

enum { MAX_LENGTH = 8 };

// The first position at which one of the strings begins; partial: or a prefix of one that reaches the end of the text.
static size_t search(const struct stop_strings *s, const char *text, bool partial)
{
    const size_t n = strlen(text);
    for (size_t at = 0; at < n; at++)
        for (int i = 0; i < s->n; i++) {
            const size_t left = n - at, length = strlen(s->string[i]);
            if (left >= length ? memcmp(text + at, s->string[i], length) == 0
                               : partial && memcmp(text + at, s->string[i], left) == 0)
                return at;
        }
    return n;
}

TEST(a_text_is_cut_at_the_first_stop_string)
{
    static const char *const sets[][3] = {
        { "ab" },
        { "b" },
        { "aba" },
        { "aab", "bb" },
        { "abab", "ba" },
        { "bbbbbb" },
        { "aabaab", "abba", "bbb" },
        { "a", "aa" },
        { "" } /* none */,
    };
    for (size_t k = 0; k < sizeof(sets) / sizeof(sets[0]); k++) {
        struct stop_strings s = { .string = sets[k] };
        while (s.n < 3 && sets[k][s.n] != NULL && *sets[k][s.n] != '\0')
            s.n++;
        for (int n = 0; n <= MAX_LENGTH; n++)
            for (unsigned bits = 0; bits < 1u << n; bits++) {
                char text[MAX_LENGTH + 1] = "";
                for (int i = 0; i < n; i++)
                    text[i] = "ab"[bits >> i & 1];
                for (int partial = 0; partial < 2; partial++) {
                    const size_t cut = stop_strings_cut(&s, text, (size_t)n, partial),
                                 expected = search(&s, text, partial);
                    if (cut != expected)
                        fail_msg("set %zu, \"%s\"%s: cut at %zu, expected %zu", k, text, partial ? ", partial" : "",
                                 cut, expected);
                }
            }
    }
}

RUN_TESTS(NULL, NULL)
