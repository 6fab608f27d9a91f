#include "tests/results/merge_files.h"

#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/merge/merge.h"
#include "results/query.h"
#include "results/store.h"
#include "tests/experiments/small_experiments.h"
#include "tests/results/sample_facts.h"
#include "tests/support/small_model.h"

// What sample_facts leaves empty. The runs are of two machines, pair by pair.
static const char *const more_rows[] = {
    "DELETE FROM pair WHERE id NOT IN (SELECT pair FROM sequence GROUP BY pair HAVING count(DISTINCT run) > 1)",
    "INSERT INTO environment (run, since, processor, arithmetic, revision, mhz) SELECT run.id, '2026-01-01T00:00:0' || m.value || 'Z',"
    " 'processor ' || m.value, 'avx2, 2 threads', 'r1', 1000.5 * m.value FROM run JOIN json_each('[1, 2]') AS m ORDER BY m.value, run.id",
    "UPDATE run SET machine = 'processor 1, avx2, 2 threads; processor 2, avx2, 2 threads', revision = 'r1'",
    "UPDATE sequence SET environment = (SELECT id FROM environment AS e WHERE e.run = sequence.run AND e.processor = 'processor ' || (1 + pair / 2 % 2))",
    "INSERT INTO draft SELECT sequence, step, step, '[1, ' || step || ']', '[-1, 0]', '[0, 1]', '[5]', NULL, randomblob(50) FROM step WHERE drafted > 0",
    "INSERT OR IGNORE INTO step_rule SELECT sequence, step, '(bound)', 1, 0.5, 0.25 FROM step WHERE drafted > 0",
    "INSERT INTO step_source SELECT sequence, step, 'ngram+eagle3', drafted, accepted FROM step WHERE drafted > 0",
    "INSERT INTO shard SELECT id, 2, 0, 'w', 2, NULL FROM run WHERE id < 4",
    "INSERT INTO bench (id, target, target_hash, model_type, activations, cache, marked_inflated, weight_bytes, device, machine, threads,"
    " revision, started) SELECT value, 't', 'h', 'f32', 'f32', 'f32', 0, 1000, 'cpu', 'm' || value, 2, 'r', '2026-01-01T00:00:00Z'"
    " FROM json_each('[1, 2, 3]')",
    "INSERT INTO bench_peer SELECT id, 1, 'llama' FROM bench",
    "INSERT INTO bench_peak SELECT id, 'f32', 'avx2', id * 1e9 FROM bench",
    "INSERT INTO bench_round (bench, round, counts, placement) SELECT bench.id, value, 1, 'S' FROM bench JOIN json_each('[0, 1]')",
    "INSERT INTO bench_time (bench, round, what, context, n, peer, ns) SELECT bench, round, 'pass', 8, 1 + p.value, p.value, 1000 * bench + round"
    " FROM bench_round JOIN json_each('[0, 1]') AS p",
    "INSERT INTO bench_operation (bench, context, n, operation, ns, calls, bytes, flops) SELECT id, 8, 1, 'gate', 5.5, 2, 0, 9 FROM bench",
    "INSERT INTO cost (bench, placement, form, a, b, s, n0, d, e, hinge_error, hinge_rms, table_error, table_rms)"
    " SELECT id, 'S', 'hinge', id, 2, 3, 4, 5, 6, 7, 8, 9, 10 FROM bench",
    "INSERT INTO exact (id, experiment, cell, settings, target, drafter, rule, lossless, sampling, batch, seed, machine, revision, started,"
    " sequences, tokens, steps, sums) SELECT id, experiment, cell, settings, target, drafter, rule, lossless, sampling, batch, seed, machine, 'r',"
    " started, 10, 100, 50, x'0011' FROM run",
    "INSERT INTO exact_stream SELECT exact.id, value, 5, 0.5, 0 FROM exact JOIN json_each('[\"text\", \"control\"]')",
    "INSERT INTO exact_test SELECT exact, stream, 'KS', 'order', 'all', 5, 0.5, -1.5, -1 FROM exact_stream",
    "INSERT INTO exact_rule (rule, declared_exact, instances, outcomes, distance, formula_error, verdict, revision, started)"
    " VALUES ('rejection', 1, 40, 1000, 1e-17, 1e-16, 'exact', 'r', '2026-01-01T00:00:00Z')",
    "INSERT INTO exact_bits (experiment, cell, settings, target, drafter, rule, sampling, machine, revision, started, compared, different,"
    " largest, ties, argmax_changed, bugs, verdict) VALUES ('e', 'c', '', 't', 'd', 'r', 's', 'm', 'r', '2026-01-01T00:00:00Z', 5, 0, 0, 0, 0, 0, 'same')",
};

