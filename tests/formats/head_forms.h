// head_forms.h - a little head of every form that is published, for one little target; what is written follows from names
// and seeds, and tests/cases/make_heads.py makes it again.
#pragma once
#include "models/eagle.h"
#include "tests/support/small_heads.h"

enum { VOCAB = 96, WIDTH = 64, LAYERS = 8, SEED = 5, CERTAIN = 5, ROWS = CERTAIN + 3, MEDUSA_ROWS = 3, DRAFT = 32 };

struct form_bench {
    struct backend *backend;
    struct model *target;
};
struct form_bench form_bench_open(int layers); // the target, with so many
void form_bench_close(struct form_bench *b);
struct eagle *form_open_eagle(const struct form_bench *b, const char *path, enum head_kind kind, enum tri said,
                              struct error *err); // said: norm_before_residual

struct head_shape form_shape(void); // of an own vocabulary of DRAFT tokens, where a form has one
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
int64_t form_medusa_mapped(int i);              // the target's id for token i of its vocabulary
void form_eagle3_silent(const char *directory); // form_eagle3_speculators without norm_before_residual
// An EAGLE-3 head with one of the newer norms, opened, to be given what else that needs.
struct head_edit *form_eagle3_with(const char *directory, const char *key);
