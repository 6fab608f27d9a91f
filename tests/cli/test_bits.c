// test_bits.c - `speclab exact --bits`: which rows it compares, and that what it found is what it prints and stores.
//
// The counting is the test's own: it takes the place of commands/exact/compare_logits.c (which tests/cli/test_compare_logits.c has), looks
// at every pair of rows itself, and finds what the test wants found.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "commands/exact/bits_run.h"
#include "commands/exact/compare_logits.h"
#include "experiments/experiment.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/support/check.h"
#include "tests/cli/child_process.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

// ---- what is compared

enum { TEXTS = 64, TOKENS = 60, NEW = 10 };

static struct {
    int next[TEXTS], begun[TEXTS], texts; // place of a text's next row, and of its first; texts that were begun
    int64_t rows, cells;
    double limit;
    struct compared found; // said of every cell, but for rows
} seen;

const char *const same_names[] = { "none differs", "some near", "some far" };

double rounding_limit(enum activations a, enum type cache)
{
    (void)a, (void)cache;
    return 0.125;
}

struct compared compared_nothing(double limit)
{
    seen.limit = limit;
    seen.cells++;
    memset(seen.next, 0, sizeof(seen.next));
    struct compared c = seen.found;
    c.rows = 0;
    return c;
}

// The same bits, and of every text one place after another, from the first behind its prompt on.
void compared_add(struct compared *c, const float *one, const float *verified, int vocab, int64_t sequence, int place)
{
    assert_true(sequence >= 0 && sequence < TEXTS);
    assert_int_equal(vocab, tiny_usual.vocab);
    assert_memory_equal(one, verified, (size_t)vocab * sizeof(*one));
    assert_true(one[0] != one[1]); // and not nothing
    if (seen.next[sequence] == 0) {
        seen.begun[sequence] = seen.next[sequence] = place;
        seen.texts++;
    }
    assert_int_equal(place, seen.next[sequence]++);
    assert_true(place < seen.begun[sequence] + NEW + 4); // what a draft says beyond the text's end is there, too
    c->rows++;
    seen.rows++;
}

enum same compared_same(const struct compared *c)
{
    return c->bugs > 0 ? OTHERWISE : c->different > 0 ? NEAR_TIES : SAME_BITS;
}

// ---- runs

static const char watched[] = "name: watched\ntarget: {model: target.gguf}\nthreads: 1\n"
                              "prompts: {file: talks.jsonl, chat: chatml}\n"
                              "limits: {new_tokens: 10, context: 320}\nseed: 5\ncells:\n"
                              "  sampling: [{temperature: 1}, {temperature: 0}]\n  batch: [1, 3]\n"
                              "  drafter: [none, {kind: ngram, longest: 2, tokens: 3},"
                              " {kind: small, model: draft.gguf, tree: [[0], [1], [0, 0]]}]\n";
enum { CELLS = 2 * 2 * 2 };

static char *compare_all(const char *db, enum same *worst)
{
    struct error err = { "" };
    struct experiment *e = load(watched);
    struct store *s = open_store(db);
    FILE *out = tmpfile();
    const struct bits_plan plan = { .tokens = TOKENS, .out = out };
    seen.rows = seen.cells = seen.texts = 0;
    if (!bits_run(e, s, &plan, worst, &err))
        fail_msg("%s", err.text);
    store_close(s);
    experiment_free(e);
    const long n = ftell(out);
    char *text = xcalloc((size_t)n + 1, 1);
    rewind(out);
    assert_int_equal(fread(text, 1, (size_t)n, out), n);
    fclose(out);
    return text;
}

static int times(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

static void every_token_of_every_text_is_compared(void **state)
{
    (void)state;
    enum same worst = OTHERWISE;
    seen.found = (struct compared){ .first.sequence = -1 };
    char *said = compare_all("same.db", &worst);
    assert_int_equal(worst, SAME_BITS);
    assert_true(seen.limit == 0.125);
    assert_int_equal(seen.cells, CELLS); // `none` verifies nothing
    assert_true(seen.texts >= CELLS * TOKENS / (NEW + 4));
    assert_int_equal(times(said, "every bit is the same\n"), CELLS);
    assert_int_equal(times(said, "The first:"), 0);
    assert_int_equal(times(said, "Verdict: none differs.\n"), CELLS);
    assert_int_equal(times(said, "ngram"), CELLS / 2);
    assert_int_equal(times(said, "batch 3\n"), CELLS / 2);
    assert_int_equal(times(said, "(Device"), 0); // the CPU's bits are promised
    struct store *s = open_store("same.db");
    assert_int_equal(ask(s, "SELECT count(*) FROM exact_bits"), CELLS);
    // As many as were asked for, and the rest of a step.
    assert_int_equal(ask(s, "SELECT sum(compared) FROM exact_bits"), seen.rows);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact_bits WHERE compared BETWEEN 60 AND 60 + 3 * 4 AND largest = 0"
                            " AND different + ties + turned + bugs = 0 AND verdict = 'none differs'"),
                     CELLS);
    assert_int_equal(ask(s, "SELECT count(DISTINCT cell) FROM exact_bits"), CELLS);
    assert_int_equal(ask(s,
                         "SELECT count(*) FROM exact_bits WHERE experiment = 'watched' AND target LIKE '%target.gguf'"
                         " AND rule LIKE 'rejection%' AND sampling LIKE '%temperature%' AND settings LIKE '%batch%'"
                         " AND (drafter LIKE 'ngram%' OR drafter LIKE 'small%') AND length(machine) > 3"
                         " AND revision <> '' AND abs(julianday('now') - julianday(started)) < 1"),
                     CELLS);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact_bits WHERE sampling = 'temperature=0'"), CELLS / 2);
    assert_int_equal(
        ask(s, "SELECT count(*) FROM exact_bits WHERE sampling = 'temperature=0' AND drafter LIKE 'ngram%'"),
        CELLS / 4);
    store_close(s);
    free(said);
}

