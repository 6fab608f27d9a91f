// drafter.h - the interface of a drafter, which proposes draft tokens for the target to verify.
//
// A drafter changes the speed of decoding, never its output: draft tokens may be wrong, and a draft may be empty. It has two
// obligations:
//
//   - Every draft token declares truthfully how it was picked (enum proposal, core/draft.h), and sampled tokens are drawn
//     from the row of q that the draft reports. The lossless rules rely on it (docs/exactness.md).
//   - A draft depends on the text so far, on where the prompt ends if the drafter says so (uses_prompt_length), on earlier passes or texts
//     if it says so (remembers), and on nothing else: not on draft tokens that were rejected, nor on how the text was divided into
//     advances. A violation costs acceptance only and shows in no output, so tests/unit/test_drafters.c checks every registered drafter.
//
// Calls, for each slot:
//
//     create -> { advance (prompt)* -> { propose -> advance }* -> forget }* -> destroy
//
// The prompt is the text at the first propose: r->n tokens. A prompt is an advance with `node` NULL, or several; a prompt of one
// token has none. In a conversation of several turns the prompt of a turn holds all earlier turns, and a slot starts from nothing.
//
// A new drafter is one file with a struct drafter_type (ngram.c is a complete one) and one name in registry.c.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/draft.h"
#include "core/options.h"
#include "models/model.h"

struct kv_cache;
struct part_form;
struct sampling;
struct settings;
struct tokenizer;

struct drafter_env {                // a drafter may keep the pointer for its whole life: drafter_create makes a copy
    struct backend *backend;        // where the drafter computes
    struct backend *target_backend; // where the target, and hence the hidden states of advance, are; may be the same
    struct devices *devices;        // opens further devices for a draft model; NULL: not available
    struct model *target; // shape, embedding and LM head; layers, of `attach`; NULL in tests that need no model
    const struct tokenizer *tokenizer; // the target's; NULL: it has none, and vocabularies are compared by size only
    const struct sampling *sampling;
    const char *beside;  // directory that relative model names start from; NULL: the current one
    bool drafts_on_host; // even where the backend could build them
    int slots, length;   // number of slots; maximum length of a sequence
    int used_vocab;      // ids from here on are padding rows of the target's vocabulary
};

// The resolved value of an option whose default depends on the opened model: `activations: default` became int8, say.
struct resolved {
    const char *option, *value;
};
enum { MAX_RESOLVED = 4 };

struct drafter {                     // first member of every drafter's own struct
    const struct drafter_type *type; // set by drafter_create; the other fields are set by the type's create
    struct drafter_env *env;         // set by drafter_create: what create was given; owned
    struct taps taps;                // hidden states of the target that advance needs; n 0: none
    int nodes;                       // maximum nodes of a draft, the root included
    int top;                         // tokens of advance.top that it needs; 0: none
    int cache_rows;                  // of `attach`: pending rows of the target's cache that a draft of one slot needs
    int64_t untimed_ns;              // of the last propose: time that is not the drafter's, and not counted
    struct hash identity;            // of its weights and configuration (model_identity, head_hash); { 0 }: it has none
    // Memory that create allocated, weights included, for the dry run: on `backend` (NULL: the target's), and on the host
    // besides. 0: negligible.
    struct backend *backend;
    size_t bytes, host_bytes;
    const char *const *part; // (parts) of a drafter of drafters: their names, "ngram", by the bits of draft.source
    int parts;               // 0: it fills in no source
    struct resolved resolved[MAX_RESOLVED]; // ends with option NULL, unless it is full
    const struct settings
        *resolved_options; // a map of further ones, which are no scalars; the drafter's own. NULL: none
};

// What drafts depend on besides the text: nothing; earlier passes over the same text, for rejected draft tokens as well; other texts, or
// clocks. With the last, a text that is sampled under the same seed can differ from run to run; its distribution does not.
enum draft_memory { DRAFTS_OF_TEXT, DRAFTS_OF_PASSES, DRAFTS_OF_OTHERS };

// Functions that return bool return false and set err on failure, which ends decoding.
struct drafter_type {
    const char *name;             // as given in an experiment's file and to --drafter
    const char *summary;          // one line, for `speclab list`
    const struct option *options; // ends with { 0 }; NULL: it has none
    size_t options_size;          // of the struct that the options are read into

    // Where the options have a struct tree_options (drafters/trees/tree_builder.h), which says the kinds of drafts; 0: nowhere.
    size_t tree;
    // A drafter of drafters has this, and cannot be part of another: its first option are these. NULL: it is none.
    const struct part_form *of;

    // Checks what is not said by these and the table of options, before anything is opened; called before makes and create. NULL: nothing.
    bool (*check)(const void *options, struct error *err);
    // options: a struct of options_size bytes, read and checked as `options` says. Returns NULL and sets err on failure.
    struct drafter *(*create)(const struct drafter_env *env, const void *options, struct error *err);
    // Adds draft tokens to r[i].draft (draft_add) for n sequences, each in a slot of its own. Any draft may stay empty, with
    // the root only. Tokens deeper than r[i].depth cannot be used.
    bool (*propose)(struct drafter *d, struct request *r, int n, struct error *err);
    // n sequences have been extended: by the accepted draft tokens and the target's own token, or by a chunk of the prompt.
    // A node -1 is one of another drafter's draft (ladder.c), and this one may not have been asked for a draft since the last advance.
    // NULL: the drafter keeps no state.
    bool (*advance)(struct drafter *d, const struct advance *a, int n, struct error *err);
    // The sequence in this slot has ended, maybe right after propose; the next one starts from nothing. NULL: as above.
    void (*forget)(struct drafter *d, int slot);
    // Gives a drafter that computes with the target's layers the target's cache, before anything else is called. propose may add pending
    // rows behind a slot's prefix, which has every token but the root, and drops them before it returns. NULL: it needs none.
    void (*attach)(struct drafter *d, struct kv_cache *target_cache);
    void (*destroy)(struct drafter *d);
    // Kinds of drafts (enum takes) that it makes under these options. A cell that pairs it with a rule that does not take
    // them is an error before the run starts. NULL: those of tree or of, else `kinds`; 0: chains of deterministic tokens.
    unsigned (*makes)(const void *options);
    unsigned kinds;
    // Drafts depend on where the prompt ends as well as on the text: a lookup in the prompt alone, say.
    bool uses_prompt_length;
    enum draft_memory (*remembers)(const void *options); // under these options; NULL: that of its parts, else `memory`
    enum draft_memory memory;
};

// Ends with NULL: drafters/registry.c. The first, `none`, is the default, and the baseline of experiments.
extern const struct drafter_type *const drafter_types[];
const struct drafter_type *drafter_named(const char *name); // NULL: there is none of this name
struct drafter *drafter_create(const struct drafter_type *type, const struct drafter_env *env, const void *options,
                               struct error *err);
bool drafter_check(const struct drafter_type *type, const void *options, struct error *err);
unsigned drafter_makes(const struct drafter_type *type, const void *options);
enum draft_memory drafter_remembers(const struct drafter_type *type, const void *options);
void drafter_resolve(const struct drafter *d, struct settings *options); // writes the resolved values into the settings
void drafter_destroy(struct drafter *d);                                 // NULL is allowed

// {kind: ngram, tokens: 8, length: adaptive} becomes {kind: adaptive, of: {kind: ngram, tokens: 8}}; length may also be a map of adaptive's
// options, as in length: {by: confidence, threshold: 0.3}. Settings without it stay as they are. Returns false and sets err for any other
// value (adaptive.c).
bool drafter_length(struct settings *drafter, struct error *err);
