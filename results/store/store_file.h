// store_file.h - the file of a database in the file system: whether it may be opened, who has locked it, and whether it
// is still in its place.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct error;

// Finds errors for which SQLite has no clear message.
bool store_file_check(const char *path, struct error *err);
int64_t store_file_bytes(const char *path); // includes its log; 0: there is no file
// Locks an experiment's name in the file. *descriptor: holds the locks; -1 at first, and the caller closes it.
bool store_file_lock(const char *path, const char *experiment, int *descriptor, struct error *err);

// An open file, and the name that leads to it. SQLite continues to write into a file that was removed or renamed, and
// reports nothing.
struct placed_file {
    char *path; // NULL: not noted
    dev_t device;
    ino_t inode;
};
void placed_file_note(struct placed_file *f, const char *path); // notes the current file; frees what was noted before
// Returns what has happened to the file; NULL: nothing.
const char *placed_file_change(const struct placed_file *f);
// Creates a new file NAME.saved, NAME.saved-2, .. for the content of a database that was lost: in the folder of `path`,
// or in the current folder. NULL: none could be created, and err is set. The caller frees the name.
char *store_file_beside(const char *path, struct error *err);
