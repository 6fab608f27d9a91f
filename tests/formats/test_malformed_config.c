// test_malformed_config.c - checkpoints whose configuration has an unsupported setting are refused with an error that names
// the file and the key.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "tests/formats/gguf_write.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct error err;

// config.json of a valid model with one key changed.
static void a_config_with_an_unsupported_setting_is_refused(void **state)
{
    static const struct {
        const char *key, *value; // JSON; NULL: the key is missing
        const char *words;
    } faults[] = {
        { "model_type", "\"gpt2\"",
          "model_type: expected \"llama\", \"mistral\", \"ministral\", \"ministral3\", \"mixtral\"" },
        { "model_type", "\"gpt2\"", "\"mistral3\" or \"gemma3\", found \"gpt2\"" },
        { "model_type", "\"qwen2\"", "architectures: expected [\"Qwen2ForCausalLM\"], found [\"LlamaForCausalLM\"]" },
        { "model_type", NULL, "or \"gemma3\", found nothing" },
        { "architectures", "[\"LlamaForCausalLMEagle3\"]", "architectures: expected" },
        { "architectures", "\"LlamaForCausalLM\"", "architectures: expected" },
        { "hidden_act", "\"gelu\"", "hidden_act: expected \"silu\", found \"gelu\"" },
        { "mlp_bias", "true", "mlp_bias: expected false, found true" },
        { "sliding_window", "4096", "sliding_window: expected null, found 4096" },
        { "partial_rotary_factor", "0.5", "partial_rotary_factor: expected 1, found 0.5" },
        { "attn_logit_softcapping", "50.0", "attn_logit_softcapping" },
        { "final_logit_softcapping", "30.0", "final_logit_softcapping" },
        { "quantization_config", "{\"quant_method\":\"gptq\"}", "quantization_config" },
        { "num_local_experts", "8", "num_local_experts: expected 0, found 8" },
        { "rope_interleaved", "true", "rope_interleaved" },
        { "layer_types", "[\"sliding_attention\"]", "layer_types" },
        { "layer_types", "\"sliding_attention\"",
          "layer_types: expected a list of 1 times \"full_attention\", found \"sliding_attention\"" },
        { "auto_map", "{\"AutoConfig\":\"c.C\",\"AutoModelForCausalLM\":\"modeling_giraffe.LlamaForCausalLM\"}",
          "auto_map.AutoModelForCausalLM: expected no code of its own, found \"modeling_giraffe.LlamaForCausalLM\"" },
        { "auto_map", "{\"AutoModel\":\"modeling.M\"}", "auto_map.AutoModel: expected no code of its own" },
        { "auto_map", "{\"AutoModelForSeq2SeqLM\":\"modeling.M\"}",
          "auto_map.AutoModelForSeq2SeqLM: expected no code of its own, found \"modeling.M\"" },
        { "auto_map", "\"modeling.M\"", "auto_map: expected no code of its own, found \"modeling.M\"" },
        { "dim_model_base", "256", "dim_model_base: expected hidden_size, or nothing, found 256" },
        { "logit_scale", "0.0625", "logit_scale: expected 1" },
        { "use_parallel_residual", "true", "use_parallel_residual: expected false, found true" },
        { "alibi", "true", "alibi: expected false, found true" },
        { "norm_type", "\"layernorm\"", "norm_type: expected \"rmsnorm\", found \"layernorm\"" },
        { "norm_type", "1", "norm_type: expected \"rmsnorm\", found 1" },
        { "num_nextn_predict_layers", "1", "num_nextn_predict_layers: expected 0, found 1" },
        { "embedding_multiplier", "12", "embedding_multiplier: expected 1, found 12" },
        { "residual_multiplier", "0.22", "residual_multiplier: expected 1" },
        { "attention_multiplier", "0.0078125", "attention_multiplier: expected null" },
        { "logits_scaling", "8", "logits_scaling: expected 1" },
        { "scale_emb", "12", "scale_emb: expected 1" },
        { "scale_depth", "1.4", "scale_depth: expected null" },
        { "query_pre_attn_scalar", "256", "query_pre_attn_scalar: expected null" },
        { "clip_qkv", "8", "clip_qkv: expected null" },
        { "no_rope_layers", "[1,1,1,0]", "no_rope_layers: expected null" },
        { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4.0}",
          "original_max_position_embeddings: expected an integer from 2 to 16777216, found nothing" },
        { "rope_scaling",
          "{\"rope_type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":64,\"beta_fast\":0}",
          "rope_scaling: expected 0 < beta_slow <= beta_fast" },
        { "rope_scaling", "{\"rope_type\":\"longrope\",\"original_max_position_embeddings\":64,\"short_factor\":[1]}",
          "rope_scaling.short_factor: expected a list of" },
        { "rope_scaling", "{\"rope_type\":\"su\",\"factor\":4.0}",
          "rope_scaling: expected a rope_type of default, linear, llama3, yarn or longrope" },
        { "rope_scaling", "{\"type\":\"dynamic\",\"factor\":2.0}", "found \"dynamic\"" },
        { "rope_scaling", "{\"rope_type\":\"linear\",\"type\":\"dynamic\",\"factor\":2.0}",
          "rope_scaling.type: expected the same as rope_type, found \"dynamic\"" },
        { "rope_scaling", "{\"rope_type\":\"default\",\"type\":\"linear\",\"factor\":2.0}",
          "rope_scaling.type: expected the same as rope_type" },
        { "rope_scaling", "{\"type\":\"linear\"}", "rope_scaling.factor: expected a number, found nothing" },
        { "rope_scaling", "{\"type\":\"linear\",\"factor\":0}", "rope_scaling.factor: expected a number above 0" },
        { "rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8}", "rope_scaling.low_freq_factor" },
        { "rope_scaling",
          "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4,"
          "\"original_max_position_embeddings\":8192}",
          "low_freq_factor < high_freq_factor" },
        { "rope_scaling",
          "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
          "\"original_max_position_embeddings\":0}",
          "original_max_position_embeddings" },
        { "rope_scaling", "[]", "rope_scaling: expected an object" },
        { "rope_parameters", "{\"rope_theta\":20000.0}", "rope_theta: expected the same in rope_parameters" },
        { "rope_parameters", "{\"full_attention\":{}}", "one rope for all layers" },
        { "rope_parameters", "{\"partial_rotary_factor\":0.25}", "partial_rotary_factor" },
        { "rope_theta", "0", "rope_theta: expected a number from 1" },
        { "rope_theta", "\"10000\"", "rope_theta: expected a number" },
        { "hidden_size", NULL, "hidden_size: expected an integer from 1 to 16777215, found nothing" },
        { "hidden_size", "-8", "hidden_size" },
        { "hidden_size", "8.5", "hidden_size" },
        { "num_hidden_layers", "1000000", "num_hidden_layers: expected an integer from 1 to 1024" },
        { "vocab_size", "99999999999", "vocab_size" },
        { "vocab_size", "2", "eos_token_id: expected a token id from 0 to 1, found 2" },
        { "num_key_value_heads", "3", "num_key_value_heads: expected a divisor of the 2" },
        { "head_dim", "3", "head_dim: expected an even size" },
        { "head_dim", "16000000", "head_dim: expected an even size" },
        { "num_attention_heads", "0", "num_attention_heads" },
        { "rms_norm_eps", "0", "rms_norm_eps: expected a number between 0 and 1" },
        { "tie_word_embeddings", "1", "tie_word_embeddings: expected true or false" },
        { "eos_token_id", "[2,\"x\"]", "eos_token_id: expected a list of token ids" },
        { "eos_token_id", "\"2\"", "eos_token_id" },
        { "eos_token_id", "[3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "at most 16 ids" },
        { "bos_token_id", "1000000", "bos_token_id" },
    };
    char *directory = test_path("config"), *path = xformat("%s/config.json", directory);
    char *tokenizer = xformat("%s/tokenizer_config.json", directory);
    small_write_hf(directory, &small_minimal);
    unlink(tokenizer);
    struct text good = checkpoint_bytes(path);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        struct json *from = json_parse(good.s, good.n, "config", &err), *to = json_new_object();
        for (void *at = json_first(from); at != NULL; at = json_next(from, at))
            if (strcmp(json_key(at), faults[i].key) != 0) {
                char *value = json_write(json_value(at));
                json_set(to, json_key(at), json_parse(value, strlen(value), "value", &err));
                free(value);
            }
        if (faults[i].value != NULL)
            json_set(to, faults[i].key, json_parse(faults[i].value, strlen(faults[i].value), "value", &err));
        char *text = json_write(to);
        file_write_bytes(path, text, strlen(text));
        free(text);
        json_free(from);
        json_free(to);
        struct model_config c;
        assert_false(config_read(directory, &c, &err));
        assert_error_mentions(&err, directory, faults[i].words);
    }
    struct model_config c;
    file_write_bytes(path, "[]", 2);
    assert_false(config_read(directory, &c, &err));
    assert_error_mentions(&err, path, "expected a JSON object");
    unlink(path);
    assert_false(config_read(directory, &c, &err));
    assert_error_mentions(&err, directory, "no config.json");
    char *weights = xformat("%s/model.safetensors", directory);
    assert_false(config_read(weights, &c, &err));
    assert_error_mentions(&err, weights, "name the directory");
    free(weights);

    // transformers would load the adapter's base model and the adapter.
    char *adapter = xformat("%s/adapter_config.json", directory);
    file_write_bytes(path, good.s, good.n);
    file_write_bytes(adapter, "{}", 2);
    assert_false(config_read(directory, &c, &err));
    assert_error_mentions(&err, adapter, "adapters are not supported");
    unlink(adapter);
    free(adapter);
    free(tokenizer);
    free(good.s);
    free(path);
    free(directory);
}

