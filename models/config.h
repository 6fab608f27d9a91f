// config.h - the configuration of a checkpoint, from GGUF metadata or from a directory's config.json.
//
// Unsupported families and settings are errors that name them: a model is either run as published or not at all.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"

struct architecture;
struct error;
struct json;

enum { MAX_ENDS = 16 };

// Keys that mark checkpoints made by speclab, in GGUF's metadata and in config.json: the model they were made from.
#define CONFIG_INFLATED_GGUF "speclab.inflated_from"
#define CONFIG_INFLATED_HF "speclab_inflated_from"
#define CONFIG_QUANTIZED_GGUF "speclab.quantised_from"
#define CONFIG_QUANTIZED_HF "speclab_quantised_from"

enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_TABLE };

struct model_config {
    char *path; // the file or directory; owned
    bool gguf;
    const struct architecture *architecture; // a row of the table in architectures.c
    int layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
    float norm_eps;
    bool tied;           // the LM head is the embedding
    bool attention_bias; // q, k, v (and o) have biases
    double rope_theta;
    enum rope_scaling rope_scaling;          // ROPE_TABLE: divisors from the checkpoint's rope_freqs.weight
    double rope_factor, rope_low, rope_high; // of linear and llama3
    int rope_original;                       // llama3's original_max_position_embeddings
    int n_end, end[MAX_ENDS]; // end-of-text ids: eos of config, generation_config and tokenizer, and ends of chat turns
    int bos;                  // -1: none
    bool add_bos;             // the tokenizer puts it before every text
    char *chat_template;      // Jinja source from the checkpoint; NULL: none; owned
    struct json *special_tokens; // texts that a chat template may use: {"bos_token": "<s>", "eos_token": "</s>"}; owned
    // The model that this one is an inflated form of: larger, with the same outputs (commands/checkpoint/inflate.h). NULL:
    // none; owned.
    char *inflated;
    struct hash hash; // of all content that was read (formats/identity.h)
    // The model that this one was quantized from (commands/checkpoint/quantize.h). NULL: none; owned.
    char *quantized;
};

// Returns false and sets err on failure; *to needs no config_free then.
bool config_read(const char *path, struct model_config *to, struct error *err);
// Only what concerns text, of a checkpoint or of a vocabulary alone: BOS, end tokens, chat template, special tokens. A vocabulary in other
// files than GGUF and a directory has none of them.
bool config_read_text(const char *path, struct model_config *to, struct error *err);
void config_free(struct model_config *c);
// Writes RoPE's inverse frequencies (head_dim / 2), scaled as the checkpoint says, with the float32 rounding steps of HF
// transformers. divisors: rope_freqs.weight for ROPE_TABLE, otherwise NULL.
void config_rope(const struct model_config *c, const float *divisors, float *inverse_frequency);
