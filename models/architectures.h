// architectures.h - the architectures that can be run: one row each, with what differs between them in names, files and
// layers.
//
// Readers, loaders and conversions look it up in this table; none of them compares names of architectures.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "kernels/backend.h"

// The two numbers of a head that RoPE rotates together, in the rows of q and k of a GGUF file (llama.cpp:
// llama_rope_type).
enum gguf_rope {
    GGUF_ROPE_NORM, // numbers 2i and 2i + 1: llama.cpp's converter moves the rows of Hugging Face's q and k (permute)
    GGUF_ROPE_NEOX, // numbers i and i + head_dim / 2, as in Hugging Face's checkpoints
};

// The places of a layer's RMSNorms, for attention and the feed-forward network alike.
enum norm_places {
    NORMS_BEFORE, // norms of the input (Llama)
    NORMS_AROUND, // norms of the input, and of the output before it is added to the residual stream (Gemma-2)
    NORMS_AFTER,  // norms of the output only (OLMo-2)
};

enum head_norms {
    NO_HEAD_NORMS,
    NORMS_OF_HEADS, // q and k of each head are normed before RoPE (Qwen3)
    NORMS_OF_ALL,   // all heads together (OLMo-2)
};

// Keys of config.json beyond Llama's that the configuration of such a model may set. Others are refused if they have an
// effect.
enum reads {
    READS_ATTENTION_BIAS = 1 << 0, // attention_bias: biases of q, k, v and o
    READS_WINDOW = 1 << 1,         // sliding_window
    READS_USE_WINDOW = 1 << 2,     // use_sliding_window: sliding_window counts only with it
    READS_WINDOW_PATTERN = 1 << 3, // sliding_window_pattern: one layer in so many has no window
    READS_LOGIT_CAP = 1 << 4,      // final_logit_softcapping
    READS_QUERY_SCALAR = 1 << 5,   // query_pre_attn_scalar
    READS_MULTIPLIERS = 1 << 6,    // embedding_multiplier, attention_multiplier, residual_multiplier, logits_scaling
    READS_NO_ROPE_LAYERS = 1 << 7, // no_rope_layers, no_rope_layer_interval
    READS_LOCAL_ROPE = 1 << 8,     // rope_local_base_freq, or rope_parameters of each type of layer
    READS_PARTIAL_ROPE =
        1 << 9, // partial_rotary_factor, original_max_position_embeddings; rope_scaling of type longrope
    READS_LAYER_TYPES =
        1 << 10, // layer_types, and with use_sliding_window max_window_layers; otherwise all layers have the window
    READS_QUERY_RISE = 1 << 11,    // llama_4_scaling_beta: queries grow beyond original_max_position_embeddings
    READS_ATTENTION_CAP = 1 << 12, // attn_logit_softcapping
};

// The features of a GGUF file of this architecture that llama.cpp reads (version of llama-cpp-python 0.3.36). A
// directory that needs more is not converted.
enum exports {
    EXPORTS_BIASES = 1 << 0,   // biases of q, k, v and o
    EXPORTS_LLAMA3 = 1 << 1,   // rope_freqs.weight, which holds the scaling of Llama 3's RoPE
    EXPORTS_LONG = 1 << 2,     // LongRoPE
    EXPORTS_HEAD_DIM = 1 << 3, // heads that are together wider or narrower than the model
    EXPORTS_TIED = 1 << 4,     // no LM head in addition to the embedding
    EXPORTS_UNTIED = 1 << 5,   // a separate LM head
    EXPORTS_BOTH = EXPORTS_TIED | EXPORTS_UNTIED,
    EXPORTS_LIKE_LLAMA = EXPORTS_BIASES | EXPORTS_LLAMA3 | EXPORTS_HEAD_DIM | EXPORTS_BOTH
};

enum expert_layers {
    NO_EXPERTS,
    MIXTRAL_EXPERTS, // num_local_experts of intermediate_size, in all layers; block_sparse_moe.*
    QWEN_EXPERTS,    // num_experts of moe_intermediate_size, in the layers that decoder_sparse_step selects and
                     // mlp_only_layers does not exclude; mlp.*
};

struct architecture {
    const char
        *name; // GGUF: general.architecture, and the prefix of its keys ("llama.block_count"); rows may share one
    const char *model_type; // config.json
    const char *classes[4]; // config.json: `architectures` is one of these; NULL: no more
    const char
        *own_code; // the module that auto_map names in published checkpoints: a copy of transformers' class; NULL: none
    bool no_gguf;  // its GGUF files are not supported
    unsigned exports; // bits of enum exports
    enum gguf_rope gguf_rope;
    unsigned reads; // bits of enum reads
    enum norm_places norms;
    enum head_norms head_norms;
    enum gate_function gate;
    bool qkv_bias; // q, k and v always have biases, o never (Qwen2)
    bool fused;    // one matrix has the rows of q, k and v, and one those of gate and up (Phi-3)
    enum expert_layers experts;
    bool norms_from_zero;  // safetensors have a norm's weight less one (Gemma)
    bool scales_embedding; // the factor is sqrt(width) (Gemma)
    bool tied;             // tie_word_embeddings, if config.json lacks it
    bool kv_heads_needed;  // config.json must have num_key_value_heads; without it transformers takes the number of one
                           // model of the family
    bool head_dim_needed;  // config.json must have head_dim, for the same reason
    double norm_eps;       // rms_norm_eps, if config.json lacks it; 0: 1e-6
    double theta;          // rope_theta, if config.json lacks it; 0: 10000
    int window;            // sliding_window, if config.json lacks it; 0: none
    int context;           // max_position_embeddings, if config.json lacks it; 0: 2048
    int window_pattern; // layers i with (i + 1) % pattern have the window, the others see all rows; 0: all layers have
                        // it
};

// A model of texts and images. Its text model's configuration is an object in config.json, and its tensors have a
// prefix.
struct wrapper {
    const char *model_type, *class;
    const char *text[2]; // model_type of text_config; the first one is assumed if it has none
    struct {
        int heads, kv_heads, head_dim, vocab, context;
    } sizes; // the text model's sizes if text_config has none, as in published files; 0: it must have them
};

// NULL: not supported. The name has n bytes.
const struct architecture *architecture_of_gguf(const char *name, size_t n);
const struct architecture *architecture_of_model_type(const char *model_type);
const struct wrapper *wrapper_of_model_type(const char *model_type);
bool wrapper_has_text(const struct wrapper *w, const char *model_type);
// Returns what a known family that is not supported has beyond the table's, by its name in either format; NULL: not
// known.
const char *architecture_lacks(const char *name, size_t n);
bool architecture_has_class(const struct architecture *a, const char *class);
// Returns the names that messages give as expected, such as "llama"; free() it. They are names of GGUF, or values of
// model_type as JSON.
enum name_list { NAMES_OF_GGUF, NAMES_OF_TEXTS, NAMES_OF_ALL }; // ALL: models of texts, and wrappers
char *architectures_supported(enum name_list list);
