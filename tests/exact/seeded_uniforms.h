// seeded_uniforms.h - plain rules as black boxes (tests/support/bisect.h), each with one misuse of its uniforms. Every one of
// them is exact by enumeration of its decisions.
#pragma once
#include "tests/support/bisect.h"

enum misuse {
    NO_MISUSE,
    ACCEPT_ALWAYS_ZERO,     // M11: the uniforms of acceptance tests are 0
    RESIDUAL_REUSES_ACCEPT, // M43: the residual is sampled with the uniform of the acceptance test
    COARSE_ACCEPT,          // M45: the uniforms of acceptance tests have 11 bits
    COARSE_PICK,            // M46: the uniforms of picks have 24
    INCLUSIVE_ACCEPT,       // M48: u <= p / q
    SHARED_ACCEPT_ONLY,     // one uniform for the acceptance tests of all nodes
    ACCEPTS_MIDDLE,         // accepts in the middle of the interval: the measure is right
    SHARED_ACCEPT,          // no misuse: one uniform for all children of a node, which are deterministic
    SHARED_ACCEPT_AND_PICK  // M41: it also samples the residual
};

struct misusing_box {     // rejection on a chain; from SHARED_ACCEPT on, on a tree of deterministic tokens
    struct black_box box; // first
    enum misuse misuse;
};
struct misusing_box misusing_box(enum misuse misuse);

enum race_variant {
    RACE_AS_MATCH,
    RACE_BY_UNIFORMS,   // the smallest u / w, which is no race of exponentials
    RACE_SAME_UNIFORMS, // the uniforms of one race for all places
};

struct racing_box {       // match on a chain
    struct black_box box; // first
    enum race_variant race_variant;
};
struct racing_box racing_box(enum race_variant race_variant);
