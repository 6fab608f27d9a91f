// test_family_metadata.c - of each family, every key of GGUF's metadata that is read and can be wrong, or that another family reads, is refused in one
// sentence that names it, and what llama.cpp ignores is ignored.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/config.h"
#include "tests/formats/gguf_write.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/support/small_model.h"

static struct error err;

enum kind { KEEP, NONE, INT, REAL, TEXT, INTS, PAIR, BOOL };
struct change {
    const char *key; // without the architecture's name
    enum kind kind;
    double number;
    const char *text;
    int32_t ints[3];
};

static void put(struct gguf_writer *w, const char *architecture, const struct change *c)
{
    char *key = xformat("%s.%s", architecture, c->key);
    if (c->kind == INT)
        gguf_write_int(w, key, GGUF_U32, (int64_t)c->number);
    else if (c->kind == REAL)
        gguf_write_real(w, key, (float)c->number);
    else if (c->kind == TEXT)
        gguf_write_text(w, key, c->text);
    else if (c->kind == INTS || c->kind == PAIR)
        gguf_write_ints(w, key, c->ints, c->kind == INTS ? 3 : 2);
    else if (c->kind == BOOL)
        gguf_write_bool(w, key, c->number != 0);
    free(key);
}

// Metadata of a small model of three layers, with one key changed.
static void write_metadata(const char *path, const char *architecture, const struct change *change)
{
    static const struct change common[] = {
        { "block_count", INT, 3, NULL, { 0 } },
        { "embedding_length", INT, 16, NULL, { 0 } },
        { "feed_forward_length", INT, 24, NULL, { 0 } },
        { "context_length", INT, 256, NULL, { 0 } },
        { "attention.head_count", INT, 2, NULL, { 0 } },
        { "attention.key_length", INT, 8, NULL, { 0 } },
        { "attention.layer_norm_rms_epsilon", REAL, 1e-5, NULL, { 0 } },
    };
    static const struct {
        const char *architecture;
        struct change more;
    } own[] = {
        { "gemma3", { "attention.sliding_window", INT, 8, NULL, { 0 } } },
        { "qwen3moe", { "expert_count", INT, 4, NULL, { 0 } } },
        { "qwen3moe", { "expert_used_count", INT, 2, NULL, { 0 } } },
        { "granite", { "logit_scale", REAL, 8, NULL, { 0 } } },
        { "llama", { "rope.scaling.type", TEXT, 0, "yarn", { 0 } } },
        { "llama", { "rope.scaling.factor", REAL, 4, NULL, { 0 } } },
        { "llama", { "rope.scaling.original_context_length", INT, 64, NULL, { 0 } } },
    };
    struct gguf_writer *w = gguf_write_begin(path, &err);
    gguf_write_text(w, "general.architecture", architecture);
    for (size_t i = 0; i < sizeof(common) / sizeof(*common); i++)
        if (strcmp(common[i].key, change->key) != 0)
            put(w, architecture, &common[i]);
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
        if (strcmp(own[i].architecture, architecture) == 0 && strcmp(own[i].more.key, change->key) != 0)
            put(w, architecture, &own[i].more);
    put(w, architecture, change);
    static const float rows[64 * 16];
    gguf_write_tensor(w, "token_embd.weight", 2, (const uint64_t[]){ 16, 64 }, 0, rows, sizeof(rows));
    assert_ok(gguf_write_end(w, &err), err);
}

