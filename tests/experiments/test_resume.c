// test_resume.c - whatever an experiment lacks, resuming it gives the results of an uninterrupted run: the same sequences, texts and
// steps, each paired with its `none`.
//
// Runs a small model on two prompts of three turns. Texts end at letters, so they differ in length, and a small context cuts
// conversations: at temperature 1 at other places for each drafter.
#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "experiments/experiment.h"
#include "experiments/paired_run.h"
#include "experiments/recorder.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

enum { PROMPTS = 2, ALL_TURNS = 3, CELLS = 3, SEEDS = 200 };
enum { NONE, NGRAM, SMALL };

static const char conversations[] = "{\"id\": \"a\", \"turns\": [\"one two one two\", \"and again\", \"enough\"]}\n"
                                    "{\"id\": \"b\", \"turns\": [\"ping\", \"pong\", \"x = x + 1\"]}\n";

struct setup { // of the experiment
    int temperature;
    const char *rule, *drafters;
    int batch, context, seed;
};
#define THREE "none, ngram, {kind: small, model: draft.gguf, tokens: 3}"

static char *text_of(const struct setup *w)
{
    return xformat("name: resume\ntarget: {model: target.gguf}\nthreads: 1\n"
                   "prompts: {file: resume.jsonl, chat: none}\n"
                   "limits: {new_tokens: 16, context: %d, ignore_end: true,"
                   " stop: [a, e, i, o, t, n, r, s, c, d, l, m, u, x, p]}\nseed: %d\n"
                   "cells: {sampling: {temperature: %d}, rule: %s, batch: %d, drafter: [%s]}\n",
                   w->context, w->seed, w->temperature, w->rule, w->batch, w->drafters);
}

static void perform(struct store *s, const char *sql)
{
    struct error err = { "" };
    if (!query_perform(query_open(s, sql), &err))
        fail_msg("%s: %s", sql, err.text);
}

// Runs the experiment in a new database. turns: of each cell on each prompt.
static struct store *run_whole(const struct setup *w, int turns[PROMPTS][CELLS])
{
    struct error err = { "" };
    char *text = text_of(w), *path = test_path("resume.db");
    remove(path);
    struct store *s = open_store("resume.db");
    perform(s, "PRAGMA synchronous = OFF"); // faster; nothing here needs durability
    run(text, s);
    struct query *q = query_open(s, "SELECT prompt, run - 1, count(*) FROM sequence GROUP BY prompt, run");
    memset(turns, 0, PROMPTS * sizeof(*turns));
    while (query_next(q))
        if (query_int(q, 1) < CELLS)
            turns[query_int(q, 0)][query_int(q, 1)] = (int)query_int(q, 2);
    assert_true(query_close(q, &err));
    free(text);
    free(path);
    return s;
}

// Copies the uninterrupted run's results to temporary tables, for comparison.
static void copy_results(struct store *s)
{
    perform(s, "CREATE TEMP VIEW result AS SELECT run, prompt, turn, repeat, tokens, text, stop, prompt_tokens,"
               " (SELECT group_concat(drafted || ' ' || depth || ' ' || accepted || ' ' || tokens, ', ')"
               "  FROM (SELECT * FROM step WHERE sequence = q.id ORDER BY step)) AS steps FROM sequence AS q");
    perform(s, "CREATE TEMP VIEW side AS SELECT q.run, q.prompt, q.turn, q.repeat, t.equal, t.first_difference"
               " FROM texts AS t JOIN sequence AS q ON q.id = t.sequence WHERE t.same_rule");
    perform(s, "CREATE TEMP TABLE whole AS SELECT * FROM result");
    perform(s, "CREATE TEMP TABLE whole_side AS SELECT * FROM side");
    perform(s, "CREATE TEMP TABLE saved_pair AS SELECT * FROM pair");
    perform(s, "CREATE TEMP TABLE saved_sequence AS SELECT * FROM sequence");
    perform(s, "CREATE TEMP TABLE saved_step AS SELECT * FROM step");
}

static void restore_results(struct store *s)
{
    perform(s, "BEGIN");
    perform(s, "DELETE FROM pair");
    perform(s, "UPDATE run SET finished = NULL");
    perform(s, "INSERT INTO pair SELECT * FROM saved_pair");
    perform(s, "INSERT INTO sequence SELECT * FROM saved_sequence");
    perform(s, "INSERT INTO step SELECT * FROM saved_step");
    perform(s, "COMMIT");
}

