// completion.h - marks what is done of a group's runs: all of it (run.finished), or this process's part of it (table shard).
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct error;
struct group;
struct runner;

bool completion_begin(struct runner *r, const struct group *g, struct error *err);
bool completion_lacks(const struct runner *r, int64_t run,
                      struct error *err); // something of a run of this group is missing
// ran: sequences were added. Otherwise only what a killed process left unmarked is marked.
bool completion_end(const struct runner *r, const struct group *g, bool ran, struct error *err);
