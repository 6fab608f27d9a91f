// file.h - memory-mapped input files, and output files written atomically (as path.part, renamed when complete).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct error;

struct mapping {       // start with { 0 }
    const uint8_t *at; // (n) read-only
    size_t n;
};
bool file_map(const char *path, struct mapping *to, struct error *err); // regular files that are not empty
void file_unmap(struct mapping *m);

bool file_exists(const char *path); // of any type; follows symbolic links
bool file_is_directory(const char *path);
bool file_is_same(const char *a, const char *b); // both are there, under one name or several
bool file_make_folders(const char *path); // creates the parent folders of path; false if one could not be created
char *file_text(const char *path, size_t *n, struct error *err); // the content of a small file and a NUL; free() it

// A file being written, named path.part until it is complete; a device, as /dev/stdout, is written in place. Single writes report no errors:
// part_end reports the first one and removes the partial file.
struct part;
struct part *part_begin(const char *path, struct error *err);
// The same for an open stream, which part_end flushes and leaves open. name: for messages.
struct part *part_onto(FILE *stream, const char *name);
void part_write(struct part *p, const void *bytes, size_t n);
void part_zeros(struct part *p, size_t n);
void part_pad(struct part *p, size_t to);         // zeros up to a multiple of `to`
size_t part_bytes(const struct part *p);          // written so far
bool part_failed(const struct part *p);           // a write has failed; further writes do nothing
bool part_end(struct part *p, struct error *err); // frees p
void part_abandon(struct part *p);                // removes the partial file, frees p; NULL is allowed

// Writes all bytes of tensor i of a checkpoint. Returns false and sets err if the tensor cannot be produced.
typedef bool part_put(void *context, size_t i, struct part *to, struct error *err);
