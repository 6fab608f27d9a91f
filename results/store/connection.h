// connection.h - the open database as SQLite has it. Only store.c, which opens it, and query.c include this header.
#pragma once
#include <sqlite3.h>
#include <stdbool.h>

#include "core/error.h"
#include "results/store/store_file.h"

enum { BUSY_TIMEOUT_S = 5, MAX_CACHED = 64 };

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
bool store_fail(const struct store *s, struct error *err);
// Runs statements that have no results.
bool store_execute(struct store *s, const char *text, struct error *err);
// Copies all of s's database into another, which is overwritten.
bool store_copy(const struct store *s, sqlite3 *to, struct error *err);
// Notes which files are written to, and checks after a commit that their names still lead to them. If they do not, the
// database is saved under another name, once, and that is the error.
void store_note_places(struct store *s);
bool store_check_place(struct store *s, struct error *err);
