// tables.h - functions that the tables of a report share: words and figures, descriptions of a comparison and its
// cells.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/memory.h"
#include "results/statistics/intervals.h"

struct comparison;
struct comparisons;
struct error;
struct json;
struct report_options;
struct store;
struct tally;

// With fewer prompts the interval of a category is too wide to be useful.
enum { MIN_INTERVAL_PROMPTS = 3 };

// ---- figures (report_cells.c, like all functions up to the forms of the report)

enum { FIGURE = 32 };
const char *report_short_figure(char to[FIGURE], double x); // at most four characters
void report_put_figure(struct text *out, int width, double x);
void report_put_interval(struct text *out, int width, const struct interval *x);
// The value times factor, with its interval.
void report_put_value(struct text *out, int width, struct interval x, double factor);
void report_put_number(struct text *out, const struct comparison *c, int i); // number of a run; *: its rule is lossy
void report_put_percent(struct text *out, int width, double share);
// .62; a positive rate below half of the last digit is +0.
void report_put_rate(struct text *out, int width, double rate);
void report_put_line(struct text *out, const struct comparison *c, int i, int width,
                     const char *words); // a sentence about a run

// ---- descriptions; free() the strings

char *report_title(const struct comparisons *all, int which); // "demo", or "demo (1 of 2)"
char *report_target(const struct comparison *c);              // "smollm2 (weights q4_1, activations int8)"
char *report_prompts(const struct comparison *c);             // "12 of prompts.jsonl, up to 2 turns: code 7, chat 5"
char *report_decoding(const struct comparison *c);            // "batch 1, seed 1, 1 repeat"
// Returns the values of a field of struct tally over all cells. numbered: if they differ, each has the numbers of its
// cells.
char *report_values(const struct comparison *c, size_t field, bool numbered);
char *report_equal(const struct comparison *c,
                   const struct tally *t); // "14/14"; "sampled": other samples; "-": no pairs

// Returns "Other processes used the processors ..", if that was more than a fifth of the time of a cell; otherwise "".
char *report_disturbed(const struct comparisons *all);

// The cells of a comparison, named by what differs. Options that all cells of a kind of drafter share, and a rule that
// all cells share, are in `common` instead, as in "rejection; eagle3(quantize=q8_0)".
struct cell_names {
    int n;
    char **name; // (n)
    char *common;
};
void cell_names_make(const struct comparison *c, struct cell_names *to);
void cell_names_free(struct cell_names *names);

// Returns the indices of the cells: none, then lossless ones, then lossy ones, each by speedup, the largest first.
int *report_order(const struct comparison *c); // (n) free() it
// Returns how many of report_order's cells to show: those of none and `top` more; top 0: all. *lossy: how many others
// are lossy.
int report_shown(const struct comparison *c, const int *order, int top, int *lossy);
// a sentence; "" if none are left out.
char *report_left_out(const struct comparison *c, const int *order, int shown, int lossy);

// ---- the report in its forms

// Writes all cells in one table, or the `top` fastest of each comparison; top 0: all (report_table.c, like the next
// two).
void report_summary(const struct comparisons *all, int top, int width, struct text *out);
// Writes one comparison as tables.
bool report_comparison(struct store *s, const struct comparisons *all, int which, int width, struct text *out,
                       struct error *err);
void report_notes(const struct comparisons *all, int width,
                  struct text *out); // definitions of the numbers in the tables
// Compares every other run of the same prompts with one (report_against.c): run.id, or a part of the drafter of one run
// only.
bool report_against(struct store *s, const struct comparisons *c, const struct report_options *o, struct text *out,
                    struct error *err);

// Writes an object for a machine (report_export.c) as a row of CSV (RFC 4180); `first`: after the names of its members.
// Frees it.
void report_put_csv(struct text *out, struct json *row, bool first);
// Adds NAME, NAME_low and NAME_high. A number that is not finite is null in JSON, and a word in CSV.
void report_set_interval(struct json *row, const char *name, const struct interval *x, bool csv);
// Writes all runs of the comparisons, a row for each: the view run_summary, the interval of the statistics and the
// acceptance by position.
bool report_rows(struct store *s, const struct comparisons *c, bool csv, struct text *out, struct error *err);
// Writes one object: comparisons in words, their cells as these rows with short names, in the order of the tables, and
// by category.
bool report_json(struct store *s, const struct comparisons *c, struct text *out, struct error *err);
