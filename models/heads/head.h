// head.h - the files of a head, which reads hidden states of a target: its kind, configuration and tensors. medusa.h
// and eagle.h compute with them.
//
// Published forms are Medusa (FasterDecoding/Medusa; as converted for vLLM; inside a fine-tuned model, as Medusa-2 is),
// EAGLE-1 and EAGLE-2 (the same head) and EAGLE-3 (SafeAILab/EAGLE), and the `speculators` form of EAGLE-1 and EAGLE-3
// (vllm-project/speculators). Tensors are in safetensors files.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/digest.h"
#include "core/tensor.h"
#include "models/model.h"

struct error;
struct json;
struct weights;

enum head_kind { HEAD_MEDUSA, HEAD_EAGLE, HEAD_EAGLE3 };
extern const char *const head_kinds[];    // "a Medusa head", "an EAGLE head", "an EAGLE-3 head"
extern const char *const head_drafters[]; // the drafters that run them: "medusa", "eagle", "eagle3"

struct head {
    enum head_kind kind;
    bool speculators;        // the configuration has the `speculators` form
    char *path;              // the path that was given; owned, like the others
    char *config_path;       // path of config.json; NULL: the file does not exist
    struct json *config;     // NULL: the file does not exist
    struct hash config_hash; // hash of its content
    struct weights *weights; // names are EAGLE's and Medusa's: fc.weight, layers.0.*, 0.0.linear.weight
};

struct head_facts { // facts about a head that fits a target
    int heads;      // Medusa heads; 0: another kind
    int vocab;      // size of its logits
    int32_t *
        target_id; // (vocab) target ids of a reduced vocabulary, distinct, in any order; NULL: the ids are the target's
    int width;     // width of its states
    bool own_head, own_embedding; // the head has its own; otherwise it uses the target's
    struct taps taps;             // hidden states of the target that it reads
    size_t bytes;                 // bytes of the tensors that a pass reads
    // The following are set for an open head only.
    size_t memory;                // bytes of its weights and the workspace of a pass
    enum activations activations; // never ACTIVATIONS_DEFAULT
    struct hash hash;             // hash of its tensors and of the content of its configuration
};

// Returns whether a head can run on a target of this shape. It checks names, shapes and types, and reads no numbers.
// Sets *kind and *facts, without target_id. Returns false and sets err on failure, as opening the head would (fits.c).
bool head_fits(const char *path, const struct model_shape *target, enum head_kind *kind, struct head_facts *facts,
               struct error *err);

// Opens the files of a head. path: a directory, or a file of tensors, which may have a config.json next to it. The kind
// is detected from the tensors. what: the word in messages, "drafter eagle". A head of another kind than `wanted` is an
// error; NULL: any kind.
bool head_open(struct head *h, const char *path, enum head_kind wanted, const char *what, struct error *err);
void head_close(struct head *h);
// Reads the target's ids of a reduced vocabulary, id (n), which are from 0 to all - 1 and distinct, in any order.
// offsets: the tensor has each id minus its number. Returns false and sets err on failure.
bool head_target_ids(const struct head *h, const char *tensor, bool offsets, int n, int all, int32_t *id,
                     struct error *err);
struct hash head_hash(const struct head *h); // hash of its tensors and of the content of its configuration
