// store.c - opens the database file and runs queries. The only file that includes sqlite3.h.
//
// schema*.sql make the tables of a new database; a database of another schema version is refused. views*.sql make the views,
// in the order of the array `views`, and make all of them again whenever one has changed: a definition may improve while the
// facts stay.
#include "results/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "results/query.h"

extern const char schema_sql[], schema_shards_sql[], schema_bench_sql[], schema_exact_sql[], views_sql[],
    views_prediction_sql[], views_exports_sql[];

static const char *const views[] = { views_sql, views_prediction_sql, views_exports_sql };
enum { VIEW_FILES = sizeof(views) / sizeof(*views) };

// SCHEMA_VERSION: raise it with every change of a table. APPLICATION_ID: "SPCL".
enum { SCHEMA_VERSION = 13, APPLICATION_ID = 0x5350434C, BUSY_TIMEOUT_S = 5, MAX_CACHED = 48, SMALLEST_DATABASE = 512 };

struct query {
    struct store *s;
    sqlite3_stmt *statement; // NULL: could not be prepared
    int n;                   // bound values
    bool cached;             // the store owns it and reuses it
    bool ended, failed;
    struct error err;
};

struct store {
    sqlite3 *db;
    char *path, *uri;
    bool read_only;
    int lock; // descriptor that holds the locks of store_lock; -1: none
    int n_cached;
    const char *sql[MAX_CACHED]; // of cached[]: constants, compared by address
    struct query *cached[MAX_CACHED];
};

// Sets err to SQLite's error with the file's name. Always returns false.
static bool fail_sqlite(const struct store *s, struct error *err)
{
    int code = sqlite3_extended_errcode(s->db), os = sqlite3_system_errno(s->db);
    const char *message = sqlite3_errmsg(s->db);

    switch (code & 0xff) {
    case SQLITE_BUSY:
        return fail(err, "%s: another process has kept the database busy for %d seconds", s->path, BUSY_TIMEOUT_S);
    case SQLITE_FULL:
        return fail(err, "%s: could not be written: no space left on the disk", s->path);
    case SQLITE_IOERR:
        return fail(err, "%s: could not be read or written: %s", s->path,
                    os != 0 ? strerror(os) : "disk I/O error (is it full, over a limit, or broken?)");
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        return fail(err, "%s: could not be opened: %s", s->path, os != 0 ? strerror(os) : message);
    case SQLITE_READONLY:
        return fail(err, "%s: the file or its folder is read-only", s->path);
    case SQLITE_NOTADB:
        return fail(err, "%s: not an SQLite database", s->path);
    case SQLITE_CORRUPT:
        return fail(err, "%s: the database is damaged: %s", s->path, message);
    default:
        return fail(err, "%s: %s", s->path, message);
    }
}

static bool execute(struct store *s, const char *text, struct error *err)
{
    return sqlite3_exec(s->db, text, NULL, NULL, NULL) == SQLITE_OK || fail_sqlite(s, err);
}

// ---- opening ----

// Finds errors for which SQLite has no clear message.
static bool check_path(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return fail(err, "%s: is a folder, not a database", path);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return fail(err, "%s: is not a regular file", path);
    // SQLite would take one byte for an empty database.
    if (stat(path, &st) == 0 && st.st_size > 0 && st.st_size < SMALLEST_DATABASE)
        return fail(err, "%s: not an SQLite database: found %lld bytes", path, (long long)st.st_size);
    char *copy = xstrdup(path), *folder = dirname(copy);
    bool ok = (stat(folder, &st) == 0 && S_ISDIR(st.st_mode)) || fail(err, "%s: there is no folder %s", path, folder);
    // SQLite would retry to open the missing file read-only and report that as the error.
    if (ok && lstat(path, &st) != 0 && access(folder, W_OK | X_OK) != 0)
        ok = fail(err, "%s: could not be created: %s", path, strerror(errno));
    free(copy);
    return ok;
}

// Opens s->path as a URI, so that the name itself may begin with "file:". parameters: "", "?mode=rw" (it exists) or "?immutable=1".
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
    free(s->uri);
    s->uri = uri.s;
    if (code != SQLITE_OK)
        return fail_sqlite(s, err);
    sqlite3_busy_timeout(s->db, BUSY_TIMEOUT_S * 1000);
    s->read_only = sqlite3_db_readonly(s->db, "main") == 1;
    return execute(s, "PRAGMA foreign_keys = ON", err);
}

