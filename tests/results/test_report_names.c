// test_report_names.c - names of cells in tables: what differs, and names of any kind, which leave Markdown and LaTeX in form; LaTeX compiles
// where it can be tried. Of many cells the fastest are shown.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/memory.h"
#include "results/report.h"
#include "results/store.h"
#include "results/tally.h"
#include "results/tables/tables.h"
#include "tests/support/check.h"
#include "tests/support/file_write.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"
#include "tests/results/printed_tables.h"
#include "tests/results/sample_facts.h"

// ---- names

static void expect_names(const char *const *drafter, int n, const char *const *expected, const char *common)
{
    struct tally run[8];
    struct comparison c = { .n = n, .run = run };
    struct cell_names names;
    for (int i = 0; i < n; i++)
        run[i] =
            (struct tally){ .drafter = (char *)drafter[i], .rule = "rejection", .lossless = true, .finished = true };
    cell_names_make(&c, &names);
    for (int i = 0; i < n; i++)
        assert_string_equal(names.name[i], expected[i]);
    assert_string_equal(names.common, common);
    cell_names_free(&names);
}

static void names_have_what_differs(void **state)
{
    (void)state;
    expect_names(
        (const char *[]){ "none", "ngram(longest=3, tokens=8)", "ngram(longest=3, tokens=4)", "ngram(longest=3)" }, 4,
        (const char *[]){ "none", "ngram(tokens=8)", "ngram(tokens=4)", "ngram" }, "rejection; ngram(longest=3)");
    // Commas within brackets and quotes divide no options.
    expect_names((const char *[]){ "ladder(of=[{kind: a, n: 1}, {kind: b}], tree=\"[[0], [1)]\", x=1)",
                                   "ladder(of=[{kind: a, n: 1}, {kind: b}], tree=\"[[0]]\", x=1)" },
                 2, (const char *[]){ "ladder(tree=\"[[0], [1)]\")", "ladder(tree=\"[[0]]\")" },
                 "rejection; ladder(of=[{kind: a, n: 1}, {kind: b}], x=1)");
    // A name of another form stays as it is.
    const char *const odd[] = { "a(b", "a(b)c", "", "(", "a)", "a(b=(c)", "a(\"b)" };
    expect_names(odd, 7, odd, "rejection");
}

// ---- names of any kind

static const char *const hostile[SAMPLE_RUNS] = { "none",
                                                  "a|b(path=C:\\x|y\\|z)c",
                                                  "`tick` _under_ *star* #1 100% $5 a&b~c^d <b>{x}",
                                                  "caf\xC3\xA9 \xE6\xBC\xA2\xC3\x90 \xFF\xC3( \"quoted\" --dash",
                                                  "none",
                                                  "tab\tnew\nline\\" };

static struct store *hostile_store(struct sample_facts **facts)
{
    struct sample_facts *m = sample_facts_create(3, 6, 2, 2);
    for (int i = 0; i < SAMPLE_RUNS; i++) {
        m->run[i].drafter = hostile[i];
        m->run[i].experiment = "50% & more_of #it\\";
        m->run[i].machine = "a^b~c {d} $e$ |f| \"g\" <h>";
        m->run[i].prompts = "r\xC3\xA9sum\xC3\xA9_\xE6\xBC\xA2.jsonl";
    }
    for (int i = 0; i < m->n; i++)
        m->sequence[i].row.category = m->sequence[i].row.prompt < 3 ? "math_reasoning|&%" : "\\input{x}";
    *facts = m;
    return sample_store(m);
}

static void names_of_any_kind_leave_markdown_in_form(void **state)
{
    (void)state;
    struct sample_facts *m;
    struct store *s = hostile_store(&m);
    for (int form = 0; form < 2; form++) {
        char *text = sample_report(s, (struct report_options){ .format = REPORT_MARKDOWN, .by_category = form == 1 });
        struct printed_rows t = printed_rows_of_markdown(text);
        assert_int_equal(t.n, SAMPLE_RUNS);
        for (int i = 0; i < t.n; i++)
            assert_int_equal(t.row[i].n, 7); // by category: two categories and all
        expect_contains(text, "**50% & more\\_of \\#it\\\\ (1 of 2)");
        expect_contains(
            text,
            "| a\\|b(path=C:\\\\x\\|y\\\\\\|z)c; rejection |"); // not as code: of \| it would lose the backslash
        expect_contains(text, "\\`tick\\` \\_under\\_ \\*star\\* \\#1 100% \\$5 a&b\\~c^d \\<b>{x}; rejection |");
        expect_contains(text, "| `tab new line\\` |");
        expect_contains(text, form == 0 ? "|--:|--:|--:|--:|--:|--:|\n"
                                        : "| math\\_reasoning\\|&% (3): speedup | tokens/step |");
        printed_rows_free(&t);
        free(text);
    }
    store_close(s);
    sample_facts_free(m);
}