static void a_family_refuses_by_the_key_of_gguf(void **unused)
{
    static const char *const architectures[] = { "llama",  "qwen2", "qwen3",   "qwen3moe", "gemma2",
                                                 "gemma3", "olmo2", "granite", "phi3",     "smollm3" };
    static const struct {
        const char *architecture;
        struct change change;
        const char *words;
    } faults[] = {
        { "qwen2", { "block_count", NONE, 0, NULL, { 0 } }, "qwen2.block_count is missing" },
        { "qwen3",
          { "attention.head_count", INTS, 0, NULL, { 2, 4, 2 } },
          "qwen3.attention.head_count: layers that differ are not supported (2 in layer 0, 4 in layer 1)" },
        { "qwen3",
          { "attention.head_count_kv", INTS, 0, NULL, { 1, 1, 2 } },
          "qwen3.attention.head_count_kv: layers that differ are not supported (1 in layer 0, 2 in layer 2)" },
        { "gemma3",
          { "feed_forward_length", INTS, 0, NULL, { 24, 32, 24 } },
          "gemma3.feed_forward_length: layers that differ" },
        { "gemma3",
          { "attention.sliding_window", NONE, 0, NULL, { 0 } },
          "gemma3.attention.sliding_window is missing" },
        { "gemma3",
          { "attention.sliding_window", INT, 0, NULL, { 0 } },
          "gemma3.attention.sliding_window: expected 1 to 16777216, found 0" },
        { "gemma3",
          { "attention.sliding_window_pattern", INT, 0, NULL, { 0 } },
          "gemma3.attention.sliding_window_pattern: expected 1" },
        { "gemma3",
          { "attention.sliding_window_pattern", TEXT, 0, "all", { 0 } },
          "gemma3.attention.sliding_window_pattern: expected an integer" },
        { "gemma3",
          { "rope.freq_base_swa", REAL, 0, NULL, { 0 } },
          "gemma3.rope.freq_base_swa: expected a number from 1, found 0" },
        { "gemma2",
          { "attn_logit_softcapping", REAL, -5, NULL, { 0 } },
          "gemma2.attn_logit_softcapping: expected a number from 0, found -5" },
        { "gemma2",
          { "final_logit_softcapping", TEXT, 0, "30", { 0 } },
          "gemma2.final_logit_softcapping: expected a real number" },
        { "qwen3", { "final_logit_softcapping", REAL, 30, NULL, { 0 } }, "qwen3.final_logit_softcapping: expected 0" },
        { "olmo2", { "attention.sliding_window", INT, 16, NULL, { 0 } }, "olmo2.attention.sliding_window: expected 0" },
        { "granite",
          { "embedding_scale", REAL, -12, NULL, { 0 } },
          "granite.embedding_scale: expected a number from 0" },
        { "granite", { "residual_scale", TEXT, 0, "x", { 0 } }, "granite.residual_scale: expected a real number" },
        { "granite",
          { "attention.scale", REAL, -1, NULL, { 0 } },
          "granite.attention.scale: expected a number from 0" },
        { "granite", { "logit_scale", REAL, -8, NULL, { 0 } }, "granite.logit_scale: expected a number from 0" },
        { "granite", { "logit_scale", REAL, 0, NULL, { 0 } }, "granite.logit_scale: expected a number above 0" },
        { "granite", { "logit_scale", NONE, 0, NULL, { 0 } }, "granite.logit_scale is missing" },
        { "granite", { "rope.scaling.finetuned", BOOL, 0, NULL, { 0 } }, "granite.rope.scaling.finetuned: expected 1" },
        { "qwen3",
          { "attention.head_count_kv", PAIR, 0, NULL, { 1, 1 } },
          "qwen3.attention.head_count_kv: expected a number for each of the 3 layers, found 2 numbers" },
        { "gemma2",
          { "attention.sliding_window_pattern", INT, 0, NULL, { 0 } },
          "gemma2.attention.sliding_window_pattern: expected 1" },
        { "gemma2",
          { "rope.freq_base_swa", REAL, 1e6, NULL, { 0 } },
          "gemma2.rope.freq_base_swa: expected gemma2.rope.freq_base, 10000, found 1e+06" },
        { "gemma3",
          { "attn_logit_softcapping", REAL, 50, NULL, { 0 } },
          "gemma3.attn_logit_softcapping: expected 0, found 50" },
        { "phi3", { "attention.sliding_window", INT, 255, NULL, { 0 } }, "phi3.attention.sliding_window: expected 0" },
        { "olmo2", { "attention.sliding_window", INT, 256, NULL, { 0 } }, "olmo2.attention.sliding_window: expected" },
        { "phi3", { "rope.scaling.attn_factor", REAL, 2, NULL, { 0 } }, "phi3.rope.scaling.attn_factor: expected 1" },
        { "qwen3moe", { "expert_group_count", INT, 2, NULL, { 0 } }, "qwen3moe.expert_group_count: expected 1" },
        { "llama", { "nextn_predict_layers", INT, 1, NULL, { 0 } }, "llama.nextn_predict_layers: expected 0" },
        { "smollm3", { "logit_scale", REAL, 8, NULL, { 0 } }, "smollm3.logit_scale: expected 0, found 8" },
        { "phi3",
          { "rope.dimension_count", INT, 7, NULL, { 0 } },
          "phi3.rope.dimension_count: expected the head size 8" },
        { "qwen2",
          { "rope.dimension_count", INT, 4, NULL, { 0 } },
          "qwen2.rope.dimension_count: expected the head size 8" },
        { "llama",
          { "rope.scaling.factor", NONE, 0, NULL, { 0 } },
          "llama.rope.scaling.factor: expected a number above 0, found 0" },
        { "llama",
          { "rope.scaling.original_context_length", NONE, 0, NULL, { 0 } },
          "llama.rope.scaling.original_context_length is missing" },
        { "llama",
          { "rope.scaling.yarn_beta_fast", REAL, 0.5, NULL, { 0 } },
          "llama.rope.scaling: expected 0 < yarn_beta_slow <= yarn_beta_fast, found 1 and 0.5" },
        { "llama",
          { "rope.scaling.type", TEXT, 0, "longrope", { 0 } },
          "llama.rope.scaling.type: expected none, linear or yarn" },
        { "llama",
          { "rope.scaling.yarn_log_multiplier", REAL, 0.1, NULL, { 0 } },
          "llama.rope.scaling.yarn_log_multiplier: expected 0" },
        { "llama",
          { "rope.scaling.yarn_ext_factor", REAL, 0.5, NULL, { 0 } },
          "llama.rope.scaling.yarn_ext_factor: expected 1" },
        { "llama",
          { "rope.scaling.yarn_attn_factor", REAL, 2, NULL, { 0 } },
          "llama.rope.scaling.yarn_attn_factor: expected 1" },
        { "qwen3moe", { "expert_count", NONE, 0, NULL, { 0 } }, "qwen3moe.expert_count is missing" },
        { "qwen3moe", { "expert_count", INT, 0, NULL, { 0 } }, "qwen3moe.expert_count: expected 1 to 4096, found 0" },
        { "qwen3moe", { "expert_used_count", NONE, 0, NULL, { 0 } }, "qwen3moe.expert_used_count is missing" },
        { "qwen3moe",
          { "expert_used_count", INT, 5, NULL, { 0 } },
          "qwen3moe.expert_used_count: expected 1 to 4, found 5" },
        { "qwen3moe",
          { "expert_feed_forward_length", INT, 0, NULL, { 0 } },
          "qwen3moe.expert_feed_forward_length: expected 1" },
        { "qwen3moe", { "expert_shared_count", INT, 1, NULL, { 0 } }, "qwen3moe.expert_shared_count: expected 0" },
        { "qwen3moe", { "expert_weights_scale", REAL, 2.5, NULL, { 0 } }, "qwen3moe.expert_weights_scale: expected 1" },
        { "qwen2", { "expert_count", INT, 8, NULL, { 0 } }, "qwen2.expert_count: expected 0, found 8" },
        { "gpt-oss",
          { "", KEEP, 0, NULL, { 0 } },
          "general.architecture: gpt-oss is not supported: it has attention sinks" },
        { "deepseek2", { "", KEEP, 0, NULL, { 0 } }, "deepseek2 is not supported: it has multi-head latent attention" },
        { "mistral3", { "", KEEP, 0, NULL, { 0 } }, "mistral3 is not supported: it has queries that grow" },
    };
    char *path = test_path("family.gguf");
    struct model_config c;
    for (size_t i = 0; i < sizeof(architectures) / sizeof(*architectures); i++) {
        write_metadata(path, architectures[i], &(const struct change){ .key = "" });
        assert_ok(config_read(path, &c, &err), err);
        config_free(&c);
    }
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
        write_metadata(path, faults[i].architecture, &faults[i].change);
        if (config_read(path, &c, &err))
            fail_msg("%s: accepted with another %s", faults[i].architecture, faults[i].change.key);
        assert_error_mentions(&err, path, faults[i].words);
    }
    free(path);
}

