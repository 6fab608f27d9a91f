// environment.h - revision of this program and the environment in which it runs, for the rows of results.
#pragma once
#include <stdbool.h>
#include "results/store.h"

struct cell_runner;
struct error;
struct loaded_experiment;
struct runner;

// Returns "0.1.0", a static string.
const char *speclab_version(void);
// Returns "48af27e08199". With uncommitted changes it is "48af27e08199+changes 0f3a9c2b71d4", where the second hash is
// that of the program's file. A build other than the release build adds "+debug". The string is static.
const char *speclab_revision(void);
// Returns both: "0.1.0 (48af27e08199)", a static string.
const char *program_version(void);

// Returns the environment of a cell's texts; its strings are borrowed from o and c.
struct environment environment_of(const struct loaded_experiment *o, const struct cell_runner *c);
// Reports a changed environment, and fails if bits may differ (results/store.h). Call it before a cell decodes
// anything.
bool environment_check(struct runner *r, struct cell_runner *c, struct error *err);
