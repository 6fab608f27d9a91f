// report.h - the report of a database: tables of 80 columns, CSV, JSON Lines, JSON.
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct error;
struct store;

enum report_format { REPORT_TABLE, REPORT_CSV, REPORT_JSONL, REPORT_JSON };

// With up to REPORT_ALL_CELLS cells, the terminal's report shows all of them, and all tables of each comparison.
enum { REPORT_ALL_CELLS = 100, REPORT_TOP = 10, REPORT_TOP_ALL = -1 };

struct report_options {
    const char *experiment; // NULL: every experiment in the database
    enum report_format format;
    int width; // width of the table in columns; 0: 80
    // How many of the fastest cells of each comparison its table of cells shows, in addition to none's. 0: all if there
    // are up to REPORT_ALL_CELLS cells, otherwise REPORT_TOP; REPORT_TOP_ALL: all.
    int top;
    bool details;        // REPORT_TABLE: the tables of each comparison, even with more cells than REPORT_ALL_CELLS
    const char *against; // a run with which the others are compared, by its number or a part of its drafter; NULL: none
};

// Writes a report. REPORT_TABLE has a table for each experiment and peer group (same target, sampling, prompts, limits,
// batch). For every cell it shows: tokens/s, speedup over `none` from pairs, mean accepted length, acceptance by
// position, with 95 % intervals by prompt, shares of time in propose, verify and advance, and whether every text equals
// none's, or where it first differs. The error for an unknown experiment lists the known ones.
bool report_write(struct store *s, const struct report_options *o, FILE *out, struct error *err);
