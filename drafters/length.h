// length.h - `length` among the options of any drafter: short for the drafter `adaptive` around it.
#pragma once
#include <stdbool.h>

struct error;
struct settings;

// {kind: ngram, tokens: 8, length: adaptive} becomes {kind: adaptive, of: {kind: ngram, tokens: 8}}; length may also be a map of adaptive's
// options, as in length: {by: confidence, threshold: 0.3}. Settings without it stay as they are. Returns false and sets err for any other
// value.
bool drafter_length(struct settings *drafter, struct error *err);
