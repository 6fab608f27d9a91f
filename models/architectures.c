#include "models/architectures.h"

#include <string.h>

#include "core/memory.h"

// clang-format off
// MedusaModelLlama: Medusa-2 trains a model together with its heads, and stores both in one directory. Files of
// Mistral's models have the name of Llama.
static const struct architecture table[] = {
    { .name = "llama", .model_type = "llama", .classes = { "LlamaForCausalLM", "MedusaModelLlama" }, .exports = EXPORTS_LIKE_LLAMA, .reads = READS_ATTENTION_BIAS },
    { .name = "llama", .model_type = "mistral", .classes = { "MistralForCausalLM" }, .exports = EXPORTS_LIKE_LLAMA, .kv_heads_needed = true, .reads = READS_WINDOW, .window = 4096, .context = 131072 },
    { .name = "llama", .model_type = "ministral", .classes = { "MinistralForCausalLM", "MistralForCausalLM" }, .exports = EXPORTS_LIKE_LLAMA, .context = 131072, .kv_heads_needed = true, .head_dim_needed = true,
      .reads = READS_WINDOW | READS_LAYER_TYPES, .window = 4096 },
    { .name = "mistral3", .model_type = "ministral3", .classes = { "Ministral3ForCausalLM" }, .no_gguf = true, .context = 262144, .kv_heads_needed = true, .head_dim_needed = true, .norm_eps = 1e-5,
      .reads = READS_WINDOW | READS_QUERY_RISE },
    { .name = "llama", .model_type = "mixtral", .classes = { "MixtralForCausalLM" }, .exports = EXPORTS_LIKE_LLAMA, .kv_heads_needed = true, .norm_eps = 1e-5, .theta = 1e6, .experts = MIXTRAL_EXPERTS, .context = 131072,
      .reads = READS_WINDOW },
    { .name = "qwen2", .model_type = "qwen2", .classes = { "Qwen2ForCausalLM" }, .exports = EXPORTS_BOTH, .kv_heads_needed = true, .gguf_rope = GGUF_ROPE_NEOX, .qkv_bias = true, .window = 4096, .context = 32768,
      .reads = READS_WINDOW | READS_USE_WINDOW | READS_LAYER_TYPES },
    { .name = "qwen3", .model_type = "qwen3", .classes = { "Qwen3ForCausalLM" }, .exports = EXPORTS_HEAD_DIM | EXPORTS_BOTH, .kv_heads_needed = true, .head_dim_needed = true, .gguf_rope = GGUF_ROPE_NEOX, .head_norms = NORMS_OF_HEADS,
      .window = 4096, .context = 32768, .reads = READS_ATTENTION_BIAS | READS_WINDOW | READS_USE_WINDOW | READS_LAYER_TYPES },
    { .name = "qwen3moe", .model_type = "qwen3_moe", .classes = { "Qwen3MoeForCausalLM" }, .exports = EXPORTS_HEAD_DIM | EXPORTS_BOTH, .kv_heads_needed = true, .head_dim_needed = true,
      .gguf_rope = GGUF_ROPE_NEOX, .head_norms = NORMS_OF_HEADS, .experts = QWEN_EXPERTS, .window = 4096, .context = 32768,
      .reads = READS_ATTENTION_BIAS | READS_WINDOW | READS_USE_WINDOW },
    { .name = "gemma2", .model_type = "gemma2", .classes = { "Gemma2ForCausalLM" }, .exports = EXPORTS_HEAD_DIM | EXPORTS_TIED, .kv_heads_needed = true, .head_dim_needed = true, .gguf_rope = GGUF_ROPE_NEOX, .norms = NORMS_AROUND,
      .gate = GATE_GELU, .norms_from_zero = true, .scales_embedding = true, .tied = true, .window = 4096, .window_pattern = 2, .context = 8192,
      .reads = READS_ATTENTION_BIAS | READS_WINDOW | READS_LAYER_TYPES | READS_ATTENTION_CAP | READS_LOGIT_CAP | READS_QUERY_SCALAR },
    { .name = "gemma3", .model_type = "gemma3_text", .classes = { "Gemma3ForCausalLM" }, .exports = EXPORTS_HEAD_DIM | EXPORTS_BOTH, .kv_heads_needed = true, .head_dim_needed = true, .gguf_rope = GGUF_ROPE_NEOX, .norms = NORMS_AROUND,
      .head_norms = NORMS_OF_HEADS, .gate = GATE_GELU, .norms_from_zero = true, .scales_embedding = true, .tied = true, .theta = 1e6,
      .window = 4096, .window_pattern = 6, .context = 131072,
      .reads = READS_ATTENTION_BIAS | READS_WINDOW | READS_LAYER_TYPES | READS_WINDOW_PATTERN | READS_LOGIT_CAP | READS_QUERY_SCALAR | READS_LOCAL_ROPE },
    { .name = "olmo2", .model_type = "olmo2", .classes = { "Olmo2ForCausalLM" }, .exports = EXPORTS_UNTIED, .norm_eps = 1e-5, .gguf_rope = GGUF_ROPE_NEOX, .norms = NORMS_AFTER,
      .head_norms = NORMS_OF_ALL, .reads = READS_ATTENTION_BIAS },
    { .name = "granite", .model_type = "granite", .classes = { "GraniteForCausalLM" }, .exports = EXPORTS_LIKE_LLAMA, .reads = READS_ATTENTION_BIAS | READS_MULTIPLIERS },
    { .name = "phi3", .model_type = "phi3", .classes = { "Phi3ForCausalLM" }, .exports = EXPORTS_LONG | EXPORTS_BOTH, .gguf_rope = GGUF_ROPE_NEOX, .fused = true, .norm_eps = 1e-5, .context = 4096, .own_code = "modeling_phi3",
      .reads = READS_WINDOW | READS_PARTIAL_ROPE },
    { .name = "smollm3", .model_type = "smollm3", .classes = { "SmolLM3ForCausalLM" }, .exports = EXPORTS_HEAD_DIM | EXPORTS_BOTH, .kv_heads_needed = true, .tied = true, .theta = 2e6, .context = 32768,
      .reads = READS_ATTENTION_BIAS | READS_WINDOW | READS_USE_WINDOW | READS_LAYER_TYPES | READS_NO_ROPE_LAYERS },
};

