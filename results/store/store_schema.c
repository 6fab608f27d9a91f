#include "results/store/store_schema.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"

extern const char schema_sql[], schema_shards_sql[], schema_bench_sql[], schema_exact_sql[], views_sql[],
    views_prediction_sql[], views_exports_sql[];

const char *const schema_tables[SCHEMA_TABLES] = { schema_sql, schema_shards_sql, schema_bench_sql, schema_exact_sql };
const char *const schema_views[SCHEMA_VIEWS] = { views_sql, views_prediction_sql, views_exports_sql };

bool schema_fits(const struct shown_settings *s, struct error *err)
{
    const struct {
        const char *name, *value;
        size_t most;
    } column[] = { { "the experiment's name", s->experiment, SCHEMA_NAME_BYTES },
                   { "the settings of a cell", s->settings, SCHEMA_SETTINGS_BYTES },
                   { "the experiment's file, with what its anchors stand for,", s->file, SCHEMA_SETTINGS_BYTES },
                   { "sampling", s->sampling, SCHEMA_SETTINGS_BYTES },
                   { "drafter", s->drafter, SCHEMA_SETTINGS_BYTES },
                   { "rule", s->rule, SCHEMA_SETTINGS_BYTES } };
    for (size_t i = 0; i < sizeof(column) / sizeof(*column); i++)
        if (column[i].value != NULL && strlen(column[i].value) > column[i].most)
            return fail(err, "%s: expected at most %zu bytes, found %zu", column[i].name, column[i].most,
                        strlen(column[i].value));
    return true;
}

// Appends " run environment pair .. ".
static void put_table_names(struct text *to)
{
    static const char create[] = "\nCREATE TABLE ";
    text_puts(to, " ");
    for (int i = 0; i < SCHEMA_TABLES; i++)
        for (const char *at = schema_tables[i]; (at = strstr(at, create)) != NULL;) {
            at += sizeof(create) - 1;
            text_add(to, at, strcspn(at, " ") + 1);
        }
}

// Refuses objects with which a stranger's file may replace a table, so that queries run for ever: a view, a virtual
// table, a computed column, or an object under the name of one of SQLite's tables. In a STRICT table a column of
// numbers has no text. A query fails if the columns of `schema_tables` are missing. Other names must be plain as well,
// since queries are made with them.
static bool check_kinds(struct store *s, const char *names, const char *path, struct error *err)
{
    // STRICT is recognized by the end of the table's text. pragma_table_list would parse every view, for half a second.
    static const char odd[] =
        "SELECT type, name FROM sqlite_schema WHERE instr(?1, ' ' || lower(name) || ' ') AND (type <> 'table' OR sql NOT LIKE"
        " 'CREATE TABLE %' OR (sql NOT LIKE '%) STRICT' AND sql NOT LIKE '%) STRICT, WITHOUT ROWID') OR instr(sql, '/*') OR"
        " instr(substr(sql, 1 + length(rtrim(sql, replace(sql, char(10), '')))), '--'))"
        " OR lower(name) IN ('json_each', 'json_tree') OR lower(name) LIKE 'pragma\\_%' ESCAPE '\\' LIMIT 1";
    static const char strange[] =
        "SELECT t.name, iif(c.hidden <> 0, 'the computed ', '') || '\"' || c.name || '\"' FROM sqlite_schema AS t JOIN pragma_table_xinfo(t.name) AS c"
        " WHERE t.type = 'table' AND instr(?1, ' ' || lower(t.name) || ' ') AND (c.hidden <> 0 OR c.name GLOB '*[^a-z_0-9]*')"
        " LIMIT 1";
    struct error ignored;
    bool ok = true;
    for (int i = 0; i < 2 && ok; i++) {
        struct query *q = query_open(s, i == 0 ? odd : strange);
        query_put(q, SQL(names));
        if (query_next(q))
            ok = i == 0 ? fail(err, "%s: expected tables as speclab makes them, found the %s \"%s\"", path,
                               query_text(q, 0), query_text(q, 1))
                        : fail(err, "%s: table %s: expected columns as speclab makes them, found %s", path,
                               query_text(q, 0), query_text(q, 1));
        if (!query_close(q, ok ? err : &ignored))
            ok = false;
    }
    return ok;
}

