// test_warm_ups.c - before a paired run each of its cells decodes once, and the result is discarded.
#include "tests/support/tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "experiments/experiment.h"
#include "experiments/pairs/paired_run.h"
#include "experiments/recorder.h"
#include "results/store.h"
#include "tests/experiments/resumable.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

enum { MAX_ENDINGS = 64 };

static struct {
    int n, cell[MAX_ENDINGS], tokens[MAX_ENDINGS];
    int64_t number[MAX_ENDINGS]; // sequence numbers, which select random numbers
} ended;                         // all finished decodes, recorded or not

struct counted { // a listener before the recorder's
    struct speclab_listener to;
    int cell;
};

static void pass_step(void *self, const struct speclab_step *s)
{
    struct counted *c = self;
    c->to.step(c->to.self, s);
}

static void count_end(void *self, const struct speclab_end *e)
{
    struct counted *c = self;
    assert_true(ended.n < MAX_ENDINGS);
    ended.cell[ended.n] = c->cell;
    ended.number[ended.n] = e->sequence;
    ended.tokens[ended.n++] = e->n;
    c->to.end(c->to.self, e);
}

// Puts a counter before each recorder.
static void count_endings(struct group *g, const struct experiment *e, struct store *s, struct counted counted[CELLS])
{
    assert_int_equal(g->n, CELLS);
    for (int i = 0; i < CELLS; i++) {
        struct cell_runner *c = &g->cell_runner[i];
        counted[i] = (struct counted){ recorder_listener(c->recorder, false), i };
        c->decoder->listener = (struct speclab_listener){ .step = pass_step, .end = count_end, .self = &counted[i] };
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
    assert_ok(paired_run_decode(&o, r, g, &err), err);
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
TEST(participating_cells_are_warmed_up_once_before_the_paired_run)
{
    struct error err = { "" };
    struct resumable w = { 0, "match", THREE, 1, 400, 1 };
    int turns[PROMPTS][CELLS];
    struct store *s = resumable_run(&w, turns);
    char *text = resumable_text(&w);
    struct experiment *e = load(text);
    struct loaded_experiment loaded;
    struct runner r = { .e = e, .loaded = &loaded, .store = s };
    struct group g;
    struct counted counted[CELLS];
    assert_true(loaded_experiment_open(&loaded, e, 0, &err));
    assert_true(group_open(&g, 0, &loaded, &err));
    progress_begin(&r.progress, NULL, NULL, 0);
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

    assert_ok(slice_load_close(&r.load, s, &err), err);
    group_close(&g);
    loaded_experiment_close(&loaded);
    experiment_free(e);
    free(text);
    store_close(s);
}

RUN_TESTS(resumable_make, test_directory_tear_down)
