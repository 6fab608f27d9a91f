// test_sharded_run.c - an experiment that runs as shards, with a database each and killed now and then, has the texts, steps and
// comparisons of one that runs whole: each in exactly one shard.
#include "tests/support/tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "experiments/cells.h"
#include "experiments/experiment.h"
#include "results/store.h"
#include "tests/experiments/killable.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

enum { SHARDS = 4 };
static const int64_t ten_minutes = INT64_C(600000000);
static int kills = 8; // the command line may set both
static uint64_t random_state = 2024;
static int64_t whole_us;

static int make_whole(void **state)
{
    make_files(state);
    write_file("long.jsonl", long_conversations);
    write_file("long.yaml", LONG_BODY);
    assert_false(kill_after(start_run("whole.db", (struct shard){ 0 }), ten_minutes, &whole_us));
    return 0;
}

static void attach(struct store *s, const char *file, const char *name)
{
    char *path = test_path(file);
    perform(s, "ATTACH '%s' AS %s", path, name);
    free(path);
    create_views(s, name);
}

// Runs a shard to its end. Returns how often it was killed before.
static int run_shard(const char *db, struct shard shard, int kill_at_most)
{
    int killed = 0;
    int64_t took_us = 0;
    const int64_t own_us = whole_us / shard.of + whole_us / 20;
    while (killed < kill_at_most &&
           kill_after(start_run(db, shard), (int64_t)(splitmix(&random_state) % (uint64_t)own_us), &took_us))
        killed++;
    assert_false(kill_after(start_run(db, shard), ten_minutes, &took_us));
    return killed;
}

static void check_shard(const char *db)
{
    struct store *s = open_store(db);
    check_sound(s);
    expect_none(s, "parts that are not done", "SELECT count(*) FROM shard WHERE finished IS NULL");
    expect_none(s, "runs of which no part is known",
                "SELECT count(*) FROM run WHERE id NOT IN (SELECT run FROM shard)");
    expect_none(s, "runs that are finished although other shards have parts of them",
                "SELECT count(*) FROM run JOIN shard ON run = id WHERE (run.finished IS NOT NULL) <> (parts = 1)");
    expect_none(
        s, "compared texts without none's in the same pair, where it has one",
        "SELECT count(*) FROM run AS r JOIN sequence AS q ON q.run = r.id JOIN paired AS p ON p.sequence = q.id"
        " WHERE p.none IS NULL AND EXISTS (SELECT 1 FROM run AS n JOIN sequence AS o ON o.run = n.id WHERE"
        " n.drafter_kind = 'none' AND n.peers = r.peers AND n.rule = r.rule AND (o.prompt, o.turn, o.repeat) ="
        " (q.prompt, q.turn, q.repeat)) AND NOT EXISTS (SELECT 1 FROM sequence AS a JOIN paired ON"
        " paired.sequence = a.id WHERE (a.run, a.prompt, a.turn, a.repeat) = (q.run, q.prompt, q.turn, q.repeat)"
        " AND paired.none IS NOT NULL)");
    store_close(s);
}

TEST(shards_with_kills_are_together_the_whole_run)
{
    int killed = 0;
    struct store *s = open_store("joined.db");
    struct text texts = { 0 }, sides = { 0 };
    for (int i = 0; i < SHARDS; i++) {
        char *db = xformat("shard%d.db", i), *name = xformat("s%d", i);
        killed += run_shard(db, (struct shard){ i, SHARDS, false }, kills / SHARDS);
        check_shard(db);
        attach(s, db, name);
        text_printf(&texts, "%sSELECT * FROM %s_texts", i > 0 ? " UNION ALL " : "", name);
        text_printf(&sides, "%sSELECT * FROM %s_sides", i > 0 ? " UNION ALL " : "", name);
        char *sequences = xformat("SELECT count(*) FROM %s.sequence", name);
        const int64_t before = query_first_int(s, sequences);
        assert_true(before > 0);
        run_shard(db, (struct shard){ i, SHARDS, false }, 0);
        assert_int_equal(query_first_int(s, sequences), before); // it has no more than its part
        free(sequences);
        free(db);
        free(name);
    }
    attach(s, "whole.db", "whole");
    perform(s, "CREATE TEMP VIEW main_texts AS %s", texts.s);
    perform(s, "CREATE TEMP VIEW main_sides AS %s", sides.s);
    check_same(s, "texts");
    check_same(s, "sides");
    expect_none(s, "texts that two shards have",
                "SELECT (SELECT count(*) FROM main_texts) - (SELECT count(*) FROM whole_texts)");
    store_close(s);
    free(texts.s);
    free(sides.s);
    assert_true(killed > 0);
    print_message("%d shards, killed %d times: the texts, steps and comparisons of a whole run\n", SHARDS, killed);
}

// The database has what the whole run has, each text once.
static void check_is_whole(const char *db)
{
    struct store *s = open_store(db);
    create_views(s, "main");
    attach(s, "whole.db", "whole");
    check_sound(s);
    check_same(s, "texts");
    check_same(s, "sides");
    check_same(s, "runs");
    expect_count(s, query_first_int(s, "SELECT count(*) FROM whole.sequence"), "sequence");
    expect_count(s, 0, "run WHERE finished IS NULL");
    store_close(s);
}

