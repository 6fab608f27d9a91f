// store.c - opens the database file and makes its tables and views.
//
// schema*.sql make the tables of a new database. A database of version 15 is migrated, and one of another is refused.
// views*.sql make the views, in order, and all of them again whenever one has changed: definitions may improve.
#include "results/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store/connection.h"
#include "results/store/store_schema.h"

// OLDEST_VERSION is migrated to schema_version(). OPERATIONS of SQLite's virtual machine are counted for each query;
// reports and predictions of 20 and of 1,000 cells take up to 40 for a byte of the file.
enum { OPERATIONS_PER_CHECK = 1 << 20, LEAST_OPERATIONS = 1 << 24, OPERATIONS_PER_BYTE = 1000 };
enum { OLDEST_VERSION = 15, APPLICATION_ID = 0x5350434C };

extern const char from_15_sql[];

// ---- opening ----

// Interrupts a query if the program is interrupted, unless the query writes, and a query that takes longer than any on
// a database of this size.
static int give_up(void *store)
{
    const struct store *s = store;
    struct query *q = s->running;
    if (q == NULL)
        return 0;
    const int64_t done = (int64_t)++q->checks * OPERATIONS_PER_CHECK - LEAST_OPERATIONS;
    q->interrupted = interrupt_requested() && sqlite3_stmt_readonly(q->statement);
    if (q->interrupted || done < 0)
        return q->interrupted;
    return done > OPERATIONS_PER_BYTE * store_file_bytes(s->path);
}

// Applies to every connection: a stranger's triggers do not run. (TRUSTED_SCHEMA remains on: SQLite 3.40 considers the
// functions of JSON in a CHECK unsafe.)
static void configure(struct store *s)
{
    sqlite3_busy_timeout(s->db, BUSY_TIMEOUT_S * 1000);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_progress_handler(s->db, OPERATIONS_PER_CHECK, give_up, s);
}

// Opens s->path as a URI, so that the name itself may begin with "file:". parameters: "", "?mode=rw" (it exists) or
// "?immutable=1".
static bool open_uri(struct store *s, const char *parameters, struct error *err)
{
    struct text uri = { 0 };
    text_puts(&uri, s->path[0] == '/' ? "file://" : "file:");
    for (const char *c = s->path; *c != '\0'; c++) {
        if (strchr("%?#", *c) != NULL)
            text_printf(&uri, "%%%02X", (unsigned)*c);
        else
            text_add(&uri, c, 1);
    }
    text_puts(&uri, parameters);

    sqlite3_close(s->db);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI | SQLITE_OPEN_EXRESCODE;
    int code = sqlite3_open_v2(uri.s, &s->db, flags, NULL);
    free(uri.s);
    if (code != SQLITE_OK)
        return store_fail(s, err);
    configure(s);
    s->read_only = sqlite3_db_readonly(s->db, "main") == 1;
    return store_execute(s, "PRAGMA foreign_keys = ON", err);
}

static bool read_number(struct store *s, const char *sql, int64_t *to, struct error *err)
{
    struct query *q = query_open(s, sql);
    *to = query_next(q) ? query_int(q, 0) : 0;
    return query_close(q, err);
}

// Checks that the file is an empty database (*empty) or a speclab database of this schema version.
static bool check_version(struct store *s, bool *empty, struct error *err)
{
    int64_t id, version, objects;
    if (!read_number(s, "PRAGMA application_id", &id, err) || !read_number(s, "PRAGMA user_version", &version, err) ||
        !read_number(s, "SELECT count(*) FROM sqlite_schema", &objects, err))
        return false;
    *empty = id == 0 && version == 0 && objects == 0;
    if (*empty)
        return !s->read_only || fail(err, "%s: is empty and read-only", s->path);
    if (id != APPLICATION_ID)
        return fail(err, "%s: an SQLite database of another program", s->path);
    s->version = (int)version;
    if (version > schema_version() || version < OLDEST_VERSION)
        return fail(err, "%s: expected schema version %d, found %lld: %s", s->path, schema_version(),
                    (long long)version,
                    version > schema_version() ? "a newer speclab wrote it" : "run again into a new file");
    return schema_check(s, s->path, err);
}

// A read-only database in a folder where no -shm file can be created is opened as immutable, if no writer left a -wal
// file next to it.
static bool check_version_once_open(struct store *s, bool *empty, struct error *err)
{
    if (check_version(s, empty, err))
        return true;
    struct stat st;
    int code = sqlite3_errcode(s->db) & 0xff;
    char *wal = xformat("%s-wal", s->path);
    bool immutable = s->read_only && (stat(wal, &st) != 0 || st.st_size == 0);
    free(wal);
    return immutable && (code == SQLITE_CANTOPEN || code == SQLITE_READONLY) && open_uri(s, "?immutable=1", err) &&
           check_version(s, empty, err);
}

