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
    struct shard_row part;    // the part for the current group
    struct slice_load load;   // slices whose disturbance is not yet known
    const volatile int *stop; // NULL: not interruptible
    bool full;                // a conversation, possibly a stored one, does not fit the context
    int failed;               // cells whose plugin failed
};

struct paired_run {
    int number; // counts prompts and repeats, by which the order of cells rotates
    int batch;
    int repeat, first, n; // prompts first .. first + n - 1 of the experiment
    int64_t pair;
    struct conversation *conversation; // (cells, n)
    struct due *due;                   // (cells, n) turns that are decoded (plan.h)
};

// Returns the number of prompts in a paired run. With several slots it is enough to refill each of them several times,
// since fillers decode next to a cell's last texts.
int paired_run_prompts(int batch);
// Returns the paired run of the prompts that start at `first`, a multiple of paired_run_prompts.
struct paired_run paired_run_at(const struct experiment *e, int batch, int repeat, int first);
// Reads stored turns and plans. s NULL: no database. Call paired_run_close in any case, also after failure.
bool paired_run_open(struct paired_run *o, const struct loaded_experiment *loaded, struct store *s,
                     const struct group *g, struct error *err);
void paired_run_close(struct paired_run *o, const struct group *g);
int paired_run_missing(const struct paired_run *o, int cell); // conversations that the cell itself lacks
// Opens, decodes what is due, stores it, closes.
bool paired_run_decode(struct paired_run *o, struct runner *r, struct group *g, struct error *err);

// Returns the prompt of a filler (0, 1, ..): the paired run's prompts, then those of earlier ones, the last ones first.
// It is never a prompt that is still to come: a drafter that remembers other texts would have its answer.
int filler_prompt(const struct paired_run *o, int number);
// Returns the number that selects the random numbers of a text. prompt: its position in the file.
int64_t sequence_number(int64_t prompt, int turn, int repeat);
