// store.c - opens the database file and runs queries. It is the only file that includes sqlite3.h.
//
// schema*.sql make the tables of a new database. A database of version 15 is migrated, and one of another is refused.
// views*.sql make the views, in order, and all of them again whenever one has changed: definitions may improve.
#include "results/store.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "results/query.h"
#include "results/store/store_file.h"
#include "results/store/store_schema.h"

// OLDEST_VERSION is migrated to schema_version(). OPERATIONS of SQLite's virtual machine are counted for each query;
// reports and predictions of 20 and of 1,000 cells take up to 40 for a byte of the file.
enum { OPERATIONS_PER_CHECK = 1 << 20, LEAST_OPERATIONS = 1 << 24, OPERATIONS_PER_BYTE = 1000 };
enum { OLDEST_VERSION = 15, APPLICATION_ID = 0x5350434C, BUSY_TIMEOUT_S = 5, MAX_CACHED = 64 };

extern const char from_15_sql[];

struct query {
    struct store *s;
    sqlite3_stmt *statement; // NULL: could not be prepared
    int n;                   // number of bound values
    bool cached;             // the store owns it and reuses it
    int checks;              // calls of give_up since the query began
    bool interrupted;
    bool ended, failed;
    struct error err;
};

struct store {
    sqlite3 *db;
    char *path;
    bool read_only;
    int version;                  // version of its schema when it was opened
    int lock;                     // descriptor that holds the locks of store_lock; -1: none
    struct placed_file file, log; // noted when it is written to
    bool written;                 // a transaction has just been committed to the file
    struct error lost;            // what has happened to the file; "": nothing
    int n_cached;
    const char *sql[MAX_CACHED]; // texts of cached[]: constants, compared by address
    struct query *cached[MAX_CACHED];
    struct query *running; // the query whose next row is being computed
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
    case SQLITE_INTERRUPT: // give_up interrupted the query
        return fail(err, "%s: a query was given up, as it took more than any on a database of %lld bytes should",
                    s->path, (long long)store_file_bytes(s->path));
    case SQLITE_READONLY:
    case SQLITE_AUTH: // deny_changes refused the change
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

// ---- a file that is lost while it is open

static int note_commit(void *store)
{
    struct store *s = store;
    s->written = s->written || sqlite3_txn_state(s->db, "main") == SQLITE_TXN_WRITE;
    return 0;
}

static void note_places(struct store *s)
{
    char *log = xformat("%s-wal", s->path);
    placed_file_note(&s->file, s->path);
    placed_file_note(&s->log, log);
    if (s->log.path == NULL) // s->path is a link to it
        placed_file_note(&s->log, sqlite3_filename_wal(sqlite3_db_filename(s->db, "main")));
    free(log);
    s->written = false;
    sqlite3_commit_hook(s->db, note_commit, s);
}

// Copies s's whole database into another, which is overwritten.
static bool copy_database(const struct store *s, sqlite3 *to, struct error *err)
{
    sqlite3_backup *b = sqlite3_backup_init(to, "main", s->db, "main");
    if (b != NULL)
        sqlite3_backup_step(b, -1);
    sqlite3_backup_finish(b);
    return sqlite3_errcode(to) == SQLITE_OK || fail(err, "%s", sqlite3_errmsg(to));
}

// Saves what is stored and returns the name of the new file; NULL: err is set.
static char *save_beside(const struct store *s, struct error *err)
{
    char *path = store_file_beside(s->path, err);
    if (path == NULL)
        return NULL;
    sqlite3 *to = NULL;
    bool ok = (sqlite3_open_v2(path, &to, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK ||
               fail(err, "%s: %s", path, sqlite3_errmsg(to))) &&
              copy_database(s, to, err);
    sqlite3_close(to);
    if (ok)
        return path;
    unlink(path);
    free(path);
    return NULL;
}

// A file that takes the place of the database would be read with this log, which SQLite leaves behind. If the database
// is still in its place, SQLite would remove the file that has the log's name.
static void leave_place(struct store *s)
{
    int keep = 1;
    const int done =
        sqlite3_wal_checkpoint_v2(s->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL); // a renamed file is complete
    sqlite3_file_control(s->db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
    if (done != SQLITE_OK || s->log.path == NULL || placed_file_change(&s->log) != NULL)
        return;
    char *index = xformat("%.*s-shm", (int)(strlen(s->log.path) - strlen("-wal")), s->log.path);
    unlink(s->log.path);
    unlink(index);
    free(index);
}

// Checks that the names of database and log lead to the files written to; if not, saves what is stored, once.
static bool check_place(struct store *s, struct error *err)
{
    const char *of_file = placed_file_change(&s->file), *of_log = placed_file_change(&s->log);
    if (*s->lost.text == '\0' && (of_file != NULL || of_log != NULL)) {
        struct error why;
        char *saved = save_beside(s, &why);
        fail(&s->lost, "%s: %s while it was being written to; %s%s", of_file != NULL ? s->file.path : s->log.path,
             of_file != NULL ? of_file : of_log,
             saved != NULL ? "what was stored is in " : "what was stored could not be saved: ",
             saved != NULL ? saved : why.text);
        free(saved);
        leave_place(s);
    }
    if (*s->lost.text != '\0')
        *err = s->lost;
    return *s->lost.text == '\0';
}

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
        return fail_sqlite(s, err);
    configure(s);
    s->read_only = sqlite3_db_readonly(s->db, "main") == 1;
    return execute(s, "PRAGMA foreign_keys = ON", err);
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
    const bool ok = query_close(q, err) && execute(s, drops, err);
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
    bool ok = execute(s, "BEGIN IMMEDIATE", err) &&
              check_version(s, &empty, err); // the check is repeated, since a concurrent process may have made it
    for (int i = 0; i < SCHEMA_TABLES && ok && empty; i++)
        ok = execute(s, schema_tables[i], err);
    if (ok && !empty && s->version < schema_version())
        ok = execute(s, from_15_sql, err);
    for (int i = 0; i < SCHEMA_VIEWS && ok; i++)
        ok = drop_views(s, schema_views[i], err) && execute(s, schema_views[i], err);
    ok = ok && execute(s, mark, err) && execute(s, "COMMIT", err);
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
              copy_database(s, copy, err);
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
    if (!execute(s, "PRAGMA journal_mode = WAL", err) || ((empty || !is_current(s)) && !create_schema(s, err)))
        return false;
    note_places(s);
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

const char *store_path(const struct store *s)
{
    return s->path;
}

// ---- queries ----

struct query *query_open(struct store *s, const char *sql)
{
    struct query *q = xcalloc(1, sizeof(*q));
    q->s = s;
    q->failed = sqlite3_prepare_v2(s->db, sql, -1, &q->statement, NULL) != SQLITE_OK && !fail_sqlite(s, &q->err);
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
                !(q->interrupted ? fail(&q->err, "interrupted") : fail_sqlite(q->s, &q->err));
    if (code == SQLITE_DONE && q->s->written) {
        q->s->written = false;
        q->failed = !check_place(q->s, &q->err);
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
