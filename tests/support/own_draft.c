#include "tests/support/own_draft.h"

struct draft *own_draft_begin(struct own_draft *o, int32_t root, int capacity)
{
    o->draft = (struct draft){ .n = 1,
                               .capacity = capacity,
                               .token = o->token,
                               .parent = o->parent,
                               .proposal = o->proposal,
                               .source = o->source };
    o->token[0] = root;
    o->parent[0] = -1;
    o->proposal[0] = DETERMINISTIC;
    return &o->draft;
}
