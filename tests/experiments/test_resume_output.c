// test_resume_output.c - what a resumed run prints, what a dry run says of it, and which of its runs count as finished.
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "experiments/experiment.h"
#include "results/store.h"
#include "tests/experiments/resumable.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

// The lines that stay; the caller frees them.
static char *output_of(const struct resumable *w, struct store *s)
{
    struct error err = { "" };
    char *out = NULL, *text = resumable_text(w);
    size_t n = 0;
    FILE *to = open_memstream(&out, &n);
    struct experiment *e = load(text);
    assert_ok(experiment_run(e, s, to, NULL, &err), err);
    experiment_free(e);
    fclose(to);
    free(text);
    return out;
}

static void check_output(const struct resumable *w, struct store *s, const char *what, bool expected)
{
    char *out = output_of(w, s);
    if ((strstr(out, what) != NULL) != expected)
        fail_msg("%s \"%s\": %s", expected ? "expected" : "did not expect", what, out);
    free(out);
}

static void a_resumed_run_prints_the_same_numbers(void **state)
{
    static const char outgrown[] = "conversations end before a turn that does not fit the context of ";
    for (int batch = 1; batch <= 2; batch++)
        for (int cut = 0; cut <= 1; cut++) {
            struct resumable w = { 0, "match", THREE, batch, cut ? 48 : 400, 1 };
            int turns[PROMPTS][CELLS];
            struct store *s = resumable_run(&w, turns);
            assert_int_equal(turns[0][NONE] < ALL_TURNS, cut);
            check_output(&w, s, outgrown, cut);
            check_output(&w, s, ": 3 cells, 0 conversations decoded, 6 stored already\n", true);
            delete_turns(s, NGRAM, 1, 0);
            check_output(&w, s, ": 3 cells, 1 conversations decoded, 5 stored already\n", true);
            delete_turns(s, SMALL, 0, 0);
            check_output(&w, s, outgrown, cut);
            delete_turns(s, NONE, 0, 0);
            check_output(&w, s, ": 3 cells, 3 conversations decoded, 3 stored already\n", true);
            perform(s, "DELETE FROM sequence");
            check_output(&w, s, ": 3 cells, 6 conversations decoded, 0 stored already\n", true);
            check_output(&w, s, outgrown, cut);
            store_close(s);
        }
}

static void a_dry_run_counts_what_the_run_then_decodes(void **state)
{
    for (int batch = 1; batch <= 2; batch++) {
        struct resumable w = { 0, "match", THREE, batch, 400, 1 };
        int turns[PROMPTS][CELLS];
        struct store *s = resumable_run(&w, turns);
        copy_results(s);
        perform(s, "DELETE FROM sequence WHERE (run, prompt, turn) IN (VALUES (2, 0, 2), (3, 0, 1), (1, 1, 1))");
        char *text = resumable_text(&w);
        struct json *plan = dry_run(text, s);
        free(text);
        resume(&w, s);
        assert_int_equal(planned(plan, "turns", -1), decoded_again(s));
        assert_int_equal(planned(plan, "conversations", 0), 2);
        assert_int_equal(planned(plan, "done", 0), 1); // none
        assert_int_equal(planned(plan, "done", 1), 0); // ngram
        json_free(plan);
        store_close(s);
    }
}

// A finished run that lacks something again is unfinished until that is stored.
static void a_run_with_missing_sequences_is_unfinished(void **state)
{
    struct resumable w = { 0, "match", THREE, 1, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = resumable_run(&w, turns);
    copy_results(s);
    delete_turns(s, SMALL, 1, 2);
    struct error err = { "" };
    int stop = 1;
    char *text = resumable_text(&w);
    struct experiment *e = load(text);
    assert_false(experiment_run(e, s, NULL, &stop, &err));
    assert_string_equal(err.text, "interrupted");
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE id = 3 AND finished IS NULL"), 1);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE finished IS NULL"),
                     1); // the partner's stays finished
    resume_and_compare(&w, s);
    experiment_free(e);
    free(text);
    store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_prints_the_same_numbers),
        cmocka_unit_test(a_dry_run_counts_what_the_run_then_decodes),
        cmocka_unit_test(a_run_with_missing_sequences_is_unfinished),
    };
    return cmocka_run_group_tests(tests, resumable_make, test_directory_tear_down);
}
