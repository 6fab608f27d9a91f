// file_write.h - writes complete files, and compares texts with golden files.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct json;

void file_write(const char *path, const char *text);
void file_write_bytes(const char *path, const void *bytes, size_t n);
// Files that this process and its children write end at so many bytes, as on a disk that fills up; -1: no limit any more. SIGXFSZ is
// ignored from then on.
void file_size_limit(long bytes);
void assert_no_partial_files(const char *path);      // no partial file stands beside a file or folder of this name
void file_flip(const char *path, long at, int bits); // inverts bits of a byte; at < 0: from the end
// Compares a text with tests/cases/NAME and fails the test at the first line that differs. write: NAME is rewritten first, to be
// reviewed again.
void assert_golden_file(const char *name, const char *text, bool write);
// tests/cases/NAME, a printf format; json_free it. Fails the test if it cannot be read.
struct json *golden_json(const char *name, ...) __attribute__((format(printf, 1, 2)));
// The JSON value of a text; ' stands for " if it has no ". Fails the test if it is none.
struct json *json_of(const char *text);
// Sets members of the object in a JSON file: those of an object as of json_of().
void json_file_set(const char *path, const char *members);
