// sampling.h - turns logits into the distribution from which tokens are drawn.
//
// Rows of the target and of the drafter go through the same stages in one fixed order, that of the list in registry.c.
// (If the file gave the order, temperature 0 before a penalty would disable the penalty.) The order is that of HF
// transformers except for the bias, which acts before the penalty there (SequenceBiasLogitsProcessor, 5.23.0).
//
// A row depends on the whole text before it, including the tokens of its draft: penalties get the path. A stage
// rewrites logits in place and excludes a token by -INFINITY. Temperature 0 excludes all tokens except the argmax
// (ties: the lowest id), so greedy decoding has no separate code: its rows are one-hot.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/digest.h"
#include "core/options.h"
#include "core/workers.h"

struct error;
struct logits;
struct row_stages;
struct settings;

struct path { // the text up to a node: the sequence, then the draft tokens on the way to the node
    int n;
    const int32_t *token; // (n)
    int prompt;           // how many of them are the prompt; the others are generated
};

struct stage {
    const char *name;
    const char *summary;
    const struct option *option; // its single option, which has the name of the stage
    size_t options_size;
    // Changes the row by the functions of sampling/logits.h. before: the text up to the row's node.
    void (*apply)(struct logits *l, const void *options, const struct path *before);
    // Adds its parameters to what a device applies to a row (core/row_stages.h), with the same bits. Returns false if
    // it cannot with these options. NULL: devices do not have the stage. The host then makes the rows.
    bool (*on_device)(const void *options, struct row_stages *to);
    struct hash source; // the hash of the plugin's file, set by speclab_register_stage; { 0 }: a stage of the tree
};

// Adds a copy of the stage, which is applied after all others. What it points to has to stay. Returns false and sets
// err if its name is there already, or if it lacks what the contract needs.
bool speclab_register_stage(const struct stage *stage, struct error *err);
extern const struct stage *stages[];               // ordered by application; ends with NULL: sampling/registry.c
const struct stage *stage_named(const char *name); // NULL: there is none of this name
int stage_names(const char **to);                  // to: (MAX_STAGES + 1), ends with NULL; returns their number

enum { MAX_STAGES = 16 };

struct sampling {
    int n;
    struct {
        const struct stage *stage;
        void *options; // owned
    } step[MAX_STAGES];
    struct workers workers; // workers for the chunks of a row; { 0 } initially. No result depends on it
};

// Reads a mapping such as {temperature: 0.7, top_p: 0.95}; NULL or empty: no stages, which is temperature 1. A key that
// is not the name of a stage is an error.
bool sampling_read(const struct settings *s, struct sampling *to, struct error *err);
void sampling_free(struct sampling *s);
// Checks options against the vocabulary: a token id outside it is an error. used_vocab: as in sampling_row.
bool sampling_check(const struct sampling *s, int used_vocab, struct error *err);
// Other code asks about this stage: temperature 0 is greedy decoding.
extern const struct stage temperature_stage; // stages.c
struct temperature_options {                 // sampling_is_greedy reads it
    double temperature;
};
// Returns the stages of s with this temperature in place of its own. It borrows them from s and t, so nothing is freed.
struct sampling sampling_at(const struct sampling *s, struct temperature_options *t);
bool sampling_is_greedy(const struct sampling *s); // temperature 0; reports use it, but it selects no code

// Returns the stages as parameters for a device. Returns false if one of them cannot run on a device with its options
// (struct stage: on_device).
bool sampling_row_stages(const struct sampling *s, struct row_stages *to);

// Turns logits into the probabilities that tokens are drawn from, in place. Ordinary decoding, acceptance tests,
// residuals, bonus tokens and drafters all use this function. The probabilities are integer multiples of 2^-52 and sum
// to 1 up to float rounding. used_vocab: ids from here on are padding rows of the model that no tokenizer knows, and
// get probability 0; equal to vocab if there is no padding. A NaN logit gets probability 0. A row in which no token
// remains is one-hot on token 0. (logits.c)
void sampling_row(const struct sampling *s, float *row, int vocab, int used_vocab, const struct path *before);
