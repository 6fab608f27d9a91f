// csv.h - fields of CSV files (RFC 4180).
#pragma once
#include <stdbool.h>

struct text;

// Appends a field, quoted if necessary, and a comma before it unless it is the first of its line. A text that a
// spreadsheet would take for a formula gets an apostrophe before it.
void csv_put(struct text *to, const char *field, bool first);
