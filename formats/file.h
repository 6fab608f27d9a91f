// files.h - files mapped to be read, and files that appear whole or not at all.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

struct mapping {       // start with { 0 }
    const uint8_t *at; // (n) read-only
    size_t n;
};
bool file_map(const char *path, struct mapping *to, struct error *err); // regular files that are not empty
void file_unmap(struct mapping *m);

bool file_exists(const char *path); // anything at all, followed through links
bool file_is_directory(const char *path);
bool file_make_folders(const char *path); // those that a file of this path lies in; false: one is not there even so
char *file_text(const char *path, size_t *n, struct error *err); // a whole small file and a NUL; free() it

// A file being written, as path.part until it is complete. Writes cannot fail one by one: the first thing that went
// wrong is what part_end reports, and nothing is left behind then.
struct part;
struct part *part_begin(const char *path, struct error *err);
void part_write(struct part *p, const void *bytes, size_t n);
void part_zeros(struct part *p, size_t n);
void part_pad(struct part *p, size_t to);         // zeros up to a multiple of `to`
size_t part_bytes(const struct part *p);          // so far
bool part_failed(const struct part *p);           // no use in going on
bool part_end(struct part *p, struct error *err); // frees p
void part_abandon(struct part *p);                // leaves nothing; frees p; NULL is fine

// Writes tensor number i of a checkpoint, all of its bytes; false: err says why it cannot be had.
typedef bool part_put(void *of, size_t i, struct part *to, struct error *err);
