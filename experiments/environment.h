// environment.h - revision of this program and where it runs, for the rows of results.
#pragma once
#include <stdbool.h>
#include "results/store.h"

struct cell_runner;
struct error;
struct loaded_experiment;
struct runner;

// "0.1.0". Static string.
const char *speclab_version(void);
// "48af27e08199"; with uncommitted changes "48af27e08199+changes 0f3a9c2b71d4", where the second hash is of the program's file;
// "+debug" for a build that is not the release build. Static string.
const char *speclab_revision(void);
// Both: "0.1.0 (48af27e08199)". Static string.
const char *program_version(void);

// The environment of a cell's texts; its strings are borrowed from o and c.
struct environment environment_of(const struct loaded_experiment *o, const struct cell_runner *c);
// Call before a cell decodes anything: reports a changed environment, and fails if bits may differ (results/store.h).
bool environment_check(struct runner *r, struct cell_runner *c, struct error *err);
