// pairings.h - a little target with each registered drafter on it, in every shape worth testing.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "decode/decode.h"
#include "drafters/drafter.h"
#include "sampling/sampling.h"
#include "verifier/verifier.h"

struct backend;
struct error;
struct rule;

// Every way in which the registry's drafters are tested, as on the command line; %s is where a draft model's path goes, or
// with an ending that of a head (pair_heads_make).
// A drafter that no line names is tested with its defaults, and fails the test if it cannot be made from them.
int pair_count(void);
const char *pair_drafter(int i); // "small:model=%s,tokens=4"

bool pair_fits(const char *drafter, const struct rule *rule); // the rule takes its drafts

// The two models, in tiny_directory(): made and removed by a group's set-up and tear-down.
extern char *pair_target, *pair_draft; // paths
int pair_models_make(void **state);    // the draft model is the target's first layer: it is right now and then
int pair_models_make_bf16(void **state);
int pair_models_make_foreign(void **state); // it has weights of its own
int pair_models_remove(void **state);
// Heads of random weights for a target: directories named as the draft model with .medusa, .eagle and .eagle3 behind it.
void pair_heads_make(const char *target, const char *draft);

struct pair {                                // one target with one drafter
    struct backend *backend, *draft_backend; // draft_backend: NULL: there is one for both
    struct model *target;
    struct tokenizer *tokenizer; // the target's; NULL: it has none
    struct sampling sampling;
    void *options, *rule_options;
    const struct drafter_type *type;
    const struct rule *rule; // with its defaults
    struct drafter *drafter;
    struct verifier *verifier;
};

// sampling: as in YAML's flow style, "{temperature: 1, top_p: 0.9}". draft: path of the draft model.
// On other devices: opened by these, as tests/device/gpus.h has them. NULL: the CPU; of the drafter: where the target is.
typedef struct backend *pair_device(struct error *err);
struct pair *pair_open_on(pair_device *target_on, pair_device *draft_on, const char *target, const char *draft,
                          const char *drafter, const char *sampling, const struct rule *rule, int slots, int length);
struct pair *pair_open(const char *target, const char *draft, const char *drafter, const char *sampling,
                       const struct rule *rule, int slots, int length);
void pair_close(struct pair *p);
