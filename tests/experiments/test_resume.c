// test_resume.c - whatever of an experiment is missing, going on with it comes to what an uninterrupted run comes to:
// the same sequences, texts and steps, and each beside its `none`.
//
// On a little model, on two prompts of three turns. Texts end at letters, so that they differ in length, and a small
// context cuts conversations short: at temperature 1 in other places for every drafter.
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

enum { PROMPTS = 2, MOST_TURNS = 3, CELLS = 3, SEEDS = 200 };
enum { NONE, NGRAM, SMALL };

static const char conversations[] = "{\"id\": \"a\", \"turns\": [\"one two one two\", \"and again\", \"enough\"]}\n"
                                    "{\"id\": \"b\", \"turns\": [\"ping\", \"pong\", \"x = x + 1\"]}\n";

struct table_instance {
    int temperature;
    const char *rule, *drafters;
    int batch, context, seed;
};
#define THREE "none, ngram, {kind: small, model: draft.gguf, tokens: 3}"

static char *text_of(const struct table_instance *w)
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

// A database of this world, and how many turns each cell came to on each prompt.
static struct store *run_whole(const struct table_instance *w, int turns[PROMPTS][CELLS])
{
    struct error err = { "" };
    char *text = text_of(w), *path = tiny_path("resume.db");
    remove(path);
    struct store *s = open_store("resume.db");
    perform(s, "PRAGMA synchronous = OFF"); // nobody pulls the plug here
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

// What an uninterrupted run came to, to be compared with: tables that are gone when the database is closed.
static void remember(struct store *s)
{
    perform(s, "CREATE TEMP VIEW taken AS SELECT run, prompt, turn, repeat, tokens, text, stop, prompt_tokens,"
               " (SELECT group_concat(drafted || ' ' || depth || ' ' || accepted || ' ' || tokens, ', ')"
               "  FROM (SELECT * FROM step WHERE sequence = q.id ORDER BY step)) AS steps FROM sequence AS q");
    perform(s, "CREATE TEMP VIEW side AS SELECT q.run, q.prompt, q.turn, q.repeat, t.equal, t.first_difference"
               " FROM texts AS t JOIN sequence AS q ON q.id = t.sequence WHERE t.same_rule");
    perform(s, "CREATE TEMP TABLE whole AS SELECT * FROM taken");
    perform(s, "CREATE TEMP TABLE whole_side AS SELECT * FROM side");
    perform(s, "CREATE TEMP TABLE kept_pair AS SELECT * FROM pair");
    perform(s, "CREATE TEMP TABLE kept_sequence AS SELECT * FROM sequence");
    perform(s, "CREATE TEMP TABLE kept_step AS SELECT * FROM step");
}

static void put_back(struct store *s)
{
    perform(s, "BEGIN");
    perform(s, "DELETE FROM pair");
    perform(s, "UPDATE run SET finished = NULL");
    perform(s, "INSERT INTO pair SELECT * FROM kept_pair");
    perform(s, "INSERT INTO sequence SELECT * FROM kept_sequence");
    perform(s, "INSERT INTO step SELECT * FROM kept_step");
    perform(s, "COMMIT");
}

static void expect_none(struct store *s, const char *what, const char *sql)
{
    int64_t n = ask(s, sql);
    if (n != 0)
        fail_msg("%s: %lld", what, (long long)n);
}

static void expect_the_whole(struct store *s)
{
    expect_none(s, "sequences that an uninterrupted run has and this one has not, or not so",
                "SELECT count(*) FROM (SELECT * FROM whole EXCEPT SELECT * FROM taken)");
    expect_none(s, "sequences that it has not",
                "SELECT count(*) FROM (SELECT * FROM taken EXCEPT SELECT * FROM whole)");
    expect_none(s, "comparisons that it has and this one has not",
                "SELECT count(*) FROM (SELECT * FROM whole_side EXCEPT SELECT * FROM side)");
    expect_none(s, "comparisons that it has not",
                "SELECT count(*) FROM (SELECT * FROM side EXCEPT SELECT * FROM whole_side)");
    expect_none(s, "runs that are not finished", "SELECT count(*) FROM run WHERE finished IS NULL");
}

static int64_t decoded_anew(struct store *s)
{
    return ask(s, "SELECT count(*) FROM sequence WHERE pair > (SELECT max(id) FROM kept_pair)");
}

static void resume(const struct table_instance *w, struct store *s)
{
    char *text = text_of(w);
    run(text, s);
    free(text);
}

static void resume_to_the_whole(const struct table_instance *w, struct store *s)
{
    perform(s, "CREATE TEMP TABLE IF NOT EXISTS before AS SELECT 0 AS pair");
    perform(s, "UPDATE before SET pair = (SELECT coalesce(max(id), 0) FROM pair)");
    resume(w, s);
    expect_the_whole(s);
    expect_none(s, "sequences decoded apart from none's, beside which an uninterrupted run has them",
                "SELECT count(*) FROM paired AS p JOIN sequence AS q ON q.id = p.sequence WHERE p.none IS NULL AND"
                " q.pair > (SELECT pair FROM before) AND"
                " (q.run, q.prompt, q.turn, q.repeat) IN (SELECT run, prompt, turn, repeat FROM whole_side)");
}

static void expect_nothing_due(const struct table_instance *w, struct store *s)
{
    int64_t all = ask(s, "SELECT count(*) FROM sequence");
    resume(w, s);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence"), all);
}

static void delete_turns(struct store *s, int run, int prompt, int turn)
{
    char *sql = xformat("DELETE FROM sequence WHERE run = %d AND prompt = %d AND turn >= %d", run + 1, prompt, turn);
    perform(s, sql);
    free(sql);
}

// Looks for a world in which on some prompt `none` ends after so many turns and another cell has all three: which
// seed that is depends on the bits of the arithmetic.
static struct store *find_instance(struct table_instance *w, int none_turns, int *prompt, int *cell)
{
    for (w->seed = 1; w->seed < SEEDS; w->seed++) {
        int turns[PROMPTS][CELLS];
        struct store *s = run_whole(w, turns);
        for (*prompt = 0; *prompt < PROMPTS; ++*prompt)
            for (*cell = NGRAM; *cell < CELLS; ++*cell)
                if (turns[*prompt][NONE] == none_turns && turns[*prompt][*cell] == MOST_TURNS)
                    return s;
        store_close(s);
    }
    fail_msg("no seed below %d cuts the conversation of `none` after %d turns and another's not", SEEDS, none_turns);
    return NULL;
}

// ---- faults that were found

// A cell's conversation lacks its turns from this one on, and none's is over after so many.
static void go_on_beyond_none(int from, int none_turns)
{
    for (int batch = 1; batch <= 2; batch++) {
        struct table_instance w = { 1, "rejection", THREE, batch, 56, 0 };
        int prompt, cell;
        struct store *s = find_instance(&w, none_turns, &prompt, &cell);
        remember(s);
        delete_turns(s, cell, prompt, from);
        resume_to_the_whole(&w, s);
        expect_nothing_due(&w, s);
        // one at a time `none` has no part in it
        assert_int_equal(decoded_anew(s) == MOST_TURNS - from, batch == 1);
        store_close(s);
    }
}

static void a_conversation_goes_on_where_that_of_none_outgrew_the_context(void **state)
{
    (void)state;
    go_on_beyond_none(1, 1);
    go_on_beyond_none(2, 2);
}

static void none_is_not_started_behind_an_answer_that_it_never_gave(void **state)
{
    (void)state;
    go_on_beyond_none(2, 1);
}

static void with_a_batch_conversations_start_anew(void **state)
{
    (void)state;
    struct table_instance w = { 0, "match", THREE, 2, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = run_whole(&w, turns);
    remember(s);
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 1 AND turn = 1");
    resume_to_the_whole(&w, s);
    // All turns of that conversation, by the cell and by `none`, in one new pair; nothing else.
    assert_int_equal(decoded_anew(s), 2 * MOST_TURNS);
    assert_int_equal(ask(s, "SELECT count(DISTINCT run || ' ' || turn) FROM sequence WHERE pair ="
                            " (SELECT max(id) FROM pair) AND prompt = 1 AND run IN (1, 2)"),
                     2 * MOST_TURNS);
    store_close(s);
}

static void what_ran_without_its_none_runs_beside_it(void **state)
{
    (void)state;
    for (int batch = 1; batch <= 2; batch++) {
        struct table_instance w = { 1, "match", THREE, batch, 400, 1 };
        int turns[PROMPTS][CELLS];
        struct store *s = run_whole(&w, turns);
        remember(s);
        // As if it had been killed when all but `none` were done.
        delete_turns(s, NONE, 0, 1);
        resume_to_the_whole(&w, s);
        assert_int_equal(decoded_anew(s), CELLS * (batch == 1 ? MOST_TURNS - 1 : MOST_TURNS));
        // As if that had been killed when `none` alone was done: that it stands in another pair does not help.
        perform(s, "DELETE FROM sequence WHERE run > 1 AND pair = (SELECT max(id) FROM pair)");
        resume_to_the_whole(&w, s);
        expect_none(s, "unpaired sequences of a turn that never ran beside none",
                    "SELECT count(*) FROM (SELECT 1 FROM paired JOIN sequence AS q ON q.id = sequence"
                    " GROUP BY q.run, q.prompt, q.turn HAVING count(none) = 0)");
        store_close(s);
    }
}

static void an_answer_behind_a_missing_one_is_not_gone_on_from(void **state)
{
    (void)state;
    struct table_instance w = { 1, "match", THREE, 1, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = run_whole(&w, turns);
    remember(s);
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 0 AND turn = 0");
    resume_to_the_whole(&w, s);
    assert_int_equal(decoded_anew(s), 2 * MOST_TURNS); // turns 1 and 2 again, behind the new turn 0
    // Interrupted once more behind turn 0: what is left of turns 1 and 2 was said behind another turn 0.
    perform(s, "DELETE FROM sequence WHERE run = 2 AND prompt = 0 AND turn > 0 AND pair = (SELECT max(id) FROM pair)");
    perform(s, "UPDATE sequence SET tokens = '[70, 71]', new_tokens = 2 WHERE run = 2 AND prompt = 0 AND turn = 1");
    resume(&w, s);
    assert_int_equal(ask(s, "SELECT count(*) FROM sequence WHERE run = 2 AND prompt = 0 AND turn = 1 AND"
                            " pair = (SELECT max(id) FROM pair)"),
                     1);
    store_close(s);
}

// ---- whatever is missing

enum { MOST_SEQUENCES = 64 };

static int samples = 4; // of each kind in each world; the command line may ask for more

struct sequences {
    int n;
    int64_t id[MOST_SEQUENCES];
};

static struct sequences sequences_of(struct store *s, const char *sql)
{
    struct error err = { "" };
    struct sequences r = { 0 };
    struct query *q = query_open(s, sql);
    while (query_next(q) && r.n < MOST_SEQUENCES)
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

static void delete_behind(struct store *s, int64_t id)
{
    char *sql = xformat("DELETE FROM sequence WHERE id > %lld", (long long)id);
    perform(s, sql);
    free(sql);
}

// Of one missing sequence follows what is decoded: its conversation from there on, or with a batch from its first turn
// on, and the same by none; by all, if it is none's.
static int64_t due_for(struct store *s, int64_t id, int batch)
{
    char *sql =
        xformat("WITH gone AS (SELECT k.*, (SELECT id FROM run WHERE rule = r.rule AND drafter_kind = 'none') AS none"
                " FROM kept_sequence AS k JOIN run AS r ON r.id = k.run WHERE k.id = %lld)"
                " SELECT count(*) FROM whole AS w JOIN run AS r ON r.id = w.run, gone AS g WHERE w.prompt = g.prompt"
                " AND w.turn >= iif(%d > 1, 0, g.turn) AND (w.run IN (g.run, g.none) OR g.run = g.none AND"
                " r.rule = (SELECT rule FROM run WHERE id = g.none))",
                (long long)id, batch);
    int64_t n = ask(s, sql);
    free(sql);
    return n;
}

static void without_each_one(const struct table_instance *w, struct store *s, const struct sequences *all)
{
    for (int k = 0; k < all->n; k++) {
        put_back(s);
        int64_t due = due_for(s, all->id[k], w->batch);
        delete_row(s, all->id[k]);
        resume_to_the_whole(w, s);
        if (k % 4 == w->batch)
            expect_nothing_due(w, s);
        if (decoded_anew(s) != due)
            fail_msg("without sequence %lld, %lld were decoded, not %lld", (long long)all->id[k],
                     (long long)decoded_anew(s), (long long)due);
    }
}

static void without_some(const struct table_instance *w, struct store *s, const struct sequences *all, uint64_t *chance)
{
    for (int round = 0; round < samples; round++) {
        put_back(s);
        if (round % 2 == 0) { // two of them
            delete_row(s, all->id[splitmix(chance) % (uint64_t)all->n]);
            delete_row(s, all->id[splitmix(chance) % (uint64_t)all->n]);
        } else { // any of them
            for (int k = 0; k < all->n; k++)
                if (splitmix(chance) % 2 == 0)
                    delete_row(s, all->id[k]);
        }
        resume_to_the_whole(w, s);
        struct sequences more =
            sequences_of(s, "SELECT id FROM sequence WHERE pair > (SELECT max(id) FROM kept_pair) ORDER BY id");
        if (more.n > 1) { // killed while it made that good
            delete_behind(s, more.id[splitmix(chance) % (uint64_t)(more.n - 1)]);
            resume_to_the_whole(w, s);
        }
    }
    expect_nothing_due(w, s);
}

// As a runner leaves it that is killed behind its k-th sequence; now and then the one that goes on is killed, too.
static void killed_behind_each(const struct table_instance *w, struct store *s, const struct sequences *all,
                               uint64_t *chance)
{
    for (int k = 0; k < all->n; k++) {
        put_back(s);
        delete_behind(s, all->id[k]);
        resume_to_the_whole(w, s);
        struct sequences more = sequences_of(s, "SELECT id FROM sequence ORDER BY id");
        if (k % 4 != 0)
            continue;
        delete_behind(s, more.id[splitmix(chance) % (uint64_t)more.n]);
        resume_to_the_whole(w, s);
        expect_nothing_due(w, s);
    }
}

static void whatever_is_missing_is_decoded_again_and_nothing_else(void **state)
{
    (void)state;
    static const struct table_instance instances[] = {
        { 0, "match", THREE, 1, 48, 1 },
        { 0, "match", THREE, 2, 400, 1 },
        { 1, "match", THREE, 1, 400, 1 },
        { 1, "match", THREE, 2, 56, 1 },
        { 1, "rejection", THREE, 1, 56, 0 }, // 0: `none` is cut and another is not
        { 1, "rejection", THREE, 2, 56, 0 },
        { 1, "[rejection, match]", "none, ngram", 1, 400, 1 },
        { 1, "[rejection, match]", "none, ngram", 2, 56, 1 },
    };
    uint64_t chance = 19;
    for (size_t i = 0; i < sizeof(instances) / sizeof(instances[0]); i++) {
        struct table_instance w = instances[i];
        int turns[PROMPTS][CELLS], prompt, cell;
        struct store *s = w.seed != 0 ? run_whole(&w, turns) : find_instance(&w, 1, &prompt, &cell);
        remember(s);
        struct sequences all = sequences_of(s, "SELECT id FROM sequence ORDER BY id");
        without_each_one(&w, s, &all);
        without_some(&w, s, &all, &chance);
        killed_behind_each(&w, s, &all, &chance);
        store_close(s);
    }
}

// ---- what a run says

// The lines that stay, of a run with so much of it there already.
static char *said(const struct table_instance *w, struct store *s)
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

static void expect_said(const struct table_instance *w, struct store *s, const char *what, bool expected)
{
    char *out = said(w, s);
    if ((strstr(out, what) != NULL) != expected)
        fail_msg("%s \"%s\": %s", expected ? "expected" : "did not expect", what, out);
    free(out);
}

static void a_run_that_goes_on_says_what_one_at_a_stretch_says(void **state)
{
    (void)state;
    static const char outgrown[] = "conversations whose next turn did not fit the context of ";
    for (int batch = 1; batch <= 2; batch++)
        for (int cut = 0; cut <= 1; cut++) {
            struct table_instance w = { 0, "match", THREE, batch, cut ? 48 : 400, 1 };
            int turns[PROMPTS][CELLS];
            struct store *s = run_whole(&w, turns);
            assert_int_equal(turns[0][NONE] < MOST_TURNS, cut);
            expect_said(&w, s, outgrown, cut);
            expect_said(&w, s, ": 3 cells, 0 conversations decoded, 6 were there already\n", true);
            delete_turns(s, NGRAM, 1, 0);
            expect_said(&w, s, ": 3 cells, 1 conversations decoded, 5 were there already\n", true);
            delete_turns(s, SMALL, 0, 0);
            expect_said(&w, s, outgrown, cut);
            delete_turns(s, NONE, 0, 0);
            expect_said(&w, s, ": 3 cells, 3 conversations decoded, 3 were there already\n", true);
            perform(s, "DELETE FROM sequence");
            expect_said(&w, s, ": 3 cells, 6 conversations decoded, 0 were there already\n", true);
            expect_said(&w, s, outgrown, cut);
            store_close(s);
        }
}

static void a_dry_run_counts_what_the_run_then_decodes(void **state)
{
    (void)state;
    for (int batch = 1; batch <= 2; batch++) {
        struct table_instance w = { 0, "match", THREE, batch, 400, 1 };
        int turns[PROMPTS][CELLS];
        struct store *s = run_whole(&w, turns);
        remember(s);
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
        char *expected = xformat(" to decode %lld turns,", (long long)decoded_anew(s));
        if (strstr(out, expected) == NULL || strstr(out, "      1 of 2      none") == NULL ||
            strstr(out, "      0 of 2      ngram") == NULL)
            fail_msg("expected \"%s\" and which are done: %s", expected, out);
        free(expected);
        free(out);
        store_close(s);
    }
}

// ---- what a run says of itself

// `finished` is for whoever reads the database: a run that was, and lacks something again, is not until that is there.
static void a_run_that_lacks_something_again_is_not_finished(void **state)
{
    (void)state;
    struct table_instance w = { 0, "match", THREE, 1, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = run_whole(&w, turns);
    remember(s);
    delete_turns(s, SMALL, 1, 2);
    struct error err = { "" };
    int stop = 1;
    char *text = text_of(&w);
    struct experiment *e = load(text);
    assert_false(experiment_run(e, s, NULL, &stop, &err));
    assert_string_equal(err.text, "interrupted");
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE id = 3 AND finished IS NULL"), 1);
    assert_int_equal(ask(s, "SELECT count(*) FROM run WHERE finished IS NULL"), 1); // nor the partner's
    resume_to_the_whole(&w, s);
    experiment_free(e);
    free(text);
    store_close(s);
}

// ---- what is decoded besides

enum { MOST_ENDINGS = 64 };

static struct {
    int n, cell[MOST_ENDINGS], tokens[MOST_ENDINGS];
    int64_t number[MOST_ENDINGS]; // of the stream of chance
} ended;                          // all that decoders came to the end of, wanted or not

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
    assert_true(ended.n < MOST_ENDINGS);
    ended.cell[ended.n] = c->cell;
    ended.number[ended.n] = e->sequence;
    ended.tokens[ended.n++] = e->n;
    c->to.done(c->to.self, e);
}

// The group's decoders again, with a counter before each recorder.
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
        c->run = ask(s, sql);
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

// First so many throw-away decodes, each of another cell; then what goes into the database, and nothing else.
static void expect_warm_ups(struct store *s, int n, const int cells[], int64_t stored_before)
{
    assert_int_equal(ended.n - n, ask(s, "SELECT count(*) FROM sequence") - stored_before);
    for (int i = 0; i < n; i++) {
        assert_int_equal(ended.cell[i], cells[i]);
        assert_true(ended.tokens[i] <= 8);
    }
    for (int i = n; i < ended.n; i++) { // a text's chance is its prompt's, turn's and repeat's, in every version
        char *sql = xformat("SELECT count(*) FROM sequence WHERE run = %d AND pair = (SELECT max(id) FROM pair) AND"
                            " prompt * 16384 + turn * 256 + repeat = %lld",
                            ended.cell[i] + 1, (long long)ended.number[i]);
        assert_int_equal(ask(s, sql), 1);
        free(sql);
    }
    for (int c = 0; c < CELLS; c++) {
        int of_cell = 0;
        for (int i = n; i < ended.n; i++)
            of_cell += ended.cell[i] == c;
        char *sql =
            xformat("SELECT count(*) FROM sequence WHERE run = %d AND pair = (SELECT max(id) FROM pair)", c + 1);
        assert_int_equal(of_cell, ask(s, sql));
        free(sql);
    }
}

// The first decode of a process is slower: it grows buffers, and touches pages.
static void whoever_takes_part_is_warmed_up_once_and_before_anything_counts(void **state)
{
    (void)state;
    struct error err = { "" };
    struct table_instance w = { 0, "match", THREE, 1, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = run_whole(&w, turns);
    char *text = text_of(&w);
    struct experiment *e = load(text);
    struct runner r = { .e = e, .store = s };
    struct group g;
    struct counted counted[CELLS];
    assert_true(loaded_experiment_open(&r.opened, e, TARGET_ROWS, &err));
    assert_true(group_open(&g, 0, &r.opened, &err));
    progress_begin(&r.progress, NULL, 0);
    count_endings(&g, e, s, counted);

    paired_run_with(&r, &g, 0); // all is there
    assert_int_equal(ended.n, 0);
    delete_turns(s, NGRAM, 0, 0);
    int64_t stored = ask(s, "SELECT count(*) FROM sequence");
    paired_run_with(&r, &g, 0);
    expect_warm_ups(s, 2, (int[]){ NONE, NGRAM }, stored);
    delete_turns(s, NONE, 1, 0); // of all three only the third is cold
    stored = ask(s, "SELECT count(*) FROM sequence");
    paired_run_with(&r, &g, 1);
    expect_warm_ups(s, 1, (int[]){ SMALL }, stored);
    assert_int_equal(ended.n, 1 + CELLS * MOST_TURNS);

    group_close(&g);
    loaded_experiment_close(&r.opened);
    experiment_free(e);
    free(text);
    store_close(s);
}

static int make_talks(void **state)
{
    (void)state;
    struct tiny t = tiny_usual;
    char *target = tiny_path("target.gguf"), *draft = tiny_path("draft.gguf");
    t.layers = 1;
    tiny_write_gguf(target, &t);
    t.seed++;
    tiny_write_gguf(draft, &t);
    free(target);
    free(draft);
    write_file("resume.jsonl", conversations);
    return 0;
}

// test_resume [SAMPLES]: of two and of any number of missing sequences, in each world
int main(int argc, char **argv)
{
    if (argc > 1)
        samples = atoi(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_goes_on_where_that_of_none_outgrew_the_context),
        cmocka_unit_test(none_is_not_started_behind_an_answer_that_it_never_gave),
        cmocka_unit_test(with_a_batch_conversations_start_anew),
        cmocka_unit_test(what_ran_without_its_none_runs_beside_it),
        cmocka_unit_test(an_answer_behind_a_missing_one_is_not_gone_on_from),
        cmocka_unit_test(whatever_is_missing_is_decoded_again_and_nothing_else),
        cmocka_unit_test(a_run_that_goes_on_says_what_one_at_a_stretch_says),
        cmocka_unit_test(a_dry_run_counts_what_the_run_then_decodes),
        cmocka_unit_test(a_run_that_lacks_something_again_is_not_finished),
        cmocka_unit_test(whoever_takes_part_is_warmed_up_once_and_before_anything_counts),
    };
    return cmocka_run_group_tests(tests, make_talks, remove_files);
}