static void expect_none(struct store *s, const char *what, const char *sql)
{
    int64_t n = query_first_int(s, sql);
    if (n != 0)
        fail_msg("%s: %lld", what, (long long)n);
}

static void compare_with_whole_run(struct store *s)
{
    expect_none(s, "missing or different sequences",
                "SELECT count(*) FROM (SELECT * FROM whole EXCEPT SELECT * FROM result)");
    expect_none(s, "additional sequences", "SELECT count(*) FROM (SELECT * FROM result EXCEPT SELECT * FROM whole)");
    expect_none(s, "missing or different comparisons",
                "SELECT count(*) FROM (SELECT * FROM whole_side EXCEPT SELECT * FROM side)");
    expect_none(s, "additional comparisons",
                "SELECT count(*) FROM (SELECT * FROM side EXCEPT SELECT * FROM whole_side)");
    expect_none(s, "runs that are not finished", "SELECT count(*) FROM run WHERE finished IS NULL");
}

static int64_t decoded_again(struct store *s)
{
    return query_first_int(s, "SELECT count(*) FROM sequence WHERE pair > (SELECT max(id) FROM saved_pair)");
}

static void resume(const struct setup *w, struct store *s)
{
    char *text = text_of(w);
    run(text, s);
    free(text);
}

static void resume_and_compare(const struct setup *w, struct store *s)
{
    perform(s, "CREATE TEMP TABLE IF NOT EXISTS before AS SELECT 0 AS pair");
    perform(s, "UPDATE before SET pair = (SELECT coalesce(max(id), 0) FROM pair)");
    resume(w, s);
    compare_with_whole_run(s);
    expect_none(s, "unpaired new sequences that an uninterrupted run has in a pair",
                "SELECT count(*) FROM paired AS p JOIN sequence AS q ON q.id = p.sequence WHERE p.none IS NULL AND"
                " q.pair > (SELECT pair FROM before) AND"
                " (q.run, q.prompt, q.turn, q.repeat) IN (SELECT run, prompt, turn, repeat FROM whole_side)");
}

static void expect_nothing_due(const struct setup *w, struct store *s)
{
    int64_t all = query_first_int(s, "SELECT count(*) FROM sequence");
    resume(w, s);
    assert_int_equal(query_first_int(s, "SELECT count(*) FROM sequence"), all);
}

static void delete_turns(struct store *s, int run, int prompt, int turn)
{
    char *sql = xformat("DELETE FROM sequence WHERE run = %d AND prompt = %d AND turn >= %d", run + 1, prompt, turn);
    perform(s, sql);
    free(sql);
}

// Finds a seed for which, on some prompt, `none` ends after none_turns turns and another cell has all three. The seed depends on
// the bits of the arithmetic.
static struct store *find_setup(struct setup *w, int none_turns, int *prompt, int *cell)
{
    for (w->seed = 1; w->seed < SEEDS; w->seed++) {
        int turns[PROMPTS][CELLS];
        struct store *s = run_whole(w, turns);
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
        struct setup w = { 1, "rejection", THREE, batch, 56, 0 };
        int prompt, cell;
        struct store *s = find_setup(&w, none_turns, &prompt, &cell);
        copy_results(s);
        delete_turns(s, cell, prompt, from);
        resume_and_compare(&w, s);
        expect_nothing_due(&w, s);
        // at batch 1 `none` does not participate
        assert_int_equal(decoded_again(s) == ALL_TURNS - from, batch == 1);
        store_close(s);
    }
}

static void a_conversation_resumes_where_that_of_none_outgrew_the_context(void **state)
{
    (void)state;
    resume_beyond_none(1, 1);
    resume_beyond_none(2, 2);
}

static void none_is_not_started_after_a_turn_that_it_does_not_have(void **state)
{
    (void)state;
    resume_beyond_none(2, 1);
}

