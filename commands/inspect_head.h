// inspect_head.h - `speclab inspect HEAD --target MODEL`: facts about a drafter's head, and whether it fits the target.
#pragma once
#include <stdbool.h>

struct error;

// True if the checkpoint is a head, so that a missing --target can be reported.
bool inspect_is_head(const char *name);
// Prints the facts. Reads no weights of either checkpoint, only the id map of a reduced vocabulary, so size does not matter.
bool inspect_head(const char *head, const char *target, bool json, struct error *err);
