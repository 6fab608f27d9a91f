// mapped.h - maps files, detects that a mapped file has changed, and ends the program with a sentence if it was
// shortened.
//
// Weights are read when they are needed. Bytes that another program writes into a mapped file are visible at once; an
// access to bytes that no longer exist raises SIGBUS. If another file is renamed over the mapped one, the mapping keeps
// its bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

struct mapping {       // start with { 0 }
    const uint8_t *at; // (n) read-only
    size_t n;
};
// Maps a regular file that is not empty. Both functions may be called from any thread.
bool file_map(const char *path, struct mapping *to, struct error *err);
void file_unmap(struct mapping *m);

// Parts of other files that file_map() shows in place of a file, for models that are made in memory
// (models/formats/shape.h). All numbers are multiples of a page.
struct mapped_part {
    size_t at, n; // bytes of the file
    int fd;       // descriptor of the other file, which stays open
    size_t from;  // offset in the other file
};
struct mapped_parts {
    struct mapped_part *part; // (n)
    size_t n;
};
bool mapped_fill(int fd, const struct mapped_parts *parts,
                 struct error *err); // keeps the parts until the process ends
// Returns whether a file has such parts: its weights are random, and its header describes the parts
bool mapped_is_filled(const char *path);

// Returns false, with err set, if a mapped file has been written to since it was mapped. What was computed before used
// its old bytes. The call costs a stat() for each mapped file.
bool mapped_unchanged(struct error *err);
bool mapped_was_unchanged(struct error *err); // covers files that have been unmapped as well; for the end of a program

// From now on an access to bytes that no longer exist prints one sentence and ends the program with status 1. Only
// programs call this: a library leaves the signals of its process alone.
void mapped_catch_faults(void);
