// environment.h - which speclab this is and where it runs, for the rows of results.
#pragma once
#include <stdbool.h>
#include "results/environment.h"

struct cell_runner;
struct error;
struct loaded_experiment;
struct runner;

// "48af27e08199"; of a program with changes that no revision has, "48af27e08199+changes 0f3a9c2b71d4", the latter a hash of the
// program's file; likewise "+debug" of one that is not built as released. A constant.
const char *speclab_revision(void);

// Under what a cell's texts are decoded; its texts are the runner's and the contender's.
struct environment environment_of(const struct loaded_experiment *o, const struct cell_runner *c);
// To be called before a cell decodes anything: what is other than before is said, and refused where bits may differ
// (results/environment.h).
bool environment_enter(struct runner *r, struct cell_runner *c, struct error *err);
