// test_bits.c - `speclab exact --bits`: which rows it compares, and how it prints and stores the results.
//
// This file replaces commands/exact/compare_logits.c (tested in tests/cli/test_compare_logits.c) by its own functions: they
// check every pair of rows and return the results that a test sets.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "commands/exact/exact_run.h"
#include "experiments/experiment.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/support/tests.h"
#include "tests/cli/child_process.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

// ---- the comparison

enum { TEXTS = 64, TOKENS = 60, NEW = 10 };

static struct {
    int next[TEXTS], first[TEXTS], texts; // position of a text's next and first row; number of texts
    int64_t rows, cells;
    double limit;
    struct logit_comparison result; // returned for every cell, except rows
} seen;

const char *const agreement_names[] = { "none differs", "small differences", "large differences" };

double rounding_limit(enum activations a, enum type cache)
{
    return 0.125;
}

struct logit_comparison comparison_start(double limit)
{
    seen.limit = limit;
    seen.cells++;
    memset(seen.next, 0, sizeof(seen.next));
    struct logit_comparison c = seen.result;
    c.rows = 0;
    return c;
}

// Rows are bitwise equal, and those of a text come in order of position, from the first after its prompt on.
void comparison_add(struct logit_comparison *c, const float *one, const float *verified, int vocab, int64_t sequence,
                    int place)
{
    assert_true(sequence >= 0 && sequence < TEXTS);
    assert_int_equal(vocab, small_default.vocab);
    assert_memory_equal(one, verified, (size_t)vocab * sizeof(*one));
    assert_true(one[0] != one[1]); // and not constant
    if (seen.next[sequence] == 0) {
        seen.first[sequence] = seen.next[sequence] = place;
        seen.texts++;
    }
    assert_int_equal(place, seen.next[sequence]++);
    assert_true(place < seen.first[sequence] + NEW + 4); // rows of draft tokens beyond the text's end are compared, too
    c->rows++;
    seen.rows++;
}

enum agreement comparison_result(const struct logit_comparison *c)
{
    return c->bugs > 0 ? DIFFER_BEYOND_ROUNDING : c->different > 0 ? DIFFER_AT_TIES : BITWISE_EQUAL;
}

// ---- runs

static const char experiment_text[] = "name: bits\ntarget: {model: target.gguf}\nthreads: 1\n"
                                      "prompts: {file: conversations.jsonl, chat: chatml}\n"
                                      "limits: {new_tokens: 10, context: 320}\nseed: 5\ncells:\n"
                                      "  sampling: [{temperature: 1}, {temperature: 0}]\n  batch: [1, 3]\n"
                                      "  drafter: [none, {kind: ngram, longest: 2, tokens: 3},"
                                      " {kind: small, model: draft.gguf, tree: [[0], [1], [0, 0]]}]\n";
enum { ALL_CELLS = 2 * 2 * 2 };

static char *compare_all(const char *db, enum agreement *worst)
{
    struct error err = { "" };
    struct experiment *e = load(experiment_text);
    struct store *s = open_store(db);
    FILE *out = tmpfile();
    const struct exact_plan plan = { .tokens = TOKENS, .out = out };
    seen.rows = seen.cells = seen.texts = 0;
    assert_ok(bits_run(e, s, &plan, worst, &err), err);
    store_close(s);
    experiment_free(e);
    const long n = ftell(out);
    char *text = xcalloc((size_t)n + 1, 1);
    rewind(out);
    assert_int_equal(fread(text, 1, (size_t)n, out), n);
    fclose(out);
    return text;
}

TEST(every_token_of_every_text_is_compared)
{
    enum agreement worst = DIFFER_BEYOND_ROUNDING;
    seen.result = (struct logit_comparison){ .first.sequence = -1 };
    char *out = compare_all("same.db", &worst);
    assert_int_equal(worst, BITWISE_EQUAL);
    assert_true(seen.limit == 0.125);
    assert_int_equal(seen.cells, ALL_CELLS); // `none` verifies nothing
    assert_true(seen.texts >= ALL_CELLS * TOKENS / (NEW + 4));
    assert_int_equal(occurrences(out, "all bits are equal\n"), ALL_CELLS);
    assert_int_equal(occurrences(out, "First:"), 0);
    assert_int_equal(occurrences(out, "Verdict: none differs.\n"), ALL_CELLS);
    assert_int_equal(occurrences(out, "ngram"), ALL_CELLS / 2);
    assert_int_equal(occurrences(out, "batch 3\n"), ALL_CELLS / 2);
    assert_int_equal(occurrences(out, "(Device"), 0); // equal bits are guaranteed on the CPU
    struct store *s = open_store("same.db");
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact_bits"), ALL_CELLS);
    // As many as requested, and the rest of a step.
    assert_int_equal(query_first_int(s, "SELECT sum(compared) FROM exact_bits"), seen.rows);
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM exact_bits WHERE compared BETWEEN 60 AND 60 + 3 * 4 AND largest = 0"
                           " AND different + ties + argmax_changed + bugs = 0 AND verdict = 'none differs'"),
        ALL_CELLS);
    assert_int_equal(query_first_int(s, "SELECT count(DISTINCT cell) FROM exact_bits"), ALL_CELLS);
    assert_int_equal(
        query_first_int(s, "SELECT count(*) FROM exact_bits WHERE experiment = 'bits' AND target LIKE '%target.gguf'"
                           " AND rule LIKE 'rejection%' AND sampling LIKE '%temperature%' AND settings LIKE '%batch%'"
                           " AND (drafter LIKE 'ngram%' OR drafter LIKE 'small%') AND length(machine) > 3"
                           " AND revision <> '' AND abs(julianday('now') - julianday(started)) < 1"),
        ALL_CELLS);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact_bits WHERE sampling = 'temperature=0'"),
                     ALL_CELLS / 2);
    assert_int_equal(
        query_first_int(s,
                        "SELECT count(*) FROM exact_bits WHERE sampling = 'temperature=0' AND drafter LIKE 'ngram%'"),
        ALL_CELLS / 4);
    store_close(s);
    free(out);
}

