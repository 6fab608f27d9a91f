// write_models.c - seeds of fuzz_gguf, fuzz_config and fuzz_safetensors.
#include "tests/fuzz/write_seeds.h"

#include <stdlib.h>

#include "core/json.h"
#include "core/memory.h"
#include "tests/models/golden_model.h"
#include "tests/support/checkpoint.h"
#include "tests/support/small_model.h"

static void put_directory(const char *name, const char *directory, const struct small_model *t)
{
    static const char *const files[] = { "config.json", "generation_config.json", "tokenizer_config.json",
                                         "tokenizer.json", "chat_template.jinja" };
    struct text config = { 0 };
    small_write_hf(directory, t);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        if (i > 0)
            add_nul(&config);
        add_file(&config, directory, files[i]);
    }
    for (int i = 0; i < 2; i++) { // special_tokens_map.json and added_tokens.json
        add_nul(&config);
        text_puts(&config, "{}");
    }
    put_text("config", name, &config);
    free(config.s);
    if (t->shards == 0 && t->tokenizer)
        return;
    struct text one = { 0 };
    add_file(&one, directory, "model.safetensors.index.json");
    add_nul(&one);
    add_file(&one, directory, t->shards > 0 ? "model-00001-of-00002.safetensors" : "model.safetensors");
    put_text("safetensors", name, &one);
    free(one.s);
}

void write_models(void)
{
    const struct {
        const char *name;
        enum type type;
        enum rope_scaling rope;
        bool tied, bias, tokenizer, new_spelling;
        int shards, head_dim;
    } forms[] = {
        { "small", BF16, ROPE_PLAIN, true, false, true, false, 0, 4 },
        { "linear", F32, ROPE_LINEAR, false, true, false, false, 2, 4 },
        { "llama3", F16, ROPE_LLAMA3, true, false, true, true, 0, 4 },
        { "plain", F16, ROPE_LLAMA3, false, false, false, false, 0, 4 },
        { "q8_0", Q8_0, ROPE_PLAIN, true, false, false, false, 0, 16 },
        { "q4_0", Q4_0, ROPE_PLAIN, false, true, false, false, 0, 16 },
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        struct small_model t = small_minimal;
        const bool quantized = type_is_quantized(forms[i].type);
        t.type = forms[i].type;
        t.rope = forms[i].rope;
        t.tied = forms[i].tied;
        t.bias = forms[i].bias;
        t.tokenizer = forms[i].tokenizer;
        t.new_spelling = forms[i].new_spelling;
        t.shards = forms[i].shards;
        t.head_dim = forms[i].head_dim;
        t.factor = 8, t.low = 1, t.high = 4, t.original = 256;
        if (!t.tokenizer)
            t.vocab = 24;
        if (quantized)
            t.width = t.hidden = 32;
        struct text bytes = { 0 };
        char *directory = test_path(forms[i].name), *gguf = xformat("%s.gguf", directory);
        small_write_gguf(gguf, &t);
        bytes = checkpoint_bytes(gguf);
        put_text("gguf", forms[i].name, &bytes);
        free(bytes.s);
        if (i == 0) {
            struct text same = checkpoint_bytes(gguf);
            put(".", "tiny.gguf", same.s, same.n);
            free(same.s);
        }
        if (!quantized)
            put_directory(forms[i].name, directory, &t);
        free(directory);
        free(gguf);
    }
}

// Configurations of every family; config.json alone.
static void put_families(void)
{
    size_t n;
    struct json **models = golden_models(&n);
    for (size_t i = 0; i < n; i++) {
        char *config = json_write(json_get(models[i], "config"));
        struct text t = { 0 };
        text_puts(&t, config);
        text_add(&t, "\0\0\0\0", 4);
        put_text("config", json_text(json_get(models[i], "name")), &t);
        free(config);
        free(t.s);
    }
    golden_models_free(models, n);
}

#define SIZES \
    "\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"vocab_size\":96,\"rms_norm_eps\":1e-5"

void write_configs(void)
{
    put_families();
    PUT("config", "tokens",
        "{" SIZES
        ",\"eos_token_id\":[1,2],\"bos_token_id\":3,\"speclab_inflated_from\":\"a\"}\0{\"eos_token_id\":[2,4]}\0"
        "{\"eos_token\":{\"content\":\"<|im_end|>\"},\"bos_token\":\"<s>\",\"add_bos_token\":true,"
        "\"chat_template\":[{\"name\":\"default\",\"template\":\"x\"}]}\0"
        "{\"added_tokens\":[{\"id\":5,\"content\":\"<|im_end|>\"},{\"id\":6,\"content\":\"<s>\"}],"
        "\"model\":{\"vocab\":{\"a\":0}},\"post_processor\":{\"type\":\"Sequence\",\"processors\":"
        "[{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}}]}]}}\0");
    PUT("config", "rope",
        "{" SIZES
        ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":1e5,\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4,\"original_max_position_embeddings\":64}}\0\0{\"chat_template\":\"<|im_start|>\"}\0\0");
    PUT("config", "ends",
        "{" SIZES
        ",\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12]}\0{\"eos_token_id\":[13,14,15]}\0{\"eos_token\":\"a\"}\0"
        "{\"model\":{\"vocab\":{\"a\":15,\"b\":16}}}\0");
    PUT("config", "refused",
        "{" SIZES ",\"hidden_act\":\"gelu\",\"layer_types\":[\"full_attention\"],"
        "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}\0[]\0\0\0");
    PUT("config", "template", "{" SIZES "}\0\0\0\0{% for m in messages %}<|im_start|>");
}

void write_safetensors(void)
{
    static const char *const types[] = { "F64", "F32",  "F16", "BF16",    "I64",    "I32",
                                         "U8",  "BOOL", "F4",  "F6_E2M3", "F8_E4M3" };
    struct text header = { 0 }, file = { 0 };
    uint64_t at = 0;
    text_puts(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        static const unsigned bits[] = { 64, 32, 16, 16, 64, 32, 8, 8, 4, 6, 8 };
        const uint64_t bytes = 8 * bits[i] / 8;
        text_printf(&header, ",\"%c\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}", 'a' + (int)i,
                    types[i], i % 2 ? "8" : "2,4", (unsigned long long)at, (unsigned long long)(at + bytes));
        at += bytes;
    }
    text_puts(&header, "}");
    const uint64_t n = header.n;
    text_puts(&file,
              "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"one.safetensors\"}}");
    add_nul(&file);
    text_add(&file, (const char *)&n, 8);
    text_add(&file, header.s, header.n);
    for (uint64_t i = 0; i < at; i++)
        text_add(&file, "\1", 1);
    put_text("safetensors", "types", &file);
    PUT("safetensors", "empty", "\0\2\0\0\0\0\0\0\0{}"); // no tensors
    free(file.s);
    free(header.s);
}
