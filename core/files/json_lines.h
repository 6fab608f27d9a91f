// json_lines.h - reads and writes JSON Lines, one value at a time, and lists of token ids; errors name file and line.
#pragma once
#include <stdbool.h>

#include "core/files/input.h"

struct error;
struct ids;
struct json;
struct text;

struct json_lines {
    struct lines lines; // blank lines are skipped but counted
    struct json *value; // valid until the next call
    bool failed;
};

bool json_lines_open(struct json_lines *l, const char *path, struct error *err); // NULL or "-": stdin
void json_lines_of(struct json_lines *l, struct text *text, const char *name);   // takes the text over
// Read the next value, and the next object: a line of any other kind is a failure. They return false at the end of the
// file, or with l->failed and err set on failure.
bool json_lines_value(struct json_lines *l, struct error *err);
bool json_lines_next(struct json_lines *l, struct error *err);
void json_lines_close(struct json_lines *l);
// Puts "file:line: " of the last line before the message in err. Always returns false.
bool json_lines_place(const struct json_lines *l, struct error *err);
// Calls `use` for each line, until one fails, whose error gets the place of the line, or stdout does.
bool json_lines_each(const char *path, bool (*use)(void *self, const struct json *line, struct error *err), void *self,
                     struct error *err);
void json_lines_put(struct text *to, struct json *j); // appends a line; frees j
// Appends a list of token ids, each below `vocab`; errors begin with `what`.
bool json_read_ids(const struct json *list, const char *what, int vocab, struct ids *to, struct error *err);
