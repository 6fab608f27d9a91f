// test_family_config.c - of each family, every key that is read and can be wrong, or that another family reads, is refused in one sentence that names
// it, and what its class ignores is ignored: in config.json (GGUF's metadata: test_family_metadata.c).
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "tests/models/golden_model.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

#define S "\"sliding_attention\""
#define F "\"full_attention\""

static struct error err;
static struct json **models;
static size_t n_models;

static const struct json *config_named(const char *name)
{
    for (size_t i = 0; i < n_models; i++)
        if (strcmp(json_text(json_get(models[i], "name")), name) == 0)
            return json_get(models[i], "config");
    fail_msg("there is no golden model %s", name);
    return NULL;
}

static struct json *copy_of(const struct json *j)
{
    char *text = json_write(j);
    struct json *copy = json_parse(text, strlen(text), "copy", &err);
    free(text);
    return copy;
}

// A copy of an object in which the key, with one dot a key of an object in it, has another value; value NULL: none.
static struct json *edited(const struct json *from, const char *key, const char *value)
{
    struct json *to = json_new_object();
    const size_t n = strcspn(key, ".");
    for (void *at = json_first(from); at != NULL; at = json_next(from, at))
        if (strlen(json_key(at)) != n || strncmp(json_key(at), key, n) != 0)
            json_set(to, json_key(at), copy_of(json_value(at)));
    char *first = xstrndup(key, n);
    if (key[n] == '.')
        json_set(to, first, edited(json_get(from, first), key + n + 1, value));
    else if (value != NULL)
        json_set(to, first, json_parse(value, strlen(value), "value", &err));
    free(first);
    return to;
}

static bool reads(const char *path, const struct json *config)
{
    struct model_config c;
    char *text = json_write(config), *directory = test_path("family");
    file_write(path, text);
    const bool ok = config_read(directory, &c, &err);
    if (ok)
        config_free(&c);
    free(directory);
    free(text);
    return ok;
}