static void with_a_batch_conversations_restart(void **state)
{
    (void)state;
    struct setup w = { 0, "match", THREE, 2, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = run_whole(&w, turns);
    copy_results(s);
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 1 AND turn = 1");
    resume_and_compare(&w, s);
    // All turns of that conversation, by the cell and by `none`, in one new pair; nothing else.
    assert_int_equal(decoded_again(s), 2 * ALL_TURNS);
    assert_int_equal(query_first_int(s, "SELECT count(DISTINCT run || ' ' || turn) FROM sequence WHERE pair ="
                                        " (SELECT max(id) FROM pair) AND prompt = 1 AND run IN (1, 2)"),
                     2 * ALL_TURNS);
    store_close(s);
}

static void unpaired_turns_run_again_with_none(void **state)
{
    (void)state;
    for (int batch = 1; batch <= 2; batch++) {
        struct setup w = { 1, "match", THREE, batch, 400, 1 };
        int turns[PROMPTS][CELLS];
        struct store *s = run_whole(&w, turns);
        copy_results(s);
        // As after a kill when all cells but `none` were done.
        delete_turns(s, NONE, 0, 1);
        resume_and_compare(&w, s);
        assert_int_equal(decoded_again(s), CELLS * (batch == 1 ? ALL_TURNS - 1 : ALL_TURNS));
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
    (void)state;
    struct setup w = { 1, "match", THREE, 1, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = run_whole(&w, turns);
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
    char *sql = xformat("DELETE FROM sequence WHERE id = %lld", (long long)id);
    perform(s, sql);
    free(sql);
}

static void delete_after(struct store *s, int64_t id)
{
    char *sql = xformat("DELETE FROM sequence WHERE id > %lld", (long long)id);
    perform(s, sql);
    free(sql);
}

// Sequences due for one missing sequence: its conversation from that turn, or with a batch from its first turn, by its cell and by
// none; by all cells, if it is none's.
static int64_t due_for(struct store *s, int64_t id, int batch)
{
    char *sql = xformat(
        "WITH missing AS (SELECT k.*, (SELECT id FROM run WHERE rule = r.rule AND drafter_kind = 'none') AS none"
        " FROM saved_sequence AS k JOIN run AS r ON r.id = k.run WHERE k.id = %lld)"
        " SELECT count(*) FROM whole AS w JOIN run AS r ON r.id = w.run, missing AS g WHERE w.prompt = g.prompt"
        " AND w.turn >= iif(%d > 1, 0, g.turn) AND (w.run IN (g.run, g.none) OR g.run = g.none AND"
        " r.rule = (SELECT rule FROM run WHERE id = g.none))",
        (long long)id, batch);
    int64_t n = query_first_int(s, sql);
    free(sql);
    return n;
}

static void without_each_one(const struct setup *w, struct store *s, const struct sequences *all)
{
    for (int k = 0; k < all->n; k++) {
        restore_results(s);
        int64_t due = due_for(s, all->id[k], w->batch);
        delete_row(s, all->id[k]);
        resume_and_compare(w, s);
        if (k % 4 == w->batch)
            expect_nothing_due(w, s);
        if (decoded_again(s) != due)
            fail_msg("without sequence %lld: %lld decoded, expected %lld", (long long)all->id[k],
                     (long long)decoded_again(s), (long long)due);
    }
}

static void without_some(const struct setup *w, struct store *s, const struct sequences *all, uint64_t *random_state)
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
static void killed_after_each(const struct setup *w, struct store *s, const struct sequences *all,
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
    (void)state;
    static const struct setup setups[] = {
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
        struct setup w = setups[i];
        int turns[PROMPTS][CELLS], prompt, cell;
        struct store *s = w.seed != 0 ? run_whole(&w, turns) : find_setup(&w, 1, &prompt, &cell);
        copy_results(s);
        struct sequences all = sequences_of(s, "SELECT id FROM sequence ORDER BY id");
        without_each_one(&w, s, &all);
        without_some(&w, s, &all, &random_state);
        killed_after_each(&w, s, &all, &random_state);
        store_close(s);
    }
}

// ---- output of a run

// The lines that stay; the caller frees them.
static char *output_of(const struct setup *w, struct store *s)
{
    struct error err = { "" };
    char *out = NULL, *text = text_of(w);
    size_t n = 0;
    FILE *to = open_memstream(&out, &n);
    struct experiment *e = load(text);
    if (!experiment_run(e, s, to, NULL, &err))
        fail_msg("%s", err.text);
    experiment_free(e);
    fclose(to);
    free(text);
    return out;
}

static void check_output(const struct setup *w, struct store *s, const char *what, bool expected)
{
    char *out = output_of(w, s);
    if ((strstr(out, what) != NULL) != expected)
        fail_msg("%s \"%s\": %s", expected ? "expected" : "did not expect", what, out);
    free(out);
}

static void a_resumed_run_prints_the_same_numbers(void **state)
{
    (void)state;
    static const char outgrown[] = "conversations end before a turn that does not fit the context of ";
    for (int batch = 1; batch <= 2; batch++)
        for (int cut = 0; cut <= 1; cut++) {
            struct setup w = { 0, "match", THREE, batch, cut ? 48 : 400, 1 };
            int turns[PROMPTS][CELLS];
            struct store *s = run_whole(&w, turns);
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
    (void)state;
    for (int batch = 1; batch <= 2; batch++) {
        struct setup w = { 0, "match", THREE, batch, 400, 1 };
        int turns[PROMPTS][CELLS];
        struct store *s = run_whole(&w, turns);
        copy_results(s);
        perform(s, "DELETE FROM sequence WHERE (run, prompt, turn) IN (VALUES (2, 0, 2), (3, 0, 1), (1, 1, 1))");
        struct error err = { "" };
        char *text = text_of(&w), *out = NULL;
        size_t n = 0;
        FILE *to = open_memstream(&out, &n);
        struct experiment *e = load(text);
        if (!experiment_dry_run(e, s, to, &err))
            fail_msg("%s", err.text);
        experiment_free(e);
        fclose(to);
        free(text);
        resume(&w, s);
        char *expected = xformat(" to decode %lld turns,", (long long)decoded_again(s));
        if (strstr(out, expected) == NULL || strstr(out, "      1 of 2      none") == NULL ||
            strstr(out, "      0 of 2      ngram") == NULL)
            fail_msg("expected \"%s\" and which are done: %s", expected, out);
        free(expected);
        free(out);
        store_close(s);
    }
}

// ---- the column `finished`

// A finished run that lacks something again is unfinished until that is stored.
static void a_run_with_missing_sequences_is_unfinished(void **state)
{
    (void)state;
    struct setup w = { 0, "match", THREE, 1, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = run_whole(&w, turns);
    copy_results(s);
    delete_turns(s, SMALL, 1, 2);
    struct error err = { "" };
    int stop = 1;
    char *text = text_of(&w);
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

// ---- warm-ups

enum { MAX_ENDINGS = 64 };

static struct {
    int n, cell[MAX_ENDINGS], tokens[MAX_ENDINGS];
    int64_t number[MAX_ENDINGS]; // sequence numbers, which select random numbers
} ended;                         // all finished decodes, recorded or not

struct counted { // a listener before the recorder's
    struct listener to;
    int cell;
};

static void pass_step(void *self, const struct step *s)
{
    struct counted *c = self;
    c->to.step(c->to.self, s);
}

static void count_end(void *self, const struct ending *e)
{
    struct counted *c = self;
    assert_true(ended.n < MAX_ENDINGS);
    ended.cell[ended.n] = c->cell;
    ended.number[ended.n] = e->sequence;
    ended.tokens[ended.n++] = e->n;
    c->to.done(c->to.self, e);
}

// Recreates the group's decoders, with a counter before each recorder.
static void count_endings(struct group *g, const struct experiment *e, struct store *s, struct counted counted[CELLS])
{
    struct error err = { "" };
    assert_int_equal(g->n, CELLS);
    for (int i = 0; i < CELLS; i++) {
        struct cell_runner *c = &g->cell_runner[i];
        counted[i] = (struct counted){ recorder_listener(c->recorder), i };
        decoder_destroy(c->decoder);
        c->decoder = decoder_create(c->pairing.verifier, c->pairing.drafter, experiment_batch(e, g->batch), e->seed,
                                    (struct listener){ pass_step, count_end, &counted[i] }, &err);
        assert_non_null(c->decoder);
        char *sql = xformat("SELECT id FROM run WHERE cell = '%s'", c->identity.hash);
        c->run = query_first_int(s, sql);
        free(sql);
        assert_int_equal(c->run, i + 1);
    }
}

static void paired_run_with(struct runner *r, struct group *g, int first)
{
    struct error err = { "" };
    struct paired_run o = paired_run_at(r->e, 1, 0, first);
    ended.n = 0;
    if (!paired_run_decode(&o, r, g, &err))
        fail_msg("%s", err.text);
}

// Checks for n discarded decodes, each of another cell, then exactly the decodes that are stored.
static void expect_warm_ups(struct store *s, int n, const int cells[], int64_t stored_before)
{
    assert_int_equal(ended.n - n, query_first_int(s, "SELECT count(*) FROM sequence") - stored_before);
    for (int i = 0; i < n; i++) {
        assert_int_equal(ended.cell[i], cells[i]);
        assert_true(ended.tokens[i] <= 8);
    }
    for (int i = n; i < ended.n;
         i++) { // the sequence number is a function of prompt, turn and repeat, in every version
        char *sql = xformat("SELECT count(*) FROM sequence WHERE run = %d AND pair = (SELECT max(id) FROM pair) AND"
                            " prompt * 16384 + turn * 256 + repeat = %lld",
                            ended.cell[i] + 1, (long long)ended.number[i]);
        assert_int_equal(query_first_int(s, sql), 1);
        free(sql);
    }
    for (int c = 0; c < CELLS; c++) {
        int of_cell = 0;
        for (int i = n; i < ended.n; i++)
            of_cell += ended.cell[i] == c;
        char *sql =
            xformat("SELECT count(*) FROM sequence WHERE run = %d AND pair = (SELECT max(id) FROM pair)", c + 1);
        assert_int_equal(of_cell, query_first_int(s, sql));
        free(sql);
    }
}

// The first decode of a process is slower: it allocates buffers and touches pages.
static void participating_cells_are_warmed_up_once_before_the_paired_run(void **state)
{
    (void)state;
    struct error err = { "" };
    struct setup w = { 0, "match", THREE, 1, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = run_whole(&w, turns);
    char *text = text_of(&w);
    struct experiment *e = load(text);
    struct runner r = { .e = e, .store = s };
    struct group g;
    struct counted counted[CELLS];
    assert_true(loaded_experiment_open(&r.loaded, e, TARGET_ROWS, &err));
    assert_true(group_open(&g, 0, &r.loaded, &err));
    progress_begin(&r.progress, NULL, 0);
    count_endings(&g, e, s, counted);

    paired_run_with(&r, &g, 0); // complete
    assert_int_equal(ended.n, 0);
    delete_turns(s, NGRAM, 0, 0);
    int64_t stored = query_first_int(s, "SELECT count(*) FROM sequence");
    paired_run_with(&r, &g, 0);
    expect_warm_ups(s, 2, (int[]){ NONE, NGRAM }, stored);
    delete_turns(s, NONE, 1, 0); // only the third is not warm yet
    stored = query_first_int(s, "SELECT count(*) FROM sequence");
    paired_run_with(&r, &g, 1);
    expect_warm_ups(s, 1, (int[]){ SMALL }, stored);
    assert_int_equal(ended.n, 1 + CELLS * ALL_TURNS);

    group_close(&g);
    loaded_experiment_close(&r.loaded);
    experiment_free(e);
    free(text);
    store_close(s);
}

static int make_prompts(void **state)
{
    (void)state;
    struct small_model t = small_default;
    char *target = test_path("target.gguf"), *draft = test_path("draft.gguf");
    t.layers = 1;
    small_write_gguf(target, &t);
    t.seed++;
    small_write_gguf(draft, &t);
    free(target);
    free(draft);
    write_file("resume.jsonl", conversations);
    return 0;
}

// test_resume [SAMPLES]: of two and of any number of missing sequences, for each setup
int main(int argc, char **argv)
{
    if (argc > 1)
        samples = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_resumes_where_that_of_none_outgrew_the_context),
        cmocka_unit_test(none_is_not_started_after_a_turn_that_it_does_not_have),
        cmocka_unit_test(with_a_batch_conversations_restart),
        cmocka_unit_test(unpaired_turns_run_again_with_none),
        cmocka_unit_test(a_turn_after_a_missing_one_is_not_valid),
        cmocka_unit_test(missing_sequences_are_decoded_again_and_no_others),
        cmocka_unit_test(a_resumed_run_prints_the_same_numbers),
        cmocka_unit_test(a_dry_run_counts_what_the_run_then_decodes),
        cmocka_unit_test(a_run_with_missing_sequences_is_unfinished),
        cmocka_unit_test(participating_cells_are_warmed_up_once_before_the_paired_run),
    };
    return cmocka_run_group_tests(tests, make_prompts, remove_files);
}
