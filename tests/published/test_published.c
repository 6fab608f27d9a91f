// test_published.c - published heads and their targets, with the names, shapes and configurations that they have, as sparse files of their real
// sizes: the configuration is read as published, the tensors fit it, the template renders, the kind of a head is detected, `inspect HEAD --target
// TARGET` finds that it fits, and the gigabytes of zeros are not read.
//
// Tokenizers are small ones of the target's kind, templates have the published ones' form.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "commands/inspect_checkpoint.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/config.h"
#include "models/heads/head.h"
#include "tests/published/published.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/support/file_write.h"
#include "tests/support/small_model.h"
#include "models/tokenizers/chat_template.h"
#include "models/tokenizers/tokenizer.h"

// What all of the configurations below have, as transformers wrote it.
#define WRITTEN(version) \
    "\"attention_dropout\": 0.0, \"initializer_range\": 0.02, \"torch_dtype\": \"bfloat16\", \"use_cache\": true, " \
    "\"transformers_version\": \"" version "\", "
#define QWEN_IDS "\"bos_token_id\": 151643, \"eos_token_id\": 151645, "

// clang-format off
static const struct known_target others[] = {
    { .name = "Qwen2-7B-Instruct", .layers = 28, .width = 3584, .hidden = 18944, .heads = 28, .kv_heads = 4, .vocab = 152064, .files = 4, .min_gb = 15, .qkv_bias = true,
      .config = "{\"architectures\": [\"Qwen2ForCausalLM\"], " WRITTEN("4.41.2") QWEN_IDS "\"hidden_act\": \"silu\", \"hidden_size\": 3584, "
                "\"intermediate_size\": 18944, \"max_position_embeddings\": 32768, \"max_window_layers\": 28, \"model_type\": \"qwen2\", "
                "\"num_attention_heads\": 28, \"num_hidden_layers\": 28, \"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, "
                "\"sliding_window\": 131072, \"tie_word_embeddings\": false, \"use_sliding_window\": false, \"vocab_size\": 152064}" },
    { .name = "Qwen3-8B", .layers = 36, .width = 4096, .hidden = 12288, .heads = 32, .kv_heads = 8, .head_dim = 128, .vocab = 151936, .files = 5, .min_gb = 16, .head_norms = true,
      .config = "{\"architectures\": [\"Qwen3ForCausalLM\"], " WRITTEN("4.51.0") QWEN_IDS "\"attention_bias\": false, \"head_dim\": 128, "
                "\"hidden_act\": \"silu\", \"hidden_size\": 4096, \"intermediate_size\": 12288, \"max_position_embeddings\": 40960, "
                "\"max_window_layers\": 36, \"model_type\": \"qwen3\", \"num_attention_heads\": 32, \"num_hidden_layers\": 36, \"num_key_value_heads\": 8, "
                "\"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, \"tie_word_embeddings\": false, "
                "\"use_sliding_window\": false, \"vocab_size\": 151936}" },
    { .name = "Qwen3-30B-A3B", .layers = 48, .width = 2048, .hidden = 6144, .heads = 32, .kv_heads = 4, .head_dim = 128, .vocab = 151936, .files = 16, .min_gb = 60,
      .head_norms = true, .experts = 128, .expert_hidden = 768, .router = "mlp.",
      .config = "{\"architectures\": [\"Qwen3MoeForCausalLM\"], " WRITTEN("4.51.0") QWEN_IDS "\"attention_bias\": false, \"decoder_sparse_step\": 1, "
                "\"head_dim\": 128, \"hidden_act\": \"silu\", \"hidden_size\": 2048, \"intermediate_size\": 6144, \"max_position_embeddings\": 40960, "
                "\"max_window_layers\": 48, \"mlp_only_layers\": [], \"model_type\": \"qwen3_moe\", \"moe_intermediate_size\": 768, \"norm_topk_prob\": true, "
                "\"num_attention_heads\": 32, \"num_experts\": 128, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 48, \"num_key_value_heads\": 4, "
                "\"output_router_logits\": false, \"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 1000000.0, \"router_aux_loss_coef\": 0.001, "
                "\"sliding_window\": null, \"tie_word_embeddings\": false, \"use_sliding_window\": false, \"vocab_size\": 151936}" },
    { .name = "Mistral-7B-Instruct-v0.2", .layers = 32, .width = 4096, .hidden = 14336, .heads = 32, .kv_heads = 8, .vocab = 32000, .files = 3, .min_gb = 14,
      .config = "{\"architectures\": [\"MistralForCausalLM\"], " WRITTEN("4.36.0") "\"bos_token_id\": 1, \"eos_token_id\": 2, \"hidden_act\": \"silu\", "
                "\"hidden_size\": 4096, \"intermediate_size\": 14336, \"max_position_embeddings\": 32768, \"model_type\": \"mistral\", "
                "\"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, \"rope_theta\": 1000000.0, "
                "\"sliding_window\": null, \"tie_word_embeddings\": false, \"vocab_size\": 32000}" },
    { .name = "Mixtral-8x7B-Instruct-v0.1", .layers = 32, .width = 4096, .hidden = 14336, .heads = 32, .kv_heads = 8, .vocab = 32000, .files = 19, .min_gb = 93,
      .experts = 8, .expert_hidden = 14336, .router = "block_sparse_moe.",
      .config = "{\"architectures\": [\"MixtralForCausalLM\"], " WRITTEN("4.36.0.dev0") "\"bos_token_id\": 1, \"eos_token_id\": 2, \"hidden_act\": \"silu\", "
                "\"hidden_size\": 4096, \"intermediate_size\": 14336, \"max_position_embeddings\": 32768, \"model_type\": \"mixtral\", "
                "\"num_attention_heads\": 32, \"num_experts_per_tok\": 2, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8, \"num_local_experts\": 8, "
                "\"output_router_logits\": false, \"rms_norm_eps\": 1e-05, \"rope_theta\": 1000000.0, \"router_aux_loss_coef\": 0.02, "
                "\"sliding_window\": null, \"tie_word_embeddings\": false, \"vocab_size\": 32000}" },
    { .name = "Mistral-Small-3.1-24B-Instruct-2503", .layers = 40, .width = 5120, .hidden = 32768, .heads = 32, .kv_heads = 8, .head_dim = 128, .vocab = 131072, .files = 10,
      .min_gb = 47, .images = true,
      .config = "{\"architectures\": [\"Mistral3ForConditionalGeneration\"], \"image_token_index\": 10, \"model_type\": \"mistral3\", "
                "\"multimodal_projector_bias\": false, \"projector_hidden_act\": \"gelu\", \"spatial_merge_size\": 2, \"text_config\": {"
                "\"attention_dropout\": 0.0, \"head_dim\": 128, \"hidden_act\": \"silu\", \"hidden_size\": 5120, \"initializer_range\": 0.02, "
                "\"intermediate_size\": 32768, \"max_position_embeddings\": 131072, \"model_type\": \"mistral\", \"num_attention_heads\": 32, "
                "\"num_hidden_layers\": 40, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05, \"rope_theta\": 1000000000.0, \"sliding_window\": null, "
                "\"use_cache\": true, \"vocab_size\": 131072}, \"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.50.0.dev0\", "
                "\"vision_config\": {\"attention_dropout\": 0.0, \"head_dim\": 64, \"hidden_act\": \"gelu\", \"hidden_size\": 1024, \"image_size\": 1540, "
                "\"intermediate_size\": 4096, \"model_type\": \"pixtral\", \"num_attention_heads\": 16, \"num_channels\": 3, \"num_hidden_layers\": 24, "
                "\"patch_size\": 14, \"rope_theta\": 10000.0}, \"vision_feature_layer\": -1}" },
    { .name = "gemma-3-12b-it", .layers = 48, .width = 3840, .hidden = 15360, .heads = 16, .kv_heads = 8, .head_dim = 256, .vocab = 262208, .files = 5, .min_gb = 23,
      .head_norms = true, .output_norms = true, .tied = true, .images = true,
      .config = "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"boi_token_index\": 255999, \"eoi_token_index\": 256000, "
                "\"eos_token_id\": [1, 106], \"image_token_index\": 262144, \"initializer_range\": 0.02, \"mm_tokens_per_image\": 256, "
                "\"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 3840, \"intermediate_size\": 15360, \"model_type\": \"gemma3_text\", "
                "\"num_attention_heads\": 16, \"num_hidden_layers\": 48, \"num_key_value_heads\": 8, \"rope_scaling\": {\"factor\": 8.0, "
                "\"rope_type\": \"linear\"}, \"sliding_window\": 1024}, \"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.50.0.dev0\", "
                "\"vision_config\": {\"hidden_size\": 1152, \"image_size\": 896, \"intermediate_size\": 4304, \"model_type\": \"siglip_vision_model\", "
                "\"num_attention_heads\": 16, \"num_hidden_layers\": 27, \"patch_size\": 14, \"vision_use_head\": false}}" },
};
// clang-format on
enum { LLAMAS = 4, TARGETS = LLAMAS + sizeof(others) / sizeof(*others) };

