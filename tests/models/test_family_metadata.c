// test_family_metadata.c - of each family, every key of GGUF's metadata that is read and can be wrong, or that another family reads, is refused in one
// sentence that names it, and what llama.cpp ignores is ignored.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "tests/formats/gguf_edit.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"

static struct error err;

// Metadata of a small model of three layers, with one key changed (value "": without it), whose whole name is put into `key`. rope: the table
// of RoPE's divisors; NULL: none.
static void write_metadata(const char *path, const char *architecture, char **key, const char *value,
                           const struct gguf_vector *rope)
{
    static const char *const own[][2] = {
        { "",
          "{'block_count': 3, 'embedding_length': 16, 'feed_forward_length': 24, 'context_length': 256, 'attention.head_count': 2, "
          "'attention.layer_norm_rms_epsilon': 1e-5}" },
        { "gemma3", "{'attention.sliding_window': 8}" },
        { "qwen3moe", "{'expert_count': 4, 'expert_used_count': 2}" },
        { "granite", "{'logit_scale': 8.0}" },
        { "llama",
          "{'rope.scaling.type': 'yarn', 'rope.scaling.factor': 4.0, 'rope.scaling.original_context_length': 64}" },
    };
    struct json *all = json_object_of(JSON("general.architecture", architecture));
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) {
        struct json *some = strcmp(own[i][0], architecture) == 0 || i == 0 ? json_of(own[i][1]) : NULL;
        for (void *at = json_first(some); at != NULL; at = json_next(some, at)) {
            char *name = xformat("%s.%s", architecture, json_key(at));
            json_set(all, name, json_clone(json_value(at)));
            free(name);
        }
        json_free(some);
    }
    if (strncmp(*key, "general.", 8) != 0 && strncmp(*key, "tokenizer.", 10) != 0)
        *key = xformat("%s.%s", architecture, *key);
    else
        *key = xstrdup(*key);
    json_set(all, *key, *value != '\0' ? json_of(value) : json_new_null());
    struct gguf_writer *w = gguf_write_begin(path, &err);
    for (void *at = json_first(all); at != NULL; at = json_next(all, at))
        gguf_write_json(w, json_key(at), json_value(at));
    static const float rows[64 * 16];
    gguf_write_tensor(w, "token_embd.weight", 2, (const uint64_t[]){ 16, 64 }, 0, rows, sizeof(rows));
    if (rope != NULL)
        gguf_write_tensor(w, rope->name, 1, &rope->n, rope->ggml_type, rope->data, rope->bytes);
    assert_ok(gguf_write_end(w, &err), err);
    json_free(all);
}

static void expect_refused(const char *path, const char *architecture, const struct fault *f)
{
    struct model_config c;
    char *key = f->key;
    write_metadata(path, architecture, &key, f->value, NULL);
    if (config_read(path, &c, &err))
        fail_msg("%s: accepted with %s of %s", architecture, key, f->value);
    const bool whole = f->words != NULL && *f->words == '@'; // the words are those of another key
    assert_error_mentions(&err, path, whole ? f->words + 1 : key);
    assert_error_mentions(&err, path, whole || f->words == NULL ? "" : f->words);
    assert_true(whole || strstr(err.text, ": expected ") != NULL);
    free(key);
}

