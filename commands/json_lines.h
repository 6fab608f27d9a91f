// json_lines.h - reader of JSON Lines files, one object at a time; errors name file and line.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/files/input.h"

struct error;
struct ids;
struct json;

struct json_lines {
    struct lines lines;  // blank lines are skipped but counted
    struct json *object; // valid until the next call
    bool failed;
};

bool json_lines_open(struct json_lines *l, const char *path, struct error *err); // NULL or "-": stdin
// Returns false at the end of the file, or with l->failed and err set on failure.
bool json_lines_next(struct json_lines *l, struct error *err);
void json_lines_close(struct json_lines *l);
// Sets err to "file:line: MESSAGE". Always returns false.
bool json_lines_fail(const struct json_lines *l, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Appends a list of token ids, each below `vocab`; errors begin with `what`.
bool json_read_ids(const struct json *list, const char *what, int vocab, struct ids *to, struct error *err);
// The list at `key` of the object; errors name file and line.
bool json_lines_ids(const struct json_lines *l, const char *key, int vocab, struct ids *to, struct error *err);
