// inspect_head.h - `speclab inspect HEAD --target MODEL`: what a speculator's head is, and whether it fits.
#pragma once
#include <stdbool.h>

struct error;

// Of neither a number is read but those of a reduced vocabulary: checkpoints of any size are answered at once.
// Whether this is a head: who inspects it as a model has forgotten --target.
bool inspect_is_head(const char *name);
bool inspect_head(const char *head, const char *target, bool json, struct error *err);
