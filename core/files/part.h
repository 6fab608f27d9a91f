// part.h - writes output files and folders atomically: under a name that no other program has, NAME.PROCESS-NUMBER.part
// in the same folder, and renamed when complete. Two writers of one name do not disturb each other: the file of the
// last one to end remains.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error;

// A file being written. Single writes report no errors: part_end reports the first one and removes the partial file. A
// killed program leaves its partial file.
struct part;
// Begins a file that the user names. If it is a link, the file that the link leads to is replaced; a device or pipe,
// such as /dev/stdout, is written in place.
struct part *part_begin(const char *path, struct error *err);
// Begins a file of the program's own, such as a cache: anything of that name is replaced, a link as well.
struct part *part_begin_own(const char *path, struct error *err);
void part_write(struct part *p, const void *bytes, size_t n);
void part_pad(struct part *p, size_t to);         // zeros up to a multiple of `to`
bool part_end(struct part *p, struct error *err); // frees p

bool part_file(const char *path, const void *bytes, size_t n, struct error *err); // writes a whole file
bool file_make_folders(const char *path); // creates the parent folders of path; false if one could not be created

bool stdout_failed(void); // flushes stdout; true if it no longer accepts output
