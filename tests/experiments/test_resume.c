// test_resume.c - whatever an experiment lacks, resuming it gives the results of an uninterrupted run: the same sequences, texts and
// steps, each paired with its `none`.
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/resumable.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

enum { SEEDS = 200 };

// Finds a seed for which, on some prompt, `none` ends after none_turns turns and another cell has all three. The seed depends on
// the bits of the arithmetic.
static struct store *find_cut_run(struct resumable *w, int none_turns, int *prompt, int *cell)
{
    for (w->seed = 1; w->seed < SEEDS; w->seed++) {
        int turns[PROMPTS][CELLS];
        struct store *s = resumable_run(w, turns);
        for (*prompt = 0; *prompt < PROMPTS; ++*prompt)
            for (*cell = NGRAM; *cell < CELLS; ++*cell)
                if (turns[*prompt][NONE] == none_turns && turns[*prompt][*cell] == ALL_TURNS)
                    return s;
        store_close(s);
    }
    fail_msg("no seed below %d cuts the conversation of `none` after %d turns but not another's", SEEDS, none_turns);
    return NULL;
}

// ---- regressions

// A cell's conversation lacks its turns from `from`, and none's is over after none_turns.
static void resume_beyond_none(int from, int none_turns)
{
    for (int batch = 1; batch <= 2; batch++) {
        struct resumable w = { 1, "rejection", THREE, batch, 56, 0 };
        int prompt, cell;
        struct store *s = find_cut_run(&w, none_turns, &prompt, &cell);
        copy_results(s);
        delete_turns(s, cell, prompt, from);
        resume_and_compare(&w, s);
        expect_nothing_due(&w, s);
        assert_int_equal(decoded_again(s), ALL_TURNS - from); // `none` does not participate
        store_close(s);
    }
}

static void a_conversation_resumes_where_that_of_none_outgrew_the_context(void **state)
{
    resume_beyond_none(1, 1);
    resume_beyond_none(2, 2);
}

static void none_is_not_started_after_a_turn_that_it_does_not_have(void **state)
{
    resume_beyond_none(2, 1);
}

