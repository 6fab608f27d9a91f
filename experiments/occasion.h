// occasion.h - one bunch of prompts, decoded back to back by the cells that lack something of it, `none` among them.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "decode/decode.h"
#include "experiments/cells.h"
#include "experiments/progress.h"
#include "experiments/stop_strings.h"

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
    bool cut;           // some conversation outgrew the context
};

struct occasion {
    int number;           // of bunch and repeat together: turns the order round
    int repeat, first, n; // prompts first .. first + n of the experiment's
    int64_t pair;
    struct talk **talk; // (contenders) (n) each
    bool *lacks;        // (contenders) something of it is not in the database
};

bool occasion_run(struct occasion *o, struct runner *r, struct group *g, struct error *err);
