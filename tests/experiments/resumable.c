// resumable.c - see resumable.h.
#include "tests/experiments/resumable.h"

#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

static const char conversations[] = "{\"id\": \"a\", \"turns\": [\"one two one two\", \"and again\", \"enough\"]}\n"
                                    "{\"id\": \"b\", \"turns\": [\"ping\", \"pong\", \"x = x + 1\"]}\n";

char *resumable_text(const struct resumable *w)
{
    return xformat("name: resume\ntarget: {model: target.gguf}\nthreads: 1\n"
                   "prompts: {file: resume.jsonl, chat: none}\n"
                   "limits: {new_tokens: 16, context: %d, ignore_end: true,"
                   " stop: [a, e, i, o, t, n, r, s, c, d, l, m, u, x, p]}\nseed: %d\n"
                   "cells: {sampling: {temperature: %d}, rule: %s, batch: %d, drafter: [%s]}\n",
                   w->context, w->seed, w->temperature, w->rule, w->batch, w->drafters);
}

struct store *resumable_run(const struct resumable *w, int turns[PROMPTS][CELLS])
{
    struct error err = { "" };
    char *text = resumable_text(w), *path = test_path("resume.db");
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

void copy_results(struct store *s)
{
    perform(s, "CREATE TEMP VIEW result AS SELECT run, prompt, turn, repeat, tokens, text, stop, prompt_tokens,"
               " (SELECT group_concat(drafted || ' ' || depth || ' ' || accepted || ' ' || tokens, ', ')"
               "  FROM (SELECT * FROM step WHERE sequence = q.id ORDER BY step)) AS steps FROM sequence AS q");
    perform(s, "CREATE TEMP VIEW side AS SELECT q.run, q.prompt, q.turn, q.repeat, t.equal, t.first_difference"
               " FROM texts AS t JOIN sequence AS q ON q.id = t.sequence WHERE t.same_rule");
    perform(s, "CREATE TEMP TABLE whole AS SELECT * FROM result");
    perform(s, "CREATE TEMP TABLE whole_side AS SELECT * FROM side");
    perform(s, "CREATE TEMP TABLE saved_environment AS SELECT * FROM environment");
    perform(s, "CREATE TEMP TABLE saved_pair AS SELECT * FROM pair");
    perform(s, "CREATE TEMP TABLE saved_sequence AS SELECT * FROM sequence");
    perform(s, "CREATE TEMP TABLE saved_step AS SELECT * FROM step");
}

void restore_results(struct store *s)
{
    perform(s, "BEGIN");
    perform(s, "DELETE FROM pair");
    perform(s, "DELETE FROM environment");
    perform(s, "UPDATE run SET finished = NULL");
    perform(s, "INSERT INTO environment SELECT * FROM saved_environment");
    perform(s, "INSERT INTO pair SELECT * FROM saved_pair");
    perform(s, "INSERT INTO sequence SELECT * FROM saved_sequence");
    perform(s, "INSERT INTO step SELECT * FROM saved_step");
    perform(s, "COMMIT");
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

int64_t decoded_again(struct store *s)
{
    return query_first_int(s, "SELECT count(*) FROM sequence WHERE pair > (SELECT max(id) FROM saved_pair)");
}

void resume(const struct resumable *w, struct store *s)
{
    char *text = resumable_text(w);
    run(text, s);
    free(text);
}

void resume_and_compare(const struct resumable *w, struct store *s)
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

void expect_nothing_due(const struct resumable *w, struct store *s)
{
    int64_t all = query_first_int(s, "SELECT count(*) FROM sequence");
    resume(w, s);
    expect_count(s, all, "sequence");
}

void delete_turns(struct store *s, int run, int prompt, int turn)
{
    perform(s, "DELETE FROM sequence WHERE run = %d AND prompt = %d AND turn >= %d", run + 1, prompt, turn);
}

int resumable_make(void **state)
{
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
