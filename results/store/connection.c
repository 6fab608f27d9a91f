// connection.c - what goes wrong with an open database: SQLite's errors as sentences, and a file that is lost.
#include "results/store/connection.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "results/query.h"

// Sets err to SQLite's error with the file's name. Always returns false.
bool store_fail(const struct store *s, struct error *err)
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

bool store_execute(struct store *s, const char *text, struct error *err)
{
    return sqlite3_exec(s->db, text, NULL, NULL, NULL) == SQLITE_OK || store_fail(s, err);
}

// ---- a file that is lost while it is open

static int note_commit(void *store)
{
    struct store *s = store;
    s->written = s->written || sqlite3_txn_state(s->db, "main") == SQLITE_TXN_WRITE;
    return 0;
}

void store_note_places(struct store *s)
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
bool store_copy(const struct store *s, sqlite3 *to, struct error *err)
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
              store_copy(s, to, err);
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
bool store_check_place(struct store *s, struct error *err)
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

const char *store_path(const struct store *s)
{
    return s->path;
}
