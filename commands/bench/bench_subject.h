// bench_subject.h - a model put on the bench: behind so many cached tokens, a pass is run and timed.
//
// A pass is what verification does: n rows, a chain behind the cached tokens, and the logits of every row. Each context
// has a cache of its own that stays filled, so that any pass can follow any other. Tokens are arbitrary but fixed.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"

struct backend;
struct error;
struct kv_cache;
struct model;

enum { MAX_CONTEXTS = 16 };

struct subject {             // start with { 0 }
    struct backend *backend; // borrowed
    struct model *model;     // borrowed
    int rows, prompt;        // most rows of a pass; tokens of the prompt, 0: there is none
    int n_contexts;
    int context[MAX_CONTEXTS]; // cached tokens
    struct kv_cache *cache[MAX_CONTEXTS], *prompt_cache;
    struct tensor logits; // (rows, vocab)
    int32_t *token, *slot, *parent, *kept;
};

struct subject_plan {
    int rows, prompt, n_contexts;
    const int *context;
    enum type cache;
};

// The model was opened for subject_rows() rows of a pass at least. Fills the caches, which takes a prompt's time each.
int subject_rows(const struct subject_plan *p);
bool subject_open(struct subject *s, struct model *m, const struct subject_plan *p, struct error *err);
void subject_close(struct subject *s); // { 0 } is fine

// Nanoseconds. which: number of the context.
bool subject_pass(struct subject *s, int n, int which, int64_t *ns, struct error *err);
// One row, its logits, and the best of them: what a drafter does for a guess.
bool subject_step(struct subject *s, int which, int64_t *ns, struct error *err);
// The prompt from nothing, with the logits of its last row.
bool subject_prompt(struct subject *s, int64_t *ns, struct error *err);
