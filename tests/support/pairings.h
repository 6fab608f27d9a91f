// pairings.h - a small target paired with every registered drafter, with various options.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "engine/engine.h"
#include "drafters/drafter.h"
#include "sampling/sampling.h"
#include "verifier/verifier.h"

struct backend;
struct error;
struct rule;

// Every combination of drafter and options that is tested, as on the command line; %s is replaced by the path of the draft
// model, and with a suffix it is the path of a head (pair_heads_make). A registered drafter without a combination is tested with
// its defaults. One with an option that has none is skipped with a message, unless pair_only names it.
int pair_count(void);
const char *pair_drafter(int i); // "small:model=%s,tokens=4"
char *pair_line(const char *drafter,
                const char *draft);     // with the path of the draft model in place of each %s; free() it
void pair_only(char **drafters, int n); // n > 0: these are tested, as given on a test program's command line

unsigned pair_makes(const char *drafter);              // drafter_makes
enum draft_memory pair_remembers(const char *drafter); // drafter_remembers
bool pair_is_of_drafters(const char *drafter);         // drafter_type.of
bool pair_uses_target(const char *drafter); // for its drafts: the target's layers or its most probable tokens
bool pair_fits(const char *drafter, const struct rule *rule);     // whether the rule takes its drafts
bool pair_declares(const char *drafter, const char *option_name); // whether it has an option of this name

// The two models, in test_directory(): made and removed by the set-up and tear-down of a group of tests.
extern char *pair_target, *pair_draft; // paths
int pair_models_make(void **state);    // the draft model is the target's first layer, so some draft tokens are accepted
int pair_models_make_bf16(void **state);
int pair_models_make_foreign(void **state); // the draft model has other weights
int pair_models_remove(void **state);
// Heads of random weights for a target, directories with the name of the draft model and the suffixes .medusa, .eagle, .eagle3; .other, a draft
// model with another tokenizer; and .store, a datastore.
void pair_heads_make(const char *target, const char *draft);

struct pair {                                // one target with one drafter
    struct backend *backend, *draft_backend; // draft_backend NULL: both use backend
    struct model *target;
    struct tokenizer *tokenizer; // of the target; NULL: it has none
    struct sampling sampling;
    void *options, *rule_options;
    const struct drafter_type *type;
    const struct rule *rule; // with its defaults
    struct drafter *drafter;
    struct verifier *verifier;
};

// sampling: in YAML's flow style, "{temperature: 1, top_p: 0.9}". draft: path of the draft model. target_on, draft_on: functions
// that open the devices (tests/device/gpus.h); NULL: the CPU, and for the drafter the device of the target.
typedef struct backend *pair_device(struct error *err);
struct pair *pair_open_on(pair_device *target_on, pair_device *draft_on, const char *target, const char *draft,
                          const char *drafter, const char *sampling, const struct rule *rule, int slots, int length);
struct pair *pair_open(const char *target, const char *draft, const char *drafter, const char *sampling,
                       const struct rule *rule, int slots, int length);
void pair_close(struct pair *p);
// Has target and drafter read the first n tokens of a text, as far as they have not. node: of the advances; NULL: they are a prompt.
void pair_feed(struct pair *p, int slot, const int32_t *token, int n, const int32_t *node);
