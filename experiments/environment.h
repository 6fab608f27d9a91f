// environment.h - which speclab this is and where it runs, for the rows of results.
#pragma once
#include <stdbool.h>

struct contender;
struct error;
struct runner;

// "48af27e08199"; of a program with changes that no revision has, "48af27e08199+changes 0f3a9c2b71d4", the latter a hash of the
// program's file. A constant.
const char *speclab_revision(void);

// To be called before a cell decodes anything: its run's row notes the environment (results/environment.h), and what is other
// than before is said.
bool environment_enter(struct runner *r, struct contender *c, struct error *err);