// Checks that the file is an empty database (*empty) or a speclab database of this schema version.
static bool check_version(struct store *s, bool *empty, struct error *err)
{
    struct query *q = query_open(s, "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
                                    " FROM pragma_application_id, pragma_user_version");
    bool row = query_next(q);
    int64_t id = row ? query_int(q, 0) : 0, version = row ? query_int(q, 1) : 0, objects = row ? query_int(q, 2) : 0;
    if (!query_close(q, err))
        return false;
    *empty = id == 0 && version == 0 && objects == 0;
    if (*empty)
        return !s->read_only || fail(err, "%s: is empty and read-only", s->path);
    if (id != APPLICATION_ID)
        return fail(err, "%s: an SQLite database of another program", s->path);
    return version == SCHEMA_VERSION ||
           fail(err, "%s: expected schema version %d, found %lld: %s", s->path, SCHEMA_VERSION, (long long)version,
                version > SCHEMA_VERSION ? "a newer speclab wrote it" : "run again into a new file");
}

// A read-only database in a folder where no -shm file can be created is opened as immutable, if no writer left a -wal
// file beside it.
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

// Whether the database has every view of views*.sql in this text.
static bool has_current_views(struct store *s)
{
    bool current = true;
    for (int i = 0; i < VIEW_FILES && current; i++) {
        int64_t expected = 0, found = 0;
        struct error ignored;
        for (const char *at = views[i]; (at = strstr(at, "\nCREATE VIEW ")) != NULL; at++)
            expected++;
        struct query *q =
            query_open(s, "SELECT count(*) FROM sqlite_master WHERE type = 'view' AND instr(?1, sql) > 0");
        query_put_text(q, views[i]);
        if (query_next(q))
            found = query_int(q, 0);
        current = query_close(q, &ignored) && found == expected;
    }
    return current;
}

// Creates tables, if there are none, and views.
static bool create_schema(struct store *s, struct error *err)
{
    bool empty;
    char *mark = xformat("PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID, SCHEMA_VERSION);
    bool ok = execute(s, "BEGIN IMMEDIATE", err) &&
              check_version(s, &empty, err); // again: a concurrent process may have done it
    if (ok && empty)
        ok = execute(s, schema_sql, err) && execute(s, schema_shards_sql, err) && execute(s, schema_bench_sql, err) &&
             execute(s, schema_exact_sql, err);
    for (int i = 0; i < VIEW_FILES && ok; i++)
        ok = execute(s, views[i], err);
    ok = ok && execute(s, mark, err) && execute(s, "COMMIT", err);
    free(mark);
    return ok;
}

static bool open_database(struct store *s, struct error *err)
{
    bool empty;
    if (!open_uri(s, "", err) || !check_version_once_open(s, &empty, err))
        return false;
    if (s->read_only)
        return true;
    return execute(s, "PRAGMA journal_mode = WAL", err) && ((!empty && has_current_views(s)) || create_schema(s, err));
}

// An experiment's lock is on one byte far beyond the end of the file and SQLite's own locks; FNV-1a of the name gives the
// offset. The kernel releases it when the process ends.
#define LOCKS ((off_t)1 << 48)

static off_t lock_offset(const char *name)
{
    uint32_t h = 0x811c9dc5;
    for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++)
        h = (h ^ *c) * 0x01000193;
    return LOCKS + h;
}

// Call while SQLite does not have the file open: closing it here would drop SQLite's locks.
static bool check_idle(const char *path, struct error *err)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCKS, .l_len = (off_t)1 << 32 };
    int file = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = file >= 0 && fcntl(file, F_OFD_GETLK, &lock) == 0;
    if (!ok)
        fail(err, "%s: could not be read: %s", path, strerror(errno));
    else if (lock.l_type != F_UNLCK)
        ok = fail(
            err,
            "%s: expected a database that is complete, found one that another process is running an experiment into",
            path);
    if (file >= 0)
        close(file);
    return ok;
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
    if (!check_path(path, err))
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
    if (S_ISREG(st.st_mode) && st.st_size == 0) { // which SQLite would make a database of
        fail(err, "%s: expected a database of speclab, found an empty file", path);
        return NULL;
    }
    return store_open(path, err);
}

