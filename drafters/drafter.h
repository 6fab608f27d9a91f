// drafter.h - the interface of a drafter, which proposes draft tokens for the target to verify.
//
// A drafter changes the speed of decoding, never its output: draft tokens may be wrong, and a draft may be empty. It
// has two obligations:
//
//  - Every draft token declares truthfully how it was picked (enum proposal, core/draft.h), and sampled tokens are
//    drawn from the row of q that the draft reports. The lossless rules rely on it (docs/exactness.md).
//  - A draft depends on its request: the text so far and the length of its prompt. It depends on earlier passes or
//    texts if the drafter declares it (remembers), and on nothing else: not on draft tokens that were rejected, nor on
//    how the text was divided into advances. A violation costs acceptance only and shows in no output, so
//    tests/unit/test_drafters.c checks every registered drafter.
//
// Calls, for each slot:
//
//     create -> { advance (prompt)* -> { propose -> advance }* -> forget }* -> destroy
//
// The prompt is the first r->prompt tokens of a text. It is reported in one or several advances with `node` NULL; a
// prompt of one token has none. In a conversation of several turns the prompt of a turn contains
// all earlier turns, and a slot begins empty.
//
// A new drafter is one file with a struct drafter_type (ngram.c is a complete one) and one name in
// registry.c, or a plugin (engine/plugin.h).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/digest.h"
#include "core/draft.h"
#include "core/options.h"
#include "models/model.h"

struct kv_cache;
struct part_form;
struct sampling;
struct settings;
struct tokenizer;

struct drafter_env {                 // a drafter may keep the pointer for its whole life: drafter_create makes a copy
    const struct drafter_type *type; // the type that is created; set by drafter_create
    struct backend *backend;         // the device on which the drafter computes
    struct backend *target_backend;  // the device of the target, and hence of the hidden states of advance; may be the
                                     // same
    struct devices *devices;         // opens further devices for a draft model; NULL: not available
    struct model *target; // the target's shape, embedding and LM head, and its layers for `attach`; NULL in tests that
                          // need no model
    const struct tokenizer *tokenizer; // the target's tokenizer; NULL: it has none, and vocabularies are compared by
                                       // size only
    const struct sampling *sampling;
    const char *beside;  // directory for relative model names; NULL: the current one
    bool drafts_on_host; // build drafts on the host even if the backend could build them
    int slots, length;   // number of slots; maximum length of a sequence
    int used_vocab;      // ids from this one on are padding rows of the target's vocabulary
};

// The resolved value of an option whose default depends on the opened model: for example, `activations: default` became
// int8.
struct resolved {
    const char *option, *value;
};
enum { MAX_RESOLVED = 4 };

struct drafter {                     // first member of every drafter's struct
    const struct drafter_type *type; // set by drafter_create; the other fields are set by the type's create
    struct drafter_env *env;         // drafter_create's copy of what it was given; owned
    struct taps taps;                // hidden states of the target that advance needs; n 0: none
    int nodes;                       // maximum nodes of a draft, the root included
    int top;                         // number of tokens that it needs in advance.top; 0: none
    int cache_rows;       // pending rows of the target's cache that a draft of one slot needs, if the type has `attach`
    int64_t untimed_ns;   // time of the last propose that is not the drafter's, and is not counted
    struct hash identity; // hash of its weights and configuration (model_identity, head_hash); { 0 }: it has none
    // The memory that create allocated, weights included, for the dry run: on `backend` (NULL: the target's), and on
    // the host. 0: negligible.
    struct backend *backend;
    size_t bytes, host_bytes;
    const char *failed;      // what went wrong in forget, which ends decoding; borrowed. NULL: nothing
    const char *const *part; // (parts) names of the parts of a drafter that combines several, "ngram", by the bits of
                             // draft.source
    int parts;               // 0: it does not set draft.source
    struct resolved resolved[MAX_RESOLVED]; // ends with option NULL, unless it is full
    const struct settings
        *resolved_options; // a map of further options, which are no scalars; the drafter owns it. NULL: none
};

// The sources of drafts other than the text. They are none, or earlier passes over the same text, including its
// rejected draft tokens, or other texts and clocks. In the last case a text that is sampled under one seed can differ
// from run to run, but its distribution does not.
enum draft_memory { DRAFTS_OF_TEXT, DRAFTS_OF_PASSES, DRAFTS_OF_OTHERS };

