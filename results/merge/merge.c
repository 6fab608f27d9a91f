// merge.c - merges by ATTACH and INSERT .. SELECT. Ids differ between files: temp.map_TABLE has the id of each row of the other database and
// its id here, and a column that has the name of a table refers to that table's ids.
//
// A text that this database has already is not taken a second time from another pair (see `needed` below): `repeat` is how an experiment
// asks for repeats, and two texts of one would weigh their prompt twice.
#include "results/merge/merge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/environment.h"
#include "results/query.h"
#include "results/merge/shards.h"
#include "results/store.h"

// Tables with an id, each behind those that it refers to. key: equal in equal rows; NULL: every column but the id.
static const struct {
    const char *name, *key;
} identified[] = { { "run", "experiment, cell" },
                   { "environment", NULL },
                   { "pair", "uuid" },
                   { "sequence", "run, prompt, turn, repeat, pair" },
                   { "bench", NULL },
                   { "exact", "experiment, cell, revision" },
                   { "exact_rule", NULL },
                   { "exact_bits", NULL } };
enum { IDENTIFIED = sizeof(identified) / sizeof(identified[0]) };

// Tables whose first column says which row of an identified table they are a part of.
static const char *const parts[] = { "step",       "step_rule",    "step_source", "draft",      "trial",
                                     "bench_peer", "bench_peak",   "bench_round", "bench_time", "bench_operation",
                                     "cost",       "exact_stream", "exact_test" };
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

// Runs that exclude each other: the same cell by name, or by settings, with other inputs.
static const char conflict_sql[] =
    "SELECT t.id, t.experiment, t.drafter, t.rule, i.value ->> 0, i.value ->> 1, i.value ->> 2 FROM other.run AS t JOIN main.run AS r"
    " ON r.experiment = t.experiment AND (r.cell = t.cell OR (r.settings = t.settings AND NOT EXISTS ("
    "  SELECT 1 FROM main.run AS e WHERE (e.experiment, e.cell) = (t.experiment, t.cell))))"
    " JOIN json_each(json_array(json_array('settings', r.settings, t.settings), json_array('prompts', r.prompts, t.prompts),"
    "  json_array('weights of the target', r.target_hash, t.target_hash),"
    "  json_array('weights or configuration of the drafter', coalesce(r.drafter_hash, 'none'), coalesce(t.drafter_hash, 'none')),"
    "  json_array('tokenizer of the target', coalesce(r.tokenizer_hash, 'none'), coalesce(t.tokenizer_hash, 'none')),"
    "  json_array('configuration of the target', coalesce(r.config_hash, 'none'), coalesce(t.config_hash, 'none')),"
    "  json_array('cell (inputs as the chat template)', r.cell, t.cell))) AS i WHERE i.value ->> 1 <> i.value ->> 2"
    " ORDER BY t.id, i.key LIMIT 1";

// Texts that are the same by their key, and nevertheless differ.
static const char changed_sql[] =
    "SELECT t.id, q.id FROM temp.map_sequence AS m JOIN other.sequence AS t ON t.id = m.old JOIN main.sequence AS q ON q.id = m.new"
    " WHERE NOT m.added AND (t.tokens, t.decode_ns, t.wall_ns, t.steps) <> (q.tokens, q.decode_ns, q.wall_ns, q.steps) LIMIT 1";

// Conversations of each run, here and there, before texts are added: is what they are together that of a finished run?
static const char extent_sql[] =
    "CREATE TEMP TABLE extent AS SELECT m.new AS run, t.started, t.finished,"
    " (SELECT count(*) FROM (SELECT DISTINCT prompt, repeat FROM main.sequence WHERE run = m.new)) AS ours,"
    " (SELECT count(*) FROM (SELECT DISTINCT prompt, repeat FROM other.sequence WHERE run = m.old)) AS theirs"
    " FROM temp.map_run AS m JOIN other.run AS t ON t.id = m.old";
static const char finish_sql[] =
    "UPDATE main.run SET started = min(run.started, e.started), finished = CASE"
    " WHEN run.finished IS NOT NULL AND (e.finished IS NOT NULL OR e.ours = e.all_of_it) THEN max(run.finished, coalesce(e.finished, ''))"
    " WHEN e.finished IS NOT NULL AND e.theirs = e.all_of_it THEN e.finished END"
    " FROM (SELECT *, (SELECT count(*) FROM (SELECT DISTINCT prompt, repeat FROM main.sequence AS q WHERE q.run = extent.run)) AS all_of_it"
    " FROM extent) AS e WHERE e.run = run.id";

