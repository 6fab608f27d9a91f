// test_merge.c - parts of a database, merged in any order and any number of times, are the database: compared with the one that was divided.
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "results/merge/merge.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/results/merge_files.h"
#include "tests/results/sample_facts.h"
#include "tests/support/small_model.h"

static void expect_same(char *a, char *b, const char *what)
{
    if (strcmp(a, b) != 0) {
        size_t i = 0;
        while (a[i] == b[i])
            i++;
        while (i > 0 && a[i - 1] != '\n')
            i--;
        fail_msg("%s: expected\n%.200s\nfound\n%.200s", what, a + i, b + i);
    }
    free(a);
    free(b);
}

static void a_database_merged_into_a_new_one_is_copied_whole(void **state)
{
    struct error err = { "" };
    struct store *s = merge_whole();
    struct query *tables =
        query_open(s, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'");
    int n = 0;
    for (; query_next(tables); n++) {
        char *sql = xformat("SELECT count(*) FROM %s", query_text(tables, 0));
        if (query_first_int(s, sql) == 0)
            fail_msg("table %s is empty: nothing here shows that it is merged", query_text(tables, 0));
        free(sql);
    }
    assert_ok(query_close(tables, &err), err);
    assert_true(n > 20);
    struct store *out = open_store("out.db");
    merge_into(out, "results.db");
    expect_same(merge_facts(s), merge_facts(out), "the copy");
    char *once = merge_dump(out);
    merge_into(out, "results.db");
    expect_same(once, merge_dump(out), "merged twice");
    store_close(s);
    store_close(out);
}

// Every pair is in one part or more. A part may be of an earlier time: the last texts are missing, and the last pair is not complete.
static void parts_are_merged_to_the_whole_in_any_order(void **state)
{
    uint64_t random = 5;
    for (int trial = 0; trial < 12; trial++) {
        struct store *s = merge_whole();
        const int parts = 2 + (int)(splitmix(&random) % 3);
        char name[4][24];
        for (int i = 0; i < parts; i++) {
            snprintf(name[i], sizeof(name[i]), "part-%d.db", i);
            char *where = xformat("id / 2 %% %d <> %d AND (id * %llu + %d) %% 3 > 0", parts, i,
                                  1 + (unsigned long long)(splitmix(&random) % 4), i);
            struct store *part = merge_copy(s, name[i], "pair", where);
            perform(part, "DELETE FROM run WHERE id > 4 AND id NOT IN (SELECT run FROM sequence)");
            store_close(part);
            free(where);
        }
        char *where = xformat("id > %d", 5 + (int)(splitmix(&random) % 40));
        store_close(merge_copy(s, "earlier.db", "sequence", where));
        free(where);
        struct store *out = open_store("out.db");
        if (trial % 2 == 0)
            merge_into(out, "earlier.db");
        for (int i = 0; i < parts; i++)
            merge_into(out, name[(i + trial) % parts]);
        expect_same(merge_facts(s), merge_facts(out), "the parts");
        char *once = merge_dump(out);
        for (int i = 0; i < parts; i++)
            merge_into(out, name[i]);
        merge_into(out, "earlier.db");
        merge_into(out, "results.db");
        expect_same(once, merge_dump(out), "merged again");
        store_close(s);
        store_close(out);
        test_directory_remove();
    }
}

static void machines_and_times_are_those_of_all_parts(void **state)
{
    struct store *s = merge_whole(), *a = merge_copy(s, "a.db", "pair", "id / 2 % 2 = 0"),
                 *b = merge_copy(s, "b.db", "pair", "id / 2 % 2 = 1");
    perform(a, "DELETE FROM environment WHERE processor = 'processor 1'");
    perform(b, "DELETE FROM environment WHERE processor = 'processor 2'");
    perform(a, "UPDATE run SET started = '2025-05-05T05:05:05Z', machine = 'x', revision = 'x'");
    perform(b, "UPDATE environment SET revision = 'r2'");
    store_close(a);
    store_close(b);
    struct store *out = open_store("out.db");
    merge_into(out, "b.db");
    merge_into(out, "a.db");
    expect_none(
        out, "runs without both machines",
        "SELECT count(*) FROM run WHERE machine <> 'processor 1, avx2, 2 threads; processor 2, avx2, 2 threads' OR revision <> 'r2, r1'"
        " OR started <> '2025-05-05T05:05:05Z'");
    char *path = test_path("results.db");
    perform(out, "ATTACH '%s' AS whole", path);
    expect_none(
        out, "texts of another machine than in the whole",
        "SELECT count(*) FROM (SELECT uuid, prompt, turn, repeat, q.run, processor FROM sequence AS q JOIN pair ON pair.id = q.pair JOIN"
        " environment AS e ON (e.id, e.run) = (q.environment, q.run) EXCEPT SELECT uuid, prompt, turn, repeat, q.run, processor FROM"
        " whole.sequence AS q JOIN whole.pair ON pair.id = q.pair JOIN whole.environment AS e ON e.id = q.environment)");
    assert_int_equal(query_first_int(out, "SELECT count(environment) FROM sequence"),
                     query_first_int(s, "SELECT count(*) FROM sequence"));
    free(path);
    store_close(s);
    store_close(out);
}

// Of the same experiment on another machine: other pairs of the same conversations.
static struct store *other_machine(struct store *s, const char *name, const char *without)
{
    struct store *other = merge_copy(s, name, "pair", without);
    perform(other, "UPDATE pair SET uuid = lower(hex(randomblob(16)))");
    perform(other, "UPDATE environment SET processor = 'another'");
    perform(other, "UPDATE sequence SET decode_ns = decode_ns + 1");
    return other;
}

static void conversations_that_are_stored_already_are_left_out(void **state)
{
    struct error err = { "" };
    struct merged m;
    struct store *s = merge_whole();
    store_close(other_machine(s, "again.db", "false"));
    store_close(merge_copy(s, "half.db", "pair", "id > 8"));
    char *path = test_path("again.db"), *whole = merge_dump(s);
    const int64_t all = query_first_int(s, "SELECT count(*) FROM sequence");
    assert_ok(merge(s, path, &m, &err), err);
    assert_int_equal(m.texts, 0);
    assert_int_equal(m.pairs, 0);
    assert_int_equal(m.left_out, all);
    expect_same(whole, merge_dump(s), "all left out");
    struct store *out = open_store("out.db");
    merge_into(out, "half.db");
    const int64_t half = query_first_int(out, "SELECT count(*) FROM sequence");
    assert_ok(merge(out, path, &m, &err), err);
    assert_int_equal(m.texts, all - half);
    assert_int_equal(m.left_out, half);
    assert_int_equal(m.pairs, MERGE_PAIRS - 4);
    expect_none(out, "texts that are there twice",
                "SELECT count(*) FROM (SELECT 1 FROM sequence GROUP BY run, prompt, turn, repeat HAVING count(*) > 1)");
    char *once = merge_dump(out);
    merge_into(out, "again.db");
    expect_same(once, merge_dump(out), "merged again");
    free(path);
    store_close(s);
    store_close(out);
}

// A text without a partner of none is in no speedup: the pair that has both is taken, with what it repeats.
static void a_pair_completes_what_has_no_partner(void **state)
{
    struct store *s = merge_whole();
    store_close(other_machine(s, "again.db", "false"));
    struct store *out =
        merge_copy(s, "out.db", "sequence", "run IN (SELECT id FROM run WHERE drafter_kind = 'none') AND prompt = 1");
    const int64_t before = query_first_int(out, "SELECT max(id) FROM sequence");
    assert_true(query_first_int(out, "SELECT count(*) FROM paired WHERE none IS NULL") > 0);
    merge_into(out, "again.db");
    expect_none(
        out, "conversations without a pair that has all of it",
        "SELECT count(*) FROM (SELECT 1 FROM paired JOIN sequence AS q ON q.id = sequence GROUP BY q.run, prompt, turn, repeat"
        " HAVING count(none) = 0)");
    char *sql = xformat("SELECT count(*) FROM sequence WHERE id > %lld AND prompt <> 1", (long long)before);
    expect_none(out, "texts of other prompts", sql);
    free(sql);
    store_close(s);
    store_close(out);
}

// finished: here and in the other; what each lacks; what is expected.
static void a_run_is_finished_if_all_of_it_is_stored(void **state)
{
    static const struct {
        const char *ours, *theirs, *missing_ours, *missing_theirs, *expected;
    } cases[] = {
        { "'2026-01-02'", "'2026-01-03'", "false", "false", "2026-01-03" },
        { "'2026-01-02'", "NULL", "false", "prompt > 0", "2026-01-02" }, // a part of a finished run
        { "NULL", "'2026-01-03'", "prompt > 0", "false", "2026-01-03" }, // the same in the other order
        { "'2026-01-02'", "NULL", "prompt > 0", "prompt = 0", "" }, // a later file has more prompts, which are not done
        { "NULL", "'2026-01-03'", "prompt = 0", "prompt > 0", "" }, //
        { "'2026-01-02'", "'2026-01-03'", "prompt > 0", "prompt = 0", "2026-01-03" },
        { "NULL", "NULL", "prompt > 0", "prompt = 0", "" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct store *s = merge_whole();
        perform(s, "DELETE FROM shard");
        struct store *theirs = merge_copy(s, "theirs.db", "sequence", cases[i].missing_theirs);
        struct store *ours = merge_copy(s, "ours.db", "sequence", cases[i].missing_ours);
        perform(theirs, "UPDATE run SET finished = %s", cases[i].theirs);
        perform(ours, "UPDATE run SET finished = %s", cases[i].ours);
        store_close(theirs);
        for (int again = 0; again < 2; again++) {
            merge_into(ours, "theirs.db");
            char *sql = xformat("SELECT count(*) FROM run WHERE coalesce(finished, '') <> '%s'", cases[i].expected);
            expect_none(ours, cases[i].expected, sql);
            free(sql);
        }
        store_close(ours);
        store_close(s);
        test_directory_remove();
    }
}

static void shards_finish_a_run_when_the_last_is_merged(void **state)
{
    struct store *s = merge_whole(), *out = open_store("out.db");
    char name[24];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "%d.db", i);
        char *where = xformat("id / 2 %% 4 <> %d", i);
        struct store *shard = merge_copy(s, name, "pair", where);
        free(where);
        perform(shard, "DELETE FROM shard");
        perform(shard, "UPDATE run SET finished = NULL");
        perform(shard, "INSERT INTO shard SELECT id, 4, %d, 'w', 4, '2026-01-0%dT00:00:00Z' FROM run", i, 9 - i);
        store_close(shard);
        store_close(merge_copy(shard = open_store(name), "unfinished.db", "sequence", "false"));
        store_close(shard);
        shard = open_store("unfinished.db");
        perform(shard, "UPDATE shard SET finished = NULL");
        store_close(shard);
        assert_int_equal(query_first_int(out, "SELECT count(finished) FROM run"), 0);
        merge_into(out, "unfinished.db");
        assert_int_equal(query_first_int(out, "SELECT count(finished) FROM run"), 0);
        merge_into(out, name);
        merge_into(out, "unfinished.db"); // an earlier state
    }
    expect_none(out, "runs that are not finished with the last shard",
                "SELECT count(*) FROM run WHERE finished IS NOT '2026-01-09T00:00:00Z'");
    assert_int_equal(query_first_int(out, "SELECT count(*) FROM shard"), 4 * SAMPLE_RUNS);
    store_close(s);
    store_close(out);
}