static void what_differs_is_printed_and_stored(void **state)
{
    (void)state;
    for (int bugs = 0; bugs < 2; bugs++) {
        enum same worst = SAME_BITS;
        seen.found = (struct compared){ .limit = 0.25,
                                        .different = 17,
                                        .largest = 2.5,
                                        .share = 0.75,
                                        .ties = 5,
                                        .turned = 3,
                                        .bugs = bugs,
                                        .first = { 4, 33, 0.125, 0.0625, bugs > 0 } };
        char *said = compare_all(bugs ? "far.db" : "near.db", &worst);
        assert_int_equal(worst, bugs ? OTHERWISE : NEAR_TIES);
        char *line =
            xformat("17 differ, by 2.5 at most, which\n  is 0.75 of that row's spread (rounding, as the target is "
                    "set: up to 0.25); %d by more than rounding does. In 5 of them the\n  first two are near "
                    "enough to turn; the likeliest token differs in 3\n",
                    bugs);
        assert_int_equal(times(said, line), CELLS);
        char *first = xformat("  The first: text 4, place 33, logits off by 0.0625, the first two 0.125 apart: a %s\n",
                              bugs ? "bug" : "tie");
        assert_int_equal(times(said, first), CELLS);
        assert_int_equal(times(said, bugs ? "Verdict: some far.\n" : "Verdict: some near.\n"), CELLS);
        struct store *s = open_store(bugs ? "far.db" : "near.db");
        char *sql = xformat("SELECT count(*) FROM exact_bits WHERE different = 17 AND largest = 2.5 AND ties = 5 AND"
                            " turned = 3 AND bugs = %d AND verdict = '%s'",
                            bugs, bugs ? "some far" : "some near");
        assert_int_equal(ask(s, sql), CELLS);
        store_close(s);
        free(sql);
        free(first);
        free(line);
        free(said);
    }
}

static void a_run_that_is_interrupted_says_so_and_stores_nothing(void **state)
{
    (void)state;
    struct error err = { "" };
    const volatile int stop = 1;
    enum same worst;
    struct experiment *e = load(watched);
    struct store *s = open_store("stopped.db");
    const struct bits_plan plan = { .tokens = TOKENS, .out = stdout, .stop = &stop };
    assert_false(bits_run(e, s, &plan, &worst, &err));
    assert_string_equal(err.text, "interrupted");
    assert_int_equal(ask(s, "SELECT count(*) FROM exact_bits"), 0);
    store_close(s);
    experiment_free(e);
}

// A draft token that is picked by the rule's own draws knows what the text will say. What comes behind it does not change that.
static void a_pair_that_shares_its_draws_is_refused(void **state)
{
    (void)state;
    struct error err = { "" };
    enum same worst;
    struct experiment *e =
        load("name: shared\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: talks.jsonl, chat: chatml}\n"
             "limits: {new_tokens: 10, context: 320}\ncells:\n  sampling: [{temperature: 1}]\n  rule: [match]\n"
             "  drafter: [none, {kind: small, model: draft.gguf, pick: coupled}, {kind: ngram, tokens: 3}]\n");
    struct store *s = open_store("shared.db");
    FILE *out = tmpfile();
    const struct bits_plan plan = { .tokens = TOKENS, .out = out };
    assert_false(bits_run(e, s, &plan, &worst, &err));
    assert_non_null(strstr(err.text, "rule match"));
    assert_non_null(strstr(err.text, "pick: coupled"));
    assert_int_equal(ftell(out), 0);
    assert_int_equal(ask(s, "SELECT count(*) FROM exact_bits"), 0);
    fclose(out);
    store_close(s);
    experiment_free(e);
}

// ---- the command, which has the real counting

static void the_command_finds_the_same_bits(void **state)
{
    (void)state;
    write_file("bits.yaml", watched);
    struct said s =
        child_run("exact --bits %s/bits.yaml --tokens 20 --db %s/command.db", tiny_directory(), tiny_directory());
    said_insist(&s, "exact --bits");
    assert_int_equal(times(s.out, "every bit is the same\n"), CELLS);
    said_free(&s);
    struct store *store = open_store("command.db");
    assert_int_equal(ask(store, "SELECT count(*) FROM exact_bits WHERE compared BETWEEN 20 AND 20 + 3 * 4"), CELLS);
    store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_of_every_text_is_compared),
        cmocka_unit_test(what_differs_is_printed_and_stored),
        cmocka_unit_test(a_run_that_is_interrupted_says_so_and_stores_nothing),
        cmocka_unit_test(a_pair_that_shares_its_draws_is_refused),
        cmocka_unit_test(the_command_finds_the_same_bits),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
