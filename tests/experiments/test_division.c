// test_division.c - for any number of shards every paired run of an experiment is in exactly one shard, with all of its cells and
// prompts, and shards have about the same work; which shard a process is, by option and in job arrays of Slurm.
#include "tests/support/tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "experiments/pairs/paired_run.h"
#include "experiments/pairs/plan.h"
#include "commands/commands.h"
#include "experiments/division.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/printed_text.h"
#include "tests/support/small_model.h"

// ---- dealing

enum { PARTS = 200, SHARDS = 40 };

// Two shards differ by at most one paired run.
static void check_loads(const struct part *part, int n, int shards)
{
    int64_t load[SHARDS] = { 0 }, largest = 0;
    for (int i = 0; i < n; i++) {
        assert_in_range(part[i].shard, 0, shards - 1);
        load[part[i].shard] += part[i].cost;
        largest = part[i].cost > largest ? part[i].cost : largest;
    }
    for (int a = 0; a < shards; a++)
        for (int b = 0; b < shards; b++)
            assert_true(load[a] - load[b] <= largest);
}

TEST(paired_runs_are_dealt_evenly_to_any_number_of_shards)
{
    uint64_t random_state = 3;
    for (int round = 0; round < 2000; round++) {
        struct part part[PARTS] = { { 0 } }, again[PARTS];
        const int n = (int)(splitmix(&random_state) % PARTS), shards = 1 + (int)(splitmix(&random_state) % SHARDS),
                  uneven = 1 + (int)(splitmix(&random_state) % 100);
        for (int i = 0; i < n; i++)
            part[i].cost = 1 + (int64_t)(splitmix(&random_state) % (uint64_t)uneven);
        memcpy(again, part, sizeof(part));
        parts_deal(part, n, shards);
        parts_deal(again, n, shards);
        for (int i = 0; i < n; i++)
            assert_int_equal(part[i].shard, again[i].shard);
        check_loads(part, n, shards);
    }
}

TEST(large_ones_are_dealt_first_and_equal_ones_in_turn)
{
    struct part part[12] = { { 0 } };
    for (int i = 0; i < 12; i++)
        part[i].cost = 2;
    parts_deal(part, 12, 4);
    for (int i = 0; i < 12; i++)
        assert_int_equal(part[i].shard, i % 4);
    // Twelve of one and a large one, which is last: it has a shard of its own.
    for (int i = 0; i < 12; i++)
        part[i].cost = i == 11 ? 6 : 1;
    parts_deal(part, 12, 3);
    for (int i = 0; i < 11; i++)
        assert_int_not_equal(part[i].shard, part[11].shard);
}

// ---- experiments

static struct experiment *experiment_with(int prompts, int repeat, const char *cells)
{
    struct text lines = { 0 };
    for (int i = 0; i < prompts; i++)
        text_printf(&lines, "{\"turns\": [\"a\"%s]}\n", i % 3 == 0 ? ", \"b\"" : "");
    write_file("many.jsonl", lines.s);
    free(lines.s);
    char *text = xformat("name: x\ntarget: {model: target.gguf}\nprompts: {file: many.jsonl, chat: none}\nrepeat: %d\n"
                         "cells: {%s}\n",
                         repeat, cells);
    struct experiment *e = load(text);
    free(text);
    return e;
}

// Marks what each shard decodes: every cell of each group, with each prompt and repeat.
static void check_shards(const struct experiment *e, int shards)
{
    struct division d = division_of(e, shards);
    const int pairings = e->rule.n * e->drafter.n;
    const size_t n = (size_t)(groups(e) * pairings * e->repeat * e->prompts.n);
    int *shard_of = xcalloc(n, sizeof(*shard_of)), *pair_of = xcalloc(n, sizeof(*pair_of));
    int64_t conversations = 0, counted = 0;
    for (int k = 0; k < d.n; k++) {
        const struct part *p = &d.part[k];
        // The paired run that a shard makes of it is the one of a whole run.
        const struct paired_run o = paired_run_at(e, experiment_batch(e, p->group % e->batch.n), p->repeat, p->first);
        assert_int_equal(o.n, p->n);
        int64_t turns = 0;
        for (int i = 0; i < o.n; i++)
            turns += e->prompts.prompt[p->first + i].n_turns;
        assert_int_equal(p->cost, group_cells(e, p->group) * lround(1000.0 * (double)turns /
                                                                    sqrt(experiment_batch(e, p->group % e->batch.n))));
        for (int c = 0; c < pairings; c++)
            for (int i = 0; i < o.n; i++) {
                const int at = ((p->group * pairings + c) * e->repeat + p->repeat) * e->prompts.n + p->first + i;
                assert_int_equal(pair_of[at], 0);
                pair_of[at] = k + 1;
                shard_of[at] = p->shard;
            }
    }
    for (int g = 0; g < groups(e); g++) {
        int has = 0;
        for (int s = 0; s < (shards > 1 ? shards : 1); s++)
            has += division_count(&d, g, s) > 0;
        assert_int_equal(d.work[g].shards, has);
        for (int r = 0; r < e->repeat; r++)
            for (int i = 0; i < e->prompts.n; i++)
                for (int c = 0; c < pairings; c++) {
                    const int at = ((g * pairings + c) * e->repeat + r) * e->prompts.n + i,
                              first = (g * pairings * e->repeat + r) * e->prompts.n + i;
                    const struct cell cell = { { { g / e->batch.n, g % e->batch.n, c / e->drafter.n, c % e->drafter.n,
                                                   0 } } };
                    assert_int_equal(pair_of[at] > 0, group_cells(e, g) > 0);
                    assert_int_equal(shard_of[at], shard_of[first]); // with all that it is compared with
                    counted += experiment_has(e, cell);
                }
    }
    for (int s = 0; s < (shards > 1 ? shards : 1); s++)
        conversations += division_conversations(&d, e, s);
    assert_int_equal(conversations, counted);
    division_free(&d);
    free(shard_of);
    free(pair_of);
}

