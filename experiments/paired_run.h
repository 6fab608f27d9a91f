// paired_run.h - one bunch of prompts, decoded back to back by the cells that lack something of it, `none` among them.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "decode/decode.h"
#include "experiments/cells.h"
#include "experiments/progress.h"
#include "engine/stop_strings.h"

struct due;
struct error;
struct store;
struct conversation;

struct runner { // what lasts for the whole of experiment_run
    const struct experiment *e;
    struct loaded_experiment opened;
    struct store *store;
    struct progress progress;
    const volatile int *stop; // NULL: nobody will interrupt
    struct stop_strings strings;
    struct stops stops; // what ends a text
    bool full;          // some conversation outgrew the context, now or when it was stored
};

struct paired_run {
    int number;           // of bunch and repeat together: turns the order round
    int repeat, first, n; // prompts first .. first + n of the experiment's
    int batch;            // slots
    int64_t pair;
    struct conversation *conversation; // (contenders, n)
    struct due *due;                   // (contenders, n) what of each is decoded (plan.h)
};

// The bunch that begins with this prompt.
struct paired_run paired_run_at(const struct experiment *e, int batch, int repeat, int first);
// Reads what the database has of it, and plans. s NULL: there is none. paired_run_close() even if it fails.
bool paired_run_open(struct paired_run *o, const struct loaded_experiment *opened, struct store *s,
                     const struct group *g, struct error *err);
void paired_run_close(struct paired_run *o, const struct group *g);
int paired_run_lacks(const struct paired_run *o, int cell_runner); // conversations of its own
// All of that, and decodes what is due.
bool paired_run_decode(struct paired_run *o, struct runner *r, struct group *g, struct error *err);