// Conversations of pairs with a text that is not here yet, or here without a partner of none under its rule: by plan.h, such a text is
// missing. Others would only repeat what is here.
static const char partner_sql[] =
    "CREATE TEMP VIEW partner AS SELECT p.sequence FROM main.paired AS p JOIN main.sequence AS q ON q.id = p.none"
    " JOIN main.run AS n ON n.id = q.run JOIN main.run AS r ON r.id = p.run WHERE n.rule = r.rule";
static const char needed_sql[] =
    "CREATE TEMP TABLE needed AS SELECT DISTINCT q.pair, q.prompt, q.repeat FROM temp.map_sequence AS m JOIN main.sequence AS q ON q.id = m.new"
    " WHERE m.added AND NOT EXISTS (SELECT 1 FROM main.sequence AS o WHERE (o.run, o.prompt, o.turn, o.repeat) = (q.run, q.prompt, q.turn,"
    " q.repeat) AND o.id NOT IN (SELECT new FROM temp.map_sequence WHERE added) AND ("
    " NOT EXISTS (SELECT 1 FROM temp.partner WHERE sequence = q.id) OR EXISTS (SELECT 1 FROM temp.partner WHERE sequence = o.id)))";
static const char *const leave_out_sql[] = {
    "DELETE FROM main.sequence WHERE id IN (SELECT new FROM temp.map_sequence WHERE added)"
    " AND (pair, prompt, repeat) NOT IN (SELECT * FROM temp.needed)",
    "DELETE FROM main.pair WHERE id IN (SELECT new FROM temp.map_pair WHERE added) AND id NOT IN (SELECT pair FROM temp.needed)",
    "DELETE FROM main.environment WHERE id IN (SELECT new FROM temp.map_environment WHERE added)"
    " AND id NOT IN (SELECT environment FROM main.sequence WHERE environment IS NOT NULL)",
    "UPDATE temp.map_sequence SET added = 0 WHERE added AND new NOT IN (SELECT id FROM main.sequence)",
};

// An unfinished row is an earlier state of a finished one.
static const char shards_sql[] =
    "INSERT INTO main.shard (run, shards, shard, work, parts, finished) SELECT m.new, t.shards, t.shard, t.work, t.parts, t.finished"
    " FROM other.shard AS t JOIN temp.map_run AS m ON m.old = t.run WHERE true ON CONFLICT DO UPDATE SET work = excluded.work,"
    " parts = excluded.parts, finished = excluded.finished WHERE coalesce(excluded.finished, '') > coalesce(shard.finished, '')";

// Sums of the same sequences cannot be added: the row of more sequences replaces the other.
static const char replace_exact_sql[] =
    "DELETE FROM main.exact WHERE EXISTS (SELECT 1 FROM other.exact AS t WHERE (t.experiment, t.cell, t.revision) ="
    " (exact.experiment, exact.cell, exact.revision) AND (t.sequences > exact.sequences OR (t.sequences = exact.sequences"
    " AND t.finished IS NOT NULL AND exact.finished IS NULL)))";

__attribute__((format(printf, 3, 4))) static bool execute(struct store *s, struct error *err, const char *format, ...)
{
    va_list args;
    char *sql = NULL;
    va_start(args, format);
    const int n = vasprintf(&sql, format, args);
    va_end(args);
    if (n < 0)
        return fail(err, "out of memory");
    const bool ok = query_perform(query_open(s, sql), err);
    free(sql);
    return ok;
}

static bool read_int(struct store *s, const char *sql, int64_t *to, struct error *err)
{
    struct query *q = query_open(s, sql);
    *to = query_next(q) ? query_int(q, 0) : 0;
    return query_close(q, err);
}

// ---- rows ----

static bool is_identified(const char *name)
{
    for (int i = 0; i < IDENTIFIED; i++)
        if (strcmp(identified[i].name, name) == 0)
            return true;
    return false;
}

// The columns of a table, and the values that a row t of the other database has in them here. key: only columns that it names; NULL: all
// but the id.
struct columns {
    struct text names, values, equal; // equal: "h.a IS value AND .."
};

