// head.h - the files of a speculator that reads a target's hidden states: which kind it is, its configuration, its
// tensors. What the numbers mean is medusa.h's and eagle.h's business.
//
// As published: Medusa (FasterDecoding/Medusa; converted for vLLM; inside a fine-tuned model, as Medusa-2 is), EAGLE-1 and
// EAGLE-2 (whose heads are alike) and EAGLE-3 (SafeAILab/EAGLE), and the `speculators` form of EAGLE-1 and EAGLE-3
// (vllm-project/speculators). safetensors or PyTorch's .pt and .bin.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "models/model.h"

struct error;
struct json;
struct weights;

enum head_kind { HEAD_MEDUSA, HEAD_EAGLE, HEAD_EAGLE3 };
extern const char *const head_kinds[]; // "a Medusa head", "an EAGLE head", "an EAGLE-3 head"

struct head {
    enum head_kind kind;
    bool speculators;        // config is theirs
    char *path;              // as it was named; owned, as the others are
    char *config_path;       // of config.json; NULL: there is none
    struct json *config;     // NULL: there is none
    struct hash config_hash; // of what is in it
    struct weights *weights; // under EAGLE's and Medusa's own names: fc.weight, layers.0.*, 0.0.linear.weight
};

struct head_facts { // of a head that fits a target, for people
    int heads;      // Medusa's; 0: it is no such head
    int vocab;      // of its rows of logits
    int width;      // of its states
    bool own_head, own_embedding;
    struct taps taps; // what it reads
    size_t bytes;     // of the tensors that a pass reads
};

// Whether a head can be run on a target of this shape: names, shapes and types are looked at, no numbers. facts: of head_kind
// *kind, which is found out. err says what does not fit, as opening it would.
bool head_fits(const char *path, const struct model_shape *target, enum head_kind *kind, struct head_facts *facts,
               struct error *err);

// path: a directory, or a file with the tensors, beside which config.json may lie. wanted: refused, by the name of what it
// is, if it is another kind. what: "drafter eagle", for messages; NULL: any kind will do.
bool head_open(struct head *h, const char *path, enum head_kind wanted, const char *what, struct error *err);
void head_close(struct head *h);
struct hash head_hash(const struct head *h); // of its tensors and of all that its reader was handed
