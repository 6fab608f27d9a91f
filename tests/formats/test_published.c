// test_published.c - heads and targets with the names, shapes and configurations of published ones, as sparse files of their
// real sizes in their published form: the kind of a head is detected, it fits its target, and the gigabytes of zeros are not
// read.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/config.h"
#include "models/heads/head.h"
#include "models/model.h"
#include "models/weights.h"
#include "tests/support/check.h"
#include "tests/formats/sparse_checkpoint.h"
#include "tests/support/small_model.h"

// ---- targets

struct known_target {
    const char *name;
    int layers, width, hidden, heads, kv_heads, vocab;
    enum sparse_form form;
    int files;
    double min_gb; // of all files
};
static const struct known_target vicuna_7b = {
    "vicuna-7b-v1.3", 32, 4096, 11008, 32, 32, 32000, SPARSE_TORCH, 2, 13.4
};
static const struct known_target vicuna_13b = {
    "vicuna-13b-v1.3", 40, 5120, 13824, 40, 40, 32000, SPARSE_TORCH, 3, 26
};
static const struct known_target llama_8b = { "Llama-3.1-8B-Instruct", 32, 4096, 14336, 32, 8, 128256,
                                              SPARSE_SAFETENSORS,      4,  16 };
static const struct known_target llama_70b = { "Llama-3.3-70B-Instruct", 80, 8192, 28672, 64, 8, 128256,
                                               SPARSE_SAFETENSORS,       30, 141 };

// in: width of the input of q, k and v. norm: with an input norm.
static void add_layer(struct sparse *s, const struct known_target *t, const char *dtype, const char *prefix, int64_t in,
                      bool norm)
{
    const int64_t kv = (int64_t)t->width / t->heads * t->kv_heads;
    const struct {
        const char *name;
        int64_t rows, width;
    } parts[] = {
        { "self_attn.q_proj.weight", t->width, in },     { "self_attn.k_proj.weight", kv, in },
        { "self_attn.v_proj.weight", kv, in },           { "self_attn.o_proj.weight", t->width, t->width },
        { "mlp.gate_proj.weight", t->hidden, t->width }, { "mlp.up_proj.weight", t->hidden, t->width },
        { "mlp.down_proj.weight", t->width, t->hidden }, { "post_attention_layernorm.weight", 0, t->width },
        { "input_layernorm.weight", 0, t->width },
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts) - (norm ? 0 : 1); i++) {
        char name[96];
        snprintf(name, sizeof(name), "%s%s", prefix, parts[i].name);
        sparse_add(s, dtype, parts[i].rows, parts[i].width, name);
    }
}

// Vicuna: float16 in PyTorch files, which also store RoPE's frequencies. Llama 3: bfloat16 in safetensors.
static void write_target(const char *directory, const struct known_target *t)
{
    const bool old = t->form == SPARSE_TORCH;
    const char *dtype = old ? "F16" : "BF16";
    struct sparse s = { 0 };
    sparse_add(&s, dtype, t->vocab, t->width, "model.embed_tokens.weight");
    for (int l = 0; l < t->layers; l++) {
        char prefix[96];
        snprintf(prefix, sizeof(prefix), "model.layers.%d.", l);
        add_layer(&s, t, dtype, prefix, t->width, true);
        if (!old)
            continue;
        snprintf(prefix, sizeof(prefix), "model.layers.%d.self_attn.rotary_emb.inv_freq", l);
        sparse_add(&s, "F32", 0, t->width / t->heads / 2, prefix);
    }
    sparse_add(&s, dtype, 0, t->width, "model.norm.weight");
    sparse_add(&s, dtype, t->vocab, t->width, "lm_head.weight");
    char *config = xformat(
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\", "
        "\"hidden_size\": %d, \"intermediate_size\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
        "\"num_hidden_layers\": %d, \"tie_word_embeddings\": false, \"vocab_size\": %d, \"torch_dtype\": \"%s\", %s}",
        t->width, t->hidden, t->heads, t->kv_heads, t->layers, t->vocab, old ? "float16" : "bfloat16",
        old ? "\"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": 0, \"max_position_embeddings\": 2048, "
              "\"rms_norm_eps\": 1e-06"
            : "\"bos_token_id\": 128000, \"eos_token_id\": [128001, 128008, 128009], \"max_position_embeddings\": "
              "131072, \"rms_norm_eps\": 1e-05, \"rope_theta\": 500000.0, \"attention_bias\": false, "
              "\"rope_scaling\": {\"factor\": 8.0, \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "
              "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}");
    assert_true((double)sparse_bytes(&s) > t->min_gb * 1e9);
    sparse_write(directory, &s, t->form, t->files, config);
    sparse_free(&s);
    free(config);
}

