// query.h - SQL queries on the results database.
//
//     struct query *q = query_open(s, "SELECT id, target FROM run WHERE experiment = ?1");
//     query_put_text(q, name);
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

struct query *query_open(struct store *s, const char *sql); // one statement; never NULL, an error shows at query_close
// The same, prepared once and cached by the store; sql is compared by address and must be a string constant.
struct query *query_again(struct store *s, const char *sql);
void query_put_int(struct query *q, int64_t value);                   // binds ?1, then ?2, ...
void query_put_real(struct query *q, double value);                   // NAN: NULL
void query_put_text(struct query *q, const char *value);              // NULL: NULL; copied
void query_put_blob(struct query *q, const void *data, size_t bytes); // copied
bool query_next(struct query *q);                                     // false: no more rows, or failure
#define QUERY_NOW "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')"             // now, ISO 8601, UTC
bool query_perform(struct query *q, struct error *err);               // steps through all rows, then query_close
bool query_close(struct query *q, struct error *err);                 // false on failure

const char *store_path(const struct store *s); // for messages

// The current row; columns count from 0.
int query_columns(const struct query *q);
const char *query_column(const struct query *q, int at); // its name; borrowed until the query is closed
bool query_is_null(const struct query *q, int at);
bool query_is_text(const struct query *q, int at);
bool query_is_int(const struct query *q, int at);
int64_t query_int(const struct query *q, int at); // 0 for NULL
double query_real(const struct query *q, int at); // NAN for NULL
// *bytes: its size; borrowed until the next row
const void *query_blob(const struct query *q, int at, size_t *bytes);
const char *query_text(const struct query *q, int at); // "" for NULL; borrowed until the next row
