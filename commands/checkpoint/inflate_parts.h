// inflate_parts.h - what inflate.c and inflate_tensors.c share; for nobody else.
#pragma once
#include "models/config.h"
#include "commands/checkpoint/writer.h"

struct backend;
struct origin;

struct inflating {
    const struct model_config *small, *large;
    struct backend *backend;
    struct rewrite rewrite;
    struct draft_batch *job; // (rewrite.n) of those tensors that have no data
};

bool inflate_plan(struct inflating *f, const struct origin *o, struct error *err); // fills rewrite.tensor and job
part_put inflate_put;
