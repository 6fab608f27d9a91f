// report.h - the report of a database: tables of 80 columns, CSV, JSON lines, answer files for Spec-Bench's scripts, or figures.
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct error;
struct store;

enum report_format { REPORT_TABLE, REPORT_CSV, REPORT_JSONL, REPORT_SPEC_BENCH, REPORT_FIGURES };

struct report_options {
    const char *experiment; // NULL: every experiment in the database
    enum report_format format;
    const char *directory;        // REPORT_SPEC_BENCH: where to write one answer file per run
    const char *html, *svg, *pdf; // REPORT_FIGURES: a page, and folders for pictures; NULL: none
    int width;                    // columns of the table; 0: 80
    const char *
        against; // not REPORT_SPEC_BENCH or REPORT_FIGURES: a run to compare the others with, by its number or a part of its drafter; NULL: none
};

// REPORT_TABLE: a table for each experiment and peer group (same target, sampling, prompts, limits, batch). For every cell:
// tokens/s, speedup over `none` from pairs, mean accepted length, acceptance by position, with 95 % intervals by prompt,
// shares of time in propose, verify and advance, and whether every text equals none's, or where it first differs. The error
// for an unknown experiment lists the known ones.
bool report_write(struct store *s, const struct report_options *o, FILE *out, struct error *err);
