// drafter.h - something that guesses what the target will say next.
//
// A drafter may be wrong, slow or silent; as long as it says truly how it drew, it never changes the text, only its
// speed. The one promise it makes: a draft depends on the advances so far and on nothing else, in particular not on
// earlier drafts that came to nothing. tests/unit/test_drafters.c holds every registered drafter to that, because no wrong
// output would ever show it.
//
//     create -> per slot: { advance (prompt)+ -> { propose -> advance }* -> forget }* -> destroy
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "core/draft.h"
#include "core/options.h"
#include "models/model.h"

struct sampling;
struct settings;
struct tokenizer;

struct drafter_env {                   // what a drafter may borrow for its whole life
    struct backend *backend;           // its own; the states that advance brings are on the target's,
    struct backend *target_backend;    // which may be another
    struct devices *devices;           // where else a model of its own may be put; NULL: nowhere
    const struct model *target;        // shape, embedding and head; NULL in tests that need no model
    const struct tokenizer *tokenizer; // the target's; NULL: it has none, vocabularies are compared by size alone
    const struct sampling *sampling;
    const char *beside; // folder that relative model names start from; NULL: the current one
    int slots, length;  // length: of a sequence, at most
    int used_vocab;     // ids from here on are no tokens (padding rows of the target's vocabulary)
};

// What became of an option whose default only an opened model can settle: `activations: default` is int8 here.
struct resolved {
    const char *option, *value;
};
enum { MAX_RESOLVED = 4 };

struct drafter {                     // every drafter's own struct begins with this
    const struct drafter_type *type; // set by drafter_create
    struct taps taps;                // hidden states of the target that advance() is to bring; set by create
    int nodes;                       // most nodes that a draft of its will have, the root included; set by create
    struct hash identity;            // of its own weights and configuration (model_identity, head_hash); none: { 0 }
    // Memory that create took, for the dry run, weights included: on its backend (NULL: it has no other than the target's),
    // and in the host's besides. 0: next to nothing.
    struct backend *backend;
    size_t bytes, host_bytes;
    struct resolved resolved[MAX_RESOLVED]; // set by create; behind the last one option is NULL
};

struct drafter_type {
    const char *name; // as the experiment's file calls it
    const char *summary;
    const struct option *options; // NULL: it has none
    size_t options_size;

    struct drafter *(*create)(const struct drafter_env *env, const void *options, struct error *err);
    bool (*propose)(struct drafter *d, struct request *r, int n, struct error *err);
    bool (*advance)(struct drafter *d, const struct advance *a, int n, struct error *err); // may be NULL
    void (*forget)(struct drafter *d, int slot); // the slot's sequence is over; may be NULL
    void (*destroy)(struct drafter *d);
    // Which drafts it makes under these options, as a rule's `takes`: a cell that pairs it with a rule that does not
    // take them is an error before it runs. NULL: chains of DETERMINISTIC tokens.
    unsigned (*makes)(const void *options);
};

extern const struct drafter_type *const drafter_types[];    // ends with NULL: drafters/registry.c
const struct drafter_type *drafter_named(const char *name); // NULL: none
struct drafter *drafter_create(const struct drafter_type *type, const struct drafter_env *env, const void *options,
                               struct error *err);
unsigned drafter_makes(const struct drafter_type *type, const void *options); // enum takes
void drafter_resolve(const struct drafter *d, struct settings *options);      // puts what is settled into them
void drafter_destroy(struct drafter *d);                                      // NULL is fine
