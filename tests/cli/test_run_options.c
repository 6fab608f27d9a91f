// test_run_options.c - `speclab run` with options that change the file's settings (--set) and what is said (--quiet, --log).
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/input.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/cli/child_process.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

static const char file[] =
    "name: x\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: conversations.jsonl, chat: none}\n"
    "%scells: {drafter: [none, {kind: ngram, tokens: %d}]}\n";

static void write_experiment(const char *name, const char *limits, int tokens)
{
    char *text = xformat(file, limits, tokens);
    write_file(name, text);
    free(text);
}

static int make(void **state)
{
    make_files(state);
    write_experiment("x.yaml", "", 2);
    write_experiment("same.yaml", "limits: {new_tokens: 4, stop: [x, '=']}\n", 3);
    return chdir(test_directory());
}

static void run_into(const char *db, const char *words)
{
    struct child_result r = child_run("run %s --db %s --no-probe", words, db);
    child_expect_success(&r, words);
    child_result_free(&r);
}

static char *cells_of(const char *db)
{
    struct store *s = open_store(db);
    struct error err;
    struct query *q = query_open(s, "SELECT group_concat(cell || texts) FROM (SELECT cell, (SELECT group_concat(tokens)"
                                    " FROM sequence WHERE run = run.id) AS texts FROM run ORDER BY cell)");
    assert_true(query_next(q));
    char *cells = xstrdup(query_text(q, 0));
    assert_true(query_close(q, &err) && *cells != '\0');
    store_close(s);
    return cells;
}

// A file with these values in it has the same cells and texts.
static void a_value_that_is_set_is_as_one_in_the_file(void **state)
{
    (void)state;
    run_into("set.db",
             "x.yaml --set limits.new_tokens=4 --set 'limits.stop=[x, \"=\"]' --set cells.drafter.1.tokens=3");
    run_into("same.db", "same.yaml");
    run_into("given.db", "x.yaml");
    char *set = cells_of("set.db"), *same = cells_of("same.db"), *given = cells_of("given.db");
    assert_string_equal(set, same);
    assert_string_not_equal(set, given);
    free(set), free(same), free(given);
}

static void what_cannot_be_set_is_one_sentence_with_the_option(void **state)
{
    (void)state;
    static const struct mistake mistakes[] = {
        { 2, "run x.yaml --set x", "--set: expected KEY=VALUE, as in limits.new_tokens=64, found \"x\"" },
        { 2, "run x.yaml --set =3", "--set: expected KEY=VALUE, as in limits.new_tokens=64, found \"=3\"" },
        { 2, "run x.yaml --set repeat=", "--set repeat=: expected a value behind =, found none" },
        { 2, "run x.yaml --set limits..stop=3",
          "--set limits..stop=3: expected a key on each side of a dot, found none" },
        { 2, "run x.yaml --set cells.drafter.2.tokens=3",
          "--set cells.drafter.2.tokens=3: expected the index of one of 2 values, from 0, found \"2\"" },
        { 2, "run x.yaml --set name.x=2", "\"x\" is a key of a value, \"x\", which has no keys" },
        { 2, "run x.yaml --set repeat={", "--set repeat: --set:2:1: not valid YAML" },
        { 2, "run x.yaml --set limits.new_token=3 --set repeat=2",
          "limits has no key \"new_token\" (it has: new_tokens, context, ignore_end, stop); did you mean new_tokens? (with --set limits.new_token=3, --set repeat=2)" },
        { 2, "run x.yaml --set limits.new_tokens=lots",
          "new_tokens: expected an integer, found \"lots\" (with --set limits.new_tokens=lots)" },
    };
    child_expect_errors(mistakes, sizeof(mistakes) / sizeof(*mistakes), "target.gguf");
}

static void a_quiet_run_prints_nothing_and_a_log_has_times(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct child_result r = child_run("run x.yaml --db quiet.db --no-probe --quiet --log log.txt");
        child_expect_success(&r, "run");
        assert_string_equal(r.out, "");
        assert_string_equal(r.err, "");
        child_result_free(&r);
    }
    struct error err;
    char *log = file_text("log.txt", NULL, &err), *second = strchr(log, '\n') + 1;
    assert_non_null(strstr(log, "Z temperature=0, batch 1: 2 cells, "));
    assert_non_null(strstr(second, "Z temperature=0, batch 1: 2 cells, 0 conversations decoded, "));
    assert_true(strlen(log) > 21 && log[4] == '-' && log[10] == 'T' && log[19] == 'Z');
    free(log);
    child_expect_error(2, "--log ./none/log.txt: No such file or directory", "run x.yaml --log ./none/log.txt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_that_is_set_is_as_one_in_the_file),
        cmocka_unit_test(what_cannot_be_set_is_one_sentence_with_the_option),
        cmocka_unit_test(a_quiet_run_prints_nothing_and_a_log_has_times),
    };
    return child_is_present() ? cmocka_run_group_tests(tests, make, test_directory_tear_down) : child_is_missing();
}
