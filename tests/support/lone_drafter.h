// lone_drafter.h - a drafter opened from its line on the command line, without a pairing.
#pragma once

struct drafter;
struct drafter_env;
struct error;

// line: "suffix:tokens=4", all paths filled in. Its options are gone when this returns: a drafter must not borrow from them beyond create.
// NULL: err says why.
struct drafter *lone_drafter(const char *line, const struct drafter_env *env, struct error *err);
