// store.c - the database's file: opened, brought up to date, asked. The only file that includes sqlite3.h.
//
// Texts make a database: schema.sql, which is whole, and brought to older databases by one migration a version; what
// later versions add, in texts of their own; and views.sql, which is put in place again whenever it has changed,
// because a definition may get better without a fact changing.
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

extern const char schema_sql[], schema_bench_sql[], schema_exact_sql[], schema_environment_sql[], views_sql[];

// [v] takes a database of version v to version v + 1; an empty one, [0], to the version WHOLE.
static const char *const migration[] = {
    schema_sql,
    "ALTER TABLE run ADD COLUMN cache TEXT NOT NULL DEFAULT 'f32'", // there was no other
    schema_bench_sql,
    "ALTER TABLE bench ADD COLUMN marked_inflated INTEGER CHECK (marked_inflated IN (0, 1))", // NULL: nobody noted it
    schema_exact_sql,
    schema_environment_sql,
};
enum { WHOLE = 2 };
enum { VERSION = sizeof(migration) / sizeof(migration[0]), OURS = 0x5350434C, PATIENCE_S = 5, KEPT = 32 };

struct query {
    struct store *s;
    sqlite3_stmt *statement; // NULL: it failed from the start
    int n;                   // values put
    bool kept;               // by the store, for the next time
    bool ended, failed;
    struct error err;
};

struct store {
    sqlite3 *db;
    char *path;
    bool read_only;
    int claim; // descriptor that holds the claims; -1: there is none
    int n_kept;
    const char *sql[KEPT]; // of kept[]: constants, known by their address
    struct query *kept[KEPT];
};

// Why SQLite would not, in our words and with the file's name. Always false.
static bool refused(const struct store *s, struct error *err)
{
    int why = sqlite3_extended_errcode(s->db), os = sqlite3_system_errno(s->db);
    const char *said = sqlite3_errmsg(s->db);

    switch (why & 0xff) {
    case SQLITE_BUSY:
        return fail(err, "%s: another process has kept the database busy for %d seconds", s->path, PATIENCE_S);
    case SQLITE_FULL:
        return fail(err, "%s: could not be written: no space left on the disk", s->path);
    case SQLITE_IOERR:
        return fail(err, "%s: could not be read or written: %s", s->path,
                    os != 0 ? strerror(os) : "disk I/O error (is it full, over a limit, or broken?)");
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        return fail(err, "%s: could not be opened: %s", s->path, os != 0 ? strerror(os) : said);
    case SQLITE_READONLY:
        return fail(err, "%s: the file or its folder is read-only", s->path);
    case SQLITE_NOTADB:
        return fail(err, "%s: not an SQLite database", s->path);
    case SQLITE_CORRUPT:
        return fail(err, "%s: the database is damaged: %s", s->path, said);
    default:
        return fail(err, "%s: %s", s->path, said);
    }
}

static bool execute(struct store *s, const char *text, struct error *err)
{
    return sqlite3_exec(s->db, text, NULL, NULL, NULL) == SQLITE_OK || refused(s, err);
}

// ---- opening ----

// What can be said before SQLite is asked.
static bool can_be_a_database(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return fail(err, "%s: is a folder, not a database", path);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return fail(err, "%s: is not a regular file", path);
    char *copy = xstrdup(path), *folder = dirname(copy);
    bool well = (stat(folder, &st) == 0 && S_ISDIR(st.st_mode)) || fail(err, "%s: there is no folder %s", path, folder);
    // SQLite would try again to read what is not there, and give that as the reason.
    if (well && lstat(path, &st) != 0 && access(folder, W_OK | X_OK) != 0)
        well = fail(err, "%s: could not be made: %s", path, strerror(errno));
    free(copy);
    return well;
}

// A URI, so that a name may begin with "file:", or be opened as one that nobody will change.
static bool open_as(struct store *s, const char *how, struct error *err)
{
    struct text uri = { 0 };
    text_puts(&uri, s->path[0] == '/' ? "file://" : "file:");
    for (const char *c = s->path; *c != '\0'; c++) {
        if (strchr("%?#", *c) != NULL)
            text_printf(&uri, "%%%02X", (unsigned)*c);
        else
            text_add(&uri, c, 1);
    }
    text_puts(&uri, how);

    sqlite3_close(s->db);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI | SQLITE_OPEN_EXRESCODE;
    int code = sqlite3_open_v2(uri.s, &s->db, flags, NULL);
    free(uri.s);
    if (code != SQLITE_OK)
        return refused(s, err);
    sqlite3_busy_timeout(s->db, PATIENCE_S * 1000);
    s->read_only = sqlite3_db_readonly(s->db, "main") == 1;
    return execute(s, "PRAGMA foreign_keys = ON", err);
}

// Which version of the schema it has; 0: nothing yet. Anything but an empty database or one of ours is an error.
static bool read_version(struct store *s, int *version, struct error *err)
{
    struct query *q = query_open(s, "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
                                    " FROM pragma_application_id, pragma_user_version");
    bool there = query_next(q);
    int64_t owner = there ? query_int(q, 0) : 0, v = there ? query_int(q, 1) : 0, things = there ? query_int(q, 2) : 0;
    if (!query_close(q, err))
        return false;
    *version = (int)v;
    if (owner == 0 && v == 0 && things == 0)
        return !s->read_only || fail(err, "%s: is empty and read-only", s->path);
    if (owner != OURS)
        return fail(err, "%s: an SQLite database of another program", s->path);
    if (v > VERSION)
        return fail(err, "%s: made by a newer speclab (schema version %d; this one knows %d)", s->path, *version,
                    VERSION);
    if (v < 1)
        return fail(err, "%s: the database is damaged: schema version %d", s->path, *version);
    return v == VERSION || !s->read_only ||
           fail(err, "%s: is read-only and has the older schema version %d (%d is needed)", s->path, *version, VERSION);
}