static void a_family_refuses_by_the_key(void **unused)
{
    static const struct {
        const char *model, *key, *value; // JSON; NULL: the key is missing
        const char *words;
    } faults[] = {
        // windows
        { "mistral-window", "sliding_window", "0", "sliding_window: expected an integer from 1" },
        { "mistral-window", "sliding_window", "-4", "sliding_window: expected an integer from 1" },
        { "mistral-window", "sliding_window", "4.5", "sliding_window: expected an integer from 1" },
        { "mistral-window", "sliding_window", "true", "sliding_window: expected an integer from 1" },
        { "mistral-window", "layer_types", "[" S "," F "," S "]",
          "head_dim: expected an integer from 2" }, // Ministral's
        { "mixtral-one", "layer_types", "[" S "," F "]", "layer_types: expected nothing: all layers have the window" },
        { "qwen3moe-window", "layer_types", "[" S "," F "," F "]",
          "layer_types: expected nothing: all layers have the window" },
        { "mistral-window", "use_sliding_window", "false",
          "use_sliding_window: expected true, as there is a window, found false" },
        { "mistral-window", "use_sliding_window", "1", "use_sliding_window: expected true" },
        { "mistral-full", "use_sliding_window", "true", "use_sliding_window: expected false, found true" },
        { "olmo2", "use_sliding_window", "true", "use_sliding_window: expected false, found true" },
        { "olmo2", "sliding_window", "8", "sliding_window: expected null, found 8" },
        { "olmo2", "layer_types", "[" F "," S "," F "]", "layer_types: expected a list of 3 times \"full_attention\"" },
        { "granite", "sliding_window", "8", "sliding_window: expected null" },
        { "mistral-window", "max_window_layers", "2", "max_window_layers: expected nothing, found 2" },
        { "gemma2", "sliding_window_pattern", "3", "sliding_window_pattern: expected nothing, found 3" },
        { "gemma2", "sliding_window", "null", "sliding_window: expected a number of positions, found null" },
        { "gemma3", "sliding_window", "null", "sliding_window: expected a number of positions, found null" },
        { "gemma3", "sliding_window_pattern", "0", "sliding_window_pattern: expected an integer from 1" },
        { "gemma3-types", "sliding_window_pattern", "3",
          "sliding_window_pattern: expected the windows of layer_types" },
        { "gemma3-types", "sliding_window_pattern", "\"3\"", "sliding_window_pattern: expected an integer" },
        { "gemma3-types", "sliding_window", "null", "layer_types: expected a list of 3 times \"full_attention\"" },
        { "qwen2-types", "layer_types", "[" S "," F "]",
          "layer_types: expected a list of 3 times \"full_attention\" or" },
        { "qwen2-types", "layer_types", "[" S "," F ",\"chunked_attention\"]",
          "layer_types: expected a list of 3 times" },
        { "qwen2-types", "layer_types", "[" S "," F ",3]", "layer_types: expected a list of 3 times" },
        { "qwen2-types", "layer_types", "{}", "layer_types: expected a list of 3 times" },
        { "qwen2-types", "use_sliding_window", "false",
          "layer_types: expected a list of 3 times \"full_attention\", found" },
        { "qwen2-types", "use_sliding_window", "1", "use_sliding_window: expected true or false, found 1" },
        { "qwen2-window", "max_window_layers", "-1", "max_window_layers: expected an integer from 0" },
        { "ministral", "layer_types", "[" S "]", "layer_types: expected a list of 4 times \"full_attention\" or" },
        { "ministral", "sliding_window", "null", "layer_types: expected a list of 4 times \"full_attention\", found" },
        { "smollm3", "no_rope_layers", "[1,1,0,1]", "no_rope_layers: expected a number, 0 or 1, for each layer" },
        { "smollm3", "no_rope_layers", "[1,1,0,1,2]", "no_rope_layers: expected a number, 0 or 1, for each layer" },
        { "smollm3", "no_rope_layers", "[true,true,true,true,true]", "no_rope_layers: expected a number, 0 or 1" },
        { "smollm3", "no_rope_layers", "1", "no_rope_layers: expected a number, 0 or 1, for each layer" },
        { "smollm3-window", "no_rope_layer_interval", "0", "no_rope_layer_interval: expected an integer from 1" },
        { "gemma3", "use_bidirectional_attention", "true", "use_bidirectional_attention: expected false" },
        { "mistral-full", "attention_chunk_size", "128", "attention_chunk_size: expected null" },
        { "qwen2-gqa", "is_causal", "false", "is_causal: expected true, or nothing, found false" },
        { "qwen2-gqa", "is_causal", "null", "is_causal: expected true, or nothing, found null" },
        { "phi3", "per_layer_config", "{\"1\":{\"intermediate_size\":8}}", "per_layer_config: expected null" },
        // sizes and heads
        { "qwen2-gqa", "num_key_value_heads", "4", "num_key_value_heads: expected a divisor of the 6 attention heads" },
        { "qwen2-gqa", "num_key_value_heads", NULL, "num_key_value_heads: expected an integer from 1" },
        { "qwen2-gqa", "num_attention_heads", "5", "num_attention_heads: expected a divisor of hidden_size" },
        { "qwen3-heads", "head_dim", NULL, "head_dim: expected an integer from 2" },
        { "qwen3-heads", "head_dim", "13", "head_dim: expected an even size of heads" },
        { "ministral", "head_dim", NULL, "head_dim: expected an integer from 2" },
        { "qwen2-gqa", "attention_bias", "true", "attention_bias: expected false, found true" },
        { "qwen3-bias", "attention_bias", "1", "attention_bias: expected true or false" },
        { "granite", "mlp_bias", "true", "mlp_bias: expected false, found true" },
        { "gemma2", "hidden_activation", "\"silu\"", "hidden_activation: expected \"gelu_pytorch_tanh\"" },
        { "qwen2-gqa", "hidden_act", "\"gelu\"", "hidden_act: expected \"silu\"" },
        { "mistral-full", "swiglu_limit", "7.0", "swiglu_limit: expected null" },
        // factors
        { "gemma2", "query_pre_attn_scalar", "0", "query_pre_attn_scalar: expected a number above 0, found 0" },
        { "gemma2", "query_pre_attn_scalar", "-1", "query_pre_attn_scalar: expected a number above 0" },
        { "gemma2", "query_pre_attn_scalar", "\"a\"", "query_pre_attn_scalar: expected a number" },
        { "gemma2", "attn_logit_softcapping", "0", "attn_logit_softcapping: expected a number above 0" },
        { "gemma2", "final_logit_softcapping", "-5", "final_logit_softcapping: expected a number above 0" },
        { "qwen3-heads", "attn_logit_softcapping", "50.0", "attn_logit_softcapping: expected null" },
        { "olmo2", "final_logit_softcapping", "30.0", "final_logit_softcapping: expected null" },
        { "phi3", "query_pre_attn_scalar", "256", "query_pre_attn_scalar: expected null" },
        { "granite", "embedding_multiplier", "-1", "embedding_multiplier: expected a number above 0" },
        { "granite", "residual_multiplier", "0", "residual_multiplier: expected a number above 0" },
        { "granite", "attention_multiplier", "-0.1", "attention_multiplier: expected a number above 0" },
        { "granite", "logits_scaling", "0", "logits_scaling: expected a number above 0" },
        { "granite", "logits_scaling", "\"x\"", "logits_scaling: expected a number" },
        { "smollm3", "logits_scaling", "8", "logits_scaling: expected 1, found 8" },
        { "olmo2", "clip_qkv", "8", "clip_qkv: expected null, found 8" },
        // experts
        { "qwen3moe", "num_experts_per_tok", "10", "num_experts_per_tok: expected an integer from 1 to 9, found 10" },
        { "qwen3moe", "num_experts_per_tok", "0", "num_experts_per_tok: expected an integer from 1 to 9" },
        { "qwen3moe", "num_experts", "0", "num_experts: expected an integer from 1" },
        { "qwen3moe", "num_experts", NULL, "num_experts: expected an integer from 1" },
        { "qwen3moe", "num_local_experts", "4", "num_experts: expected the same as num_local_experts, found 9" },
        { "qwen3moe-fused", "num_experts", "4", "num_experts: expected the same as num_local_experts, found 4" },
        { "qwen3moe-fused", "num_experts", "\"5\"", "num_experts: expected the same as num_local_experts" },
        { "qwen3moe-fused", "num_local_experts", NULL, "num_experts: expected an integer from 1" },
        { "qwen3moe", "moe_intermediate_size", NULL, "moe_intermediate_size: expected an integer from 1" },
        { "qwen3moe", "norm_topk_prob", "1", "norm_topk_prob: expected true or false, found 1" },
        { "qwen3moe", "decoder_sparse_step", "0", "decoder_sparse_step: expected an integer from 1" },
        { "qwen3moe", "mlp_only_layers", "[5]", "mlp_only_layers: expected a list of layers, found [5]" },
        { "qwen3moe", "mlp_only_layers", "[-1]", "mlp_only_layers: expected a list of layers" },
        { "qwen3moe", "mlp_only_layers", "3", "mlp_only_layers: expected a list of layers" },
        { "qwen3moe", "n_shared_experts", "1", "n_shared_experts: expected 0" },
        { "qwen3moe", "shared_expert_intermediate_size", "24", "shared_expert_intermediate_size: expected 0" },
        { "qwen3moe", "routed_scaling_factor", "2.5", "routed_scaling_factor: expected 1" },
        { "qwen3moe", "scoring_func", "\"sigmoid\"", "scoring_func: expected \"softmax\"" },
        { "qwen3moe", "n_group", "2", "n_group: expected 1" },
        { "qwen3moe", "first_k_dense_replace", "1", "first_k_dense_replace: expected 0" },
        { "mixtral", "num_local_experts", "1", "num_experts_per_tok: expected an integer from 1 to 1, found 2" },
        { "mixtral", "num_experts", "4", "num_experts: expected the same as num_local_experts, found 4" },
        { "mixtral-fused", "num_local_experts", "5", "num_experts: expected the same as num_local_experts, found 6" },
        { "mixtral", "num_experts_per_tok", NULL, "num_experts_per_tok: expected an integer from 1 to 5" },
        { "mixtral", "norm_topk_prob", "false", "norm_topk_prob: expected true, found false" },
        { "qwen2-gqa", "num_experts", "8", "num_experts: expected 0, found 8" },
        // RoPE
        { "qwen2-gqa", "partial_rotary_factor", "0.5", "partial_rotary_factor: expected 1, found 0.5" },
        { "phi3", "partial_rotary_factor", "1.5", "partial_rotary_factor: expected a share of a head, an even number" },
        { "phi3", "partial_rotary_factor", "-1e20", "partial_rotary_factor: expected a share of a head" },
        { "phi3", "partial_rotary_factor", "0", "partial_rotary_factor: expected a share of a head" },
        { "phi3", "partial_rotary_factor", "0.4", "partial_rotary_factor: expected a share of a head, an even number" },
        { "phi3", "original_max_position_embeddings", "\"x\"",
          "original_max_position_embeddings: expected an integer" },
        { "phi3", "auto_map", "{\"AutoModelForCausalLM\":\"modeling_phi3_v.Phi3ForCausalLM\"}",
          "auto_map.AutoModelForCausalLM: expected no code of its own" },
        { "phi3", "auto_map", "{\"AutoModelForCausalLM\":\"modeling_phi3.Phi3Model\"}",
          "auto_map.AutoModelForCausalLM: expected no code of its own" },
        { "qwen2-gqa", "auto_map", "{\"AutoModelForCausalLM\":\"modeling_phi3.Qwen2ForCausalLM\"}",
          "auto_map.AutoModelForCausalLM: expected no code of its own" },
        { "phi3-long", "original_max_position_embeddings", "32",
          "rope_scaling.original_max_position_embeddings: expected the same beside it, found 16" },
        { "phi3-long", "original_max_position_embeddings", NULL,
          "rope_scaling.original_max_position_embeddings: expected the same beside it, where 4096 is the default" },
        { "qwen2-yarn", "original_max_position_embeddings", "32",
          "rope_scaling.original_max_position_embeddings: expected the same beside it, found 64" },
        { "phi3-long", "rope_scaling.attention_factor", "0",
          "rope_scaling.attention_factor: expected a number above 0, found 0" },
        { "phi3-long", "rope_scaling.short_factor", NULL, "rope_scaling.short_factor: expected a list of 6 numbers" },
        { "phi3-long", "rope_scaling.long_factor", "[1,1,1,1,1]",
          "rope_scaling.long_factor: expected a list of 6 numbers" },
        { "phi3-long", "rope_scaling.long_factor", "[1,1,1,1,1,0]",
          "rope_scaling.long_factor: expected a list of 6 numbers" },
        { "phi3-long", "rope_scaling.long_factor", "[1,1,1,1,1,\"a\"]",
          "rope_scaling.long_factor: expected a list of 6" },
        { "phi3-long", "rope_scaling.attention_factor", "-1",
          "rope_scaling.attention_factor: expected a number above 0" },
        { "phi3-long", "partial_rotary_factor", NULL, "rope_scaling.short_factor: expected a list of 8 numbers" },
        { "qwen2-yarn", "rope_scaling", "{\"type\":\"yarn\"}",
          "rope_scaling.factor: expected a number, found nothing" },
        { "qwen2-yarn", "rope_scaling.factor", "0", "rope_scaling.factor: expected a number above 0" },
        { "qwen2-yarn", "rope_scaling.beta_fast", "0.5", "rope_scaling: expected 0 < beta_slow <= beta_fast" },
        { "qwen2-yarn", "rope_scaling.attention_factor", "-1",
          "rope_scaling.attention_factor: expected a number above 0" },
        { "qwen2-yarn", "rope_scaling.attention_factor", "0",
          "rope_scaling.attention_factor: expected a number above 0" },
        { "gemma3", "rope_scaling",
          "{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":64,\"truncate\":false}",
          "rope_scaling.truncate: expected true, found false" },
        { "qwen2-yarn", "rope_scaling.truncate", "1", "rope_scaling.truncate: expected true or false" },
        { "qwen2-yarn", "rope_scaling.mscale", "\"a\"", "rope_scaling.mscale: expected a number" },
        { "qwen2-yarn", "rope_scaling.original_max_position_embeddings", "1",
          "rope_scaling.original_max_position_embeddings: expected an integer from 2" },
        { "qwen2-yarn", "rope_scaling.mrope_section", "[1,2,3]", "rope_scaling.mrope_section: expected nothing" },
        { "qwen2-yarn", "rope_scaling.llama_4_scaling_beta", "0.1",
          "rope_scaling.llama_4_scaling_beta: expected nothing" },
        { "qwen2-yarn", "rope_scaling", "{\"type\":\"mrope\"}",
          "expected a rope_type of default, linear, llama3, yarn or longrope" },
        { "qwen3-bias", "rope_scaling", "{\"type\":\"linear\",\"factor\":2}",
          "rope_scaling: expected nothing beside rope_parameters" },
        { "qwen3-bias", "rope_local_base_freq", "1e4", "rope_local_base_freq: expected null" },
        { "gemma2", "rope_local_base_freq", "1e4", "rope_local_base_freq: expected null" },
        { "gemma3", "rope_local_base_freq", "0", "rope_local_base_freq: expected a number from 1" },
        { "gemma3", "rope_local_base_freq", "\"a\"", "rope_local_base_freq: expected a number" },
        { "gemma3-types", "rope_local_base_freq", "1e3",
          "rope_local_base_freq: expected a number from 1, the same in rope_parameters" },
        { "gemma3-types", "rope_theta", "1e3", "rope_theta: expected the same in rope_parameters" },
        { "gemma3-types", "rope_parameters", "{\"rope_type\":\"linear\",\"factor\":8}",
          "rope_parameters: expected an object for each type of layer" },
        { "gemma3-types", "rope_parameters", "{" F ":3," S ":{}}",
          "rope_parameters: expected an object for each type of layer" },
        { "gemma3", "rope_scaling",
          "{\"rope_type\":\"longrope\",\"original_max_position_embeddings\":16,\"short_factor\":[1,1,1,1,1,1,1,1],"
          "\"long_factor\":[1,1,1,1,1,1,1,1]}",
          "rope_scaling: expected a rope_type of default, linear, llama3 or yarn" },
        { "ministral3", "rope_parameters.llama_4_scaling_beta", NULL,
          "rope_parameters.llama_4_scaling_beta: expected a number from 0, found nothing" },
        { "ministral3", "rope_parameters.llama_4_scaling_beta", "-1",
          "rope_parameters.llama_4_scaling_beta: expected a number from 0" },
        { "ministral3", "rope_parameters.original_max_position_embeddings", NULL,
          "original_max_position_embeddings: expected an integer from 2" },
        { "ministral3", "rope_parameters", NULL, "llama_4_scaling_beta: expected a number from 0, found nothing" },
        // a text model among images
        { "mistral-full", "text_config", "{}", "text_config: expected null" },
        { "mistral-full", "vision_config", "{}", "vision_config: expected null" },
        { "mistral3", "text_config", "null", "text_config: expected an object, found null" },
        { "mistral3", "text_config.model_type", "\"llama\"",
          "text_config.model_type: expected \"mistral\" or \"ministral3\", found \"llama\"" },
        { "gemma3-images", "text_config.model_type", "\"gemma2\"",
          "text_config.model_type: expected \"gemma3_text\", found \"gemma2\"" },
        { "mistral3", "text_config.tie_word_embeddings", "true",
          "text_config.tie_word_embeddings: expected the same as" },
        { "mistral3", "tie_word_embeddings", "\"no\"", "tie_word_embeddings: expected true or false" },
        { "mistral3", "quantization_config", "{\"quant_method\":\"x\"}",
          "quantization_config.quant_method: expected \"fp8\"" },
        { "mistral3", "text_config.hidden_size", NULL, "text_config.hidden_size: expected an integer from 1" },
        { "mistral3", "text_config.num_attention_heads", NULL,
          "text_config.num_attention_heads: expected an integer from 1" },
        { "mistral3", "text_config.vocab_size", NULL, "text_config.vocab_size: expected an integer from 1" },
        { "mistral3", "architectures", "[\"MistralForCausalLM\"]",
          "architectures: expected [\"Mistral3ForConditionalGeneration\"]" },
        { "gemma3-images", "text_config.rope_scaling", "{\"rope_type\":\"linear\"}",
          "text_config.rope_scaling.factor: expected a number" },
        { "gemma3", "rope_scaling", "{\"type\":\"linear\",\"factor\":2}",
          "rope_scaling.type: expected nothing, or the same as rope_type, found \"linear\"" },
        { "mistral3", "is_causal", "false", "config.json: is_causal: expected true, or nothing, found false" },
        { "mistral3", "text_config.is_causal", "null", "text_config.is_causal: expected true, or nothing" },
        // families that are known and not supported, and one that is not known
        { "mistral-full", "model_type", "\"gpt_oss\"",
          "model_type: gpt_oss is not supported: it has attention sinks and experts in MXFP4" },
        { "mistral-full", "model_type", "\"deepseek_v3\"",
          "deepseek_v3 is not supported: it has multi-head latent attention" },
        { "mistral-full", "model_type", "\"qwen2_moe\"",
          "model_type: qwen2_moe is not supported: it has shared experts" },
        { "mistral-full", "model_type", "\"qwen3_next\"",
          "model_type: qwen3_next is not supported: it has layers of linear attention" },
        { "mistral-full", "model_type", "\"qwen3_vl\"",
          "model_type: qwen3_vl is not supported: it has positions of images" },
        { "mistral-full", "model_type", "\"llama4\"",
          "model_type: llama4 is not supported: it has attention in chunks" },
        { "mistral-full", "model_type", "\"gemma3n\"",
          "model_type: gemma3n is not supported: it has embeddings of each layer" },
        { "mistral-full", "model_type", "\"cohere2\"", "model_type: cohere2 is not supported: it has LayerNorms" },
        { "mistral-full", "model_type", "\"phi\"", "model_type: phi is not supported: it has LayerNorms" },
        { "mistral-full", "model_type", "[]", "model_type: expected \"llama\", \"mistral\"" },
    };
    char *path = test_path("family/config.json"), *directory = test_path("family");
    small_write_hf(directory, &small_minimal);
    char *tokenizer = xformat("%s/tokenizer_config.json", directory);
    file_write(tokenizer, "{}");
    for (size_t i = 0; i < n_models; i++)
        if (!reads(path, json_get(models[i], "config")))
            fail_msg("%s: %s", json_text(json_get(models[i], "name")), err.text);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        struct json *config = edited(config_named(faults[i].model), faults[i].key, faults[i].value);
        if (reads(path, config))
            fail_msg("%s: accepted with %s of %s", faults[i].model, faults[i].key,
                     faults[i].value != NULL ? faults[i].value : "nothing");
        assert_error_mentions(&err, path, faults[i].words);
        json_free(config);
    }
    free(tokenizer);
    free(path);
    free(directory);
}

