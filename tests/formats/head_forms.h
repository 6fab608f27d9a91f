// head_forms.h - a small head of every published form, for one small target. The weights are derived from names and seeds;
// tests/cases/make_heads.py derives the same.
#pragma once
#include "models/heads/eagle.h"
#include "tests/support/small_heads.h"

enum { VOCAB = 96, WIDTH = 64, LAYERS = 8, SEED = 5, CERTAIN = 5, ROWS = CERTAIN + 3, MEDUSA_ROWS = 3, DRAFT = 32 };

struct form_bench {
    struct backend *backend;
    struct model *target;
};
struct form_bench form_bench_open(int layers); // opens a target with this number of layers
void form_bench_close(struct form_bench *b);
struct eagle *form_open_eagle(const struct form_bench *b, const char *path, enum head_kind kind,
                              enum tri norm_before_residual, struct error *err);

struct head_shape form_shape(void); // forms with a reduced vocabulary have DRAFT tokens
void form_eagle(const char *directory);
void form_eagle3(const char *directory);
void form_eagle3_fc_norm(const char *directory);
void form_eagle3_narrow(const char *directory);
void form_eagle3_norm_before_fc(const char *directory);
void form_eagle3_norm_output(const char *directory);
void form_eagle3_speculators(const char *directory);
void form_eagle_bias(const char *directory);
void form_eagle_layers(const char *directory);
void form_eagle_own(const char *directory);
void form_eagle_speculators(const char *directory);
void form_medusa(const char *directory);
void form_medusa_layers(const char *directory);
void form_medusa_one(const char *directory);
void form_medusa_shared(const char *directory);
void form_medusa_vllm(const char *directory);
int64_t form_medusa_target_id(int i);                     // the target's id of token i of the reduced vocabulary
void form_eagle3_without_norm_key(const char *directory); // form_eagle3_speculators without norm_before_residual
// Writes an EAGLE-3 head whose configuration enables one of the newer norms; returns it open for further edits.
struct head_edit *form_eagle3_with_norm(const char *directory, const char *key);
