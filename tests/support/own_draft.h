// own_draft.h - a draft with memory of its own, for tests that call drafters and rules themselves.
#pragma once
#include "core/draft.h"

struct own_draft {
    struct draft draft;
    int32_t token[MAX_NODES], parent[MAX_NODES];
    uint8_t proposal[MAX_NODES], source[MAX_NODES];
};

// Makes it the root alone.
struct draft *own_draft_begin(struct own_draft *o, int32_t root, int capacity);
