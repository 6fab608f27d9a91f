// inflate_parts.h - shared by inflate.c and inflate_tensors.c; private to them.
#pragma once
#include "models/config.h"
#include "commands/checkpoint/writer.h"

struct backend;
struct source_checkpoint;

struct inflating {
    const struct model_config *small, *large;
    struct backend *backend;
    struct rewrite rewrite;
    struct enlarged_tensor *job; // (rewrite.n) set for tensors without data
};

bool inflate_plan(struct inflating *f, const struct source_checkpoint *o,
                  struct error *err); // fills rewrite.tensor and job
part_put inflate_write_tensor;
