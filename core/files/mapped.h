// mapped.h - the files that are mapped (formats/file.h): whether one has changed, and an end with a sentence where one has been shortened.
//
// Weights are read as they are needed. Bytes that another program writes into a mapped file are read at once; bytes that are no more there raise
// SIGBUS. A file that is replaced by renaming another leaves the mapping as it is.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct stat;

// For file_map and file_unmap, from any thread. st: of the file as it was mapped. False and err: too many are mapped.
bool mapped_add(const char *path, const struct stat *st, const uint8_t *at, size_t n, struct error *err);
void mapped_remove(const uint8_t *at);

// False, with err set, if a file that is mapped has been written to since. What was computed before is of its bytes as they were. It costs a stat()
// for each mapped file.
bool mapped_unchanged(struct error *err);
bool mapped_was_unchanged(struct error *err); // also of files until they were unmapped: for the end of a program

// From now on an access to bytes that are no more there prints one sentence and ends the program with status 1. For programs: a library leaves
// the process's signals alone.
void mapped_catch_faults(void);