// Keys that the family's class in transformers does not use, whatever they say, and what it has where a key is missing.
static void a_family_ignores_what_its_class_ignores(void **unused)
{
    static const struct {
        const char *model, *key, *value;
    } ignored[] = {
        { "phi3", "auto_map",
          "{\"AutoConfig\":\"configuration_phi3.Phi3Config\",\"AutoModelForCausalLM\":\"modeling_phi3.Phi3ForCausalLM\"}" },
        { "phi3", "resid_pdrop", "0.1" },
        { "phi3", "embd_pdrop", "0.1" },
        { "smollm3", "pretraining_tp", "2" },
        { "qwen2-gqa", "pretraining_tp", "4" },
        { "mistral3", "text_config.pretraining_tp", "2" },
        { "mistral3", "hidden_size", "7" }, // what the whole says again is not the text model's
        { "gemma3-images", "vocab_size", "7" },
        { "mistral3", "is_causal", "null" },
        { "gemma3-images", "text_config.final_logit_softcapping", "30.0" },
        { "gemma2", "hidden_act", "\"gelu\"" },
        { "gemma3", "attn_logit_softcapping", "50.0" },
        { "mixtral", "router_jitter_noise", "0.5" },
        { "mixtral", "num_experts", "5" },
        { "qwen3moe", "num_local_experts", "9" },
        { "qwen3moe-window", "max_window_layers", "0" },
        { "qwen3moe-window", "max_window_layers", "28" },
        { "qwen2-yarn", "original_max_position_embeddings", "64" },
        { "qwen2-gqa", "is_causal", "true" },
    };
    char *path = test_path("family/config.json"), *directory = test_path("family");
    for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++) {
        struct model_config with, without;
        struct json *config = edited(config_named(ignored[i].model), ignored[i].key, ignored[i].value);
        assert_true(reads(path, config_named(ignored[i].model)) && config_read(directory, &without, &err));
        if (!reads(path, config))
            fail_msg("%s with %s: %s", ignored[i].model, ignored[i].key, err.text);
        assert_ok(config_read(directory, &with, &err), err);
        assert_true(with.architecture == without.architecture && with.window == without.window &&
                    memcmp(&with.windowed, &without.windowed, sizeof(with.windowed)) == 0 &&
                    with.experts == without.experts && with.attention_cap == without.attention_cap &&
                    with.logit_cap == without.logit_cap && with.width == without.width && with.vocab == without.vocab &&
                    with.rope.original == without.rope.original);
        config_free(&with);
        config_free(&without);
        json_free(config);
    }
    free(path);
    free(directory);
}

