// report_parts.h - the output formats of report.c.
#pragma once
#include <stdbool.h>

struct comparison;
struct comparisons;
struct error;
struct report_options;
struct store;
struct text;

// All cells in one table, or of each comparison the `top` fastest; top 0: all (tables/report_summary.c).
void report_summary(const struct comparisons *all, int top, int width, struct text *out);

// One comparison as tables (tables/report_table.c).
bool report_comparison(struct store *s, const struct comparisons *all, int which, int width, struct text *out,
                       struct error *err);

// Definitions of the numbers in the tables, once at the end.
void report_notes(const struct comparisons *all, int width, struct text *out);

// All runs of the comparisons, one row or object per run (report_export.c): the view run_summary, the interval of the
// statistics and the acceptance by position.
bool report_csv(struct store *s, const struct comparisons *c, struct text *out, struct error *err);
bool report_jsonl(struct store *s, const struct comparisons *c, struct text *out, struct error *err);
// One object: comparisons in words, their cells as in report_jsonl with short names, in the order of the tables, and by category.
bool report_json(struct store *s, const struct comparisons *c, struct text *out, struct error *err);

// Every other run of the same prompts compared with one (report_against.c): run.id, or a part of the drafter of one run only.
bool report_against(struct store *s, const struct comparisons *c, const struct report_options *o, struct text *out,
                    struct error *err);