static void with_a_batch_conversations_go_on_in_the_middle(void **state)
{
    struct resumable w = { 0, "match", THREE, 2, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = resumable_run(&w, turns);
    copy_results(s);
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 1 AND turn = 1");
    resume_and_compare(&w, s);
    // That turn and those after it, by the cell and by `none`, in one new pair; nothing else.
    assert_int_equal(decoded_again(s), 2 * (ALL_TURNS - 1));
    assert_int_equal(query_first_int(s, "SELECT count(DISTINCT run || ' ' || turn) FROM sequence WHERE pair ="
                                        " (SELECT max(id) FROM pair) AND prompt = 1 AND run IN (1, 2)"),
                     2 * (ALL_TURNS - 1));
    store_close(s);
}

static void unpaired_turns_run_again_with_none(void **state)
{
    for (int batch = 1; batch <= 2; batch++) {
        struct resumable w = { 1, "match", THREE, batch, 400, 1 };
        int turns[PROMPTS][CELLS];
        struct store *s = resumable_run(&w, turns);
        copy_results(s);
        // As after a kill when all cells but `none` were done.
        delete_turns(s, NONE, 0, 1);
        resume_and_compare(&w, s);
        assert_int_equal(decoded_again(s), CELLS * (ALL_TURNS - 1));
        // As after another kill when only `none` was done: a sequence of none in another pair does not count.
        perform(s, "DELETE FROM sequence WHERE run > 1 AND pair = (SELECT max(id) FROM pair)");
        resume_and_compare(&w, s);
        expect_none(s, "turns that are in no pair with none",
                    "SELECT count(*) FROM (SELECT 1 FROM paired JOIN sequence AS q ON q.id = sequence"
                    " GROUP BY q.run, q.prompt, q.turn HAVING count(none) = 0)");
        store_close(s);
    }
}

static void a_turn_after_a_missing_one_is_not_valid(void **state)
{
    struct resumable w = { 1, "match", THREE, 1, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = resumable_run(&w, turns);
    copy_results(s);
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 0 AND turn = 0");
    resume_and_compare(&w, s);
    assert_int_equal(decoded_again(s), 2 * ALL_TURNS); // turns 1 and 2 again, after the new turn 0
    // Interrupted again after turn 0: the stored turns 1 and 2 continue another turn 0.
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 0 AND turn > 0 AND pair = (SELECT max(id) FROM pair)");
    perform(s, "UPDATE sequence SET tokens = '[70, 71]', new_tokens = 2 WHERE run = 2 AND prompt = 0 AND turn = 1");
    resume(&w, s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence WHERE run = 2 AND prompt = 0 AND turn = 1 AND"
                                        " pair = (SELECT max(id) FROM pair)"),
                     1);
    store_close(s);
}

// ---- any missing sequences

enum { MAX_SEQUENCES = 64 };

static int samples = 4; // of each kind for each setup; the command line may set more

struct sequences {
    int n;
    int64_t id[MAX_SEQUENCES];
};

static struct sequences sequences_of(struct store *s, const char *sql)
{
    struct error err = { "" };
    struct sequences r = { 0 };
    struct query *q = query_open(s, sql);
    while (query_next(q) && r.n < MAX_SEQUENCES)
        r.id[r.n++] = query_int(q, 0);
    assert_true(query_close(q, &err));
    return r;
}

static void delete_row(struct store *s, int64_t id)
{
    perform(s, "DELETE FROM sequence WHERE id = %lld", (long long)id);
}

static void delete_after(struct store *s, int64_t id)
{
    perform(s, "DELETE FROM sequence WHERE id > %lld", (long long)id);
}

// Sequences due for one missing sequence: its conversation from that turn by its cell and by none; by all cells, if it is none's.
static int64_t due_for(struct store *s, int64_t id)
{
    char *sql = xformat(
        "WITH missing AS (SELECT k.*, (SELECT id FROM run WHERE rule = r.rule AND drafter_kind = 'none') AS none"
        " FROM saved_sequence AS k JOIN run AS r ON r.id = k.run WHERE k.id = %lld)"
        " SELECT count(*) FROM whole AS w JOIN run AS r ON r.id = w.run, missing AS g WHERE w.prompt = g.prompt"
        " AND w.turn >= g.turn AND (w.run IN (g.run, g.none) OR g.run = g.none AND"
        " r.rule = (SELECT rule FROM run WHERE id = g.none))",
        (long long)id);
    int64_t n = query_first_int(s, sql);
    free(sql);
    return n;
}

static void without_each_one(const struct resumable *w, struct store *s, const struct sequences *all)
{
    for (int k = 0; k < all->n; k++) {
        restore_results(s);
        int64_t due = due_for(s, all->id[k]);
        delete_row(s, all->id[k]);
        resume_and_compare(w, s);
        if (k % 4 == w->batch)
            expect_nothing_due(w, s);
        if (decoded_again(s) != due)
            fail_msg("without sequence %lld: %lld decoded, expected %lld", (long long)all->id[k],
                     (long long)decoded_again(s), (long long)due);
    }
}

static void without_some(const struct resumable *w, struct store *s, const struct sequences *all,
                         uint64_t *random_state)
{
    for (int round = 0; round < samples; round++) {
        restore_results(s);
        if (round % 2 == 0) { // two of them
            delete_row(s, all->id[splitmix(random_state) % (uint64_t)all->n]);
            delete_row(s, all->id[splitmix(random_state) % (uint64_t)all->n]);
        } else { // any of them
            for (int k = 0; k < all->n; k++)
                if (splitmix(random_state) % 2 == 0)
                    delete_row(s, all->id[k]);
        }
        resume_and_compare(w, s);
        struct sequences more =
            sequences_of(s, "SELECT id FROM sequence WHERE pair > (SELECT max(id) FROM saved_pair) ORDER BY id");
        if (more.n > 1) { // killed while resuming
            delete_after(s, more.id[splitmix(random_state) % (uint64_t)(more.n - 1)]);
            resume_and_compare(w, s);
        }
    }
    expect_nothing_due(w, s);
}

// As after a kill after the k-th sequence; sometimes the resumed run is killed, too.
static void killed_after_each(const struct resumable *w, struct store *s, const struct sequences *all,
                              uint64_t *random_state)
{
    for (int k = 0; k < all->n; k++) {
        restore_results(s);
        delete_after(s, all->id[k]);
        resume_and_compare(w, s);
        struct sequences more = sequences_of(s, "SELECT id FROM sequence ORDER BY id");
        if (k % 4 != 0)
            continue;
        delete_after(s, more.id[splitmix(random_state) % (uint64_t)more.n]);
        resume_and_compare(w, s);
        expect_nothing_due(w, s);
    }
}

static void missing_sequences_are_decoded_again_and_no_others(void **state)
{
    static const struct resumable setups[] = {
        { 0, "match", THREE, 1, 48, 1 },
        { 0, "match", THREE, 2, 400, 1 },
        { 1, "match", THREE, 1, 400, 1 },
        { 1, "match", THREE, 2, 56, 1 },
        { 1, "rejection", THREE, 1, 56, 0 }, // 0: a seed where `none` is cut and another cell is not
        { 1, "rejection", THREE, 2, 56, 0 },
        { 1, "[rejection, match]", "none, ngram", 1, 400, 1 },
        { 1, "[rejection, match]", "none, ngram", 2, 56, 1 },
    };
    uint64_t random_state = 19;
    for (size_t i = 0; i < sizeof(setups) / sizeof(setups[0]); i++) {
        struct resumable w = setups[i];
        int turns[PROMPTS][CELLS], prompt, cell;
        struct store *s = w.seed != 0 ? resumable_run(&w, turns) : find_cut_run(&w, 1, &prompt, &cell);
        copy_results(s);
        struct sequences all = sequences_of(s, "SELECT id FROM sequence ORDER BY id");
        without_each_one(&w, s, &all);
        without_some(&w, s, &all, &random_state);
        killed_after_each(&w, s, &all, &random_state);
        store_close(s);
    }
}

// test_resume [SAMPLES]: of two and of any number of missing sequences, for each setup
int main(int argc, char **argv)
{
    if (argc > 1)
        samples = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_resumes_where_that_of_none_outgrew_the_context),
        cmocka_unit_test(none_is_not_started_after_a_turn_that_it_does_not_have),
        cmocka_unit_test(with_a_batch_conversations_go_on_in_the_middle),
        cmocka_unit_test(unpaired_turns_run_again_with_none),
        cmocka_unit_test(a_turn_after_a_missing_one_is_not_valid),
        cmocka_unit_test(missing_sequences_are_decoded_again_and_no_others),
    };
    return cmocka_run_group_tests(tests, resumable_make, test_directory_tear_down);
}
