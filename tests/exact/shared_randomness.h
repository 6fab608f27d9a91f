// shared_randomness.h - a source of chance with one flaw: what replaces a guess that fell is picked by the very number by which
// the guess was drawn, or judged. For chains, where the guess is the node behind that of the pick.
#pragma once
#include "sampling/rng.h"

struct sharing {
    struct rng rng; // first
    struct rng *of; // who answers; borrowed
    enum purpose with;
};

// with: FOR_DRAFT, the number that the guess was drawn by, or FOR_ACCEPT, the one that it fell by.
struct sharing sharing_source(struct rng *of, enum purpose with);