TEST(differences_are_printed_and_stored)
{
    for (int bugs = 0; bugs < 2; bugs++) {
        enum agreement worst = BITWISE_EQUAL;
        seen.result = (struct logit_comparison){ .limit = 0.25,
                                                 .different = 17,
                                                 .largest = 2.5,
                                                 .share = 0.75,
                                                 .ties = 5,
                                                 .turned = 3,
                                                 .bugs = bugs,
                                                 .first = { 4, 33, 0.125, 0.0625, bugs > 0 } };
        char *out = compare_all(bugs ? "bugs.db" : "ties.db", &worst);
        assert_int_equal(worst, bugs ? DIFFER_BEYOND_ROUNDING : DIFFER_AT_TIES);
        char *line =
            xformat("17 differ, by at most 2.5,\n  which is 0.75 of the row's spread (limit of rounding at this "
                    "precision: 0.25); %d differ by more than rounding.\n  In 5 rows the top 2 tokens are close "
                    "enough to swap; the argmax differs in 3\n",
                    bugs);
        assert_int_equal(occurrences(out, line), ALL_CELLS);
        char *first = xformat("  First: text 4, position 33, logits differ by 0.0625, top 2 logits 0.125 apart: a %s\n",
                              bugs ? "bug" : "tie");
        assert_int_equal(occurrences(out, first), ALL_CELLS);
        assert_int_equal(occurrences(out, bugs ? "Verdict: large differences.\n" : "Verdict: small differences.\n"),
                         ALL_CELLS);
        struct store *s = open_store(bugs ? "bugs.db" : "ties.db");
        char *sql = xformat("SELECT count(*) FROM exact_bits WHERE different = 17 AND largest = 2.5 AND ties = 5 AND"
                            " argmax_changed = 3 AND bugs = %d AND verdict = '%s'",
                            bugs, bugs ? "large differences" : "small differences");
        assert_int_equal(query_first_int(s, sql), ALL_CELLS);
        store_close(s);
        free(sql);
        free(first);
        free(line);
        free(out);
    }
}

TEST(an_interrupted_run_reports_it_and_stores_nothing)
{
    struct error err = { "" };
    const volatile int stop = 1;
    enum agreement worst;
    struct experiment *e = load(experiment_text);
    struct store *s = open_store("stopped.db");
    const struct exact_plan plan = { .tokens = TOKENS, .out = stdout, .stop = &stop };
    assert_false(bits_run(e, s, &plan, &worst, &err));
    assert_string_equal(err.text, "interrupted");
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact_bits"), 0);
    store_close(s);
    experiment_free(e);
}

// A draft token picked with the rule's own random numbers depends on the text. A second drafter does not change that.
TEST(a_drafter_coupled_to_the_rule_is_refused)
{
    struct error err = { "" };
    enum agreement worst;
    struct experiment *e = load(
        "name: shared\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: chatml}\n"
        "limits: {new_tokens: 10, context: 320}\ncells:\n  sampling: [{temperature: 1}]\n  rule: [match]\n"
        "  drafter: [none, {kind: small, model: draft.gguf, pick: coupled}, {kind: ngram, tokens: 3}]\n");
    struct store *s = open_store("shared.db");
    FILE *out = tmpfile();
    const struct exact_plan plan = { .tokens = TOKENS, .out = out };
    assert_false(bits_run(e, s, &plan, &worst, &err));
    assert_non_null(strstr(err.text, "rule match"));
    assert_non_null(strstr(err.text, "pick: coupled"));
    assert_int_equal(ftell(out), 0);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact_bits"), 0);
    fclose(out);
    store_close(s);
    experiment_free(e);
}

// ---- the command, with the real comparison

TEST(the_command_finds_equal_bits)
{
    write_file("bits.yaml", experiment_text);
    struct child_result s =
        child_run("exact --bits %s/bits.yaml --tokens 20 --db %s/command.db", test_directory(), test_directory());
    child_expect_success(&s, "exact --bits");
    assert_int_equal(occurrences(s.out, "all bits are equal\n"), ALL_CELLS);
    child_result_free(&s);
    struct store *store = open_store("command.db");
    assert_int_equal(query_first_int(store, "SELECT count(*) FROM exact_bits WHERE compared BETWEEN 20 AND 20 + 3 * 4"),
                     ALL_CELLS);
    store_close(store);
}

RUN_TESTS(make_files, test_directory_tear_down)
