// query.h - SQL queries on the results database.
//
//     struct query *q = query_with(s, "SELECT id, target FROM run WHERE experiment = ?1", SQL(name));
//     while (query_next(q))
//         use(query_int(q, 0), query_text(q, 1));
//     return query_close(q, err);          // reports the first failure of any call
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct query;
struct store;

// A value to bind: SQL(x) for an integer, a real (NAN: NULL) or a text (NULL: NULL). Texts and blobs are copied. A
// comparison is an int in C.
struct sql_value {
    enum { SQL_INT, SQL_REAL, SQL_TEXT, SQL_BLOB, SQL_EXPRESSION } kind;
    int64_t number; // a value, or the bytes of a blob
    double real;
    const void *data; // content of a text or a blob
};
struct sql_value sql_int(int64_t x);
struct sql_value sql_real(double x);
struct sql_value sql_text(const char *x);
#define sql_blob(bytes_of, bytes) \
    ((struct sql_value){ .kind = SQL_BLOB, .data = (bytes_of), .number = (int64_t)(bytes) })
#define SQL_UNLESS_0(x) ((x) != 0 ? sql_int(x) : sql_text(NULL)) // 0: NULL
#define SQL_FROM_0(x) ((x) >= 0 ? sql_int(x) : sql_text(NULL))   // negative: NULL
// A value for row_insert that is not bound, but is part of the statement's text.
#define sql_expression(written) ((struct sql_value){ .kind = SQL_EXPRESSION, .data = (written) })
#define SQL(x) \
    _Generic((x), float : sql_real, double : sql_real, char * : sql_text, const char * : sql_text, default : sql_int)(x)
#define SQL_NOW "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')" // the current time in ISO 8601, UTC

// Opens one statement. It never returns NULL: an error shows at query_close. The statement is prepared once and cached
// by the store under the address of its text, which must be a string constant.
struct query *query_again(struct store *s, const char *sql);
struct query *query_open(struct store *s, const char *sql); // takes any text and prepares it for this time only
void query_bind(struct query *q, const struct sql_value *value, size_t n); // binds to ?1, then ?2, ..
#define query_put(q, ...) \
    query_bind(q, (const struct sql_value[]){ __VA_ARGS__ }, \
               sizeof((const struct sql_value[]){ __VA_ARGS__ }) / sizeof(struct sql_value))
struct query *query_again_with(struct store *s, const char *sql, const struct sql_value *value, size_t n);
#define query_with(s, sql, ...) \
    query_again_with(s, sql, (const struct sql_value[]){ __VA_ARGS__ }, \
                     sizeof((const struct sql_value[]){ __VA_ARGS__ }) / sizeof(struct sql_value))
bool query_next(struct query *q);                       // false: no more rows, or failure
bool query_perform(struct query *q, struct error *err); // steps through all rows, then query_close
bool query_close(struct query *q, struct error *err);   // false on failure

// Adds a row to a table, whose name is a string constant and whose columns are equal in every call. *id: the row's; id
// NULL: not wanted.
struct sql_column {
    const char *name;
    struct sql_value value;
};
#define COLUMN(name, x) ((struct sql_column){ name, SQL(x) })
bool row_insert_columns(struct store *s, const char *table, const struct sql_column *column, size_t n, int64_t *id,
                        struct error *err);
#define row_insert(s, table, id, err, ...) \
    row_insert_columns(s, table, (const struct sql_column[]){ __VA_ARGS__ }, \
                       sizeof((const struct sql_column[]){ __VA_ARGS__ }) / sizeof(struct sql_column), id, err)

// A transaction: what was written since its beginning is committed if ok, otherwise discarded, and err keeps its first
// error.
bool transaction_begin(struct store *s, struct error *err);
bool transaction_end(struct store *s, bool ok, struct error *err);

const char *store_path(const struct store *s); // path in messages (store/connection.c)

// These read the current row. Columns count from 0.
int query_columns(const struct query *q);
const char *query_column(const struct query *q, int at); // name of the column; borrowed until the query is closed
bool query_is_null(const struct query *q, int at);
bool query_is_text(const struct query *q, int at);
bool query_is_int(const struct query *q, int at);
int64_t query_int(const struct query *q, int at); // 0 for NULL
double query_real(const struct query *q, int at); // NAN for NULL
// *bytes: its size; borrowed until the next row
const void *query_blob(const struct query *q, int at, size_t *bytes);
const char *query_text(const struct query *q, int at); // "" for NULL; borrowed until the next row

// ---- views as tables, so that each is computed once

// A view reads every step each time it is queried. These functions give its rows to a temporary table of its name,
// which SQLite finds first. The tables of the list are made in its order and each sees those before it. The views of
// the file still see each other only.
struct kept_view {
    const char *name, *where; // where: selects the rows that are needed; NULL: all
    bool open;                // a temporary view, whose rows are not stored, for queries that each need few of them
};
bool views_keep(struct store *s, const struct kept_view *v, int n, struct error *err); // does nothing if repeated
void views_forget(struct store *s, const struct kept_view *v, int n);