// A valid GGUF file with one key of its metadata removed or replaced.
static void metadata_with_an_unsupported_setting_are_refused(void **state)
{
    enum kind { NONE, INT, REAL, TEXT, FALSE_ };
    static const struct {
        const char *key;
        enum kind kind;
        double number;
        const char *text, *words;
    } faults[] = {
        { "general.architecture", NONE, 0, NULL, "general.architecture is missing" },
        { "general.architecture", TEXT, 0, "gpt2",
          "general.architecture: expected llama, qwen2, qwen3, qwen3moe, gemma2, gemma3, olmo2, granite, phi3 or smollm3, found gpt2" },
        { "general.type", TEXT, 0, "adapter", "general.type: expected model, found adapter" },
        { "llama.block_count", NONE, 0, NULL, "llama.block_count is missing" },
        { "llama.block_count", INT, 0, NULL, "llama.block_count: expected 1 to 1024, found 0" },
        { "llama.block_count", REAL, 1, NULL, "llama.block_count: expected an integer" },
        { "llama.embedding_length", INT, 1 << 24, NULL, "llama.embedding_length: expected 1 to 16777215" },
        { "llama.embedding_length", INT, 16, NULL, "head size 8, found 4" },
        { "llama.embedding_length", INT, 9, NULL, "not a multiple of 2 heads" },
        { "llama.attention.head_count", TEXT, 0, "2", "llama.attention.head_count: expected an integer" },
        { "llama.attention.head_count_kv", INT, 3, NULL, "head_count_kv: expected a divisor" },
        { "llama.attention.layer_norm_rms_epsilon", NONE, 0, NULL, "layer_norm_rms_epsilon is missing" },
        { "llama.attention.layer_norm_rms_epsilon", REAL, -1, NULL,
          "layer_norm_rms_epsilon: expected a number between 0 and 1" },
        { "llama.attention.key_length", INT, 6, NULL, "llama.rope.dimension_count: expected" },
        { "llama.attention.value_length", INT, 6, NULL, "llama.attention.value_length: expected the keys' 4, found 6" },
        { "llama.rope.dimension_count", INT, 2, NULL, "partial rope" },
        { "llama.rope.scaling.type", TEXT, 0, "yarn", "llama.rope.scaling.original_context_length is missing" },
        { "llama.rope.scaling.factor", REAL, -2, NULL, "llama.rope.scaling.factor: expected a number above 0" },
        { "llama.rope.scaling.attn_factor", REAL, 1.5, NULL, "llama.rope.scaling.attn_factor" },
        { "llama.rope.freq_base", REAL, 0, NULL, "llama.rope.freq_base: expected a number from 1" },
        { "llama.attention.sliding_window", INT, 100, NULL, "llama.attention.sliding_window: expected 0, found 100" },
        { "llama.expert_count", INT, 8, NULL, "llama.expert_used_count is missing" },
        { "llama.attn_logit_softcapping", REAL, 50, NULL, "llama.attn_logit_softcapping" },
        { "llama.final_logit_softcapping", REAL, 30, NULL, "llama.final_logit_softcapping" },
        { "llama.attention.causal", FALSE_, 0, NULL, "llama.attention.causal" },
        { "llama.attention.sliding_window", TEXT, 0, "many", "llama.attention.sliding_window" },
        { "tokenizer.ggml.eos_token_id", INT, 270, NULL,
          "tokenizer.ggml.eos_token_id: expected a token id from 0 to 269, found 270" },
        { "tokenizer.ggml.bos_token_id", INT, 1 << 30, NULL, "tokenizer.ggml.bos_token_id" },
        { "tokenizer.ggml.bos_token_id", TEXT, 0, "<s>", "tokenizer.ggml.bos_token_id: expected an integer" },
        { "tokenizer.ggml.add_bos_token", INT, 1, NULL, "tokenizer.ggml.add_bos_token: expected a bool" },
        { "tokenizer.ggml.tokens", TEXT, 0, "all", "tokenizer.ggml.tokens" },
    };
    char *good = test_path("good.gguf"), *bad = test_path("bad.gguf");
    small_write_gguf(good, &small_minimal);
    struct gguf *g = gguf_open(good, &err);
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        struct gguf_writer *w = gguf_write_begin(bad, &err);
        const char *key_ = faults[i].key;
        for (size_t k = 0; k < gguf_values(g); k++)
            if (gguf_value_at(g, k) != gguf_find(g, key_))
                gguf_write_copy(w, gguf_value_at(g, k));
        if (faults[i].kind == INT)
            gguf_write_int(w, key_, GGUF_U32, (int64_t)faults[i].number);
        else if (faults[i].kind == REAL)
            gguf_write_real(w, key_, (float)faults[i].number);
        else if (faults[i].kind == TEXT)
            gguf_write_text(w, key_, faults[i].text);
        else if (faults[i].kind == FALSE_)
            gguf_write_bool(w, key_, false);
        for (size_t k = 0; k < gguf_tensors(g); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, k);
            char *name = xstrndup(t->name.s, t->name.n);
            gguf_write_tensor(w, name, t->dims, t->dim, t->ggml_type, t->tensor.data, t->bytes);
            free(name);
        }
        assert_true(gguf_write_end(w, &err));
        struct model_config c;
        assert_false(config_read(bad, &c, &err));
        assert_error_mentions(&err, bad, faults[i].words);
    }
    gguf_close(g);

    // The table of rope's divisors: too short, of another type, and with a zero.
    static const float divisors[] = { 1, 0 };
    static const struct {
        uint64_t n;
        int type;
        const char *words;
    } tables[] = { { 1, 0, "expected 2 numbers of f32" },
                   { 2, 1, "expected 2 numbers of f32" },
                   { 2, 0, "numbers above 0, found 0" } };
    g = gguf_open(good, &err);
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
        struct gguf_writer *w = gguf_write_begin(bad, &err);
        for (size_t k = 0; k < gguf_values(g); k++)
            gguf_write_copy(w, gguf_value_at(g, k));
        gguf_write_tensor(w, "rope_freqs.weight", 1, &tables[i].n, tables[i].type, divisors, sizeof(divisors));
        assert_true(gguf_write_end(w, &err));
        struct model_config c;
        assert_false(config_read(bad, &c, &err));
        assert_error_mentions(&err, bad, tables[i].words);
    }
    gguf_close(g);
    free(good);
    free(bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_config_with_an_unsupported_setting_is_refused),
        cmocka_unit_test(metadata_with_an_unsupported_setting_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
