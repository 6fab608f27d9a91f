// test_stop_strings.c - where a text is cut: every text of few letters, beside a search that tries every place.
#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>

#include "engine/stop_strings.h"

enum { LONGEST = 8 };

// The first place from which on the text is one of the strings; partial: or, up to its end, the beginning of one.
static size_t looked_for(const struct stop_strings *s, const char *text, bool partial)
{
    const size_t n = strlen(text);
    for (size_t at = 0; at < n; at++)
        for (int i = 0; i < s->n; i++) {
            const size_t left = n - at, whole = strlen(s->string[i]);
            if (left >= whole ? memcmp(text + at, s->string[i], whole) == 0
                              : partial && memcmp(text + at, s->string[i], left) == 0)
                return at;
        }
    return n;
}

static void a_text_is_cut_where_a_search_of_every_place_cuts_it(void **state)
{
    (void)state;
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
        for (int n = 0; n <= LONGEST; n++)
            for (unsigned bits = 0; bits < 1u << n; bits++) {
                char text[LONGEST + 1] = "";
                for (int i = 0; i < n; i++)
                    text[i] = "ab"[bits >> i & 1];
                for (int partial = 0; partial < 2; partial++) {
                    const size_t cut = stop_strings_cut(&s, text, (size_t)n, partial),
                                 place = looked_for(&s, text, partial);
                    if (cut != place)
                        fail_msg("set %zu, \"%s\"%s: cut at %zu, should be at %zu", k, text,
                                 partial ? ", under way" : "", cut, place);
                }
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_cut_where_a_search_of_every_place_cuts_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
