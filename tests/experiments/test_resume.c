// test_resume.c - whatever an experiment lacks, resuming it gives the results of an uninterrupted run: the same sequences, texts and
// steps, each paired with its `none`.
#include "tests/support/tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "experiments/experiment.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/resumable.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

enum { SEEDS = 200 };

// Finds a seed for which, on some prompt, `none` ends after none_turns turns and another cell has all three. The seed depends on
// the bits of the arithmetic.
static struct store *find_cut_run(struct resumable *w, int none_turns)
{
    for (w->seed = 1; w->seed < SEEDS; w->seed++) {
        int turns[PROMPTS][CELLS];
        struct store *s = resumable_run(w, turns);
        for (int prompt = 0; prompt < PROMPTS; prompt++)
            for (int cell = NGRAM; cell < CELLS; cell++)
                if (turns[prompt][NONE] == none_turns && turns[prompt][cell] == ALL_TURNS)
                    return s;
        store_close(s);
    }
    fail_msg("no seed below %d cuts the conversation of `none` after %d turns but not another's", SEEDS, none_turns);
    return NULL;
}

TEST(a_turn_after_a_missing_one_is_not_valid)
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
    expect_count(s, 1,
                 "sequence WHERE run = 2 AND prompt = 0 AND turn = 1 AND"
                 " pair = (SELECT max(id) FROM pair)");
    store_close(s);
}

// ---- any missing sequences

enum { MAX_SEQUENCES = 64 };
#define DELETE "DELETE FROM sequence WHERE id "

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
        perform(s, DELETE "= %lld", (long long)all->id[k]);
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
            perform(s, DELETE "= %lld", (long long)all->id[splitmix(random_state) % (uint64_t)all->n]);
            perform(s, DELETE "= %lld", (long long)all->id[splitmix(random_state) % (uint64_t)all->n]);
        } else { // any of them
            for (int k = 0; k < all->n; k++)
                if (splitmix(random_state) % 2 == 0)
                    perform(s, DELETE "= %lld", (long long)all->id[k]);
        }
        resume_and_compare(w, s);
        struct sequences more =
            sequences_of(s, "SELECT id FROM sequence WHERE pair > (SELECT max(id) FROM saved_pair) ORDER BY id");
        if (more.n > 1) { // killed while resuming
            perform(s, DELETE "> %lld", (long long)more.id[splitmix(random_state) % (uint64_t)(more.n - 1)]);
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
        perform(s, DELETE "> %lld", (long long)all->id[k]);
        resume_and_compare(w, s);
        struct sequences more = sequences_of(s, "SELECT id FROM sequence ORDER BY id");
        if (k % 4 != 0)
            continue;
        perform(s, DELETE "> %lld", (long long)more.id[splitmix(random_state) % (uint64_t)more.n]);
        resume_and_compare(w, s);
        expect_nothing_due(w, s);
    }
}

TEST(missing_sequences_are_decoded_again_and_no_others)
{
    static const struct {
        struct resumable of;
        int none_turns; // not 0: a seed where `none` is cut after these turns and another cell is not
    } setups[] = {
        { { 0, "match", THREE, 1, 48, 1 }, 0 },
        { { 0, "match", THREE, 2, 400, 1 }, 0 },
        { { 1, "match", THREE, 1, 400, 1 }, 0 },
        { { 1, "match", THREE, 2, 56, 1 }, 0 },
        { { 1, "rejection", THREE, 1, 56, 0 }, 1 },
        { { 1, "rejection", THREE, 2, 56, 0 }, 2 },
        { { 1, "[rejection, match]", "none, ngram", 1, 400, 1 }, 0 },
        { { 1, "[rejection, match]", "none, ngram", 2, 56, 1 }, 0 },
    };
    uint64_t random_state = 19;
    for (size_t i = 0; i < sizeof(setups) / sizeof(setups[0]); i++) {
        struct resumable w = setups[i].of;
        int turns[PROMPTS][CELLS];
        struct store *s = w.seed != 0 ? resumable_run(&w, turns) : find_cut_run(&w, setups[i].none_turns);
        copy_results(s);
        struct sequences all = sequences_of(s, "SELECT id FROM sequence ORDER BY id");
        without_each_one(&w, s, &all);
        without_some(&w, s, &all, &random_state);
        killed_after_each(&w, s, &all, &random_state);
        store_close(s);
    }
}

// ---- what is printed, and which runs count as finished

// What a run prints, the lines that stay; the caller frees it. stop: interrupts it.
static char *output_of(const struct resumable *w, struct store *s, const int *stop)
{
    struct error err = { "" };
    char *out = NULL, *text = resumable_text(w);
    size_t n = 0;
    FILE *to = open_memstream(&out, &n);
    struct experiment *e = load(text);
    if (experiment_run(e, s, to, stop, &err) != (stop == NULL))
        fail_msg("%s", err.text);
    experiment_free(e);
    fclose(to);
    free(text);
    return out;
}

TEST(a_resumed_run_prints_the_same_numbers)
{
    static const char outgrown[] = "conversations end before a turn that does not fit the context of ";
    static const struct {
        const char *lost;
        int decoded;
    } steps[] = {
        { "run = 9", 0 },
        { "run = 2 AND prompt = 1", 1 },
        { "run = 3 AND prompt = 0", 1 },
        { "run = 1 AND prompt = 0", 3 }, // none's
        { "1", 6 },
    };
    for (int batch = 1; batch <= 2; batch++)
        for (int cut = 0; cut <= 1; cut++) {
            struct resumable w = { 0, "match", THREE, batch, cut ? 48 : 400, 1 };
            int turns[PROMPTS][CELLS];
            struct store *s = resumable_run(&w, turns);
            assert_int_equal(turns[0][NONE] < ALL_TURNS, cut);
            for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
                perform(s, "DELETE FROM sequence WHERE %s", steps[i].lost);
                char *numbers = xformat(": 3 cells, %d conversations decoded, %d stored already\n", steps[i].decoded,
                                        6 - steps[i].decoded),
                     *out = output_of(&w, s, NULL);
                expect_contains(out, numbers);
                assert_int_equal(strstr(out, outgrown) != NULL, cut);
                free(numbers);
                free(out);
            }
            store_close(s);
        }
}

TEST(a_dry_run_counts_what_the_run_then_decodes)
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

// A finished run that lacks something again is unfinished until that is stored; its partner stays finished.
TEST(a_run_with_missing_sequences_is_unfinished)
{
    struct resumable w = { 0, "match", THREE, 1, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = resumable_run(&w, turns);
    copy_results(s);
    perform(s, "DELETE FROM sequence WHERE run = 3 AND prompt = 1 AND turn = 2");
    free(output_of(&w, s, &(const int){ 1 }));
    assert_int_equal(query_first_int(s, "SELECT group_concat(id) = '3' FROM run WHERE finished IS NULL"), 1);
    resume_and_compare(&w, s);
    store_close(s);
}

// test_resume [SAMPLES]: of two and of any number of missing sequences, for each setup
int main(int argc, char **argv)
{
    if (argc > 1)
        samples = atoi(argv[1]);
    return tests_run(resumable_make, test_directory_tear_down);
}