static const struct known_target *target_at(int i)
{
    static const struct known_target *const llamas[LLAMAS] = { &vicuna_7b, &vicuna_13b, &llama_8b, &llama_70b };
    return i < LLAMAS ? llamas[i] : &others[i - LLAMAS];
}

// ---- texts

static const char llama3[] =
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
static const char qwen[] =
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}";
static const char mistral[] =
    "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must "
    "alternate') }}{% endif %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ m['content'] + eos_token }}"
    "{% endif %}{% endfor %}";
static const char gemma[] =
    "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}{{ '<start_of_turn>' + role + '\n' + "
    "m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}";

// NULL: the file is made by write_tekken.
static const struct text_kind {
    const char *target; // what its name begins with
    const char *from, *file, *chat_template, *bos, *eos, *chat, *rendered;
} texts[] = {
    { "vicuna", "pieces/bpe_bytes.model", "tokenizer.model", NULL, "<s>", "</s>", "vicuna", " USER: Hi ASSISTANT:" },
    { "Llama", "tokenizer_l3/tokenizer.json", "tokenizer.json", llama3, "<|begin_of_text|>", "<|eot_id|>", "auto",
      "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n" },
    { "Qwen", "tokenizer_q2/tokenizer.json", "tokenizer.json", qwen, NULL, "<|im_end|>", "auto",
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n" },
    { "Mistral-7B", "pieces/bpe_bytes.model", "tokenizer.model", mistral, "<s>", "</s>", "auto",
      "<s>[INST] Hi [/INST]" },
    { "Mixtral", "pieces/bpe_bytes.json", "tokenizer.json", mistral, "<s>", "</s>", "auto", "<s>[INST] Hi [/INST]" },
    { "Mistral-Small", NULL, "tekken.json", mistral, "<s>", "</s>", "auto", "<s>[INST] Hi [/INST]" },
    { "gemma", "pieces/bpe_bytes.json", "tokenizer.json", gemma, "<bos>", "<eos>", "auto",
      "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n" },
};

// The bytes, and three special tokens before them.
static void write_tekken(const char *path)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct text t = { 0 };
    text_puts(
        &t,
        "{\"config\": {\"pattern\": \"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*"
        "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+"
        "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|"
        "\\\\s+(?!\\\\S)|\\\\s+\", \"default_num_special_tokens\": 3, \"default_vocab_size\": 259}, \"vocab\": [");
    for (int i = 0; i < 256; i++)
        text_printf(&t, "%s{\"rank\": %d, \"token_bytes\": \"%c%c==\"}", i > 0 ? ", " : "", i, digits[i >> 2],
                    digits[(i & 3) << 4]);
    text_puts(&t,
              "], \"special_tokens\": [{\"rank\": 0, \"token_str\": \"<unk>\"}, {\"rank\": 1, \"token_str\": \"<s>\"}, "
              "{\"rank\": 2, \"token_str\": \"</s>\"}]}");
    file_write(path, t.s);
    free(t.s);
}

