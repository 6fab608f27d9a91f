// report.h - what a database says, for people (80 columns), for programs (CSV, JSON lines) and for Spec-Bench's
// scripts.
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct error;
struct store;

enum report_format { REPORT_TABLE, REPORT_CSV, REPORT_JSONL, REPORT_SPEC_BENCH };

struct report_options {
    const char *experiment; // NULL: every experiment in the database
    enum report_format format;
    const char *directory; // of REPORT_SPEC_BENCH: one answer file a run goes here
    int width;             // columns of a terminal; 0: 80
};

// A table for each experiment and peer group (same target, sampling, prompts, limits, batch): for every cell tokens/s,
// speedup over `none` from pairs with a 95 % interval by prompt, mean accepted length, acceptance by position, share of
// time in propose, verify and advance, and whether every text equals none's or where it first parts. An experiment that
// does not exist is an error that lists those that do.
bool report_write(struct store *s, const struct report_options *o, FILE *out, struct error *err);
