// csv.h - fields of CSV files (RFC 4180).
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct text;

// Appends a field, in quotes if it needs them; after a comma unless it is the first of its line.
void csv_put(struct text *to, const char *field, bool first);

struct csv {        // a place in a text
    const char *at; // (end - at) what is left
    const char *end;
    int line; // of the text, from 1
};
// Reads a field, without its quotes, and what ends it. False: the text is over. *last: it ends its line.
bool csv_read(struct csv *from, struct text *field, bool *last);