// Names are sorted, compared and laid out, so a long one keeps a report busy. Values that are not names may have the
// size of their file, or of a text.
static bool check_lengths(struct store *s, const char *table, const char *path, struct error *err)
{
    struct text cases = { 0 }, any = { 0 };
    struct error ignored;
    char *first = NULL;
    struct query *q = query_open(
        s,
        "SELECT name, type NOT IN ('INTEGER', 'INT', 'REAL')"
        " AND name NOT IN ('tokens', 'text', 'parents', 'proposals', 'out', 'rows', 'sums'),"
        " name IN ('settings', 'file', 'sampling', 'drafter', 'drafter_options', 'rule') FROM pragma_table_info(?1) ORDER BY cid");
    query_put(q, SQL(table));
    while (query_next(q)) {
        const char *name = query_text(q, 0);
        first = first != NULL ? first : xstrdup(name);
        if (query_int(q, 1) == 0)
            continue;
        char *length = xformat("length(CAST(\"%s\" AS BLOB))", name);
        const int most = query_int(q, 2) ? SCHEMA_SETTINGS_BYTES : SCHEMA_NAME_BYTES;
        text_printf(&any, "%s %s > %d", any.n > 0 ? " OR" : " WHERE", length, most);
        text_printf(&cases, " WHEN %s > %d THEN json_array('%s', %d, %s)", length, most, name, most, length);
        free(length);
    }
    bool ok = query_close(q, err);
    if (ok && any.n > 0) {
        char *sql =
            xformat("SELECT \"%s\", c ->> 0, c ->> 1, c ->> 2 FROM (SELECT \"%s\", CASE%s END AS c FROM %s%s LIMIT 1)",
                    first, first, cases.s, table, any.s);
        q = query_open(s, sql);
        if (query_next(q))
            ok = fail(err, "%s: table %s, row %s %lld, column %s: expected at most %lld bytes, found %lld", path, table,
                      first, (long long)query_int(q, 0), query_text(q, 1), (long long)query_int(q, 2),
                      (long long)query_int(q, 3));
        if (!query_close(q, ok ? err : &ignored))
            ok = false;
        free(sql);
    }
    free(first);
    free(cases.s);
    free(any.s);
    return ok;
}

int schema_version(void)
{
    static const char key[] = "PRAGMA user_version = ";
    return (int)strtol(strstr(schema_sql, key) + sizeof(key) - 1, NULL, 10);
}

bool schema_check(struct store *s, const char *path, struct error *err)
{
    struct text names = { 0 };
    put_table_names(&names);
    bool ok = check_kinds(s, names.s, path, err);
    for (char *at = names.s + 1; ok && *at != '\0'; at += strlen(at) + 1) {
        at[strcspn(at, " ")] = '\0';
        ok = check_lengths(s, at, path, err);
    }
    free(names.s);
    return ok;
}

// Returns whether the database has every view of views*.sql, with exactly this text.
bool schema_has_views(struct store *s)
{
    bool current = true;
    for (int i = 0; i < SCHEMA_VIEWS && current; i++) {
        int64_t expected = 0, found = 0;
        struct error ignored;
        for (const char *at = schema_views[i]; (at = strstr(at, "\nCREATE VIEW ")) != NULL; at++)
            expected++;
        struct query *q = query_open(
            s, "SELECT count(*) FROM sqlite_schema WHERE type = 'view' AND sql LIKE 'CREATE VIEW ' || name || ' AS%'"
               " AND instr(?1, char(10) || sql || ';' || char(10)) > 0");
        query_put(q, SQL(schema_views[i]));
        if (query_next(q))
            found = query_int(q, 0);
        current = query_close(q, &ignored) && found == expected;
    }
    return current;
}