// Reads it the first time. A read-only database in a folder where no -shm file can be made is read as it lies, if no
// writer left a -wal file beside it.
static bool look_inside(struct store *s, int *version, struct error *err)
{
    if (read_version(s, version, err))
        return true;
    struct stat st;
    int why = sqlite3_errcode(s->db) & 0xff;
    char *wal = xformat("%s-wal", s->path);
    bool lies_still = s->read_only && (stat(wal, &st) != 0 || st.st_size == 0);
    free(wal);
    return lies_still && (why == SQLITE_CANTOPEN || why == SQLITE_READONLY) && open_as(s, "?immutable=1", err) &&
           read_version(s, version, err);
}

static bool has_our_views(struct store *s)
{
    int64_t ours = 0, there = 0;
    struct error ignored;
    for (const char *at = views_sql; (at = strstr(at, "\nCREATE VIEW ")) != NULL; at++)
        ours++;
    struct query *q = query_open(s, "SELECT count(*) FROM sqlite_master WHERE type = 'view' AND instr(?1, sql) > 0");
    query_put_text(q, views_sql);
    if (query_next(q))
        there = query_int(q, 0);
    return query_close(q, &ignored) && there == ours;
}

static bool bring_up_to_date(struct store *s, struct error *err)
{
    int version;
    char *mark = xformat("PRAGMA application_id = %d; PRAGMA user_version = %d", OURS, VERSION);
    bool well = execute(s, "BEGIN IMMEDIATE", err) && read_version(s, &version, err); // another may have been quicker
    for (int v = well ? version : VERSION; v < VERSION && well; v = v == 0 ? WHOLE : v + 1)
        well = execute(s, migration[v], err);
    well = well && execute(s, views_sql, err) && execute(s, mark, err) && execute(s, "COMMIT", err);
    free(mark);
    return well;
}

static bool open_whole(struct store *s, struct error *err)
{
    int version;
    if (!open_as(s, "", err) || !look_inside(s, &version, err))
        return false;
    if (s->read_only)
        return true;
    return execute(s, "PRAGMA journal_mode = WAL", err) &&
           ((version == VERSION && has_our_views(s)) || bring_up_to_date(s, err));
}

struct store *store_open(const char *path, struct error *err)
{
    if (!can_be_a_database(path, err))
        return NULL;
    struct store *s = xcalloc(1, sizeof(*s));
    s->path = xstrdup(path);
    s->claim = -1;
    if (open_whole(s, err))
        return s;
    store_close(s);
    return NULL;
}

void store_close(struct store *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->n_kept; i++) {
        sqlite3_finalize(s->kept[i]->statement);
        free(s->kept[i]);
    }
    sqlite3_close(s->db);
    if (s->claim >= 0)
        close(s->claim); // only now: this drops SQLite's locks of this process on the file, too
    free(s->path);
    free(s);
}

// A claim is a lock on one byte far behind the file's end and SQLite's own locks, at a place that the name decides
// (FNV-1a). It goes when the process goes, however that ends.
static off_t place_of(const char *name)
{
    uint32_t h = 0x811c9dc5;
    for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++)
        h = (h ^ *c) * 0x01000193;
    return ((off_t)1 << 48) + h;
}

bool store_lock(struct store *s, const char *experiment, struct error *err)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = place_of(experiment), .l_len = 1 };
    if (s->claim < 0)
        s->claim = open(s->path, O_RDWR | O_CLOEXEC);
    if (s->claim >= 0 && fcntl(s->claim, F_OFD_SETLK, &lock) == 0)
        return true;
    if (s->claim >= 0 && (errno == EAGAIN || errno == EACCES))
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

// ---- asking ----

struct query *query_open(struct store *s, const char *sql)
{
    struct query *q = xcalloc(1, sizeof(*q));
    q->s = s;
    q->failed = sqlite3_prepare_v2(s->db, sql, -1, &q->statement, NULL) != SQLITE_OK && !refused(s, &q->err);
    return q;
}

struct query *query_again(struct store *s, const char *sql)
{
    for (int i = 0; i < s->n_kept; i++)
        if (s->sql[i] == sql) {
            assert(!sqlite3_stmt_busy(s->kept[i]->statement));
            return s->kept[i];
        }
    struct query *q = query_open(s, sql);
    if (q->failed)
        return q;
    assert(s->n_kept < KEPT);
    q->kept = true;
    s->sql[s->n_kept] = sql;
    s->kept[s->n_kept++] = q;
    return q;
}

void query_put_int(struct query *q, int64_t value)
{
    sqlite3_bind_int64(q->statement, ++q->n, value);
}

void query_put_real(struct query *q, double value)
{
    sqlite3_bind_double(q->statement, ++q->n, value); // which makes NULL of NAN
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
    if (q->failed || q->ended) // SQLite would begin again
        return false;
    int code = sqlite3_step(q->statement);
    q->ended = code != SQLITE_ROW;
    q->failed = code != SQLITE_ROW && code != SQLITE_DONE && !refused(q->s, &q->err);
    return code == SQLITE_ROW;
}

bool query_close(struct query *q, struct error *err)
{
    bool well = !q->failed;
    if (!well)
        *err = q->err;
    if (q->kept) {
        sqlite3_reset(q->statement);
        q->ended = q->failed = false;
        q->n = 0;
        return well;
    }
    sqlite3_finalize(q->statement);
    free(q);
    return well;
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
