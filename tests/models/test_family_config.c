// test_family_config.c - of each family, every key that is read and can be wrong, or that another family reads, is refused in one sentence that names
// it, and what its class ignores is ignored: in config.json (GGUF's metadata: test_family_metadata.c).
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "tests/models/golden_model.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

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

// A copy of an object in which the key, with one dot a key of an object in it, has another value; value NULL: none.
static struct json *edited(const struct json *from, const char *key, const char *value)
{
    struct json *to = json_clone(from), *at = to;
    for (const char *dot; (dot = strchr(key, '.')) != NULL; key = dot + 1) {
        char *outer = xstrndup(key, (size_t)(dot - key));
        at = json_get(at, outer);
        free(outer);
    }
    if (value != NULL)
        json_set(at, key, json_of(value));
    else
        json_drop(at, key);
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

// The error names the key, what was expected and what was found; or it says what is after @ in its place.
static void expect_refused(const char *path, const char *model, const struct fault *f)
{
    struct json *config = edited(config_named(model), f->key, *f->value != '\0' ? f->value : NULL);
    if (reads(path, config))
        fail_msg("%s: accepted with %s of %s", model, f->key, *f->value != '\0' ? f->value : "nothing");
    const bool whole = f->words != NULL && *f->words == '@';
    char *place = whole ? xstrdup(f->words + 1) : xformat("config.json: %s", f->key);
    assert_error_mentions(&err, test_directory(), place);
    assert_error_mentions(&err, test_directory(), whole || f->words == NULL ? "" : f->words);
    assert_true(whole || (strstr(err.text, ": expected ") != NULL && strstr(err.text, ", found ") != NULL));
    free(place);
    json_free(config);
}

TEST(a_family_refuses_by_the_key)
{
    static const struct {
        const char *model, *faults;
    } all[] = {
        { "llama",
          "model_type='gpt2' ('llama', 'mistral', 'ministral', 'ministral3', 'mixtral'); "
          "model_type='gpt2' ('mistral3' or 'gemma3'); "
          "model_type='qwen2' (@architectures: expected ['Qwen2ForCausalLM']); model_type= (or 'gemma3'); "
          "architectures=['LlamaForCausalLMEagle3']; architectures='LlamaForCausalLM'; hidden_act='gelu' ('silu'); "
          "mlp_bias=true (false); sliding_window=4096 (null); partial_rotary_factor=0.5 (1); "
          "attn_logit_softcapping=50.0; final_logit_softcapping=30.0; quantization_config={'quant_method':'gptq'}; "
          "num_local_experts=8 (0); rope_interleaved=true; "
          "layer_types='sliding_attention' (a list of 1 times 'full_attention'); "
          "auto_map={'AutoConfig':'c.C','AutoModelForCausalLM':'modeling_giraffe.LlamaForCausalLM'} "
          "(@auto_map.AutoModelForCausalLM: expected no code of its own); "
          "auto_map={'AutoModel':'modeling.M'} (@auto_map.AutoModel: expected no code of its own); "
          "auto_map='modeling.M' (no code of its own); dim_model_base=256 (hidden_size, or nothing); "
          "logit_scale=0.0625 (1); use_parallel_residual=true (false); alibi=true (false); "
          "norm_type='layernorm' ('rmsnorm'); num_nextn_predict_layers=1 (0); embedding_multiplier=12 (1); "
          "residual_multiplier=0.22 (1); attention_multiplier=0.0078125 (null); logits_scaling=8 (1); "
          "scale_emb=12 (1); scale_depth=1.4 (null); query_pre_attn_scalar=256 (null); clip_qkv=8 (null); "
          "no_rope_layers=[1,1,1,0] (null); "
          "rope_scaling={'rope_type':'yarn','factor':4.0} (@original_max_position_embeddings: expected an integer "
          "from 2 to 16777216); "
          "rope_scaling={'rope_type':'yarn','factor':4.0,'original_max_position_embeddings':64,'beta_fast':0} (0 < "
          "beta_slow <= beta_fast); "
          "rope_scaling={'rope_type':'longrope','original_max_position_embeddings':64,'short_factor':[1]} "
          "(@rope_scaling.short_factor: expected a list of); "
          "rope_scaling={'rope_type':'su','factor':4.0} (a rope_type of default, linear, llama3, yarn or longrope); "
          "rope_scaling={'type':'dynamic','factor':2.0}; "
          "rope_scaling={'rope_type':'linear','type':'dynamic','factor':2.0} (@rope_scaling.type: expected the same "
          "as rope_type); rope_scaling={'type':'linear'} (@rope_scaling.factor: expected a number); "
          "rope_scaling={'type':'linear','factor':0} (@rope_scaling.factor: expected a number above 0); "
          "rope_scaling={'rope_type':'llama3','factor':8} (rope_scaling.low_freq_factor); "
          "rope_scaling={'rope_type':'llama3','factor':8,'low_freq_factor':4,'high_freq_factor':4,"
          "'original_max_position_embeddings':8192} (low_freq_factor < high_freq_factor); "
          "rope_scaling={'rope_type':'llama3','factor':8,'low_freq_factor':1,'high_freq_factor':4,"
          "'original_max_position_embeddings':0} (original_max_position_embeddings); rope_scaling=[] (an object); "
          "rope_parameters={'rope_theta':20000.0} (@rope_theta: expected the same in rope_parameters); "
          "rope_parameters={'full_attention':{}} (one rope for all layers); "
          "rope_parameters={'partial_rotary_factor':0.25} (@partial_rotary_factor: expected 1); rope_theta=0 (a number from 1); "
          "rope_theta='10000' (a number); hidden_size= (an integer from 1 to 16777215); hidden_size=-8; "
          "num_hidden_layers=1000000 (an integer from 1 to 1024); vocab_size=99999999999; "
          "vocab_size=2 (@eos_token_id: expected a token id from 0 to 1); "
          "num_key_value_heads=3 (a divisor of the 2); head_dim=3 (an even size); num_attention_heads=0; "
          "rms_norm_eps=0 (a number between 0 and 1); tie_word_embeddings=1 (true or false); "
          "eos_token_id=[2,'x'] (@eos_token_id: expected a list of token ids); eos_token_id='2' (@eos_token_id: expected a token id); "
          "eos_token_id=[3,4,5,6,7,8,9,10,11,12,13,14,15,16,17] (@at most 16 ids); bos_token_id=1000000" },
        { "mistral-window",
          "sliding_window=0 (an integer from 1); sliding_window=4.5 (an integer from 1); "
          "layer_types=['sliding_attention','full_attention','sliding_attention'] (@head_dim: expected an integer "
          "from 2); use_sliding_window=false (true, as there is a window); max_window_layers=2 (nothing)" },
        { "mixtral-one", "layer_types=['sliding_attention','full_attention'] (all layers have the window)" },
        { "qwen3moe-window",
          "layer_types=['sliding_attention','full_attention','full_attention'] (all layers have the window)" },
        { "mistral-full",
          "use_sliding_window=true (false); attention_chunk_size=128 (null); swiglu_limit=7.0 (null); "
          "text_config={} (null); vision_config={} (null); model_type='gpt_oss' (@gpt_oss is not supported); "
          "model_type='deepseek_v3' (@deepseek_v3 is not supported); "
          "model_type='qwen2_moe' (@qwen2_moe is not supported); "
          "model_type='qwen3_next' (@qwen3_next is not supported); "
          "model_type='qwen3_vl' (@qwen3_vl is not supported); model_type='llama4' (@llama4 is not supported); "
          "model_type='gemma3n' (@gemma3n is not supported); model_type='cohere2' (@cohere2 is not supported); "
          "model_type='phi' (@phi is not supported); model_type=[] ('llama', 'mistral')" },
        { "olmo2",
          "use_sliding_window=true (false); sliding_window=8 (null); "
          "layer_types=['full_attention','sliding_attention','full_attention'] (a list of 3 times 'full_attention'); "
          "final_logit_softcapping=30.0 (null); clip_qkv=8 (null)" },
        { "granite", "sliding_window=8 (null); mlp_bias=true (false); embedding_multiplier=-1 (a number above 0); "
                     "residual_multiplier=0 (a number above 0); attention_multiplier=-0.1 (a number above 0); "
                     "logits_scaling=0 (a number above 0); logits_scaling='x' (a number)" },
        { "gemma2", "sliding_window_pattern=3 (nothing); hidden_activation='silu' ('gelu_pytorch_tanh'); "
                    "query_pre_attn_scalar=0 (a number above 0); query_pre_attn_scalar='a' (a number); "
                    "attn_logit_softcapping=0 (a number above 0); final_logit_softcapping=-5 (a number above 0); "
                    "rope_local_base_freq=1e4 (null)" },
        { "gemma3",
          "sliding_window=null (a number of positions); sliding_window_pattern=0 (an integer from 1); "
          "use_bidirectional_attention=true (false); "
          "rope_scaling={'rope_type':'yarn','factor':4,'original_max_position_embeddings':64,'truncate':false} "
          "(@rope_scaling.truncate: expected true); rope_local_base_freq=0 (a number from 1); "
          "rope_local_base_freq='a' (a number); "
          "rope_scaling={'rope_type':'longrope','original_max_position_embeddings':16,'short_factor':[1,1,1,1,1,1,1,"
          "1],'long_factor':[1,1,1,1,1,1,1,1]} (a rope_type of default, linear, llama3 or yarn); "
          "rope_scaling={'type':'linear','factor':2} (@rope_scaling.type: expected nothing, or the same as rope_type)" },
        { "gemma3-types",
          "sliding_window_pattern=3 (the windows of layer_types); "
          "sliding_window=null (@layer_types: expected a list of 3 times 'full_attention'); "
          "rope_local_base_freq=1e3 (a number from 1, the same in rope_parameters); "
          "rope_theta=1e3 (the same in rope_parameters); "
          "rope_parameters={'rope_type':'linear','factor':8} (an object for each type of layer); "
          "rope_parameters={'full_attention':3,'sliding_attention':{}} (an object for each type of layer)" },
        { "qwen2-types", "layer_types=['sliding_attention','full_attention'] (a list of 3 times 'full_attention' or); "
                         "layer_types=['sliding_attention','full_attention','chunked_attention'] (a list of 3 times); "
                         "layer_types=['sliding_attention','full_attention',3] (a list of 3 times); "
                         "layer_types={} (a list of 3 times); "
                         "use_sliding_window=false (@layer_types: expected a list of 3 times 'full_attention'); "
                         "use_sliding_window=1 (true or false)" },
        { "qwen2-window", "max_window_layers=-1 (an integer from 0)" },
        { "ministral", "layer_types=['sliding_attention'] (a list of 4 times 'full_attention' or); "
                       "sliding_window=null (@layer_types: expected a list of 4 times 'full_attention'); "
                       "head_dim= (an integer from 2)" },
        { "smollm3", "no_rope_layers=[1,1,0,1] (a number, 0 or 1, for each layer); "
                     "no_rope_layers=[1,1,0,1,2] (a number, 0 or 1, for each layer); "
                     "no_rope_layers=1 (a number, 0 or 1, for each layer); logits_scaling=8 (1)" },
        { "smollm3-window", "no_rope_layer_interval=0 (an integer from 1)" },
        { "qwen2-gqa",
          "is_causal=false (true, or nothing); is_causal=null (true, or nothing); "
          "num_key_value_heads=4 (a divisor of the 6 attention heads); num_key_value_heads= (an integer from 1); "
          "num_attention_heads=5 (a divisor of hidden_size); attention_bias=true (false); "
          "hidden_act='gelu' ('silu'); num_experts=8 (0); partial_rotary_factor=0.5 (1); "
          "auto_map={'AutoModelForCausalLM':'modeling_phi3.Qwen2ForCausalLM'} (@auto_map.AutoModelForCausalLM: "
          "expected no code of its own)" },
        { "phi3",
          "per_layer_config={'1':{'intermediate_size':8}} (null); query_pre_attn_scalar=256 (null); "
          "partial_rotary_factor=1.5 (a share of a head, an even number); "
          "partial_rotary_factor=0 (a share of a head); "
          "partial_rotary_factor=0.4 (a share of a head, an even number); "
          "original_max_position_embeddings='x' (an integer); "
          "auto_map={'AutoModelForCausalLM':'modeling_phi3_v.Phi3ForCausalLM'} (@auto_map.AutoModelForCausalLM: "
          "expected no code of its own); "
          "auto_map={'AutoModelForCausalLM':'modeling_phi3.Phi3Model'} (@auto_map.AutoModelForCausalLM: expected no "
          "code of its own)" },
        { "qwen3-heads",
          "head_dim= (an integer from 2); head_dim=13 (an even size of heads); attn_logit_softcapping=50.0 (null)" },
        { "qwen3-bias", "attention_bias=1 (true or false); "
                        "rope_scaling={'type':'linear','factor':2} (nothing beside rope_parameters); "
                        "rope_local_base_freq=1e4 (null)" },
        { "qwen3moe",
          "num_experts_per_tok=10 (an integer from 1 to 9); num_experts_per_tok=0 (an integer from 1 to 9); "
          "num_experts=0 (an integer from 1); num_experts= (an integer from 1); "
          "num_local_experts=4 (@num_experts: expected the same as num_local_experts); "
          "moe_intermediate_size= (an integer from 1); norm_topk_prob=1 (true or false); "
          "decoder_sparse_step=0 (an integer from 1); mlp_only_layers=[5] (a list of layers); "
          "mlp_only_layers=[-1] (a list of layers); mlp_only_layers=3 (a list of layers); n_shared_experts=1 (0); "
          "shared_expert_intermediate_size=24 (0); routed_scaling_factor=2.5 (1); "
          "scoring_func='sigmoid' ('softmax'); n_group=2 (1); first_k_dense_replace=1 (0)" },
        { "qwen3moe-fused", "num_experts=4 (the same as num_local_experts); "
                            "num_local_experts= (@num_experts: expected an integer from 1)" },
        { "mixtral", "num_local_experts=1 (@num_experts_per_tok: expected an integer from 1 to 1); "
                     "num_experts=4 (the same as num_local_experts); num_experts_per_tok= (an integer from 1 to 5); "
                     "norm_topk_prob=false (true)" },
        { "mixtral-fused", "num_local_experts=5 (@num_experts: expected the same as num_local_experts)" },
        { "phi3-long",
          "original_max_position_embeddings=32 (@rope_scaling.original_max_position_embeddings: expected the same "
          "beside it); "
          "original_max_position_embeddings= (@rope_scaling.original_max_position_embeddings: expected the same "
          "beside it); rope_scaling.attention_factor=0 (a number above 0); "
          "rope_scaling.short_factor= (a list of 6 numbers); "
          "rope_scaling.long_factor=[1,1,1,1,1] (a list of 6 numbers); "
          "rope_scaling.long_factor=[1,1,1,1,1,0] (a list of 6 numbers); "
          "rope_scaling.long_factor=[1,1,1,1,1,'a'] (a list of 6); "
          "partial_rotary_factor= (@rope_scaling.short_factor: expected a list of 8 numbers)" },
        { "qwen2-yarn",
          "original_max_position_embeddings=32 (@rope_scaling.original_max_position_embeddings: expected the same "
          "beside it); rope_scaling={'type':'yarn'} (@rope_scaling.factor: expected a number); "
          "rope_scaling.factor=0 (a number above 0); "
          "rope_scaling.beta_fast=0.5 (@rope_scaling: expected 0 < beta_slow <= beta_fast); "
          "rope_scaling.attention_factor=0 (a number above 0); rope_scaling.truncate=1 (true or false); "
          "rope_scaling.mscale='a' (a number); rope_scaling.original_max_position_embeddings=1 (an integer from 2); "
          "rope_scaling.mrope_section=[1,2,3] (nothing); rope_scaling.llama_4_scaling_beta=0.1 (nothing)" },
        { "ministral3",
          "rope_parameters.llama_4_scaling_beta= (a number from 0); "
          "rope_parameters.llama_4_scaling_beta=-1 (a number from 0); "
          "rope_parameters.original_max_position_embeddings= (@original_max_position_embeddings: expected an integer "
          "from 2); rope_parameters= (@llama_4_scaling_beta: expected a number from 0)" },
        { "mistral3",
          "text_config=null (an object); text_config.model_type='llama' ('mistral' or 'ministral3'); "
          "text_config.tie_word_embeddings=true (the same as); tie_word_embeddings='no' (true or false); "
          "quantization_config={'quant_method':'x'} (@quantization_config.quant_method: expected 'fp8'); "
          "text_config.hidden_size= (an integer from 1); text_config.num_attention_heads= (an integer from 1); "
          "text_config.vocab_size= (an integer from 1); "
          "architectures=['MistralForCausalLM'] (['Mistral3ForConditionalGeneration']); "
          "is_causal=false (@config.json: is_causal: expected true, or nothing); "
          "text_config.is_causal=null (true, or nothing)" },
        { "gemma3-images",
          "text_config.model_type='gemma2' ('gemma3_text'); "
          "text_config.rope_scaling={'rope_type':'linear'} (@text_config.rope_scaling.factor: expected a number)" },
    };
    char *path = test_path("family/config.json"), *directory = test_path("family");
    small_write_hf(directory, &small_minimal);
    models = xrealloc(models, (n_models + 1) * sizeof(*models)); // the golden ones, and this
    struct json *own = json_read(path, &err);
    models[n_models++] = json_object_of(JSON("name", "llama"), JSON("config", own));
    char *tokenizer = xformat("%s/tokenizer_config.json", directory);
    file_write(tokenizer, "{}");
    for (size_t i = 0; i < n_models; i++)
        if (!reads(path, json_get(models[i], "config")))
            fail_msg("%s: %s", json_text(json_get(models[i], "name")), err.text);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        char *faults = xstrdup(all[i].faults), *rest = faults;
        for (struct fault f; fault_next(&rest, &f);)
            expect_refused(path, all[i].model, &f);
        free(faults);
    }
    free(tokenizer);
    free(path);
    free(directory);
}

