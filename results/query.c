// query.c - the parts of a query that need no SQLite: values, transactions, and views as tables.
#include "results/query.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"

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
