// paired_run.h - some prompts, decoded back to back by the cells that lack part of them, `none` included.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "experiments/cells.h"
#include "experiments/pairs/slice_load.h"
#include "experiments/progress.h"
#include "results/store.h"

struct due;
struct error;
struct store;
struct conversation;

struct runner { // state of experiment_run
    const struct experiment *e;
    struct loaded_experiment *loaded;
    struct store *store;
    struct progress progress;
    struct division division; // the experiment's paired runs
    struct shard_row part;    // the current group's
    struct slice_load load;   // slices whose disturbance is not known yet
    const volatile int *stop; // NULL: not interruptible
    bool full;                // a conversation does not fit the context, stored ones included
    int failed;               // cells whose plugin failed
};

struct paired_run {
    int number; // counts prompts and repeats: rotates the order of cells
    int batch;
    int repeat, first, n; // prompts first .. first + n - 1 of the experiment
    int64_t pair;
    struct conversation *conversation; // (cells, n)
    struct due *due;                   // (cells, n) what is decoded (plan.h)
};

// Prompts of one paired run: with several slots enough to refill each of them several times, as fillers decode beside a cell's last texts.
int paired_run_prompts(int batch);
// The paired run of the prompts that start at `first`, a multiple of paired_run_prompts.
struct paired_run paired_run_at(const struct experiment *e, int batch, int repeat, int first);
// Reads stored turns and plans. s NULL: no database. Call paired_run_close also after failure.
bool paired_run_open(struct paired_run *o, const struct loaded_experiment *loaded, struct store *s,
                     const struct group *g, struct error *err);
void paired_run_close(struct paired_run *o, const struct group *g);
int paired_run_missing(const struct paired_run *o, int cell); // conversations that the cell itself lacks
// Opens, decodes what is due, stores it, closes.
bool paired_run_decode(struct paired_run *o, struct runner *r, struct group *g, struct error *err);

// The prompt of a filler (0, 1, ..): the paired run's, then those of earlier ones, the last ones first. Never one that is still to come: a drafter that
// remembers other texts would have its answer.
int filler_prompt(const struct paired_run *o, int number);
// Selects the random numbers of a text. prompt: its position in the file.
int64_t sequence_number(int64_t prompt, int turn, int repeat);