TEST(a_family_refuses_by_the_key_of_gguf)
{
    static const char *const architectures[] = { "llama",  "qwen2", "qwen3",   "qwen3moe", "gemma2",
                                                 "gemma3", "olmo2", "granite", "phi3",     "smollm3" };
    static const struct {
        const char *architecture, *faults;
    } all[] = {
        { "llama",
          "general.architecture= (@general.architecture is missing); general.type='adapter' (model, found adapter); "
          "general.architecture='gpt2' (llama, qwen2, qwen3, qwen3moe, gemma2, gemma3, olmo2, granite, phi3 or smollm3, found gpt2); "
          "block_count= (@llama.block_count is missing); block_count=0 (1 to 1024, found 0); block_count=1.0 (an integer); "
          "embedding_length=16777216 (1 to 16777215); embedding_length=10 (@token_embd.weight: expected); attention.head_count='2' (an integer); attention.head_count=3 (@not a multiple of 3 heads); "
          "attention.head_count_kv=3 (a divisor); attention.layer_norm_rms_epsilon= (@layer_norm_rms_epsilon is missing); "
          "attention.layer_norm_rms_epsilon=-1.0 (a number between 0 and 1); attention.key_length=7; "
          "attention.value_length=6 (expected the keys); rope.dimension_count=2 (partial rope); rope.freq_base=0.0 (a number from 1); "
          "attention.sliding_window=100 (0, found 100); attention.sliding_window='many'; attention.causal=false; "
          "expert_count=8 (@llama.expert_used_count is missing); attn_logit_softcapping=50.0; final_logit_softcapping=30.0; "
          "nextn_predict_layers=1 (0); tokenizer.ggml.eos_token_id=64 (a token id from 0 to 63, found 64); "
          "tokenizer.ggml.bos_token_id=1073741824; tokenizer.ggml.bos_token_id='<s>' (an integer); "
          "tokenizer.ggml.add_bos_token=1 (a bool); tokenizer.ggml.tokens='all'; "
          "rope.scaling.factor= (a number above 0, found 0); rope.scaling.factor=-2.0 (a number above 0); rope.scaling.attn_factor=1.5; "
          "rope.scaling.original_context_length= (@llama.rope.scaling.original_context_length is missing); "
          "rope.scaling.yarn_beta_fast=0.5 (@llama.rope.scaling: expected 0 < yarn_beta_slow <= yarn_beta_fast, found 1 and 0.5); "
          "rope.scaling.type='longrope' (none, linear or yarn); rope.scaling.yarn_log_multiplier=0.1 (0); "
          "rope.scaling.yarn_ext_factor=0.5 (1); rope.scaling.yarn_attn_factor=2.0 (1)" },
        { "qwen2",
          "block_count= (@qwen2.block_count is missing); rope.dimension_count=4 (the head size 8); expert_count=8 (0, found 8)" },
        { "qwen3",
          "attention.head_count=[2,4,2] (@attention.head_count: layers that differ are not supported (2 in layer 0, 4 in layer 1)); "
          "attention.head_count_kv=[1,1,2] (@attention.head_count_kv: layers that differ are not supported (1 in layer 0, 2 in layer 2)); "
          "attention.head_count_kv=[1,1] (a number for each of the 3 layers, found 2 numbers); final_logit_softcapping=30.0 (0)" },
        { "qwen3moe",
          "expert_group_count=2 (1); expert_count= (@qwen3moe.expert_count is missing); expert_count=0 (1 to 4096, found 0); "
          "expert_used_count= (@qwen3moe.expert_used_count is missing); expert_used_count=5 (1 to 4, found 5); "
          "expert_feed_forward_length=0 (1); expert_shared_count=1 (0); expert_weights_scale=2.5 (1)" },
        { "gemma2",
          "attn_logit_softcapping=-5.0 (a number from 0, found -5); final_logit_softcapping='30' (a real number); "
          "attention.sliding_window_pattern=0 (1); rope.freq_base_swa=1e6 (gemma2.rope.freq_base, 10000, found 1e+06)" },
        { "gemma3",
          "feed_forward_length=[24,32,24] (@gemma3.feed_forward_length: layers that differ); "
          "attention.sliding_window= (@gemma3.attention.sliding_window is missing); attention.sliding_window=0 (1 to 16777216, found 0); "
          "attention.sliding_window_pattern=0 (1); attention.sliding_window_pattern='all' (an integer); "
          "rope.freq_base_swa=0.0 (a number from 1, found 0); attn_logit_softcapping=50.0 (0, found 50)" },
        { "olmo2", "attention.sliding_window=16 (0); attention.sliding_window=256" },
        { "granite",
          "embedding_scale=-12.0 (a number from 0); residual_scale='x' (a real number); attention.scale=-1.0 (a number from 0); "
          "logit_scale=-8.0 (a number from 0); logit_scale=0.0 (a number above 0); logit_scale= (@granite.logit_scale is missing); "
          "rope.scaling.finetuned=false (1)" },
        { "phi3",
          "attention.sliding_window=255 (0); rope.scaling.attn_factor=2.0 (1); rope.dimension_count=7 (the head size 8)" },
        { "smollm3", "logit_scale=8.0 (0, found 8)" },
        { "gpt-oss", "x=0 (@general.architecture: gpt-oss is not supported: it has attention sinks)" },
        { "deepseek2", "x=0 (@deepseek2 is not supported: it has multi-head latent attention)" },
        { "mistral3", "x=0 (@mistral3 is not supported: it has queries that grow)" },
    };
    char *path = test_path("family.gguf");
    for (size_t i = 0; i < sizeof(architectures) / sizeof(*architectures); i++) {
        struct model_config c;
        char *key = "general.name";
        write_metadata(path, architectures[i], &key, "'whole'", NULL);
        assert_ok(config_read(path, &c, &err), err);
        config_free(&c);
        free(key);
    }
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        char *faults = xstrdup(all[i].faults), *rest = faults;
        for (struct fault f; fault_next(&rest, &f);)
            expect_refused(path, all[i].architecture, &f);
        free(faults);
    }
    free(path);
}

