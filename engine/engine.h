// engine.h - what it takes to decode, put together from what a person said.
//
// Two parts with two lifetimes. A target (a model on a backend, with its tokenizer) is opened once and shared. A
// pairing of a drafter, a rule and sampling stages is first read, which checks all that can be checked without a model,
// and then opened on a target. `speclab generate` holds one of each; an experiment holds one target and a pairing for
// each cell.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/error.h"
#include "core/tensor.h"
#include "kernels/devices.h"
#include "tokenizers/chat_template.h"
#include "models/config.h"
#include "models/kv_cache.h"
#include "tokenizers/tokenizer.h"
#include "sampling/sampling.h"
#include "verifier/verifier.h"

struct backend;
struct devices;
struct drafter;
struct drafter_type;
struct model;
struct rule;
struct settings;
struct verifier;

// rows: enough for any one draft (MAX_NODES), and for fast prompts
enum { TARGET_ROWS = 512, TARGET_ENDS = MAX_ENDS + 1 };

// Where and how exactly a model computes and remembers, as a person asks for it; { 0 }: the defaults. Opened, it is
// definite: model_activations, target.cache.
struct precision {
    const char *device; // as devices_get has it; NULL: cpu
    int activations;    // enum activations
    int cache;          // enum kv_type
};

// Whether a model's packed weights are kept in a file beside it. Says nothing of what is computed.
enum packed_how { PACKED_NO, PACKED_KEEP };

// The flags of every command that opens a model.
// clang-format off
#define PRECISION_FLAGS(p) \
    { "device", FLAG_DEVICE, &(p).device, "NAME", DEVICE_NAMES "; default: cpu", 0, 0 }, \
    { "activations", FLAG_CHOICE, &(p).activations, ACTIVATIONS_CHOICES, \
      "what products round their input to; default: as the weights allow", 0, 0 }, \
    { "cache", FLAG_CHOICE, &(p).cache, KV_CHOICES, "element type of keys and values", 0, 0 }
#define PACKED_FLAG(to) \
    { "packed", FLAG_CHOICE, &(to), "no|keep", \
      "keep: packed weights are read from a file beside the model,\nand written there if none fits; default: no", 0, 0 }
// clang-format on

struct target { // start with { 0 }
    char *path; // where the name was found; owned
    struct devices *devices;
    struct backend *backend; // the device that the model is on
    struct model *model;
    struct tokenizer *tokenizer; // NULL: none that we can read; no_tokenizer says why
    struct error no_tokenizer;
    enum type cache; // element type of its keys and values, for whoever makes a cache
    int used_vocab;  // ids that the tokenizer knows, or the vocabulary: ids from here on are padding, never sampled
};

// name: as models/paths.h finds it. threads 0: all. rows: most rows of one pass, at least slots * nodes; TARGET_ROWS
// does for one slot. A missing or unknown tokenizer is no failure: target_needs_text makes it one where text is wanted.
bool target_open(struct target *t, const char *name, const char *beside, int threads, struct precision p, int rows,
                 struct error *err);
// As target_open; with PACKED_KEEP a line on stderr says what became of the file.
bool target_open_with(struct target *t, const char *name, const char *beside, int threads, struct precision p, int rows,
                      int packed, struct error *err);
// The middle of it, for who brings path and backend: model, cache and live.
bool target_open_model(struct target *t, struct precision p, int rows, int packed, struct error *err);
void target_close(struct target *t); // { 0 } is fine
bool target_needs_text(const struct target *t, struct error *err);

// wanted: "auto", "none" or "chatml"; the error of an unknown template names the model and `chat none`.
bool target_chat(const struct target *t, const char *wanted, struct chat_format *to, struct error *err);
// Appends the ids of a prompt, behind BOS where the model's tokenizer puts it. special: as tokenizer_encode; true for a
// rendered chat.
bool text_encode(const struct tokenizer *t, const struct model_config *c, const char *text, size_t n, bool special,
                 struct ids *to, struct error *err);
// Appends the ids of what stands behind others: no BOS, and nothing in it is special.
bool target_append(const struct target *t, const char *text, size_t n, struct ids *to, struct error *err);
bool target_encode(const struct target *t, const char *text, size_t n, bool special, struct ids *to, struct error *err);
// Ids that end a text: the checkpoint's own, and the token that ends an answer in this chat (NULL: no chat). How many.
int target_ends(const struct target *t, const struct chat_format *chat, int32_t end[TARGET_ENDS]);

struct pairing { // start with { 0 }; must stay where it is while open: the verifier borrows its members
    const struct drafter_type *type;
    void *drafter_options; // owned
    const struct rule *rule;
    void *rule_options;       // owned
    struct sampling sampling; // owned
    struct drafter *drafter;  // these two from pairing_open on
    struct verifier *verifier;
    struct step_observer observer; // of its steps; set before pairing_open, { 0 }: nobody
    int rows; // of a pass: slots * the drafter's nodes. Set too when pairing_open fails because the
};            // target was opened for fewer: open it for so many and try again

// Each a mapping with the key `kind` (sampling: of the stages' names); NULL: drafter none, rule rejection, temperature
// 1. An unknown kind or option, and a rule that does not take what the drafter makes, are errors with file and line.
bool pairing_read(struct pairing *p, const struct settings *drafter, const struct settings *rule,
                  const struct settings *sampling, struct error *err);
// beside: folder that a draft model's relative name starts from. length: of a sequence, at most. Borrows t.
bool pairing_open(struct pairing *p, struct target *t, const char *beside, int slots, int length, struct error *err);
// Drafter and rule use the same draws, on purpose: what is said of drafts and chance elsewhere does not hold.
bool pairing_shares_randomness(const struct pairing *p);
void pairing_shut(struct pairing *p);  // drafter and verifier; it may be opened again
void pairing_close(struct pairing *p); // everything; { 0 } is fine
