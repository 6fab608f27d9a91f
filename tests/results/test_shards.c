// test_shards.c - a run is finished when all parts of one division are, and not before: every order in which shards finish, fail and
// begin again, compared with a count in plain C.
#include "tests/support/tests.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/support/small_model.h"

static int64_t new_run(struct store *s, const char *experiment, const char *cell)
{
    struct error err = { "" };
    struct run_row r = { .experiment = experiment,
                         .cell = cell,
                         .peers = "p",
                         .settings = "{}",
                         .target = "t",
                         .drafter = "none",
                         .rule = "r",
                         .sampling = "s",
                         .drafter_kind = "none",
                         .device = "cpu",
                         .machine = "m",
                         .revision = "r",
                         .target_hash = "h",
                         .prompts = "p",
                         .model_type = "f32",
                         .activations = "f32",
                         .cache = "f32",
                         .batch = 1 };
    int64_t id = 0;
    assert_ok(store_run(s, &r, &id, &err), err);
    return id;
}

static bool is_finished(struct store *s, int64_t run)
{
    char *sql = xformat("SELECT finished IS NOT NULL FROM run WHERE id = %lld", (long long)run);
    const bool finished = query_first_int(s, sql) == 1;
    free(sql);
    return finished;
}

static bool shard_is_finished(struct store *s, int64_t run, const struct shard_row *r)
{
    char *sql = xformat("SELECT finished IS NOT NULL FROM shard WHERE (run, shards, shard) = (%lld, %d, %d)",
                        (long long)run, r->shards, r->shard);
    const bool finished = query_first_int(s, sql) == 1;
    free(sql);
    return finished;
}

enum { MAX_SHARDS = 5, WORKS = 2 };
static const char *const works[WORKS] = { "12 prompts", "80 prompts" };

struct model {                            // of one run: what each shard of each division has done
    int work[MAX_SHARDS + 1][MAX_SHARDS]; // -1: no row
    bool done[MAX_SHARDS + 1][MAX_SHARDS];
};

static int parts_of(int shards, int work)
{
    return work == 0 && shards == MAX_SHARDS ? 3 : shards;
}

static bool any_division_is_done(const struct model *m)
{
    for (int n = 2; n <= MAX_SHARDS; n++)
        for (int work = 0; work < WORKS; work++) {
            int done = 0;
            for (int i = 0; i < n; i++)
                done += m->done[n][i] && m->work[n][i] == work;
            if (done == parts_of(n, work))
                return true;
        }
    return false;
}

TEST(a_run_is_finished_when_all_parts_of_a_division_are)
{
    struct error err = { "" };
    struct store *s = open_store("shards.db");
    uint64_t random_state = 7;
    int finished = 0;
    perform(s, "PRAGMA synchronous = OFF");
    for (int round = 0; round < 200; round++) {
        char *cell = xformat("%d", round);
        const int64_t run = new_run(s, "x", cell);
        struct model m;
        memset(&m, 0, sizeof(m));
        memset(m.work, -1, sizeof(m.work));
        bool expected = false;
        for (int k = 0; k < 40; k++) {
            const int n = 2 + (int)(splitmix(&random_state) % (MAX_SHARDS - 1)),
                      work = splitmix(&random_state) % 8 == 0,
                      i = (int)(splitmix(&random_state) % (uint64_t)parts_of(n, work));
            const struct shard_row r = { i, n, works[work], parts_of(n, work) };
            assert_ok(store_shard(s, run, &r, &err), err);
            m.done[n][i] = m.done[n][i] && m.work[n][i] == work;
            m.work[n][i] = work;
            assert_int_equal(shard_is_finished(s, run, &r), m.done[n][i]);
            if (splitmix(&random_state) % 10 == 0) {
                assert_ok(store_shard_unfinished(s, run, &r, &err), err);
                m.done[n][i] = expected = false;
            } else {
                assert_ok(store_shard_finished(s, run, &r, true, &err), err);
                m.done[n][i] = true;
                expected = expected || any_division_is_done(&m);
            }
            assert_int_equal(is_finished(s, run), expected);
        }
        finished += expected;
        free(cell);
    }
    assert_in_range(finished, 20, 180); // the walk ends in both states
    expect_none(s, "finished shards without a time", "SELECT count(*) FROM shard WHERE length(finished) <> 20");
    store_close(s);
}

TEST(completing_a_run_takes_the_time_of_its_last_part)
{
    struct error err = { "" };
    struct store *s = open_store("times.db");
    const int64_t run = new_run(s, "x", "a");
    perform(
        s,
        "INSERT INTO shard VALUES (%d, 2, 0, 'w', 2, '2025-01-01T00:00:00Z'), (%d, 2, 1, 'w', 2, '2025-01-03T00:00:00Z'),"
        " (%d, 3, 0, 'w', 3, '2025-01-09T00:00:00Z')",
        (int)run, (int)run, (int)run);
    for (int again = 0; again < 2; again++) {
        assert_ok(store_shard_finished(s, run, &(struct shard_row){ 1, 2, "w", 2 }, false, &err), err);
        assert_int_equal(query_first_int(s, "SELECT finished = '2025-01-03T00:00:00Z' FROM run"), 1);
    }
    store_close(s);
}

TEST(another_division_in_the_database_is_found)
{
    struct error err = { "" };
    struct store *s = open_store("other.db");
    const int64_t run = new_run(s, "x", "a"), elsewhere = new_run(s, "y", "a");
    const struct shard_row own = { 2, 4, "w", 4 }, all = { 0, 2, "w", 2 };
    struct shard_row other;
    assert_ok(store_other_shard(s, "x", 2, 4, &other, &err), err);
    assert_int_equal(other.shards, 0);
    assert_ok(store_shard(s, elsewhere, &all, &err), err);
    assert_ok(store_other_shard(s, "x", 2, 4, &other, &err), err);
    assert_int_equal(other.shards, 0); // of another experiment
    assert_ok(store_shard(s, run, &own, &err), err);
    assert_ok(store_other_shard(s, "x", 2, 4, &other, &err), err);
    assert_int_equal(other.shards, 0);
    assert_ok(store_other_shard(s, "x", 0, 4, &other, &err), err);
    assert_int_equal(other.shard, 2);
    assert_int_equal(other.shards, 4);
    assert_ok(store_other_shard(s, "x", 0, 1, &other, &err), err);
    assert_int_equal(other.shards, 4);
    assert_ok(store_shard(s, run, &all, &err), err);
    assert_ok(store_other_shard(s, "x", 2, 4, &other, &err), err);
    assert_int_equal(other.shards, 0); // it has this one, too
    store_close(s);
}

RUN_TESTS(NULL, test_directory_tear_down)
