// config.h - the configuration of a checkpoint, from GGUF metadata or from a directory's config.json.
//
// Unsupported families and settings are errors that name them: a model is run as published or not at all.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/digest.h"

struct architecture;
struct error;
struct json;
struct wrapper;

enum { MAX_ENDS = 16, MAX_LAYERS = 1024, MAX_ROTATED = 512 };

// No larger models exist, and smaller numbers keep every product of two sizes far from overflow.
enum {
    LIMIT_LAYERS = MAX_LAYERS,
    LIMIT_HEADS = 1 << 14,
    LIMIT_EXPERTS = 1 << 12,
    LIMIT_SIZE = (1 << 24) - 1,
    LIMIT_CONTEXT = 1 << 24,
    LIMIT_VOCAB = 1 << 20 // the number of uniforms that an address of the random source has (sampling/rng.h)
};

// These keys mark checkpoints made by speclab, in GGUF's metadata and in config.json. Their value is the original
// model.
#define CONFIG_INFLATED_GGUF "speclab.inflated_from"
#define CONFIG_INFLATED_HF "speclab_inflated_from"
#define CONFIG_QUANTIZED_GGUF "speclab.quantised_from"
#define CONFIG_QUANTIZED_HF "speclab_quantised_from"

// ROPE_TABLE has divisors from the checkpoint's rope_freqs.weight. ROPE_LONG has one table of divisors for contexts up
// to `original`, and another one for longer ones (LongRoPE, arXiv 2402.13753).
enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG, ROPE_TABLE };

struct rope {
    double theta;
    enum rope_scaling scaling;
    double factor;      // factor of linear, llama3 and yarn
    double low, high;   // llama3: low_freq_factor, high_freq_factor; yarn: beta_slow, beta_fast
    int original;       // original_max_position_embeddings
    bool untruncated;   // yarn: `truncate` is false
    float angle_factor; // factor of cosines and sines (attention_factor of yarn and LongRoPE); 0: 1
    int rotated;        // number of rotated numbers of a head, the first ones; 0: all
};

struct layer_set {
    uint64_t bits[MAX_LAYERS / 64];
};

static inline bool layer_set_has(const struct layer_set *s, int layer)
{
    return (s->bits[layer / 64] >> layer % 64 & 1) != 0;
}

static inline int layer_set_count(const struct layer_set *s)
{
    int n = 0;
    for (int w = 0; w < MAX_LAYERS / 64; w++)
        n += __builtin_popcountll(s->bits[w]);
    return n;
}

static inline void layer_set_add(struct layer_set *s, int layer)
{
    s->bits[layer / 64] |= (uint64_t)1 << layer % 64;
}

struct model_config {
    char *path; // the file or directory; owned
    char *file; // the file that holds the configuration: config.json of a directory; owned
    bool gguf;
    const struct architecture *architecture; // a row of the table in architectures.c
    const struct wrapper *wrapper;           // the model whose text part this is; NULL: the model has no other parts
    int layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
    float norm_eps;
    bool tied;           // the LM head is the embedding
    bool attention_bias; // q, k, v (and o) have biases
    struct rope rope;
    // Layers that see the last `window` positions only, and layers without RoPE.
    int window;
    struct layer_set windowed, unrotated;
    struct rope window_rope; // RoPE of layers with a window; theta 0: as the others
    float rope_short[MAX_ROTATED / 2],
        rope_long[MAX_ROTATED / 2]; // divisors of ROPE_LONG; rope_short: those of ROPE_TABLE as well
    // Layers that are not in `dense` have a mixture of experts instead of one feed-forward network. experts 0: no layer
    // has.
    int experts, experts_used, expert_hidden;
    bool experts_normalized; // the weights of the used experts sum to 1; otherwise those of all experts do
    struct layer_set dense;
    // Matrices of eight-bit floats are used: safetensors' F8_E4M3, with a scale for each block of so many rows and
    // columns (models/weights.c); 0: a scale for each row, or for all.
    struct fp8 {
        bool used;
        int rows, columns;
    } fp8;
    float attention_scale; // factor of scores; 0: 1 / sqrt(head_dim)
    float attention_cap;   // cap of scores, and below of logits: cap * tanh(x / cap); 0: none
    float logit_cap;
    float embedding_scale, residual_scale, logit_scale; // factors; 0: 1
    int n_end, end[MAX_ENDS]; // end-of-text ids: eos of config, generation_config and tokenizer, and ends of chat turns
    int bos;                  // -1: none
    bool add_bos;             // the tokenizer puts it before every text
    char *chat_template;      // Jinja source from the checkpoint; NULL: none; owned
    struct json *special_tokens; // texts that a chat template may use: {"bos_token": "<s>", "eos_token": "</s>"}; owned
    // The original model, if this one is its inflated form: larger, with the same outputs
    // (python/speclab/inflation.py). NULL: none; owned.
    char *inflated;
    struct hash hash; // hash of all content that was read (models/formats/identity.h)
    // The model from which this one was quantized (./run quantize). NULL: none; owned.
    char *quantized;
};

// Returns false and sets err on failure; *to needs no config_free then (config_read.c).
bool config_read(const char *path, struct model_config *to, struct error *err);
// Reads only what concerns text, from a checkpoint or from a vocabulary alone: BOS, end tokens, chat template, special
// tokens. Only GGUF files and directories have them.
bool config_read_text(const char *path, struct model_config *to, struct error *err);
void config_free(struct model_config *c);
// Checks the conditions that all formats share.
bool config_check(const struct model_config *c, struct error *err);
// Adds an end-of-text id, found as `key`, unless it is already in the list.
bool config_add_end_token(struct model_config *c, const char *key, int64_t id, struct error *err);
// Returns whether a token with this text ends an answer even if the checkpoint does not say so: llama.cpp's list.
bool config_is_end_token(const char *s, size_t n);
int config_mixed_layers(const struct model_config *c); // number of layers with experts
// Returns how many experts of a layer a pass of n rows is expected to read, if every row chooses its experts
// independently of the others and each expert is equally probable: E (1 - (1 - k / E)^n).
double config_experts_expected(const struct model_config *c, double n);
// Return the cost of a row: the weights of the layers that it is multiplied with, and the positions that it attends to
// in all layers together if there are `positions` up to and including it.
double config_products(const struct model_config *c);
double config_positions_seen(const struct model_config *c, double positions);
// Returns how many numbers of a head a RoPE rotates.
int config_rotated(const struct rope *r, int head_dim);
const char *config_rope_name(enum rope_scaling s); // "llama3"
// Writes a RoPE's inverse frequencies (rotated / 2), scaled as the checkpoint requires, with the float32 rounding steps
// of HF transformers. divisors: rope_freqs.weight for ROPE_TABLE, rope_short or rope_long for ROPE_LONG, otherwise
// NULL.
void config_rope(const struct rope *r, int head_dim, const float *divisors, float *inverse_frequency);