// The target's shape, read from its files; all its tensors are checked to exist with their shapes.
static struct model_shape shape_of(const struct known_target *t)
{
    struct error err = { "" };
    struct model_config c;
    struct weights *w = NULL;
    char *path = test_path(t->name);
    write_target(path, t);
    if (!config_read(path, &c, &err) || (w = weights_open(&c, &err)) == NULL || !model_check(&c, w, &err))
        fail_msg("%s: %s", t->name, err.text);
    const struct model_shape shape = model_shape_of(&c);
    weights_close(w);
    config_free(&c);
    free(path);
    return shape;
}

static char *layer_config(const struct known_target *t, const char *more)
{
    return xformat(
        "\"hidden_act\": \"silu\", \"hidden_size\": %d, \"initializer_range\": 0.02, \"intermediate_size\": %d, "
        "\"max_position_embeddings\": 2048, \"model_type\": \"llama\", \"num_attention_heads\": %d, "
        "\"num_key_value_heads\": %d, \"num_hidden_layers\": 1, \"rms_norm_eps\": 1e-05, "
        "\"tie_word_embeddings\": false, \"vocab_size\": %d%s",
        t->width, t->hidden, t->heads, t->kv_heads, t->vocab, more);
}

// ---- heads

static void write_eagle(const char *directory, const struct known_target *t, enum sparse_form form, bool bias,
                        bool embedding)
{
    struct sparse s = { 0 };
    if (embedding)
        sparse_add(&s, "BF16", t->vocab, t->width, "embed_tokens.weight");
    sparse_add(&s, "BF16", t->width, 2 * (int64_t)t->width, "fc.weight");
    if (bias)
        sparse_add(&s, "BF16", 0, t->width, "fc.bias");
    add_layer(&s, t, "BF16", "layers.0.", t->width, false);
    char *layer = layer_config(t, bias ? "" : ", \"bias\": false");
    char *config = xformat("{\"architectures\": [\"LlamaForCausalLM\"], \"torch_dtype\": \"float16\", %s}", layer);
    sparse_write(directory, &s, form, 1, config);
    sparse_free(&s);
    free(layer);
    free(config);
}

static void write_eagle3(const char *directory, const struct known_target *t, enum sparse_form form, bool speculators,
                         bool embedding)
{
    enum { DRAFT = 32000 };
    struct sparse s = { 0 };
    const char *prefix = speculators ? "layers.0." : "midlayer.";
    char name[64];
    const bool reduced = t->vocab > DRAFT;
    sparse_add(&s, "I64", 0, DRAFT, "d2t");
    sparse_add(&s, "BOOL", 0, t->vocab, "t2d")->ones = reduced ? DRAFT : t->vocab; // consistent with a d2t of zeros
    if (embedding)
        sparse_add(&s, "BF16", t->vocab, t->width, "embed_tokens.weight");
    sparse_add(&s, "BF16", t->width, 3 * (int64_t)t->width, "fc.weight");
    sparse_add(&s, "BF16", DRAFT, t->width, "lm_head.weight");
    sparse_add(&s, "BF16", 0, t->width, "norm.weight");
    snprintf(name, sizeof(name), "%shidden_norm.weight", prefix);
    sparse_add(&s, "BF16", 0, t->width, name);
    snprintf(name, sizeof(name), "%sinput_layernorm.weight", prefix);
    sparse_add(&s, "BF16", 0, t->width, name);
    add_layer(&s, t, "BF16", prefix, 2 * (int64_t)t->width, false);
    char *layer = layer_config(t, speculators ? ", \"head_dim\": 128, \"rope_theta\": 10000.0, \"rope_scaling\": null, "
                                                "\"attention_bias\": false, \"mlp_bias\": false"
                                              : "");
    char *config =
        speculators
            ? xformat("{\"architectures\": [\"Eagle3Speculator\"], \"speculators_model_type\": \"eagle3\", "
                      "\"speculators_version\": \"0.1.0.dev14\", \"draft_vocab_size\": %d, "
                      "\"norm_before_residual\": false, \"target_hidden_size\": null, "
                      "\"eagle_aux_hidden_state_layer_ids\": null, \"norm_before_fc\": false, \"fc_norm\": false, "
                      "\"norm_output\": false, \"transformer_layer_config\": {%s}}",
                      DRAFT, layer)
            : xformat("{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"draft_vocab_size\": %d, %s}", DRAFT, layer);
    sparse_write(directory, &s, form, 1, config);
    sparse_free(&s);
    free(layer);
    free(config);
}

