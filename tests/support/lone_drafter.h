// lone_drafter.h - a drafter opened from its line on the command line, without a pairing; a draft with memory of its own.
#pragma once
#include "core/draft.h"

struct drafter;
struct drafter_env;
struct error;

// line: "suffix:tokens=4", all paths filled in. Its options are gone when this returns: a drafter must not borrow from them beyond create.
// NULL: err says why.
struct drafter *lone_drafter(const char *line, const struct drafter_env *env, struct error *err);

struct own_draft {
    struct draft draft;
    int32_t token[MAX_NODES], parent[MAX_NODES];
    uint8_t proposal[MAX_NODES], source[MAX_NODES];
};

// Makes it the root alone.
struct draft *own_draft_begin(struct own_draft *o, int32_t root, int capacity);