// The table of rope's divisors: too short, of another type, and with a zero.
TEST(divisors_of_rope_are_as_many_as_pairs_and_above_0)
{
    static const float divisors[] = { 1, 1, 1, 0 };
    static const struct {
        struct gguf_vector table;
        const char *words;
    } tables[] = { { { "rope_freqs.weight", 3, 0, divisors, 12 }, "expected 4 numbers of f32" },
                   { { "rope_freqs.weight", 4, 1, divisors, 8 }, "expected 4 numbers of f32" },
                   { { "rope_freqs.weight", 4, 0, divisors, 16 }, "numbers above 0, found 0" } };
    char *path = test_path("table.gguf");
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
        struct model_config c;
        char *key = "rope.scaling.type";
        write_metadata(path, "llama", &key, "", &tables[i].table);
        assert_false(config_read(path, &c, &err));
        assert_error_mentions(&err, path, tables[i].words);
        free(key);
    }
    free(path);
}

// A window that the context is within, and numbers without effect in a family.
TEST(a_family_ignores_what_llama_cpp_ignores)
{
    static const struct {
        const char *architecture, *key, *value;
        int window;
    } ignored[] = {
        { "phi3", "attention.sliding_window", "262144", 0 },
        { "phi3", "attention.sliding_window", "256", 0 },
        { "llama", "attention.sliding_window", "256", 0 },
        { "qwen3", "attention.sliding_window", "4096", 0 },
        { "olmo2", "attention.sliding_window", "0", 0 },
        { "gemma3", "attention.sliding_window", "4096", 4096 },
        { "llama", "rope.scaling.finetuned", "false", 0 },
        { "granite", "rope.scaling.finetuned", "true", 0 },
        { "gemma2", "rope.freq_base_swa", "10000.0", 4096 },
        { "qwen3", "attention.head_count_kv", "[1,1,1]", 0 },
        { "gemma2", "attention.sliding_window_pattern", "3", 4096 },
    };
    char *path = test_path("family.gguf");
    for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++) {
        struct model_config c;
        char *key = (char *)(uintptr_t)ignored[i].key;
        write_metadata(path, ignored[i].architecture, &key, ignored[i].value, NULL);
        assert_ok(config_read(path, &c, &err), err);
        assert_int_equal(c.window, ignored[i].window);
        if (strcmp(key, "gemma2.attention.sliding_window_pattern") == 0) // 3 layers have it, not 2
            assert_true(layer_set_has(&c.windowed, 1) && !layer_set_has(&c.windowed, 2));
        config_free(&c);
        free(key);
    }
    free(path);
}

RUN_TESTS(NULL, test_directory_tear_down)