// Drops the views of the database whose names `text` defines.
static bool drop_views(struct store *s, const char *text, struct error *err)
{
    struct query *q = query_open(
        s, "SELECT group_concat('DROP VIEW ' || name, ';') FROM sqlite_schema WHERE type = 'view' AND"
           " name NOT GLOB '*[^a-zA-Z_]*' AND instr(?1, char(10) || 'CREATE VIEW ' || lower(name) || ' AS')");
    query_put(q, SQL(text));
    char *drops = xstrdup(query_next(q) ? query_text(q, 0) : "");
    const bool ok = query_close(q, err) && store_execute(s, drops, err);
    free(drops);
    return ok;
}

static bool is_current(struct store *s)
{
    return s->version == schema_version() && schema_has_views(s);
}

// Creates tables, if there are none, and views; adds what version 15 has not.
static bool create_schema(struct store *s, struct error *err)
{
    bool empty;
    char *mark = xformat("PRAGMA application_id = %d", APPLICATION_ID);
    bool ok = store_execute(s, "BEGIN IMMEDIATE", err) &&
              check_version(s, &empty, err); // the check is repeated, since a concurrent process may have made it
    for (int i = 0; i < SCHEMA_TABLES && ok && empty; i++)
        ok = store_execute(s, schema_tables[i], err);
    if (ok && !empty && s->version < schema_version())
        ok = store_execute(s, from_15_sql, err);
    for (int i = 0; i < SCHEMA_VIEWS && ok; i++)
        ok = drop_views(s, schema_views[i], err) && store_execute(s, schema_views[i], err);
    ok = ok && store_execute(s, mark, err) && store_execute(s, "COMMIT", err);
    free(mark);
    return ok;
}

// Refuses changes of the copy of a database, which would be lost. SQLite "inserts" a virtual table, such as json_each,
// into the schema.
static int deny_changes(void *unused, int action, const char *table, const char *b, const char *database, const char *c)
{
    (void)unused, (void)b, (void)c;
    const bool change = action == SQLITE_INSERT || action == SQLITE_UPDATE || action == SQLITE_DELETE;
    return change && strcmp(database, "main") == 0 && strncmp(table, "sqlite_", 7) != 0 ? SQLITE_DENY : SQLITE_OK;
}

// The views of a file that cannot be written to may be those of another speclab, or anything. They are not read: a
// temporary copy of the database gets the program's views.
static bool open_copy(struct store *s, struct error *err)
{
    sqlite3 *copy = NULL;
    bool ok = (sqlite3_open_v2("", &copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_EXRESCODE, NULL) == SQLITE_OK ||
               fail(err, "%s: could not be copied: %s", s->path, sqlite3_errmsg(copy))) &&
              store_copy(s, copy, err);
    sqlite3_close(ok ? s->db : copy);
    if (!ok)
        return false;
    s->db = copy;
    configure(s);
    if (!create_schema(s, err))
        return false;
    sqlite3_set_authorizer(s->db, deny_changes, NULL);
    return true;
}

static bool open_database(struct store *s, struct error *err)
{
    bool empty;
    if (!open_uri(s, "", err) || !check_version_once_open(s, &empty, err))
        return false;
    if (s->read_only)
        return is_current(s) || open_copy(s, err);
    if (!store_execute(s, "PRAGMA journal_mode = WAL", err) || ((empty || !is_current(s)) && !create_schema(s, err)))
        return false;
    store_note_places(s);
    return true;
}

static struct store *store_at(const char *path)
{
    struct store *s = xcalloc(1, sizeof(*s));
    s->path = xstrdup(path);
    s->lock = -1;
    return s;
}

struct store *store_open(const char *path, struct error *err)
{
    if (!store_file_check(path, err))
        return NULL;
    struct store *s = store_at(path);
    if (open_database(s, err))
        return s;
    store_close(s);
    return NULL;
}

struct store *store_open_existing(const char *path, struct error *err)
{
    struct stat st = { 0 };
    if (stat(path, &st) != 0 && errno == ENOENT) {
        fail_usage(err, "%s: no such database; `speclab run FILE.yaml --db %s` creates it", path, path);
        return NULL;
    }
    if (S_ISREG(st.st_mode) && st.st_size == 0) { // SQLite would make a database of an empty file
        fail(err, "%s: expected a database of speclab, found an empty file", path);
        return NULL;
    }
    return store_open(path, err);
}

void store_close(struct store *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->n_cached; i++) {
        sqlite3_finalize(s->cached[i]->statement);
        free(s->cached[i]);
    }
    sqlite3_close(s->db);
    if (s->lock >= 0)
        close(s->lock); // this comes last: closing also drops SQLite's POSIX locks of this process on the file
    free(s->file.path);
    free(s->log.path);
    free(s->path);
    free(s);
}

bool store_lock(struct store *s, const char *experiment, struct error *err)
{
    return store_file_lock(s->path, experiment, &s->lock, err);
}

bool store_read_only(const struct store *s)
{
    return s->read_only;
}
