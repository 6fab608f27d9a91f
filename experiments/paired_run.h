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
struct talk;

struct runner { // what lasts for the whole of experiment_run
    const struct experiment *e;
    struct opened opened;
    struct store *store;
    struct progress progress;
    const volatile int *stop; // NULL: nobody will interrupt
    struct stop_strings strings;
    struct stops stops; // what ends a text
    bool full;          // some conversation outgrew the context, now or when it was stored
};

struct occasion {
    int number;           // of bunch and repeat together: turns the order round
    int repeat, first, n; // prompts first .. first + n of the experiment's
    int batch;            // slots
    int64_t pair;
    struct talk *talk; // (contenders, n)
    struct due *due;   // (contenders, n) what of each is decoded (plan.h)
};

// The bunch that begins with this prompt.
struct occasion occasion_at(const struct experiment *e, int batch, int repeat, int first);
// Reads what the database has of it, and plans. s NULL: there is none. occasion_close() even if it fails.
bool occasion_open(struct occasion *o, const struct opened *opened, struct store *s, const struct group *g,
                   struct error *err);
void occasion_close(struct occasion *o, const struct group *g);
int occasion_lacks(const struct occasion *o, int contender); // conversations of its own
// All of that, and decodes what is due.
bool occasion_run(struct occasion *o, struct runner *r, struct group *g, struct error *err);