static const struct text_kind *text_of(const char *target)
{
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (strncmp(target, texts[i].target, strlen(texts[i].target)) == 0)
            return &texts[i];
    fail_msg("no text of %s", target);
    return NULL;
}

static void write_text(const char *directory, const struct text_kind *k)
{
    char *path = xformat("%s/%s", directory, k->file), *settings = xformat("%s/tokenizer_config.json", directory);
    struct json *j = json_new_object();
    if (k->bos != NULL)
        json_set(j, "bos_token", json_new_text(k->bos));
    json_set(j, "eos_token", json_new_text(k->eos));
    if (k->chat_template != NULL)
        json_set(j, "chat_template", json_new_text(k->chat_template));
    char *text = json_write(j);
    file_write(settings, text);
    if (k->from == NULL)
        write_tekken(path);
    else {
        char *from = xformat("%s/%s", CASES, k->from);
        struct text bytes = checkpoint_bytes(from);
        file_write_bytes(path, bytes.s, bytes.n);
        free(bytes.s);
        free(from);
    }
    free(text);
    json_free(j);
    free(path);
    free(settings);
}

static void check_text(const char *directory, const struct text_kind *k)
{
    struct error err = { "" };
    struct model_config c;
    struct text rendered = { 0 };
    struct ids ids = { 0 };
    assert_ok(config_read(directory, &c, &err), err);
    struct tokenizer *t = tokenizer_open(directory, &err);
    assert_ok(t != NULL, err);
    assert_true(tokenizer_size(t) <= c.vocab);
    const struct chat_request r = { .name = k->chat, .jinja = c.chat_template, .tokens = c.special_tokens };
    static const struct message message = { "user", "Hi" };
    struct chat_format format;
    assert_ok(chat_choose(&r, &format, &err), err);
    assert_ok(chat_render(&format, &message, 1, &rendered, &err), err);
    if (strcmp(format.kind == CHAT_VICUNA ? strstr(rendered.s, " USER") : rendered.s, k->rendered) != 0)
        fail_msg("%s: %s", directory, rendered.s);
    assert_ok(tokenizer_encode(t, rendered.s, rendered.n, true, &ids, &err), err);
    assert_true(ids.n > 4);
    free(ids.id);
    free(rendered.s);
    chat_close(&format);
    tokenizer_close(t);
    config_free(&c);
}