struct store *merge_whole(void)
{
    struct sample_facts *m = sample_facts_create(77, MERGE_PAIRS / 2, 2, 2);
    struct store *s = sample_store(m);
    sample_facts_free(m);
    for (size_t i = 0; i < sizeof(more_rows) / sizeof(more_rows[0]); i++)
        perform(s, "%s", more_rows[i]);
    return s;
}

struct store *merge_copy(struct store *s, const char *name, const char *table, const char *where)
{
    char *path = test_path(name);
    remove(path);
    perform(s, "VACUUM INTO '%s'", path);
    free(path);
    struct store *copy = open_store(name);
    perform(copy, "DELETE FROM %s WHERE %s", table, where);
    return copy;
}

void merge_into(struct store *s, const char *name)
{
    struct error err = { "" };
    struct merged m;
    char *path = test_path(name);
    assert_ok(merge_check(path, &err), err);
    assert_ok(merge(s, path, &m, &err), err);
    free(path);
}

// ---- contents as text

// What an id stands for: a row of this table by its values. NULL: not an id.
static const char *meaning(const char *column)
{
    static const char *const of[][2] = {
        { "run", "(SELECT experiment || cell FROM run WHERE id = t.run)" },
        { "pair", "(SELECT uuid FROM pair WHERE id = t.pair)" },
        { "sequence",
          "(SELECT format('%s %s %d %d %d', cell, uuid, prompt, turn, repeat) FROM sequence AS q JOIN run ON run.id = q.run"
          " JOIN pair ON pair.id = q.pair WHERE q.id = t.sequence)" },
        { "environment", "(SELECT processor || mhz FROM environment WHERE id = t.environment)" },
        { "bench", "(SELECT machine FROM bench WHERE id = t.bench)" },
        { "exact", "(SELECT cell || revision FROM exact WHERE id = t.exact)" },
    };
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        if (strcmp(of[i][0], column) == 0)
            return of[i][1];
    return NULL;
}

static char *select_rows(struct store *s, const char *table, bool facts)
{
    struct error err = { "" };
    struct text values = { 0 };
    struct query *q = query_open(
        s, "SELECT name FROM pragma_table_info(?1) WHERE NOT ?2 OR NOT (name = 'id' OR ?1 = 'run' AND name IN"
           " ('started', 'finished', 'machine', 'revision'))");
    query_put_text(q, table);
    query_put_int(q, facts);
    while (query_next(q)) {
        const char *name = query_text(q, 0), *means = facts ? meaning(name) : NULL;
        text_puts(&values, values.n > 0 ? " || ' ' || " : "");
        if (means != NULL)
            text_printf(&values, "quote(%s)", means);
        else
            text_printf(&values, "quote(\"%s\")", name);
    }
    assert_ok(query_close(q, &err), err);
    char *sql = xformat("SELECT %s FROM %s AS t ORDER BY 1", values.s, table);
    free(values.s);
    return sql;
}

static char *contents(struct store *s, bool facts)
{
    struct error err = { "" };
    struct text all = { 0 };
    struct query *tables = query_open(
        s, "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1");
    while (query_next(tables)) {
        char *sql = select_rows(s, query_text(tables, 0), facts);
        struct query *q = query_open(s, sql);
        while (query_next(q))
            text_printf(&all, "%s %s\n", query_text(tables, 0), query_text(q, 0));
        assert_ok(query_close(q, &err), err);
        free(sql);
    }
    assert_ok(query_close(tables, &err), err);
    text_puts(&all, "");
    return all.s;
}

char *merge_dump(struct store *s)
{
    return contents(s, false);
}

char *merge_facts(struct store *s)
{
    return contents(s, true);
}
