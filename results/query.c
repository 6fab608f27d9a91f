// query.c - queries: values, statements, transactions, and views as tables.
#include "results/query.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/store/connection.h"

struct sql_value sql_int(int64_t x)
{
    return (struct sql_value){ .kind = SQL_INT, .number = x };
}

struct sql_value sql_real(double x)
{
    return (struct sql_value){ .kind = SQL_REAL, .real = x };
}

struct sql_value sql_text(const char *x)
{
    return (struct sql_value){ .kind = SQL_TEXT, .data = x };
}

// ---- statements

struct query *query_open(struct store *s, const char *sql)
{
    struct query *q = xcalloc(1, sizeof(*q));
    q->s = s;
    q->failed = sqlite3_prepare_v2(s->db, sql, -1, &q->statement, NULL) != SQLITE_OK && !store_fail(s, &q->err);
    return q;
}

static struct query *cached_query(const struct store *s, const char *key)
{
    for (int i = 0; i < s->n_cached; i++)
        if (s->sql[i] == key) {
            assert(!sqlite3_stmt_busy(s->cached[i]->statement));
            return s->cached[i];
        }
    return NULL;
}

static struct query *cache_query(struct store *s, const char *key, struct query *q)
{
    if (q->failed)
        return q;
    assert(s->n_cached < MAX_CACHED);
    q->cached = true;
    s->sql[s->n_cached] = key;
    s->cached[s->n_cached++] = q;
    return q;
}

struct query *query_again(struct store *s, const char *sql)
{
    struct query *q = cached_query(s, sql);
    return q != NULL ? q : cache_query(s, sql, query_open(s, sql));
}

static void bind(struct query *q, const struct sql_value *v)
{
    if (v->kind == SQL_INT)
        sqlite3_bind_int64(q->statement, ++q->n, v->number);
    else if (v->kind == SQL_REAL)
        sqlite3_bind_double(q->statement, ++q->n, v->real); // SQLite stores NAN as NULL
    else if (v->kind == SQL_TEXT)
        sqlite3_bind_text(q->statement, ++q->n, v->data, -1, SQLITE_TRANSIENT);
    else if (v->kind == SQL_BLOB)
        sqlite3_bind_blob64(q->statement, ++q->n, v->data, (sqlite3_uint64)v->number, SQLITE_TRANSIENT);
}

void query_bind(struct query *q, const struct sql_value *value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bind(q, &value[i]);
}

struct query *query_again_with(struct store *s, const char *sql, const struct sql_value *value, size_t n)
{
    struct query *q = query_again(s, sql);
    query_bind(q, value, n);
    return q;
}

// Opens a statement such as "INSERT INTO slice ("pair", "run") VALUES (?, ?)".
static struct query *open_insert(struct store *s, const char *table, const struct sql_column *column, size_t n)
{
    struct text sql = { 0 };
    text_printf(&sql, "INSERT INTO %s", table);
    for (size_t i = 0; i < n; i++)
        text_printf(&sql, "%s\"%s\"", i == 0 ? " (" : ", ", column[i].name);
    for (size_t i = 0; i < n; i++)
        text_printf(&sql, "%s%s", i == 0 ? ") VALUES (" : ", ",
                    column[i].value.kind == SQL_EXPRESSION ? (const char *)column[i].value.data : "?");
    text_puts(&sql, ")");
    struct query *q = query_open(s, sql.s);
    free(sql.s);
    return q;
}

bool row_insert_columns(struct store *s, const char *table, const struct sql_column *column, size_t n, int64_t *id,
                        struct error *err)
{
    struct query *q = cached_query(s, table);
    q = q != NULL ? q : cache_query(s, table, open_insert(s, table, column, n));
    for (size_t i = 0; i < n; i++)
        bind(q, &column[i].value);
    const bool ok = query_perform(q, err);
    if (id != NULL)
        *id = ok ? sqlite3_last_insert_rowid(s->db) : 0;
    return ok;
}

bool query_next(struct query *q)
{
    if (q->failed || q->ended) // sqlite3_step would start again
        return false;
    q->s->running = q;
    int code = sqlite3_step(q->statement);
    q->s->running = NULL;
    q->ended = code != SQLITE_ROW;
    q->failed = code != SQLITE_ROW && code != SQLITE_DONE &&
                !(q->interrupted ? fail(&q->err, "interrupted") : store_fail(q->s, &q->err));
    if (code == SQLITE_DONE && q->s->written) {
        q->s->written = false;
        q->failed = !store_check_place(q->s, &q->err);
    }
    return code == SQLITE_ROW;
}

