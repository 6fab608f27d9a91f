// predictions.h - predicted speedups beside measured ones, from the views prediction and prediction_by_length (results/views_prediction.sql).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct error;
struct store;

enum cost_source { COST_OF_BENCH, COST_OF_STEPS, COST_OF_EITHER };
extern const char *const cost_source_names[]; // "bench", "steps"

struct predictions_options {
    const char *experiment;  // NULL: every experiment in the database
    enum cost_source source; // of the cost of passes. COST_OF_EITHER: of bench where a run has one, else of the steps
    int64_t bench;           // its id, with COST_OF_BENCH; 0: of each run the latest that fits
    int width;               // columns; 0: 80
};

bool predictions_write(struct store *s, const struct predictions_options *o, FILE *out, struct error *err);
