// test_exact_report.c - a verdict with fixed numbers: how it is printed and stored.
#include "tests/support/tests.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "verifier/exact/verdict.h"
#include "commands/exact/exact_run.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

enum { DETECTED = STREAM_NEGATIVE_CONTROLS + 1 }; // the negative control that was detected

// All numbers differ.
static void set_example(struct verdict *v, struct observed *seen)
{
    *v = (struct verdict){ .answer = NO_VERDICT,
                           .level = 1e-5,
                           .tokens = 1234,
                           .detectable_ks = 0.125,
                           .detectable_e = 0.0625,
                           .needed = 4561,
                           .z_accepted = -1.5,
                           .n = 2 };
    v->row[0] = (struct stream_test){ STREAM_TEXT, { "KS", "rank", "bonus", 0.75, -3, 1200 }, -2.5 };
    v->row[1] = (struct stream_test){ DETECTED, { "pairs", "token", "all", 44.5, -20, 1100 }, -18.25 };
    v->of[STREAM_TEXT] = (struct stream_verdict){ 1234, 2 * log(10), &v->row[0], false };
    v->of[DETECTED] = (struct stream_verdict){ 1111, 30 * log(10), &v->row[1], true };
    *seen = (struct observed){ .steps = 400, .drafted = 1600, .accepted = 834, .expected = 850, .variance = 100 };
}

static char *printed(const struct verdict *v, const struct observed *seen)
{
    char *text;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    exact_print(to, v, seen, 56);
    fclose(to);
    return text;
}

TEST(a_verdict_is_printed)
{
    struct verdict *v = xcalloc(1, sizeof(*v));
    struct observed *seen = xcalloc(1, sizeof(*seen));
    set_example(v, seen);
    char *text = printed(v, seen),
         *lines = xformat(
             "  1234 tokens of 56 texts, 400 steps; probability of a false alarm at most 1e-05\n"
             "  %-18s    tokens   bet, log10     p, log10  %-44s\n"
             "  %-18s      1234          2.0         -2.5  %-44s  clean\n"
             "  %-18s      1111         30.0        -18.2  %-44s  BIASED\n"
             "  Accepted per step: 2.0850; expected from drafts and rule: 2.1250 (-1.5 standard deviations)\n"
             "  Detectable in 999 of 1,000 runs with this many tokens: a total variation per token of 0.1250 by the\n"
             "  Kolmogorov-Smirnov test, of 0.0625 by the bet, for the alternative that each tests directly\n"
             "  Verdict: no verdict. Negative controls not detected: %s",
             "", "smallest p, after Holm", "text", "KS, rank (bonus)", stream_name(DETECTED), "pairs, token (all)",
             stream_name(STREAM_NEGATIVE_CONTROLS));
    if (strncmp(text, lines, strlen(lines)) != 0)
        fail_msg("expected:\n%s\nfound:\n%s", lines, text);
    assert_null(strstr(text + strlen(lines), stream_name(DETECTED)));
    assert_non_null(strstr(text, ". More tokens are needed: about 4600 in all, if the controls go on as so far.\n"));
    free(lines);
    free(text);

    v->needed = NAN;
    text = printed(v, seen);
    assert_non_null(strstr(text, ". More tokens are needed; of these controls too little shows to say how many.\n"));
    free(text);

    v->detectable_e = INFINITY;
    v->of[STREAM_CONTROL].alarm = true;
    text = printed(v, seen);
    assert_non_null(strstr(text, "Too few tokens to detect a bias"));
    assert_non_null(strstr(text, "The control is not clean"));
    assert_null(strstr(text, "Detectable"));
    free(text);
    free(seen);
    free(v);
}

TEST(a_verdict_is_stored)
{
    struct error err = { "" };
    struct verdict *v = xcalloc(1, sizeof(*v));
    struct observed *seen = xcalloc(1, sizeof(*seen));
    set_example(v, seen);
    double sum[3] = { 0 };
    const struct exact_row row = { "e", "c", "s", "t", "d", "r", "w", "m", "v", true, 1, 0 };
    struct exact_sums sums = { .sum = sum, .n = 3 };
    int64_t id;
    struct store *s = open_store("report.db");
    assert_ok(store_exact(s, &row, &id, &sums, &err) && exact_store(s, id, v, seen, &err) &&
                  exact_store(s, id, v, seen, &err), // again: replaces what is stored
              err);
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM exact WHERE level = 1e-5 AND abs(accepted - 2.085) < 1e-12 AND"
                           " abs(expected - 2.125) < 1e-12 AND z_accepted = -1.5 AND detectable = 0.125 AND"
                           " verdict = 'no verdict' AND finished IS NOT NULL"),
        1);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact_stream"), STREAMS);
    char *sql = xformat("SELECT count(*) FROM exact_stream WHERE (stream, tokens, alarm, round(log_e / ln(10))) IN"
                        " (('text', 1234, 0, 2), ('%s', 1111, 1, 30))",
                        stream_name(DETECTED));
    assert_int_equal(query_first_int(s, sql), 2);
    free(sql);
    sql = xformat(
        "SELECT count(*) FROM exact_test WHERE (stream, kind, of, part, tokens, statistic, log10_p, log10_adjusted)"
        " IN (('text', 'KS', 'rank', 'bonus', 1200, 0.75, -3, -2.5),"
        " ('%s', 'pairs', 'token', 'all', 1100, 44.5, -20, -18.25))",
        stream_name(DETECTED));
    assert_int_equal(query_first_int(s, sql), 2);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact_test"), 2);
    free(sql);
    store_close(s);
    free(seen);
    free(v);
}

RUN_TESTS(make_files, test_directory_tear_down)