bool query_close(struct query *q, struct error *err)
{
    bool ok = !q->failed;
    if (!ok)
        *err = q->err;
    if (q->cached) {
        sqlite3_reset(q->statement);
        q->ended = q->failed = q->interrupted = false;
        q->n = q->checks = 0;
        return ok;
    }
    sqlite3_finalize(q->statement);
    free(q);
    return ok;
}

bool query_perform(struct query *q, struct error *err)
{
    while (query_next(q))
        ;
    return query_close(q, err);
}

int query_columns(const struct query *q)
{
    return sqlite3_column_count(q->statement);
}

const char *query_column(const struct query *q, int at)
{
    const char *name = sqlite3_column_name(q->statement, at);
    if (name == NULL)
        memory_out(0);
    return name;
}

bool query_is_null(const struct query *q, int at)
{
    return sqlite3_column_type(q->statement, at) == SQLITE_NULL;
}

bool query_is_text(const struct query *q, int at)
{
    return sqlite3_column_type(q->statement, at) == SQLITE_TEXT;
}

bool query_is_int(const struct query *q, int at)
{
    return sqlite3_column_type(q->statement, at) == SQLITE_INTEGER;
}

int64_t query_int(const struct query *q, int at)
{
    return sqlite3_column_int64(q->statement, at);
}

double query_real(const struct query *q, int at)
{
    return query_is_null(q, at) ? NAN : sqlite3_column_double(q->statement, at);
}

// A pointer to a value is NULL for NULL, and if the memory does not suffice for the value.
static const void *kept(const struct query *q, const void *value)
{
    if (value == NULL && sqlite3_errcode(sqlite3_db_handle(q->statement)) == SQLITE_NOMEM)
        memory_out(0);
    return value;
}

const void *query_blob(const struct query *q, int at, size_t *bytes)
{
    const void *data = kept(q, sqlite3_column_blob(q->statement, at));
    *bytes = (size_t)sqlite3_column_bytes(q->statement, at);
    return data;
}

const char *query_text(const struct query *q, int at)
{
    const char *s = kept(q, sqlite3_column_text(q->statement, at));
    return s != NULL ? s : "";
}

// ---- transactions

bool transaction_begin(struct store *s, struct error *err)
{
    return query_perform(query_again(s, "BEGIN IMMEDIATE"), err);
}

// The ROLLBACK may fail, because SQLite may have rolled back by itself.
bool transaction_end(struct store *s, bool ok, struct error *err)
{
    struct error ignored;
    if (ok && query_perform(query_again(s, "COMMIT"), err))
        return true;
    query_perform(query_again(s, "ROLLBACK"), &ignored);
    return false;
}

// ---- views as tables

// A view of the file sees only the file's tables and views. Its text, executed on this connection, finds temporary ones
// first.
static char *text_of(struct store *s, const char *name, struct error *err)
{
    struct query *q = query_open(s, "SELECT sql FROM main.sqlite_schema WHERE type = 'view' AND name = ?1");
    query_put(q, SQL(name));
    char *sql = query_next(q) ? xstrdup(query_text(q, 0)) : NULL;
    const bool ok = query_close(q, err);
    if (ok && sql == NULL)
        fail(err, "the view \"%s\" is missing", name);
    return sql;
}

static bool keep(struct store *s, const struct kept_view *v, struct error *err)
{
    char *const sql = text_of(s, v->name, err);
    if (sql == NULL)
        return false;
    const char *const question = sql + strlen("CREATE VIEW ") + strlen(v->name) + strlen(" AS");
    char *const create = v->open ? xformat("CREATE TEMP VIEW IF NOT EXISTS %s AS %s", v->name, question)
                                 : xformat("CREATE TEMP TABLE IF NOT EXISTS %s AS SELECT * FROM (%s\n) WHERE %s",
                                           v->name, question, v->where != NULL ? v->where : "true");
    const bool ok = query_perform(query_open(s, create), err);
    free(create);
    free(sql);
    return ok;
}

bool views_keep(struct store *s, const struct kept_view *v, int n, struct error *err)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++)
        ok = keep(s, &v[i], err);
    return ok;
}

void views_forget(struct store *s, const struct kept_view *v, int n)
{
    struct error err; // a failure only loses the connection's memory
    for (int i = n - 1; i >= 0; i--) {
        char *sql = xformat("DROP %s IF EXISTS temp.%s", v[i].open ? "VIEW" : "TABLE", v[i].name);
        (void)query_perform(query_open(s, sql), &err);
        free(sql);
    }
}
