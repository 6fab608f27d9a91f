// entries.h - the entries of a dataset's file, one object at a time: JSON lines, or one JSON list; either may be gzipped.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/digest.h"
#include "core/memory.h"
#include "formats/file.h"

struct error;
struct json;

struct entries {
    const char *path; // borrowed
    struct mapping map;
    struct text unpacked; // of a gzip file
    struct hash hash;     // of the bytes, those within a gzip file
    const char *at, *end; // what has not been read
    bool list;            // the file is one list
    int line;             // lines: of the entry; a list: not used
    int64_t n;            // entries so far; the last one's number is n - 1
    struct json *entry;   // valid until the next call
    bool failed;
};

bool entries_open(struct entries *e, const char *path, struct error *err);
// False at the end of the file, or with e->failed and err set on failure.
bool entries_next(struct entries *e, struct error *err);
void entries_close(struct entries *e);
// Where the entry is: "file:LINE", or of a list "file[NUMBER]", numbers from 0 as jq counts. free() it.
char *entries_place(const struct entries *e);
// Sets err to "PLACE: MESSAGE". Always returns false.
bool entries_fail(const struct entries *e, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
