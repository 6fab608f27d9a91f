// foreign_options.h - what foreign drafters and rules share: a refusal in words, and tables of options
// (engine/foreign.h).
#pragma once
#include "core/options.h"
#include "engine/foreign.h"

enum { FOREIGN_OPTIONS = 32 };

// Writes a sentence to r->why and returns 0.
int32_t foreign_refuse(struct foreign_report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Returns a table of the n options of the plugin and then `more` (extra), whose fields follow; owned by the caller.
// *size: bytes of the plugin's own fields. NULL: an option is refused.
struct option *foreign_options(const struct foreign_option *o, int n, const struct option *more, int extra,
                               size_t *size, struct foreign_report *r);
// Reads the first n options of a struct to value (n).
void foreign_values(const struct option *table, int n, const void *options, struct foreign_value *value);
