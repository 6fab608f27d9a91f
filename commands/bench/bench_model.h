// bench_model.h - a model prepared for timing: runs and times passes after a given number of cached tokens.
//
// A pass is that of verification: n rows in each slot, a chain after its cached tokens, with the logits of every row. Each
// context has its own cache, which stays filled, so passes can be timed in any order. The tokens are those of a given text, again and again,
// or random ones, each as likely as any other. They matter for mixtures of experts alone, whose experts they choose.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct backend;
struct error;
struct kv_cache;
struct model;

enum { MAX_CONTEXTS = 16 };

struct bench_model {         // start with { 0 }
    struct backend *backend; // borrowed
    struct model *model;     // borrowed
    int rows, slots, prompt; // maxima: rows of a slot, slots of a pass; tokens of the prompt, 0: no prompt
    int n_contexts;
    struct kv_cache *cache[MAX_CONTEXTS], *prompt_cache;
    struct tensor logits; // (slots * rows, vocab)
    int32_t *token, *slot, *parent, *kept;
    int64_t experts; // that the last pass read, over all layers
};

struct bench_model_plan {
    int rows, slots, prompt, n_contexts; // slots 0: one
    const int *context;
    const int32_t *text; // (n_text) tokens; n_text 0: random ones. Borrowed for the call
    int n_text;
    enum type cache;
};

// The model must have been opened for at least bench_model_rows() rows a pass. Fills the caches: every slot of each takes
// the time of a prompt of that length, and its memory.
int bench_model_rows(const struct bench_model_plan *p);
bool bench_model_open(struct bench_model *s, struct model *m, const struct bench_model_plan *p, struct error *err);
void bench_model_close(struct bench_model *s); // { 0 } is allowed

// All three set *ns to the time taken. context_index: index into context[]. n: rows of each of the slots.
bool bench_model_pass(struct bench_model *s, int slots, int n, int context_index, int64_t *ns, struct error *err);
// One row, its logits and their argmax: the work of a draft model for one draft token.
bool bench_model_draft_step(struct bench_model *s, int context_index, int64_t *ns, struct error *err);
// The prompt from an empty cache, with the logits of its last row.
bool bench_model_prompt(struct bench_model *s, int64_t *ns, struct error *err);
