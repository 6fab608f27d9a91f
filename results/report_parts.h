// report_parts.h - the forms in which report.c can say it.
#pragma once
#include <stdbool.h>
#include "core/memory.h"

struct contest;
struct contests;
struct error;
struct report_options;
struct store;

// One contest as a table for people (report_table.c). which of how many of its experiment: 0 of 1 if it is the only
// one.
bool report_contest(struct store *s, const struct contest *c, int which, int of, int width, struct text *out,
                    struct error *err);

// What the numbers of those tables are, once for all.
void report_notes(const struct contests *all, int width, struct text *out);

// All runs of the contests, one row or object a run (report_export.c): the view run_summary, the interval of the
// speedup and
// the acceptance by position.
bool report_csv(struct store *s, const struct contests *c, struct text *out, struct error *err);
bool report_jsonl(struct store *s, const struct contests *c, struct text *out, struct error *err);

// One file a run into the directory, which is made if it is not there; their names go to out.
bool report_spec_bench(struct store *s, const struct contests *c, const char *directory, struct text *out,
                       struct error *err);
