// store_file.h - the file of a database, as the file system has it: may it be opened, who has locked it, is it still in its place?
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct error;

// Finds errors for which SQLite has no clear message.
bool store_file_check(const char *path, struct error *err);
int64_t store_file_bytes(const char *path); // with its log; 0: there is none
// Locks an experiment's name in the file. *descriptor: holds the locks; -1 at first, and the caller closes it.
bool store_file_lock(const char *path, const char *experiment, int *descriptor, struct error *err);

// A file that is open, and the name that leads to it. SQLite writes on into a file that was removed or renamed, and reports nothing.
struct placed_file {
    char *path; // NULL: not noted
    dev_t device;
    ino_t inode;
};
void placed_file_note(struct placed_file *f, const char *path); // as it is now; frees what was noted
// What has become of it: NULL: nothing.
const char *placed_file_change(const struct placed_file *f);
// Creates a new file NAME.saved, NAME.saved-2, .. for the content of a database that was lost: beside `path`, or in the current folder. NULL:
// none could be created, and err is set. The caller frees the name.
char *store_file_beside(const char *path, struct error *err);