// The values that transformers' classes have where the file is silent, from their source.
static void a_family_has_the_defaults_of_its_class(void **unused)
{
    static const struct {
        const char *model, *without;
        int context, window;
    } defaults[] = {
        { "granite", "max_position_embeddings", 2048, 0 },       { "olmo2", "max_position_embeddings", 2048, 0 },
        { "mistral-one", "max_position_embeddings", 131072, 1 }, { "mixtral", "max_position_embeddings", 131072, 0 },
        { "ministral", "max_position_embeddings", 131072, 9 },   { "qwen2-gqa", "max_position_embeddings", 32768, 0 },
        { "qwen3-heads", "max_position_embeddings", 32768, 0 },  { "qwen3moe", "max_position_embeddings", 32768, 0 },
        { "gemma2", "max_position_embeddings", 8192, 8 },        { "gemma3", "max_position_embeddings", 131072, 6 },
        { "phi3", "max_position_embeddings", 4096, 0 },          { "smollm3", "max_position_embeddings", 32768, 0 },
        { "qwen2-window", "sliding_window", 256, 4096 },         { "qwen3moe-window", "sliding_window", 256, 4096 },
        { "mistral-window", "sliding_window", 256, 4096 },       { "gemma2", "sliding_window", 256, 4096 },
    };
    char *path = test_path("family/config.json"), *directory = test_path("family");
    for (size_t i = 0; i < sizeof(defaults) / sizeof(*defaults); i++) {
        struct model_config c;
        struct json *config = edited(config_named(defaults[i].model), defaults[i].without, NULL);
        assert_true(reads(path, config) && config_read(directory, &c, &err));
        if (c.context != defaults[i].context || c.window != defaults[i].window)
            fail_msg("%s without %s: context %d, window %d", defaults[i].model, defaults[i].without, c.context,
                     c.window);
        config_free(&c);
        json_free(config);
    }
    struct model_config c;
    struct json *config = edited(config_named("gemma2"), "attn_logit_softcapping", NULL),
                *none = edited(config, "final_logit_softcapping", NULL);
    assert_true(reads(path, config) && config_read(directory, &c, &err) && c.attention_cap == 50 && c.logit_cap == 8);
    config_free(&c);
    assert_true(reads(path, none) && config_read(directory, &c, &err) && c.attention_cap == 50 && c.logit_cap == 30);
    config_free(&c);
    json_free(none);
    json_free(config);
    free(path);
    free(directory);
}

static int set_up(void **unused)
{
    models = golden_models(&n_models);
    return 0;
}

static int tear_down(void **state)
{
    golden_models_free(models, n_models);
    return test_directory_tear_down(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_family_refuses_by_the_key),
        cmocka_unit_test(a_family_ignores_what_its_class_ignores),
        cmocka_unit_test(a_family_has_the_defaults_of_its_class),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