// Functions that return bool return false and set err on failure, which ends decoding.
struct drafter_type {
    const char *name;             // the name in an experiment's file and for --drafter
    const char *summary;          // one line, for `speclab list`
    const struct option *options; // ends with { 0 }; NULL: it has none
    size_t options_size;          // size of the struct that the options are read into

    // The offset in the options of a struct tree_options (drafters/trees/tree_builder.h), which determines the kinds of
    // drafts; 0: there is none.
    size_t tree;
    // The form of a drafter that combines others. It cannot be part of another one, and its first option lists the
    // parts. NULL: it combines none.
    const struct part_form *of;

    // Checks conditions beyond the table of options, before anything is opened; called before makes and create. NULL:
    // there are none.
    bool (*check)(const void *options, struct error *err);
    // options: a struct of options_size bytes, read and checked by the table `options`. Returns NULL and sets err on
    // failure.
    struct drafter *(*create)(const struct drafter_env *env, const void *options, struct error *err);
    // Adds draft tokens to r[i].draft (draft_add) for n sequences, each in its own slot. Any draft may be left empty,
    // with the root only. Tokens deeper than r[i].depth cannot be used.
    bool (*propose)(struct drafter *d, struct request *r, int n, struct error *err);
    // Reports that n sequences have been extended: by the accepted draft tokens and the target's own token, or by a
    // chunk of the prompt. A node -1 is a node of another drafter's draft (ladder.c), and this drafter may not have
    // proposed since the last advance. NULL: the drafter keeps no state.
    bool (*advance)(struct drafter *d, const struct advance *a, int n, struct error *err);
    // Reports that the sequence in this slot has ended, maybe right after propose; the next one begins empty. NULL: the
    // drafter keeps no state.
    void (*forget)(struct drafter *d, int slot);
    // Gives the target's cache to a drafter that computes with the target's layers, before anything else is called.
    // propose may add pending rows after a slot's prefix, which has every token except the root, and drops them before
    // it returns. NULL: the drafter does not need the cache.
    void (*attach)(struct drafter *d, struct kv_cache *target_cache);
    void (*destroy)(struct drafter *d);
    // Returns the kinds of drafts (enum takes) that it makes with these options. A cell that pairs it with a rule that
    // does not take them is an error before the run starts. NULL: the kinds follow from `tree` or `of`, otherwise from
    // `kinds`; 0: chains of deterministic tokens.
    unsigned (*makes)(const void *options);
    unsigned kinds;
    enum draft_memory (*remembers)(const void *options); // the memory with these options; NULL: that of its parts,
                                                         // otherwise `memory`
    enum draft_memory memory;
    struct hash source; // the hash of the plugin's file, set by speclab_register_drafter; { 0 }: a drafter of the tree
    const void *self;   // a pointer for the type's own use (engine/foreign_drafters.c)
};

// The list ends with NULL: drafters/registry.c. The first, `none`, is the default, and the baseline of experiments.
extern const struct drafter_type *drafter_types[];
// Adds a copy of the type at the end of the list. What it points to has to stay. Returns false and sets err if its name
// is there already, or if it lacks what the contract needs.
bool speclab_register_drafter(const struct drafter_type *type, struct error *err);
const struct drafter_type *drafter_named(const char *name); // NULL: there is none of this name
int drafter_names(const char **to); // to: (MAX_REGISTERED + 1), ends with NULL; returns their number
struct drafter *drafter_create(const struct drafter_type *type, const struct drafter_env *env, const void *options,
                               struct error *err);
bool drafter_check(const struct drafter_type *type, const void *options, struct error *err);
unsigned drafter_makes(const struct drafter_type *type, const void *options);
enum draft_memory drafter_remembers(const struct drafter_type *type, const void *options);
void drafter_resolve(const struct drafter *d, struct settings *options); // writes the resolved values into the settings
void drafter_destroy(struct drafter *d);                                 // NULL is allowed

// {kind: ngram, tokens: 8, length: adaptive} becomes {kind: adaptive, of: {kind: ngram, tokens: 8}}. `length` may also
// be a map of adaptive's options, as in length: {by: confidence, threshold: 0.3}. Settings without it are unchanged.
// Returns false and sets err for any other value (adaptive.c).
bool drafter_length(struct settings *drafter, struct error *err);