static bool read_columns(struct store *s, const char *table, const char *key, struct columns *c, struct error *err)
{
    *c = (struct columns){ 0 };
    struct query *q = query_open(s, "SELECT name FROM pragma_table_info(?1) WHERE name <> 'id' AND"
                                    " (?2 IS NULL OR instr(', ' || ?2 || ',', ', ' || name || ',')) ORDER BY cid");
    query_put_text(q, table);
    query_put_text(q, key);
    while (query_next(q)) {
        const char *name = query_text(q, 0);
        const bool refers = is_identified(name);
        char *value =
            refers ? xformat("(SELECT new FROM temp.map_%s WHERE old = t.%s)", name, name) : xformat("t.\"%s\"", name);
        text_printf(&c->names, ", \"%s\"", name);
        text_printf(&c->values, ", %s", value);
        text_printf(&c->equal, "%sh.\"%s\" IS %s", c->equal.n > 0 ? " AND " : "", name, value);
        free(value);
    }
    return query_close(q, err);
}

static void columns_free(struct columns *c)
{
    free(c->names.s);
    free(c->values.s);
    free(c->equal.s);
}

// Adds the rows that are not here, in their order, and fills temp.map_TABLE.
static bool merge_identified(struct store *s, const char *table, const char *key, struct error *err)
{
    struct columns same, all;
    bool ok = read_columns(s, table, key, &same, err);
    ok = read_columns(s, table, NULL, &all, err) && ok;
    ok =
        ok &&
        execute(s, err, "CREATE TEMP TABLE map_%s (old INTEGER PRIMARY KEY, new INTEGER, added INTEGER)", table) &&
        execute(
            s, err,
            "INSERT INTO temp.map_%s SELECT old, coalesce(new, top + sum(new IS NULL) OVER (ORDER BY old)), new IS NULL FROM ("
            "SELECT t.id AS old, (SELECT min(h.id) FROM main.%s AS h WHERE %s) AS new,"
            " (SELECT coalesce(max(id), 0) FROM main.%s) AS top FROM other.%s AS t)",
            table, table, same.equal.s, table, table) &&
        execute(
            s, err,
            "INSERT INTO main.%s (id%s) SELECT m.new%s FROM temp.map_%s AS m CROSS JOIN other.%s AS t ON t.id = m.old WHERE m.added",
            table, all.names.s, all.values.s, table, table);
    columns_free(&same);
    columns_free(&all);
    return ok;
}

static bool merge_part(struct store *s, const char *table, struct error *err)
{
    struct columns all;
    bool ok = read_columns(s, table, NULL, &all, err);
    char *whole = xstrndup(all.names.s + 3, strcspn(all.names.s + 3, "\""));
    ok =
        ok &&
        execute(
            s, err,
            "INSERT INTO main.%s (%s) SELECT %s FROM temp.map_%s AS m CROSS JOIN other.%s AS t ON t.%s = m.old WHERE m.added",
            table, all.names.s + 2, all.values.s + 2, whole, table, whole);
    free(whole);
    columns_free(&all);
    return ok;
}

// ---- a database ----

static bool check_runs(struct store *s, const char *from, struct error *err)
{
    struct query *q = query_open(s, conflict_sql);
    bool ok = true;
    if (query_next(q))
        ok = fail(err, "%s: run %lld (%s, drafter %s, %s): expected %s %s, as in %s, found %s", from,
                  (long long)query_int(q, 0), query_text(q, 1), query_text(q, 2), query_text(q, 3), query_text(q, 4),
                  query_text(q, 5), store_path(s), query_text(q, 6));
    return query_close(q, err) && ok;
}

static bool check_texts(struct store *s, const char *from, struct error *err)
{
    struct query *q = query_open(s, changed_sql);
    bool ok = true;
    if (query_next(q))
        ok = fail(
            err,
            "%s: sequence %lld: expected the text and times of sequence %lld of %s, which has its pair, found others",
            from, (long long)query_int(q, 0), (long long)query_int(q, 1), store_path(s));
    return query_close(q, err) && ok;
}

static bool leave_out(struct store *s, struct merged *m, struct error *err)
{
    int64_t all;
    bool ok = read_int(s, "SELECT count(*) FROM temp.map_sequence WHERE added", &all, err) &&
              execute(s, err, "%s", partner_sql) && execute(s, err, "%s", needed_sql);
    for (size_t i = 0; i < sizeof(leave_out_sql) / sizeof(leave_out_sql[0]) && ok; i++)
        ok = execute(s, err, "%s", leave_out_sql[i]);
    ok = ok && read_int(s, "SELECT count(*) FROM temp.map_sequence WHERE added", &m->texts, err);
    m->left_out = ok ? all - m->texts : 0;
    return ok;
}

