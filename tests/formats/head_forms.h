// head_forms.h - a small head of every published form, for one small target. The weights are derived from names and seeds;
// tests/cases/make_heads.py derives the same.
#pragma once
#include "models/heads/eagle.h"

enum { VOCAB = 96, WIDTH = 64, LAYERS = 8, SEED = 5, CERTAIN = 5, ROWS = CERTAIN + 3, MEDUSA_ROWS = 3, DRAFT = 32 };

struct form_bench {
    struct backend *backend;
    struct model *target;
};
struct form_bench form_bench_open(int layers); // opens a target with this number of layers
void form_bench_close(struct form_bench *b);
struct eagle *form_open_eagle(const struct form_bench *b, const char *path, enum head_kind kind,
                              enum tri norm_before_residual, struct error *err);

// Writes a head of this form for the bench's target, with changes as of head_change() (NULL: none). Forms with a reduced vocabulary have
// DRAFT tokens.
enum head_kind form_write(const char *directory, const char *name, const char *changes);
int64_t form_medusa_target_id(int i); // the target's id of token i of the reduced vocabulary