static const struct wrapper wrappers[] = {
    { "mistral3", "Mistral3ForConditionalGeneration", { "mistral", "ministral3" }, { 0 } },
    { "gemma3", "Gemma3ForConditionalGeneration", { "gemma3_text" }, { .heads = 8, .kv_heads = 4, .head_dim = 256, .vocab = 262208, .context = 131072 } },
};
// clang-format on
enum { ROWS = sizeof(table) / sizeof(*table), WRAPPERS = sizeof(wrappers) / sizeof(*wrappers) };

const struct architecture *architecture_of_gguf(const char *name, size_t n)
{
    for (int i = 0; i < ROWS; i++)
        if (!table[i].no_gguf && strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0)
            return &table[i];
    return NULL;
}

const struct architecture *architecture_of_model_type(const char *model_type)
{
    for (int i = 0; i < ROWS; i++)
        if (strcmp(table[i].model_type, model_type) == 0)
            return &table[i];
    return NULL;
}

const struct wrapper *wrapper_of_model_type(const char *model_type)
{
    for (int i = 0; i < WRAPPERS; i++)
        if (strcmp(wrappers[i].model_type, model_type) == 0)
            return &wrappers[i];
    return NULL;
}

static bool is_in(const char *const *list, size_t n, const char *name) // list: ends with a NULL if it has fewer than n
                                                                       // names
{
    for (size_t i = 0; i < n && list[i] != NULL; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

bool wrapper_has_text(const struct wrapper *w, const char *model_type)
{
    return is_in(w->text, sizeof(w->text) / sizeof(*w->text), model_type);
}

bool architecture_has_class(const struct architecture *a, const char *class)
{
    return is_in(a->classes, sizeof(a->classes) / sizeof(*a->classes), class);
}

const char *architecture_lacks(const char *name, size_t n)
{
    static const struct {
        const char *names[4], *what;
    } known[] = {
        { { "gpt_oss", "gpt-oss" }, "attention sinks and experts in MXFP4 with biases and a clamped gate" },
        { { "deepseek_v2", "deepseek_v3", "deepseek2" }, "multi-head latent attention and shared experts" },
        { { "qwen2_moe", "qwen2moe" }, "shared experts" },
        { { "qwen3_next", "qwen3next" }, "layers of linear attention and shared experts" },
        { { "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe" }, "positions of images" },
        { { "qwen2vl", "qwen3vl", "qwen3vlmoe" }, "positions of images" },
        { { "llama4", "llama4_text" }, "attention in chunks and shared experts" },
        { { "gemma3n", "gemma3n_text" }, "embeddings of each layer" },
        { { "cohere", "cohere2", "command-r" }, "LayerNorms and parallel residuals" },
        { { "phi", "phi2", "phimoe" }, "LayerNorms" },
        { { "mistral3" }, "queries that grow with the position" }, // spelled as in GGUF files
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        for (int k = 0; k < 4 && known[i].names[k] != NULL; k++)
            if (strlen(known[i].names[k]) == n && memcmp(known[i].names[k], name, n) == 0)
                return known[i].what;
    return NULL;
}

char *architectures_supported(enum name_list list)
{
    const bool gguf = list == NAMES_OF_GGUF;
    const char *names[ROWS + WRAPPERS];
    int n = 0;
    for (int i = 0; i < ROWS; i++)
        if (!gguf || architecture_of_gguf(table[i].name, strlen(table[i].name)) == &table[i])
            names[n++] = gguf ? table[i].name : table[i].model_type;
    for (int i = 0; i < WRAPPERS && list == NAMES_OF_ALL; i++)
        names[n++] = wrappers[i].model_type;
    struct text t = { 0 };
    for (int i = 0; i < n; i++) {
        text_puts(&t, i == 0 ? "" : i == n - 1 ? " or " : ", ");
        text_printf(&t, gguf ? "%s" : "\"%s\"", names[i]);
    }
    return t.s;
}
