// run_again.h - `speclab run --again RUN`: a stored run beside one of the same cell in another database: whether texts
// and speeds are what they were.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct error;
struct store;
struct text;

struct again {
    const char *db, *out; // out NULL: a database that is removed again
    long long run, limit; // limit: prompts; 0: all
    bool no_probe;
};
// Runs the run again and prints what is the same. *same: whether it is reproduced.
bool run_again(const struct again *a, bool *same, struct error *err);

// ---- the comparison (run_compare.c)

struct stored_run { // a row of table run that is to be run again
    int64_t id;
    const char *experiment, *cell;
    bool none;                    // the baseline
    bool texts_vary, drafts_vary; // they vary from run to run, since drafts depend on other texts or clocks
};

// Compares the same cell of `now` with the stored run, over the texts that `now` has, and appends lines for people to
// `report`, the last of them with all that was decided. *same: texts and steps are equal, or may vary; acceptance and
// speedup are inside, or have no interval.
bool stored_run_compare(const struct stored_run *r, struct store *then, struct store *now, struct text *report,
                        bool *same, struct error *err);
