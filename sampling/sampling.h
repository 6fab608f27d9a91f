// sampling.h - from logits to the distribution we actually sample from.
//
// Target and drafter rows go through the same stages in one fixed order: repetition_penalty, logit_bias, temperature,
// top_k, top_p, min_p (in the file's order, temperature 0 before a penalty would silence it). It is HF transformers' but
// for the bias, which there acts before the penalty (SequenceBiasLogitsProcessor, 5.23.0).
// A row is a function of the whole text before it, the tokens of the same draft included: stages that look back
// (repetition penalties) are given the path. A stage rewrites logits in place and rules a token out by
// -INFINITY. Temperature 0 rules out all but the likeliest (ties: the lowest id), so greedy decoding is
// not a second path anywhere: it is a one-hot row.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/options.h"
#include "core/workers.h"

struct error;
struct logits;
struct row_stages;
struct settings;
struct text;

struct path { // the text up to a node: the sequence, then the draft's own tokens
    int n;
    const int32_t *token; // (n)
};

struct stage {
    const char *name; // repetition_penalty, logit_bias, temperature, top_k, top_p, min_p
    const char *summary;
    const struct option *option; // its one value: the settings key of the stage's own name
    size_t options_size;
    void (*apply)(struct logits *l, const void *options, const struct path *before);
};

extern const struct stage *const stages[]; // in the order in which they act; ends with NULL

enum { MAX_STAGES = 8 };

struct sampling {
    int n;
    struct {
        const struct stage *stage;
        void *options; // owned
    } step[MAX_STAGES];
    struct workers workers; // who works on a row; { 0 } at first. No bit depends on it
};

// From a mapping such as {temperature: 0.7, top_p: 0.95}; NULL or empty: temperature 1 and nothing else. A key that
// names no stage is an error.
bool sampling_read(const struct settings *s, struct sampling *to, struct error *err);
void sampling_free(struct sampling *s);
// What only the vocabulary can tell: token ids that it does not have are an error. live: as for sampling_row.
bool sampling_check(const struct sampling *s, int used_vocab, struct error *err);
bool sampling_is_greedy(const struct sampling *s); // temperature 0: for reports, never for a second path

// What a device may do to a row in the host's stead. false: the text before it has a say, or a bias.
bool sampling_stages(const struct sampling *s, struct row_stages *to);

// The one function that plain decoding, acceptance, residual, bonus and drafters all go through: logits in, the
// probabilities that are sampled from out (they sum to 1 up to float rounding, and are whole numbers of 2^-52). live: ids
// from here on are padding rows of the model that no tokenizer knows, and get probability 0; vocab if there are none. A
// logit that is NaN gets probability 0 too; a row in which nothing is left is one-hot on token 0, on every path alike.
void sampling_row(const struct sampling *s, float *row, int vocab, int used_vocab, const struct path *before);
