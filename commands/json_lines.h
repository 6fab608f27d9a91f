// json_lines.h - a file with a JSON object on each line, read one by one; a complaint says file and line.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct error;
struct ids;
struct json;

struct json_lines {
    FILE *file;
    const char *name;    // "stdin", or the path; borrowed
    long line;           // of the object, from 1; blank lines count, and are passed over
    struct json *object; // until the next call
    char *text;
    size_t capacity;
    bool failed;
};

bool json_lines_open(struct json_lines *l, const char *path, struct error *err); // NULL or "-": stdin
// false: no more, or, if l->failed, err says what is wrong
bool json_lines_next(struct json_lines *l, struct error *err);
void json_lines_close(struct json_lines *l);
// "file:line: sentence"; always false.
bool json_lines_fail(const struct json_lines *l, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The list of token ids, each below `vocab`, under the object's key.
bool json_lines_ids(const struct json_lines *l, const char *key, int vocab, struct ids *to, struct error *err);