// ---- the heads

// The last three have published forms; which repositories have such heads for these targets was not looked up.
static const struct {
    const char *name, *target;
    void (*write)(const char *directory, const struct known_target *t);
    enum head_kind kind;
} heads[] = {
    { "EAGLE-Vicuna-7B-v1.3", "vicuna-7b-v1.3", published_eagle1, HEAD_EAGLE },
    { "medusa-vicuna-7b-v1.3", "vicuna-7b-v1.3", published_medusa, HEAD_MEDUSA },
    { "EAGLE3-Vicuna1.3-13B", "vicuna-13b-v1.3", published_eagle3, HEAD_EAGLE3 },
    { "EAGLE-LLaMA3.1-Instruct-8B", "Llama-3.1-8B-Instruct", published_eagle2, HEAD_EAGLE },
    { "EAGLE3-LLaMA3.1-Instruct-8B", "Llama-3.1-8B-Instruct", published_eagle3, HEAD_EAGLE3 },
    { "EAGLE3-LLaMA3.1-Instruct-8B-speculators", "Llama-3.1-8B-Instruct", published_eagle3_speculators, HEAD_EAGLE3 },
    { "EAGLE-LLaMA3.1-Instruct-8B-speculators", "Llama-3.1-8B-Instruct", published_eagle_speculators, HEAD_EAGLE },
    { "EAGLE3-LLaMA3.3-Instruct-70B", "Llama-3.3-70B-Instruct", published_eagle3, HEAD_EAGLE3 },
    { "EAGLE-Qwen2-7B-Instruct", "Qwen2-7B-Instruct", published_eagle2, HEAD_EAGLE },
    { "Qwen3-8B_eagle3", "Qwen3-8B", published_eagle3, HEAD_EAGLE3 },
    { "Qwen3-8B-speculator.eagle3", "Qwen3-8B", published_eagle3_speculators, HEAD_EAGLE3 },
    { "Qwen3-30B-A3B-eagle3", "Qwen3-30B-A3B", published_eagle3, HEAD_EAGLE3 },
    { "EAGLE-mixtral-instruct-8x7B", "Mixtral-8x7B-Instruct-v0.1", published_eagle2, HEAD_EAGLE },
    { "Mistral-7B-Instruct-v0.2-medusa", "Mistral-7B-Instruct-v0.2", published_medusa_shared, HEAD_MEDUSA },
    { "Mixtral-8x7B-medusa", "Mixtral-8x7B-Instruct-v0.1", published_medusa, HEAD_MEDUSA },
    { "Mistral-Small-eagle3", "Mistral-Small-3.1-24B-Instruct-2503", published_eagle3_speculators, HEAD_EAGLE3 },
    { "gemma-3-12b-it-eagle3", "gemma-3-12b-it", published_eagle3, HEAD_EAGLE3 },
};