// GitHub's own parser finds the cells and the names. Skipped where there is none (Debian: cmark-gfm).
static void github_reads_the_markdown(void **state)
{
    (void)state;
    if (system("command -v cmark-gfm >/dev/null") != 0)
        skip();
    struct sample_facts *m;
    struct store *s = hostile_store(&m);
    char *text = sample_report(s, (struct report_options){ .format = REPORT_MARKDOWN }), *path = test_path("tables.md");
    file_write(path, text);
    char *command = xformat("cmark-gfm -e table %s", path), html[32768];
    FILE *f = popen(command, "r");
    assert_non_null(f);
    html[fread(html, 1, sizeof(html) - 1, f)] = '\0';
    assert_int_equal(pclose(f), 0);
    assert_int_equal(occurrences(html, "<tr>"), SAMPLE_RUNS + 2);
    assert_int_equal(occurrences(html, "<td"), SAMPLE_RUNS * 7);
    expect_contains(html, "<td>a|b(path=C:\\x|y\\|z)c; rejection</td>");
    expect_contains(html, "<td>`tick` _under_ *star* #1 100% $5 a&amp;b~c^d &lt;b&gt;{x}; rejection</td>");
    expect_contains(html, "<td><code>tab new line\\</code></td>");
    expect_contains(html, "<strong>50% &amp; more_of #it\\ (1 of 2)");
    assert_int_equal(remove(path), 0);
    free(command);
    free(path);
    free(text);
    store_close(s);
    sample_facts_free(m);
}

// Outside of what LaTeX reads as commands there is no special character, and groups and environments close.
static void expect_latex(const char *text)
{
    int depth = 0;
    for (const char *s = text; *s != '\0'; s++) {
        if (*s == '%' && (s == text || s[-1] == '\n')) {
            s = line_end(s);
            continue;
        }
        if (*s == '\\') {
            s++;
            assert_true(isalpha((unsigned char)*s) || strchr("\\{}$&#_%`", *s) != NULL);
            while (isalpha((unsigned char)s[1]) && isalpha((unsigned char)*s))
                s++;
            continue;
        }
        depth += (*s == '{') - (*s == '}');
        assert_true(depth >= 0);
        if (strchr("#%~\"|<>`_", *s) != NULL)
            fail_msg("unescaped %c: %.40s", *s, s);
        if (*s == '^' || *s == '$')
            assert_true(strncmp(s - 1, "}$^{*}$", 7) == 0 || strncmp(s - 2, "}$^{*}$", 7) == 0 ||
                        strncmp(s - 6, "}$^{*}$", 7) == 0);
        assert_true((unsigned char)*s < 0x80 || strncmp(s, "\xC3\xA9", 2) == 0 || strncmp(s - 1, "\xC3\xA9", 2) == 0);
    }
    assert_int_equal(depth, 0);
    assert_int_equal(occurrences(text, "\\begin{"), occurrences(text, "\\end{"));
    assert_int_equal(occurrences(text, "\\toprule"), occurrences(text, "\\bottomrule"));
    assert_int_equal(occurrences(text, "\\caption{"), occurrences(text, "\\label{"));
}

static void names_of_any_kind_leave_latex_in_form(void **state)
{
    (void)state;
    struct sample_facts *m;
    struct store *s = hostile_store(&m);
    for (int form = 0; form < 2; form++) {
        char *text = sample_report(s, (struct report_options){ .format = REPORT_LATEX, .by_category = form == 1 });
        struct printed_rows t = printed_rows_of_latex(text);
        assert_int_equal(t.n, SAMPLE_RUNS);
        for (int i = 0; i < t.n; i++)
            assert_int_equal(t.row[i].n, 7);
        expect_latex(text);
        expect_contains(text, "caf\xC3\xA9 U+6F22U+00D0 0xFF0xC3(");
        expect_contains(text, form == 0 ? "\\label{tab:50-more-of-it-1-of-2-cells}"
                                        : "\\label{tab:50-more-of-it-2-of-2-categories}");
        expect_contains(text, "}$^{*}$");
        printed_rows_free(&t);
        free(text);
    }
    store_close(s);
    sample_facts_free(m);
}

