// partial.h - whether settings have all that partial settings say: {kind: small, tokens: 4} of a drafter with all its options.
#pragma once
#include <stdbool.h>

struct settings;

// whole: canonical. A mapping matches one with its keys and more; a scalar of a mapping is its `kind`; a list of a scalar is any of its
// values; 04 is 4.
bool partial_matches(const struct settings *part, const struct settings *whole);