TEST(every_pair_is_in_exactly_one_shard)
{
    static const char *const cells[] = {
        "drafter: [none, ngram]",
        "sampling: [{temperature: 0}, {temperature: 1}], batch: [1, 2, 3], rule: [rejection, match], drafter: [ngram, suffix]",
        "batch: [1, 2, 4], drafter: [ngram, suffix], exclude: [{batch: 2}, {batch: 4, drafter: suffix}]",
    };
    static const int prompts[] = { 1, 2, 7, 33, 80 }, repeats[] = { 1, 2, 5 },
                     shards[] = { 0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 100, 1000 };
    for (size_t c = 0; c < sizeof(cells) / sizeof(cells[0]); c++)
        for (size_t p = 0; p < sizeof(prompts) / sizeof(prompts[0]); p++)
            for (size_t r = 0; r < sizeof(repeats) / sizeof(repeats[0]); r++) {
                struct experiment *e = experiment_with(prompts[p], repeats[r], cells[c]);
                for (size_t n = 0; n < sizeof(shards) / sizeof(shards[0]); n++)
                    check_shards(e, shards[n]);
                experiment_free(e);
            }
}

// Group a of one division and group b of another have the same paired runs, each in the same shard.
static bool is_dealt_alike(const struct division *x, int a, const struct division *y, int b)
{
    int i = 0, k = 0;
    for (;; i++, k++) {
        while (i < x->n && x->part[i].group != a)
            i++;
        while (k < y->n && y->part[k].group != b)
            k++;
        if (i == x->n || k == y->n)
            return i == x->n && k == y->n;
        const struct part *p = &x->part[i], *q = &y->part[k];
        if (p->repeat != q->repeat || p->first != q->first || p->n != q->n || p->shard != q->shard)
            return false;
    }
}

TEST(work_is_the_same_where_each_shard_has_the_same)
{
    static const struct {
        int prompts, repeat, shards;
        const char *cells;
    } cases[] = {
        { 7, 2, 2, "drafter: ngram" },
        { 7, 2, 2, "drafter: [ngram, suffix], rule: match" },
        { 7, 2, 5, "drafter: ngram" },
        { 7, 3, 2, "drafter: ngram" },
        { 6, 2, 2, "drafter: ngram" },
        { 7, 2, 2, "batch: [4, 1]" },
        { 7, 2, 2, "sampling: [{temperature: 1}, {temperature: 0}]" },
        { 7, 2, 2, "sampling: [{temperature: 0}, {temperature: 1}], drafter: [ngram, suffix]" },
        { 7, 2, 2, "sampling: [{temperature: 2}, {temperature: 1}, {temperature: 0}]" },
    };
    enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };
    struct experiment *e[N_CASES];
    struct division d[N_CASES];
    int alike = 0, pairs = 0;
    for (int i = 0; i < N_CASES; i++) {
        e[i] = experiment_with(cases[i].prompts, cases[i].repeat, cases[i].cells);
        d[i] = division_of(e[i], cases[i].shards);
    }
    for (int i = 0; i < N_CASES; i++)
        for (int k = 0; k < i; k++)
            for (int a = 0; a < groups(e[i]); a++)
                for (int b = 0; b < groups(e[k]); b++, pairs++) {
                    const bool same = e[i]->prompts.n == e[k]->prompts.n && is_dealt_alike(&d[i], a, &d[k], b);
                    assert_int_equal(strcmp(d[i].work[a].hash, d[k].work[b].hash) == 0, same);
                    alike += same;
                }
    assert_in_range(alike, 5, pairs - 5);
    for (int i = 0; i < N_CASES; i++) {
        division_free(&d[i]);
        experiment_free(e[i]);
    }
}

