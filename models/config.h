// config.h - what a checkpoint says of itself, from GGUF metadata or from a directory's config.json.
//
// Families that we do not compute, and settings that we would have to ignore, are refused by name: a model is
// either run as published or not at all.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"

struct error;

enum { MAX_ENDS = 16 };

// Marks of checkpoints that we made, in GGUF's metadata and in config.json: what they were made from.
#define CONFIG_INFLATED_GGUF "speclab.inflated_from"
#define CONFIG_INFLATED_HF "speclab_inflated_from"
#define CONFIG_QUANTISED_GGUF "speclab.quantised_from"
#define CONFIG_QUANTISED_HF "speclab_quantised_from"

enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_TABLE };

struct model_config {
    char *path; // the file or directory; owned
    bool gguf;
    char architecture[64]; // "llama"
    int layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
    float norm_eps;
    bool tied;           // the head is the embedding
    bool attention_bias; // q, k, v (and o) carry biases
    double rope_theta;
    enum rope_scaling rope_scaling;          // ROPE_TABLE: the checkpoint brings divisors, rope_freqs.weight
    double rope_factor, rope_low, rope_high; // of linear and llama3
    int rope_original;                       // llama3's original_max_position_embeddings
    int n_end, end[MAX_ENDS]; // ids that end a text: eos of config, generation_config and tokenizer, and chat ends
    int bos;                  // -1: none
    bool add_bos;             // the tokenizer puts it before every text
    char *chat_template;      // Jinja, as the checkpoint has it; NULL: none; owned
    char
        *inflated; // the model that it does the work of, made larger (commands/checkpoint/inflate.h); NULL: none; owned
    struct hash hash; // of all that its readers were handed (formats/identity.h)
    char *
        quantised; // the model whose numbers these are, in other types (commands/checkpoint/quantise.h); NULL: none; owned
};

bool config_read(const char *path, struct model_config *to, struct error *err);
void config_free(struct model_config *c);
// inv_freq of rope, scaled as the checkpoint says, in float32 steps as HF transformers computes it: (head_dim / 2).
// divisors: rope_freqs.weight where there is one, otherwise NULL.
void config_rope(const struct model_config *c, const float *divisors, float *inverse_frequency);
