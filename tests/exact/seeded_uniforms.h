// seeded_uniforms.h - rules as kernels are seen (exact/bisect.h), plain copies with one misuse of their uniforms at a time. Each
// decides as it should by every enumeration of decisions.
#pragma once
#include "exact/bisect.h"

enum slip {
    NO_SLIP,
    ALWAYS_ZERO,        // M11: the coins' uniforms are 0
    ONE_UNIFORM,        // M43: what follows a guess that fell is drawn with the uniform by which it fell
    COARSE_COINS,       // M45: the coins' uniforms have 11 bits
    COARSE_PICKS,       // M46: the picks' have 24
    INCLUSIVE,          // M48: u <= p / q
    SHARED_ACCEPT_ONLY, // one uniform for the coins of all nodes
    TURNS_TWICE,        // stands in the middle of the interval: of the right measure
    SHARED_ACCEPT,      // no slip: one uniform for all children of a node, which were chosen
    SHARED_ACCEPT_AGAIN // M41: and it also draws what follows
};

struct slipping_box {     // rejection on a chain; from SHARED_ACCEPT on, on a tree of chosen tokens
    struct black_box box; // first
    enum slip slip;
};
struct slipping_box slipping_box(enum slip slip);

enum gait {
    AS_MATCH,
    BY_UNIFORMS,     // the smallest u / w, which is no race of exponentials
    SAME_EVERYWHERE, // one race's uniforms for all places
};

struct racing_box {       // match on a chain
    struct black_box box; // first
    enum gait gait;
};
struct racing_box racing_box(enum gait gait);