// Skipped where there is no pdflatex, or no booktabs (Debian: texlive-latex-recommended).
static void latex_compiles(void **state)
{
    (void)state;
    if (system("command -v pdflatex >/dev/null && kpsewhich booktabs.sty >/dev/null") != 0)
        skip();
    struct sample_facts *m;
    struct store *s = hostile_store(&m);
    struct text document = { 0 };
    text_puts(&document, "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n");
    for (int form = 0; form < 2; form++) {
        char *text = sample_report(s, (struct report_options){ .format = REPORT_LATEX, .by_category = form == 1 });
        text_puts(&document, text);
        free(text);
    }
    text_puts(&document, "\\end{document}\n");
    char *path = test_path("tables.tex");
    file_write(path, document.s);
    char *command =
        xformat("cd %s && pdflatex -interaction=nonstopmode -halt-on-error tables.tex >tables.out", test_directory());
    const int status = system(command);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("pdflatex failed: %s", path);
    char *clean = xformat("cd %s && rm tables.*", test_directory());
    assert_int_equal(system(clean), 0);
    free(clean);
    free(command);
    free(path);
    free(document.s);
    store_close(s);
    sample_facts_free(m);
}

// ---- many cells

// 120 cells of one pair: text i took i + 1 ns a token, one of none's 200.
static struct store *store_of_many(void)
{
    struct store *s = sample_store_small();
    sample_facts_query(s, "DELETE FROM run WHERE id > 2");
    sample_facts_query(
        s, "UPDATE run SET sampling = 'temperature=0', batch = 1, drafter = 'ngram(tokens=1, longest=3)' WHERE id = 2");
    sample_facts_query(
        s,
        "CREATE TEMP TABLE n AS WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 120) SELECT i FROM n");
    sample_facts_query(s, "CREATE TEMP TABLE r AS SELECT n.i, run.* FROM run JOIN n WHERE run.id = 2");
    sample_facts_query(
        s,
        "UPDATE r SET id = i, cell = 'cell ' || i, drafter = 'ngram(tokens=' || i || ', longest=3)', lossless = i < 101");
    sample_facts_query(s, "ALTER TABLE temp.r DROP COLUMN i");
    sample_facts_query(s, "INSERT INTO run SELECT * FROM r");
    sample_facts_query(s, "CREATE TEMP TABLE q AS SELECT n.i, sequence.* FROM sequence JOIN n WHERE run = 2");
    sample_facts_query(s, "UPDATE q SET id = 1000 * i + id, run = i, decode_ns = new_tokens * (i + 1)");
    sample_facts_query(s, "ALTER TABLE temp.q DROP COLUMN i");
    sample_facts_query(s, "INSERT INTO sequence SELECT * FROM q");
    sample_facts_query(s, "UPDATE sequence SET decode_ns = new_tokens * 200 WHERE run = 1");
    sample_facts_query(s, "UPDATE sequence SET decode_ns = new_tokens * 2 WHERE run = 2");
    return s;
}

static void of_many_cells_the_fastest_are_shown(void **state)
{
    (void)state;
    struct store *s = store_of_many();
    char *text = sample_report(s, (struct report_options){ 0 });
    expect_contains(text, "; all: rejection; ngram(longest=3)\n");
    expect_contains(text, "\n      109 more cells, 20 of them lossy, with speedups from 15.4 down to 1.65\n");
    expect_contains(text, "These are 120 cells, so the tables of each comparison are left out");
    assert_null(strstr(text, "By prompt"));
    struct printed_rows t = printed_rows_of_summary(text);
    assert_int_equal(t.n, 11);
    printed_rows_free(&t);
    free(text);
    text = sample_report(s, (struct report_options){ .details = true, .top = REPORT_TOP_ALL });
    assert_null(strstr(text, "more cells"));
    assert_null(strstr(text, "left out"));
    expect_contains(text, "\n 120*");
    expect_contains(text, "By prompt");
    free(text);
    text = sample_report(s, (struct report_options){ .format = REPORT_MARKDOWN });
    t = printed_rows_of_markdown(text);
    assert_int_equal(t.n, 120);
    printed_rows_free(&t);
    free(text);
    text = sample_report(s, (struct report_options){ .format = REPORT_LATEX }); // a page
    t = printed_rows_of_latex(text);
    assert_int_equal(t.n, 31);
    printed_rows_free(&t);
    free(text);
    text = sample_report(s, (struct report_options){ .format = REPORT_LATEX, .top = 3 });
    t = printed_rows_of_latex(text);
    assert_int_equal(t.n, 4);
    expect_contains(text, "Left out: 116 more cells, 20 of them lossy, with speedups from 33.3 down to 1.65.");
    printed_rows_free(&t);
    free(text);
    store_close(s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, test_directory_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(names_have_what_differs),
        TEST(names_of_any_kind_leave_markdown_in_form),
        TEST(github_reads_the_markdown),
        TEST(names_of_any_kind_leave_latex_in_form),
        TEST(latex_compiles),
        TEST(of_many_cells_the_fastest_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
