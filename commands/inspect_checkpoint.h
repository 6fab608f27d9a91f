// inspect_checkpoint.h - the forms of `speclab inspect` that describe a checkpoint without opening it as a model.
#pragma once
#include <stdbool.h>

struct error;

// `speclab inspect MODEL --checkpoint`: prints what a tool that writes the model in another form has to know, one JSON
// object. The shapes of all weights are checked, their numbers are not read.
bool inspect_checkpoint(const char *name, struct error *err);

// `speclab inspect HEAD --target MODEL`: facts about a drafter's head that fits the target, as JSON. Reads no weights
// of either checkpoint, only the id map of a reduced vocabulary, so size does not matter.
bool inspect_head(const char *head, const char *target, struct error *err);
bool inspect_is_head(const char *name); // whether the checkpoint is a head, so that a missing --target can be reported