static void sums_of_more_sequences_replace_others(void **state)
{
    struct store *s = merge_whole(), *more = merge_copy(s, "more.db", "exact", "id > 3");
    perform(more, "UPDATE exact SET sequences = 20, tokens = 200, sums = x'0022', finished = '2026-01-05'");
    perform(more, "DELETE FROM exact_stream WHERE stream = 'control'");
    store_close(more);
    store_close(merge_copy(s, "fewer.db", "exact", "false"));
    for (int again = 0; again < 2; again++) {
        merge_into(s, "more.db");
        merge_into(s, "fewer.db");
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact"), SAMPLE_RUNS);
        assert_int_equal(query_first_int(s, "SELECT sum(sequences) FROM exact"), 3 * 20 + 3 * 10);
        assert_int_equal(query_first_int(s, "SELECT count(*) FROM exact_stream"), 3 * 1 + 3 * 2);
    }
    store_close(s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, test_directory_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_database_merged_into_a_new_one_is_copied_whole),
        TEST(parts_are_merged_to_the_whole_in_any_order),
        TEST(machines_and_times_are_those_of_all_parts),
        TEST(conversations_that_are_stored_already_are_left_out),
        TEST(a_pair_completes_what_has_no_partner),
        TEST(a_run_is_finished_if_all_of_it_is_stored),
        TEST(shards_finish_a_run_when_the_last_is_merged),
        TEST(sums_of_more_sequences_replace_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
