// Short names of drafters, and names in pictures and pages.
#include <stdlib.h>
#include <string.h>

#include "results/figures/figures.h"
#include "results/figures/labels.h"
#include "tests/support/check.h"

static const char *const none[] = { NULL }, *const tokens[] = { "tokens", NULL };

static void expect_without(const char *drafter, const char *const *names, const char *expected)
{
    char *s = drafter_without(drafter, names);
    assert_string_equal(s, expected);
    free(s);
}

static void named_options_are_left_out(void **state)
{
    expect_without("ngram", tokens, "ngram");
    expect_without("ngram(tokens=4)", tokens, "ngram");
    expect_without("ngram(shortest=2, tokens=4)", tokens, "ngram(shortest=2)");
    expect_without("ngram(tokens=4, shortest=2)", none, "ngram(tokens=4, shortest=2)");
    expect_without("small(tokens_of=4)", tokens, "small(tokens_of=4)");
    expect_without("ladder(of=[{kind: ngram, tokens: 4}, {kind: x}], tokens=3)", tokens,
                   "ladder(of=[{kind: ngram, tokens: 4}, {kind: x}])");
    expect_without("small(model=\"a, tokens=1)\", tokens=2)", tokens, "small(model=\"a, tokens=1)\")");
    expect_without("", tokens, "");
    expect_without("x(((", tokens, "x(((");
    expect_without("x(tokens=4)y", tokens, "x(tokens=4)y");
}

static void a_label_has_what_differs_within_the_kind(void **state)
{
    static const char *const all[] = { "eagle3(weights=/a/b/head, tokens=2)", "eagle3(weights=/a/b/head, tokens=3)",
                                       "ngram(tokens=8)", "eagle3(weights=/c/other, tokens=2)" };
    static const char *const expected[] = { "eagle3 weights=head tokens=2", "eagle3 weights=head tokens=3", "ngram",
                                            "eagle3 weights=other tokens=2" };
    for (int i = 0; i < 4; i++) {
        char *s = drafter_label(all[i], all, 4);
        assert_string_equal(s, expected[i]);
        free(s);
    }
    char *s = drafter_label(all[1], all, 2);
    assert_string_equal(s, "eagle3 tokens=3");
    free(s);
}

static void a_plain_text_is_whole_characters_without_controls(void **state)
{
    static const struct {
        const char *from;
        int most;
        const char *expected;
    } cases[] = { { "abc", 3, "abc" },
                  { "abcd", 3, "ab\u2026" },
                  { "äöüß", 3, "äö\u2026" },
                  { "a\nb\x7f", 0, "a b " },
                  { "a\xff"
                    "b",
                    0, "a\uFFFDb" },
                  { "\u202Eabc", 0, "\uFFFD\uFFFD\uFFFDabc" },
                  { "\U0001F600", 0, "\U0001F600" },
                  { "", 5, "" } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *s = plain_text(cases[i].from, cases[i].most);
        assert_string_equal(s, cases[i].expected);
        free(s);
    }
}

static void html_has_no_markup_of_a_name(void **state)
{
    struct text t = { 0 };
    html_put(&t, "<b a=\"1\" b='2'>&amp;\n\x01\xc3");
    assert_string_equal(t.s, "&#60;b a=&#34;1&#34; b=&#39;2&#39;&#62;&#38;amp;\n \uFFFD");
    free(t.s);
}

static void a_quoted_name_is_a_literal(void **state)
{
    struct text t = { 0 };
    quoted_put(&t, "it's ''");
    quoted_put(&t, "");
    assert_string_equal(t.s, "'it''s '''''''");
    free(t.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_options_are_left_out),
        cmocka_unit_test(a_label_has_what_differs_within_the_kind),
        cmocka_unit_test(a_plain_text_is_whole_characters_without_controls),
        cmocka_unit_test(html_has_no_markup_of_a_name),
        cmocka_unit_test(a_quoted_name_is_a_literal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