TEST(another_drafter_or_rule_divides_the_same_way)
{
    static const char *const cells[] = {
        "sampling: [{temperature: 0}, {temperature: 1}], batch: [1, 2, 3], drafter: [none, ngram]",
        "sampling: [{temperature: 0}, {temperature: 1}], batch: [1, 2, 3], drafter: [none, ngram, suffix, lookahead]",
        "sampling: [{temperature: 0}, {temperature: 1}], batch: [1, 2, 3], drafter: [none, ngram], rule: [rejection, match]",
    };
    struct division d[3];
    for (int i = 0; i < 3; i++) {
        struct experiment *e = experiment_with(77, 2, cells[i]);
        d[i] = division_of(e, 5);
        experiment_free(e);
        assert_int_equal(d[i].n, d[0].n);
        for (int k = 0; k < d[i].n; k++)
            assert_int_equal(d[i].part[k].shard, d[0].part[k].shard);
    }
    for (int i = 0; i < 3; i++)
        division_free(&d[i]);
}

// ---- which shard

static void set(const char *id, const char *count, const char *min, const char *step)
{
    const char *const values[] = { id, count, min, step };
    static const char *const names[] = { "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
                                         "SLURM_ARRAY_TASK_STEP" };
    for (int i = 0; i < 4; i++)
        if (values[i] != NULL)
            setenv(names[i], values[i], 1);
        else
            unsetenv(names[i]);
}

TEST(a_shard_is_given_or_found_in_slurms_variables)
{
    static const struct {
        const char *option, *id, *count, *min, *step;
        int index, of;
        bool by_slurm;
        const char *message;
    } cases[] = {
        { NULL, NULL, NULL, NULL, NULL, 0, 1, false, NULL },
        { NULL, NULL, "4", "0", "1", 0, 1, false, NULL }, // only the id says that this is a task of an array
        { NULL, "", "", "", "", 0, 1, false, NULL },
        { "2/4", NULL, NULL, NULL, NULL, 2, 4, false, NULL },
        { "0/1", NULL, NULL, NULL, NULL, 0, 1, false, NULL },
        { "65535/65536", NULL, NULL, NULL, NULL, 65535, 65536, false, NULL },
        { NULL, "0", "4", "0", "1", 0, 4, true, NULL },
        { NULL, "3", "4", "0", "1", 3, 4, true, NULL },
        { NULL, "4", "4", "1", "1", 3, 4, true, NULL },  // --array=1-4
        { NULL, "10", "3", "2", "4", 2, 3, true, NULL }, // --array=2-10:4
        { NULL, "2", "3", NULL, NULL, 2, 3, true, NULL },
        { "1/2", "0", "4", "0", "1", 1, 2, false, NULL },
        { "none", "3", "4", "0", "1", 0, 1, false, NULL },
        { "none", "x", NULL, NULL, NULL, 0, 1, false, NULL },
        { "4/4", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: .. from 0 to 3 .. \"4/4\"" },
        { "", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: expected I/N .. \"\"" },
        { "1", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: expected I/N .. \"1\"" },
        { "1/", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: expected I/N .. \"1/\"" },
        { "/4", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: expected I/N .. \"/4\"" },
        { "-1/4", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: expected I/N .. \"-1/4\"" },
        { "1/4x", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: expected I/N .. \"1/4x\"" },
        { "1/ 4", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: expected I/N .. \"1/ 4\"" },
        { "0/0", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: expected I/N .. \"0/0\"" },
        { "0/65537", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: expected I/N .. \"0/65537\"" },
        { "99999999999999999999/4", NULL, NULL, NULL, NULL, 0, 0, false, "--shard: .. from 0 to 3" },
        { NULL, "3", NULL, NULL, NULL, 0, 0, false, "SLURM_ARRAY_TASK_ID is set .. TASK_COUNT is not" },
        { NULL, "x", "4", NULL, NULL, 0, 0, false, "SLURM_ARRAY_TASK_ID: .. \"x\"" },
        { NULL, "3", "0", NULL, NULL, 0, 0, false, "SLURM_ARRAY_TASK_COUNT: .. found 0" },
        { NULL, "7", "1", "7", "1", 0, 0, false, "SLURM_ARRAY_TASK_COUNT is 1: .. --shard none" },      // --array=7
        { NULL, "7", "3", "1", "2", 0, 0, false, "SLURM_ARRAY_TASK_ID is 7: .. 3 from 1 with step 2" }, // --array=1,3,7
        { NULL, "4", "3", "1", "2", 0, 0, false, "SLURM_ARRAY_TASK_ID is 4: .. 3 from 1 with step 2" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = { "" };
        struct shard s = { 0 };
        set(cases[i].id, cases[i].count, cases[i].min, cases[i].step);
        const bool ok = shard_read(cases[i].option, &s, &err);
        if (cases[i].message != NULL)
            expect_pattern(err.text, cases[i].message, cases[i].message);
        else
            assert_true(s.index == cases[i].index && s.of == cases[i].of && s.by_slurm == cases[i].by_slurm);
        assert_int_equal(ok, cases[i].message == NULL);
    }
    set(NULL, NULL, NULL, NULL);
}

RUN_TESTS(make_files, test_directory_tear_down)