static void write_speculators_eagle(const char *directory, const struct known_target *t, enum sparse_form form)
{
    struct sparse s = { 0 };
    sparse_add(&s, "BF16", t->vocab, t->width, "embed_tokens.weight");
    sparse_add(&s, "BF16", t->width, 2 * (int64_t)t->width, "fusion_fc.weight");
    add_layer(&s, t, "BF16", "transformer.", t->width, false);
    char *layer = layer_config(t, ", \"rope_theta\": 500000.0");
    char *config =
        xformat("{\"architectures\": [\"EagleSpeculator\", \"LlamaDecoderLayer\"], \"speculators_model_type\": "
                "\"eagle\", \"fusion_bias\": false, \"layernorms\": false, \"transformer_layer_config\": {%s}}",
                layer);
    sparse_write(directory, &s, form, 1, config);
    sparse_free(&s);
    free(layer);
    free(config);
}

static void write_medusa(const char *directory, const struct known_target *t, enum sparse_form form)
{
    struct sparse s = { 0 };
    for (int h = 0; h < 5; h++) {
        char name[64];
        snprintf(name, sizeof(name), "%d.0.linear.weight", h);
        sparse_add(&s, "F16", t->width, t->width, name);
        snprintf(name, sizeof(name), "%d.0.linear.bias", h);
        sparse_add(&s, "F16", 0, t->width, name);
        snprintf(name, sizeof(name), "%d.1.weight", h);
        sparse_add(&s, "F16", t->vocab, t->width, name);
    }
    char *config = xformat(
        "{\"medusa_num_heads\": 2, \"medusa_num_layers\": 1, \"base_model_name_or_path\": \"lmsys/%s\"}", t->name);
    sparse_write(directory, &s, form, 1, config);
    sparse_free(&s);
    free(config);
}

// ---- the tests