static bool open_input(struct store *s, struct error *err)
{
    bool empty;
    struct stat st;
    if (stat(s->path, &st) != 0 && errno == ENOENT)
        return fail_usage(err, "%s: expected a database, found none", s->path);
    if (!check_path(s->path, err) || !check_idle(s->path, err) || !open_uri(s, "?mode=rw", err) ||
        !check_version_once_open(s, &empty, err))
        return false;
    return !empty || fail(err, "%s: expected a database of speclab, found an empty one", s->path);
}

struct store *store_open_input(const char *path, struct error *err)
{
    struct store *s = store_at(path);
    if (open_input(s, err))
        return s;
    store_close(s);
    return NULL;
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
        close(s->lock); // last: closing also drops SQLite's POSIX locks of this process on the file
    free(s->path);
    free(s->uri);
    free(s);
}

bool store_lock(struct store *s, const char *experiment, struct error *err)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = lock_offset(experiment), .l_len = 1 };
    if (s->lock < 0)
        s->lock = open(s->path, O_RDWR | O_CLOEXEC);
    if (s->lock >= 0 && fcntl(s->lock, F_OFD_SETLK, &lock) == 0)
        return true;
    if (s->lock >= 0 && (errno == EAGAIN || errno == EACCES))
        return fail(err, "%s: another process is running experiment \"%s\" into it", s->path, experiment);
    return fail(err, "%s: could not be locked: %s", s->path, strerror(errno));
}

bool store_read_only(const struct store *s)
{
    return s->read_only;
}

const char *store_path(const struct store *s)
{
    return s->path;
}

const char *store_uri(const struct store *s)
{
    return s->uri;
}

// ---- queries ----

struct query *query_open(struct store *s, const char *sql)
{
    struct query *q = xcalloc(1, sizeof(*q));
    q->s = s;
    q->failed = sqlite3_prepare_v2(s->db, sql, -1, &q->statement, NULL) != SQLITE_OK && !fail_sqlite(s, &q->err);
    return q;
}

struct query *query_again(struct store *s, const char *sql)
{
    for (int i = 0; i < s->n_cached; i++)
        if (s->sql[i] == sql) {
            assert(!sqlite3_stmt_busy(s->cached[i]->statement));
            return s->cached[i];
        }
    struct query *q = query_open(s, sql);
    if (q->failed)
        return q;
    assert(s->n_cached < MAX_CACHED);
    q->cached = true;
    s->sql[s->n_cached] = sql;
    s->cached[s->n_cached++] = q;
    return q;
}

void query_put_int(struct query *q, int64_t value)
{
    sqlite3_bind_int64(q->statement, ++q->n, value);
}

void query_put_real(struct query *q, double value)
{
    sqlite3_bind_double(q->statement, ++q->n, value); // SQLite stores NAN as NULL
}

void query_put_text(struct query *q, const char *value)
{
    sqlite3_bind_text(q->statement, ++q->n, value, -1, SQLITE_TRANSIENT);
}

void query_put_blob(struct query *q, const void *data, size_t bytes)
{
    sqlite3_bind_blob64(q->statement, ++q->n, data, bytes, SQLITE_TRANSIENT);
}

bool query_next(struct query *q)
{
    if (q->failed || q->ended) // sqlite3_step would start over
        return false;
    int code = sqlite3_step(q->statement);
    q->ended = code != SQLITE_ROW;
    q->failed = code != SQLITE_ROW && code != SQLITE_DONE && !fail_sqlite(q->s, &q->err);
    return code == SQLITE_ROW;
}

bool query_close(struct query *q, struct error *err)
{
    bool ok = !q->failed;
    if (!ok)
        *err = q->err;
    if (q->cached) {
        sqlite3_reset(q->statement);
        q->ended = q->failed = false;
        q->n = 0;
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
    return sqlite3_column_name(q->statement, at);
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

const void *query_blob(const struct query *q, int at, size_t *bytes)
{
    const void *data = sqlite3_column_blob(q->statement, at);
    *bytes = (size_t)sqlite3_column_bytes(q->statement, at);
    return data;
}

const char *query_text(const struct query *q, int at)
{
    const char *s = (const char *)sqlite3_column_text(q->statement, at);
    return s != NULL ? s : "";
}