// What is no configuration at all.
TEST(a_directory_without_a_configuration_is_refused)
{
    struct model_config c;
    char *directory = test_path("none"), *path = test_path("none/config.json"),
         *weights = test_path("none/model.safetensors"), *adapter = test_path("none/adapter_config.json");
    small_write_hf(directory, &small_minimal);
    file_write(adapter, "{}"); // transformers would load the adapter's base model and the adapter
    assert_false(config_read(directory, &c, &err));
    assert_error_mentions(&err, adapter, "adapters are not supported");
    unlink(adapter);
    file_write(path, "[]");
    assert_false(config_read(directory, &c, &err));
    assert_error_mentions(&err, path, "expected a JSON object");
    unlink(path);
    assert_false(config_read(directory, &c, &err));
    assert_error_mentions(&err, directory, "no config.json");
    assert_false(config_read(weights, &c, &err));
    assert_error_mentions(&err, weights, "name the directory");
    free(adapter);
    free(weights);
    free(path);
    free(directory);
}

// Keys that the family's class in transformers does not use, whatever they say, and what it has where a key is missing.
TEST(a_family_ignores_what_its_class_ignores)
{
    static const struct {
        const char *model, *settings;
    } ignored[] = {
        { "phi3",
          "auto_map={'AutoConfig':'configuration_phi3.Phi3Config','AutoModelForCausalLM':'modeling_phi3.Phi3ForCausalLM'}; "
          "resid_pdrop=0.1; embd_pdrop=0.1" },
        { "smollm3", "pretraining_tp=2" },
        { "qwen2-gqa", "pretraining_tp=4; is_causal=true" },
        // what the whole says again is not the text model's
        { "mistral3", "text_config.pretraining_tp=2; hidden_size=7; is_causal=null" },
        { "gemma3-images", "vocab_size=7; text_config.final_logit_softcapping=30.0" },
        { "gemma2", "hidden_act='gelu'" },
        { "gemma3", "attn_logit_softcapping=50.0" },
        { "mixtral", "router_jitter_noise=0.5; num_experts=5" },
        { "qwen3moe", "num_local_experts=9" },
        { "qwen3moe-window", "max_window_layers=0; max_window_layers=28" },
        { "qwen2-yarn", "original_max_position_embeddings=64" },
    };
    char *path = test_path("family/config.json"), *directory = test_path("family");
    for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++) {
        char *settings = xstrdup(ignored[i].settings), *rest = settings;
        for (struct fault f; fault_next(&rest, &f);) {
            struct model_config with, without;
            struct json *config = edited(config_named(ignored[i].model), f.key, f.value);
            assert_true(reads(path, config_named(ignored[i].model)) && config_read(directory, &without, &err));
            if (!reads(path, config))
                fail_msg("%s with %s: %s", ignored[i].model, f.key, err.text);
            assert_ok(config_read(directory, &with, &err), err);
            assert_true(with.architecture == without.architecture && with.window == without.window &&
                        memcmp(&with.windowed, &without.windowed, sizeof(with.windowed)) == 0 &&
                        with.experts == without.experts && with.attention_cap == without.attention_cap &&
                        with.logit_cap == without.logit_cap && with.width == without.width &&
                        with.vocab == without.vocab && with.rope.original == without.rope.original);
            config_free(&with);
            config_free(&without);
            json_free(config);
        }
        free(settings);
    }
    free(path);
    free(directory);
}

// The values that transformers' classes have where the file is silent, from their source.
TEST(a_family_has_the_defaults_of_its_class)
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

RUN_TESTS(set_up, tear_down)
