// report.h - the report of a database: tables of 80 columns, Markdown, LaTeX, CSV, JSON lines, a page with figures, or files in the forms of
// other projects.
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct error;
struct store;

enum report_format {
    REPORT_TABLE,
    REPORT_CSV,
    REPORT_JSONL,
    REPORT_MARKDOWN,
    REPORT_LATEX,
    REPORT_FIGURES,
    REPORT_SPEC_BENCH, // from here on: files in a folder (results/exports)
    REPORT_VLLM,
    REPORT_SGLANG,
    REPORT_NVIDIA,
    REPORT_GOLDEN
};

// Up to so many cells, the terminal's report has all of them, and all tables of each comparison.
enum { REPORT_ALL_CELLS = 100, REPORT_TOP = 10, REPORT_TOP_ALL = -1 };

struct report_options {
    const char *experiment; // NULL: every experiment in the database
    enum report_format format;
    const char *directory;        // formats of files: where to write them; created if missing
    const char *html, *svg, *pdf; // REPORT_FIGURES: a page, and folders for pictures; NULL: none
    int width;                    // columns of the table; 0: 80
    int top; // only so many of the fastest cells of each comparison in its table of cells, beside none's; 0: as many as there are
        // up to REPORT_ALL_CELLS cells, else REPORT_TOP; in REPORT_LATEX what fits a page, in REPORT_MARKDOWN all; REPORT_TOP_ALL: all
    bool details;     // REPORT_TABLE: the tables of each comparison, also of more cells than REPORT_ALL_CELLS
    bool by_category; // REPORT_MARKDOWN, REPORT_LATEX: a table by category
    const char *
        against; // not with files, pages and pictures: a run to compare the others with, by its number or a part of its drafter; NULL: none
};

// REPORT_TABLE: a table for each experiment and peer group (same target, sampling, prompts, limits, batch). For every cell:
// tokens/s, speedup over `none` from pairs, mean accepted length, acceptance by position, with 95 % intervals by prompt,
// shares of time in propose, verify and advance, and whether every text equals none's, or where it first differs. The error
// for an unknown experiment lists the known ones.
bool report_write(struct store *s, const struct report_options *o, FILE *out, struct error *err);
// Compares the acceptance lengths of the runs with those in a file of `--export golden`, and prints a line for each. *within: all are within their
// tolerance, and each has a run. (results/exports/golden.c)
bool report_golden(struct store *s, const struct report_options *o, const char *path, FILE *out, bool *within,
                   struct error *err);
