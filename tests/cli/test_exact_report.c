// test_exact_report.c - a verdict that was made up, number by number: what a person reads of it, and what is stored.
#include "tests/support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "exact/verdict.h"
#include "commands/exact/exact_report.h"
#include "results/exact_rows.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"

enum { PLANT = NEGATIVE_CONTROL_SET + 1 }; // the one that was seen

// No two numbers are alike.
static void make_up(struct verdict *v, struct observed *seen)
{
    *v = (struct verdict){ .answer = NO_VERDICT,
                           .level = 1e-5,
                           .tokens = 1234,
                           .visible_ks = 0.125,
                           .visible_e = 0.0625,
                           .z_accepted = -1.5,
                           .n = 2 };
    v->row[0] = (struct finding_row){ THE_TEXT, { "KS", "rank", "bonus", 0.75, 1e-3, -3, 1200 }, -2.5 };
    v->row[1] = (struct finding_row){ PLANT, { "pairs", "token", "all", 44.5, 1e-20, -20, 1100 }, -18.25 };
    v->of[THE_TEXT] = (struct stream_verdict){ 1234, 2 * log(10), &v->row[0], false };
    v->of[PLANT] = (struct stream_verdict){ 1111, 30 * log(10), &v->row[1], true };
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

static void a_verdict_is_printed(void **state)
{
    (void)state;
    struct verdict *v = xcalloc(1, sizeof(*v));
    struct observed *seen = xcalloc(1, sizeof(*seen));
    make_up(v, seen);
    char *text = printed(v, seen),
         *lines = xformat(
             "  1234 tokens of 56 texts, 400 steps; a false alarm has a chance of at most 1e-05\n"
             "  %-18s    tokens   bet, log10     p, log10  %-44s\n"
             "  %-18s      1234          2.0         -2.5  %-44s  clean\n"
             "  %-18s      1111         30.0        -18.2  %-44s  BIASED\n"
             "  Accepted a step: 2.0850; from the drafts and the rule's law: 2.1250 (-1.5 standard deviations)\n"
             "  So many tokens show a bias of total variation 0.1250 a token (Kolmogorov and Smirnov's test), 0.0625 "
             "(the bet),\n  met head on, in 999 of 1,000 runs\n"
             "  Verdict: no verdict. Planted and not seen: %s",
             "", "smallest p, after Holm", "text", "KS, rank (bonus)", stream_name(PLANT), "pairs, token (all)",
             stream_name(NEGATIVE_CONTROL_SET));
    if (strncmp(text, lines, strlen(lines)) != 0)
        fail_msg("expected:\n%s\nfound:\n%s", lines, text);
    assert_null(strstr(text + strlen(lines), stream_name(PLANT)));
    assert_non_null(strstr(text, ". More tokens are needed.\n"));
    free(lines);
    free(text);

    v->visible_e = INFINITY;
    v->of[THE_CONTROL].alarm = true;
    text = printed(v, seen);
    assert_non_null(strstr(text, "So few tokens show no bias for sure"));
    assert_non_null(strstr(text, "The control is not clean"));
    assert_null(strstr(text, "So many tokens"));
    free(text);
    free(seen);
    free(v);
}

static void a_verdict_is_stored(void **state)
{
    (void)state;
    struct error err = { "" };
    struct verdict *v = xcalloc(1, sizeof(*v));
    struct observed *seen = xcalloc(1, sizeof(*seen));
    make_up(v, seen);
    double sum[3] = { 0 };
    const struct exact_row row = { "e", "c", "s", "t", "d", "r", "w", "m", "v", true, 1, 0 };
    struct exact_sums sums = { .sum = sum, .n = 3 };
    int64_t id;
    struct store *s = open_store("report.db");
    if (!store_exact(s, &row, &id, &sums, &err) || !exact_store(s, id, v, seen, &err))
        fail_msg("%s", err.text);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact WHERE level = 1e-5 AND abs(accepted - 2.085) < 1e-12 AND"
                            " abs(expected - 2.125) < 1e-12 AND z_accepted = -1.5 AND visible = 0.125 AND"
                            " verdict = 'no verdict' AND finished IS NOT NULL"),
                     1);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact_stream"), STREAMS);
    char *sql = xformat("SELECT count(*) FROM exact_stream WHERE (stream, tokens, alarm, round(log_e / ln(10))) IN"
                        " (('text', 1234, 0, 2), ('%s', 1111, 1, 30))",
                        stream_name(PLANT));
    assert_int_equal(ask(s, sql), 2);
    free(sql);
    sql = xformat(
        "SELECT count(*) FROM exact_test WHERE (stream, kind, of, part, tokens, statistic, log10_p, log10_adjusted)"
        " IN (('text', 'KS', 'rank', 'bonus', 1200, 0.75, -3, -2.5),"
        " ('%s', 'pairs', 'token', 'all', 1100, 44.5, -20, -18.25))",
        stream_name(PLANT));
    assert_int_equal(ask(s, sql), 2);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact_test"), 2);
    free(sql);
    store_close(s);
    free(seen);
    free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_verdict_is_printed),
        cmocka_unit_test(a_verdict_is_stored),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
