// report.h - the report of a database: CSV, JSON Lines, JSON.
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct error;
struct store;

// REPORT_CSV, REPORT_JSONL: a row or an object for each run: the view run_summary, the intervals of its statistics and
// the acceptance by position. A number that is not finite is null in JSON, and a word in CSV (RFC 4180). REPORT_JSON:
// one object, the comparisons in words, their cells as these objects with short names, in the order of tables, and by
// category. A comparison is of the runs of an experiment with the same target, sampling, prompts, limits and batch.
enum report_format { REPORT_CSV, REPORT_JSONL, REPORT_JSON };
enum { REPORT_FORMATS = REPORT_JSON + 1 };

struct report_options {
    const char *experiment; // NULL: every experiment in the database
    enum report_format format;
    // A run with which every other run of the same prompts is compared, in CSV or JSON Lines, by its number or a part
    // of its drafter's name; NULL: none.
    const char *against;
};

// Writes a report. The error for an unknown experiment lists the known ones.
bool report_write(struct store *s, const struct report_options *o, FILE *out, struct error *err);
