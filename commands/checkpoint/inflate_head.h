// inflate_head.h - writes the head of a model as a head of the same model inflated (inflate.h): it has the cost of a head of that size
// and drafts the same tokens.
//
// What inflate.h says of layers holds for heads: rows that write to a stream are zeros beyond its first w numbers, columns that read
// one likewise, and gains are scaled. A head that reads several streams side by side has columns for each of them.
#pragma once
#include <stdbool.h>

struct backend;
struct error;
struct model_config;

// from: as head_open's, in a directory with config.json. target: the inflated model; the head gets its width, hidden units and heads.
// to: a directory that does not exist yet; after a failure it does not exist either.
bool inflate_head(const char *from, const struct model_config *target, const char *to, struct backend *b,
                  struct error *err);