// A window that the context is within, and numbers without effect in a family.
static void a_family_ignores_what_llama_cpp_ignores(void **unused)
{
    static const struct {
        const char *architecture;
        struct change change;
        int window;
    } ignored[] = {
        { "phi3", { "attention.sliding_window", INT, 262144, NULL, { 0 } }, 0 },
        { "phi3", { "attention.sliding_window", INT, 256, NULL, { 0 } }, 0 },
        { "llama", { "attention.sliding_window", INT, 256, NULL, { 0 } }, 0 },
        { "qwen3", { "attention.sliding_window", INT, 4096, NULL, { 0 } }, 0 },
        { "olmo2", { "attention.sliding_window", INT, 0, NULL, { 0 } }, 0 },
        { "gemma3", { "attention.sliding_window", INT, 4096, NULL, { 0 } }, 4096 },
        { "llama", { "rope.scaling.finetuned", BOOL, 0, NULL, { 0 } }, 0 },
        { "granite", { "rope.scaling.finetuned", BOOL, 1, NULL, { 0 } }, 0 },
        { "gemma2", { "rope.freq_base_swa", REAL, 10000, NULL, { 0 } }, 4096 },
        { "qwen3", { "attention.head_count_kv", INTS, 0, NULL, { 1, 1, 1 } }, 0 },
    };
    char *path = test_path("family.gguf");
    for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++) {
        struct model_config c;
        write_metadata(path, ignored[i].architecture, &ignored[i].change);
        assert_ok(config_read(path, &c, &err), err);
        assert_int_equal(c.window, ignored[i].window);
        config_free(&c);
    }
    write_metadata(path, "gemma2", &(const struct change){ "attention.sliding_window_pattern", INT, 3, NULL, { 0 } });
    struct model_config c;
    assert_ok(config_read(path, &c, &err), err);
    assert_true(layer_set_has(&c.windowed, 1) && !layer_set_has(&c.windowed, 2)); // 3 layers have it, not 2
    config_free(&c);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_family_refuses_by_the_key_of_gguf),
        cmocka_unit_test(a_family_ignores_what_llama_cpp_ignores),
    };
    return cmocka_run_group_tests(tests, NULL, test_directory_tear_down);
}
