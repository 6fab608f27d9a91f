// inspect.h - between the files of `speclab inspect`.
#pragma once
#include <stdbool.h>
#include "models/config.h"

struct error;

const char *rope_name(enum rope_scaling s); // "llama3"

// `speclab inspect MODEL --checkpoint`: prints what a tool that writes the model in another form has to know, one JSON
// object. The shapes of all weights are checked, their numbers are not read.
bool inspect_checkpoint(const char *name, struct error *err);

// `speclab inspect HEAD --target MODEL`: facts about a drafter's head, and whether it fits the target. Reads no weights
// of either checkpoint, only the id map of a reduced vocabulary, so size does not matter.
bool inspect_head(const char *head, const char *target, bool as_json, struct error *err);
bool inspect_is_head(const char *name); // whether the checkpoint is a head, so that a missing --target can be reported