static int64_t resident_kb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

static void check_facts(const struct head_facts *f, enum head_kind kind, const struct known_target *t)
{
    const bool medusa = kind == HEAD_MEDUSA, three = kind == HEAD_EAGLE3;
    assert_int_equal(f->heads, medusa ? 5 : 0);
    assert_int_equal(f->vocab, three ? 32000 : t->vocab);
    assert_int_equal(f->taps.n, three ? 3 : 1);
    assert_int_equal(f->taps.layer[0], three ? 2 : FINAL_STATE);
    assert_true(!three || (f->taps.layer[1] == t->layers / 2 && f->taps.layer[2] == t->layers - 3));
}

static int target_named(const char *name)
{
    for (int i = 0; i < TARGETS; i++)
        if (strcmp(target_at(i)->name, name) == 0)
            return i;
    fail_msg("no target %s", name);
    return 0;
}

TEST(heads_fit_targets_that_are_read_as_published)
{
    const int64_t before = resident_kb();
    struct model_shape shape[TARGETS];
    for (int i = 0; i < TARGETS; i++) {
        const struct known_target *t = target_at(i);
        char *directory = test_path(t->name);
        shape[i] = published_shape(t);
        assert_int_equal(shape[i].vocab, t->vocab);
        assert_int_equal(shape[i].kv_heads, t->kv_heads);
        write_text(directory, text_of(t->name));
        check_text(directory, text_of(t->name));
        free(directory);
    }
    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
        struct error err = { "" };
        struct head_facts f;
        enum head_kind kind;
        const int of = target_named(heads[i].target);
        char *target = test_path(heads[i].target), *head = xformat("%s-head-%zu", target, i);
        heads[i].write(head, target_at(of));
        if (!head_fits(head, &shape[of], &kind, &f, &err) || !inspect_head(head, target, &err))
            fail_msg("%s: %s", heads[i].name, err.text);
        assert_int_equal(kind, heads[i].kind);
        check_facts(&f, kind, target_at(of));
        for (int other = 0; other < TARGETS; other++)
            if (shape[other].width != shape[of].width)
                assert_false(head_fits(head, &shape[other], &kind, &f, &err));
        free(head);
        free(target);
    }
    assert_true(resident_kb() - before <
                600000); // the files have hundreds of gigabytes; the sanitizers keep what was freed
}

int main(void)
{
    const int failed = tests_run(NULL, NULL);
    test_directory_remove();
    return failed;
}
