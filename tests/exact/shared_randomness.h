// shared_randomness.h - a random source with one flaw: the replacement of a rejected token is picked with the uniform
// that sampled the token, or that rejected it. For chains, where the token is the node after that of the pick.
#pragma once
#include "sampling/rng.h"

struct sharing {
    struct rng rng; // first
    struct rng *of; // the real source; borrowed
    enum purpose with;
};

// with: FOR_DRAFT, the uniform that sampled the token, or FOR_ACCEPT, the one that rejected it.
struct sharing sharing_source(struct rng *of, enum purpose with);