// What a run's row says about its texts.
static bool update_runs(struct store *s, struct error *err)
{
    bool ok = execute(s, err, "%s", finish_sql) && execute(s, err, "%s", shards_sql);
    struct query *q = query_open(s, "SELECT new FROM temp.map_run ORDER BY new");
    while (ok && query_next(q))
        ok = store_update_machine(s, query_int(q, 0), err) && store_shards_complete(s, query_int(q, 0), err);
    struct error of_query;
    if (!query_close(q, ok ? err : &of_query))
        ok = false;
    return ok;
}

static bool merge_rows(struct store *s, const char *from, struct merged *m, struct error *err)
{
    bool ok = check_runs(s, from, err) && execute(s, err, "%s", replace_exact_sql);
    for (int i = 0; i < IDENTIFIED && ok; i++) {
        if (strcmp(identified[i].name, "sequence") == 0)
            ok = execute(s, err, "%s", extent_sql);
        ok = ok && merge_identified(s, identified[i].name, identified[i].key, err);
    }
    ok = ok && check_texts(s, from, err) && leave_out(s, m, err);
    for (int i = 0; i < PARTS && ok; i++)
        ok = merge_part(s, parts[i], err);
    return ok && update_runs(s, err) && read_int(s, "SELECT count(*) FROM temp.map_run WHERE added", &m->runs, err) &&
           read_int(s, "SELECT count(*) FROM temp.map_pair WHERE added AND new IN (SELECT id FROM main.pair)",
                    &m->pairs, err);
}

static bool drop_maps(struct store *s, struct error *err)
{
    bool ok = execute(s, err, "DROP VIEW temp.partner") && execute(s, err, "DROP TABLE temp.extent") &&
              execute(s, err, "DROP TABLE temp.needed");
    for (int i = 0; i < IDENTIFIED && ok; i++)
        ok = execute(s, err, "DROP TABLE temp.map_%s", identified[i].name);
    return ok;
}

// A run and a merge of one experiment exclude each other: the run would decode what the merge brings.
static bool lock_experiments(struct store *s, struct error *err)
{
    bool ok = true;
    struct query *q = query_open(s, "SELECT DISTINCT experiment FROM other.run");
    while (ok && query_next(q))
        ok = store_lock(s, query_text(q, 0), err);
    struct error of_query;
    if (!query_close(q, ok ? err : &of_query))
        ok = false;
    return ok;
}

static bool attach(struct store *s, const char *from, struct error *err)
{
    struct store *other = store_open_input(from, err);
    if (other == NULL)
        return false;
    struct query *q = query_open(s, "ATTACH ?1 AS other");
    query_put_text(q, store_uri(other));
    const bool ok = query_perform(q, err);
    store_close(other);
    return ok;
}

bool merge(struct store *s, const char *from, struct merged *m, struct error *err)
{
    struct error why, ignored;
    *m = (struct merged){ 0 };
    if (store_read_only(s))
        return fail(err, "%s: the database is read-only, nothing can be merged into it", store_path(s));
    if (!attach(s, from, err))
        return false;
    bool ok = lock_experiments(s, &why) && execute(s, &why, "BEGIN IMMEDIATE");
    if (ok) {
        ok = merge_rows(s, from, m, &why) && drop_maps(s, &why) && execute(s, &why, "COMMIT");
        if (!ok)
            execute(s, &ignored, "ROLLBACK"); // it may have rolled back by itself
    }
    execute(s, &ignored, "DETACH other");
    if (!ok && strncmp(why.text, from, strlen(from)) == 0)
        *err = why;
    else if (!ok) {
        const char *out = store_path(s), *text = why.text;
        const size_t n = strlen(out);
        text += strncmp(text, out, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? n + 2 : 0;
        fail(err, "%s: could not be merged into %s: %s", from, out, text);
    }
    return ok;
}

// SQLite 3.40 finds NULLs where there are none, in tables without rowid whose key is not their first columns. A real one is refused here.
static const char damage_sql[] = "SELECT quick_check FROM pragma_quick_check(1000000000) WHERE quick_check <> 'ok' AND"
                                 " quick_check NOT LIKE 'NULL value in %' LIMIT 1";

bool merge_check(const char *from, struct error *err)
{
    struct store *s = store_open_input(from, err);
    if (s == NULL)
        return false;
    struct query *q = query_open(s, damage_sql);
    struct error damage;
    bool ok = true;
    if (query_next(q)) {
        const char *line = strrchr(query_text(q, 0), '\n'); // the others say where SQLite has looked
        ok = fail(&damage, "%s: the database is damaged: %s", from, line != NULL ? line + 1 : query_text(q, 0));
    }
    if (!query_close(q, err))
        ok = false;
    else if (!ok)
        *err = damage;
    store_close(s);
    return ok;
}