static int64_t resident_kb(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

// clang-format off
static void eagle1(const char *to, const struct known_target *t, enum sparse_form form) { write_eagle(to, t, form, true, true); }
static void eagle2(const char *to, const struct known_target *t, enum sparse_form form) { write_eagle(to, t, form, false, true); }
static void eagle3(const char *to, const struct known_target *t, enum sparse_form form) { write_eagle3(to, t, form, false, false); }
static void speculators_eagle3(const char *to, const struct known_target *t, enum sparse_form form) { write_eagle3(to, t, form, true, true); }
// clang-format on

static const struct expected {
    const char *name;
    const struct known_target *target;
    void (*write)(const char *directory, const struct known_target *t, enum sparse_form form);
    enum head_kind kind;
    int heads, vocab, taps, first_tap;
    double min_gb; // of the file
} list[] = {
    { "EAGLE-Vicuna-7B-v1.3", &vicuna_7b, eagle1, HEAD_EAGLE, 0, 32000, 1, FINAL_STATE, 0.7 },
    { "EAGLE-LLaMA3.1-Instruct-8B", &llama_8b, eagle2, HEAD_EAGLE, 0, 128256, 1, FINAL_STATE, 1.5 },
    { "EAGLE3-Vicuna1.3-13B", &vicuna_13b, eagle3, HEAD_EAGLE3, 0, 32000, 3, 2, 1.0 },
    { "EAGLE3-LLaMA3.1-Instruct-8B", &llama_8b, eagle3, HEAD_EAGLE3, 0, 32000, 3, 2, 0.8 },
    { "EAGLE3-LLaMA3.3-Instruct-70B", &llama_70b, eagle3, HEAD_EAGLE3, 0, 32000, 3, 2, 2.5 },
    { "medusa-vicuna-7b-v1.3", &vicuna_7b, write_medusa, HEAD_MEDUSA, 5, 32000, 1, FINAL_STATE, 1.4 },
    { "EAGLE3-LLaMA3.1-Instruct-8B-speculators", &llama_8b, speculators_eagle3, HEAD_EAGLE3, 0, 32000, 3, 2, 0.8 },
    { "EAGLE-LLaMA3.1-Instruct-8B-speculators", &llama_8b, write_speculators_eagle, HEAD_EAGLE, 0, 128256, 1,
      FINAL_STATE, 1.5 },
};

// Checks that the weights' file in a head's directory has its real size and takes nearly no disk space. Renames Medusa's .pt to
// its published name.
static void check_file(const struct expected *e, const char *directory, enum sparse_form form)
{
    struct stat st;
    char *file = xformat("%s/%s", directory, form == SPARSE_TORCH ? "pytorch_model.bin" : "model.safetensors");
    assert_int_equal(stat(file, &st), 0);
    assert_true((double)st.st_size > e->min_gb * 1e9 && (double)st.st_blocks * 512 < 1e7);
    if (form == SPARSE_TORCH && e->kind == HEAD_MEDUSA) {
        char *own = xformat("%s/medusa_lm_head.pt", directory);
        assert_int_equal(rename(file, own), 0);
        free(own);
    }
    free(file);
}

static void check_head(const struct expected *e, const char *directory, const struct model_shape *target,
                       const struct model_shape *other)
{
    struct head_facts f;
    struct error err = { "" };
    enum head_kind kind;
    if (!head_fits(directory, target, &kind, &f, &err))
        fail_msg("%s: %s", e->name, err.text);
    assert_int_equal(kind, e->kind);
    assert_int_equal(f.heads, e->heads);
    assert_int_equal(f.vocab, e->vocab);
    assert_int_equal(f.taps.n, e->taps);
    assert_int_equal(f.taps.layer[0], e->first_tap);
    if (e->taps == 3) {
        assert_int_equal(f.taps.layer[1], e->target->layers / 2);
        assert_int_equal(f.taps.layer[2], e->target->layers - 3);
    }
    assert_false(head_fits(directory, other, &kind, &f, &err)); // the message has both numbers
    assert_non_null(strstr(err.text, "a head for"));
    assert_non_null(strstr(err.text, target->vocab != other->vocab && e->kind != HEAD_MEDUSA ? "128256" : "8192"));
}

static void published_heads_fit_their_targets(void **unused)
{
    const int64_t before = resident_kb();
    const struct known_target *const known[] = { &vicuna_7b, &vicuna_13b, &llama_8b, &llama_70b };
    struct model_shape shape[4];
    for (int i = 0; i < 4; i++)
        shape[i] = shape_of(known[i]);
    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
        for (enum sparse_form form = SPARSE_SAFETENSORS; form <= SPARSE_TORCH; form++) {
            const struct expected *e = &list[i];
            char *directory = xformat("%s/%s-%d", test_directory(), e->name, (int)form);
            int target = 0;
            while (known[target] != e->target)
                target++;
            e->write(directory, e->target, form);
            check_file(e, directory, form);
            check_head(e, directory, &shape[target], &shape[target == 3 ? 2 : 3]);
            free(directory);
        }
    assert_true(resident_kb() - before < 100000); // of 197 GB of targets and 22 GB of heads
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(published_heads_fit_their_targets) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    return failed;
}
