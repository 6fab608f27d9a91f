// mapped.h - files that are mapped: whether one has changed, and an end with a sentence where one has been shortened.
//
// Weights are read as they are needed. Bytes that another program writes into a mapped file are read at once; bytes that are no more there raise
// SIGBUS. A file that is replaced by renaming another leaves the mapping as it is.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

struct mapping {       // start with { 0 }
    const uint8_t *at; // (n) read-only
    size_t n;
};
// Maps a regular file that is not empty; both from any thread.
bool file_map(const char *path, struct mapping *to, struct error *err);
void file_unmap(struct mapping *m);

// Parts of other files that file_map() shows in a file's place: for models that are made in memory (models/formats/shape.h). Multiples of a page.
struct mapped_part {
    size_t at, n; // bytes of the file
    int fd;       // of the other file, which stays open
    size_t from;  // where they are in it
};
struct mapped_parts {
    struct mapped_part *part; // (n)
    size_t n;
};
bool mapped_fill(int fd, const struct mapped_parts *parts,
                 struct error *err); // keeps the parts, to the end of the process
bool mapped_is_filled(
    const char *path); // whether a file has such parts: its numbers are finite, and what they are is in its header

// False, with err set, if a file that is mapped has been written to since. What was computed before is of its bytes as they were. It costs a stat()
// for each mapped file.
bool mapped_unchanged(struct error *err);
bool mapped_was_unchanged(struct error *err); // also of files until they were unmapped: for the end of a program

// From now on an access to bytes that are no more there prints one sentence and ends the program with status 1. For programs: a library leaves
// the process's signals alone.
void mapped_catch_faults(void);