TEST(the_last_shard_in_a_database_finishes_its_runs)
{
    for (int i = 0; i < 3; i++) {
        run_shard("one.db", (struct shard){ i, 3, false }, 0);
        struct store *s = open_store("one.db");
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM run WHERE finished IS NULL") > 0, i < 2);
        store_close(s);
    }
    check_is_whole("one.db");
}

TEST(a_shards_database_can_be_continued_whole)
{
    run_shard("continued.db", (struct shard){ 2, SHARDS, false }, 0);
    run_shard("continued.db", (struct shard){ 0, 1, false }, 0);
    check_is_whole("continued.db");
    struct store *s = open_store("continued.db");
    expect_count(s, 0, "shard WHERE parts > 1"); // completed without a division
    store_close(s);
}

TEST(more_prompts_or_repeats_make_a_part_unfinished)
{
    static const struct {
        int limit, repeats, conversations; // conversations: those of shard 0/2
    } cases[] = { { 2, 1, 1 }, { 4, 1, 2 }, { 4, 2, 4 }, { 2, 1, 4 } };
    struct store *s = open_store("more.db");
    for (int i = 0; i < 4; i++) {
        char *text = xformat("name: more\ntarget: {model: target.gguf}\nthreads: 1\nlimits: {new_tokens: 4}\n"
                             "prompts: {file: long.jsonl, chat: none, limit: %d}\nrepeat: %d\n",
                             cases[i].limit, cases[i].repeats);
        run_part(text, s, 0, 2);
        expect_count(s, cases[i].conversations, "(SELECT DISTINCT prompt, repeat FROM sequence)");
        expect_count(s, 1, "shard WHERE finished IS NOT NULL AND parts = 2");
        expect_count(s, 0, "run WHERE finished IS NOT NULL");
        free(text);
    }
    store_close(s);
}

// Another sampling deals the prompts of the first one anew: parts of two divisions do not finish a run.
TEST(parts_of_two_divisions_do_not_finish_a_run)
{
    static const struct {
        const char *before;
        int shard, finished;
    } cases[] = { { "", 0, 0 }, { "{temperature: 1}, ", 1, 0 }, { "{temperature: 1}, ", 0, 2 } };
    struct store *s = open_store("dealt.db");
    write_file("five.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n{\"prompt\": \"c\"}\n{\"prompt\": \"d\"}\n"
                             "{\"prompt\": \"e\"}\n");
    for (int i = 0; i < 3; i++) {
        char *text = xformat("name: dealt\ntarget: {model: target.gguf}\nthreads: 1\nlimits: {new_tokens: 4}\n"
                             "prompts: {file: five.jsonl, chat: none}\ncells: {sampling: [%s{temperature: 0}]}\n",
                             cases[i].before);
        run_part(text, s, cases[i].shard, 2);
        expect_none(s, "finished runs that lack prompts",
                    "SELECT count(*) FROM run AS r WHERE finished IS NOT NULL"
                    " AND (SELECT count(DISTINCT prompt) FROM sequence WHERE run = r.id) < 5");
        expect_count(s, cases[i].finished, "run WHERE finished IS NOT NULL");
        free(text);
    }
    store_close(s);
}

TEST(a_part_that_lacks_texts_again_is_not_done)
{
    static const char body[] =
        "name: lost\ntarget: {model: target.gguf}\nthreads: 1\nprompts: {file: long.jsonl, chat: none}\n"
        "limits: {new_tokens: 4}\n";
    struct store *s = open_store("lost.db");
    struct error err = { "" };
    struct experiment *e = load(body);
    const volatile int stop = 1;
    for (int i = 0; i < 2; i++) {
        e->shard = (struct shard){ i, 2, false };
        assert_ok(experiment_run(e, s, NULL, NULL, &err), err);
    }
    expect_count(s, 1, "run WHERE finished IS NOT NULL");
    perform(s, "DELETE FROM sequence WHERE id = (SELECT max(id) FROM sequence)"); // of shard 1
    for (int i = 0; i < 2; i++) {
        e->shard = (struct shard){ i, 2, false };
        assert_int_equal(experiment_run(e, s, NULL, i == 1 ? &stop : NULL, &err), i == 0);
        expect_count(s, i == 0, "run WHERE finished IS NOT NULL");
    }
    assert_int_equal(query_first_int(s, "SELECT finished IS NULL FROM shard WHERE shard = 1"), 1);
    assert_int_equal(query_first_int(s, "SELECT finished IS NULL FROM shard WHERE shard = 0"), 0);
    assert_ok(experiment_run(e, s, NULL, NULL, &err), err);
    expect_count(s, 1, "run WHERE finished IS NOT NULL");
    experiment_free(e);
    store_close(s);
}

TEST(a_shard_beyond_the_last_paired_run_decodes_nothing)
{
    struct store *s = open_store("none.db");
    struct error err = { "" };
    struct experiment *e = load(LONG_BODY);
    char *out = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&out, &n);
    e->shard = (struct shard){ 30, 31, false };
    assert_ok(experiment_run(e, s, to, NULL, &err), err);
    fclose(to);
    assert_string_equal(out, "shard 30/31 has nothing to decode: there are 24 paired runs\n");
    assert_int_equal(query_first_int(s, "SELECT (SELECT count(*) FROM run) + (SELECT count(*) FROM shard)"), 0);
    experiment_free(e);
    store_close(s);
    free(out);
}

// test_sharded_run [KILLS [SEED]]
int main(int argc, char **argv)
{
    read_kills(argc, argv, &kills, &random_state);
    return tests_run(make_whole, test_directory_tear_down);
}
