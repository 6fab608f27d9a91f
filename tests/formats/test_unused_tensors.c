// test_unused_tensors.c - a checkpoint with tensors that no layer uses is refused with an error that names them, except for those
// that are known to have no effect.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/formats/gguf_edit.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "tests/formats/head_edit.h"
#include "tests/formats/head_forms.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/support/small_model.h"

// The error of opening a model; empty if it opens.
static struct error open_error(const char *path)
{
    struct error err = { "" };
    struct backend *b = backend_cpu(1, &err);
    assert_non_null(b);
    struct model *m = model_open(path, b, ACTIVATIONS_F32, 4, &err);
    assert_int_equal(m == NULL, err.text[0] != '\0');
    model_close(m);
    b->destroy(b);
    return err;
}

static void assert_opens(const char *path)
{
    const struct error err = open_error(path);
    if (err.text[0] != '\0')
        fail_msg("%s", err.text);
}

static void assert_refused(const char *path, const char *words)
{
    const struct error err = open_error(path);
    assert_error_mentions(&err, path, words);
}

TEST(a_gguf_file_with_more_layers_than_block_count_is_refused)
{
    char *whole = test_path("whole.gguf"), *file = test_path("fewer.gguf");
    small_write_gguf(whole, &small_default);
    gguf_edit(whole, file, "{'llama.block_count': 3}", NULL);
    assert_opens(file);
    gguf_edit(whole, file, "{'llama.block_count': 2}", NULL);
    assert_refused(file,
                   "fewer.gguf: llama.block_count is 2, but the file has tensors of 3 layers: blk.2.attn_norm.weight, "
                   "blk.2.ffn_down.weight, blk.2.ffn_gate.weight and 6 more would not be used");
    gguf_edit(whole, file, "{'llama.block_count': 1}", NULL);
    assert_refused(file, "llama.block_count is 1, but the file has tensors of 3 layers");
    free(whole);
    free(file);
}

TEST(a_gguf_file_with_a_tensor_that_its_architecture_does_not_have_is_refused)
{
    static const char *const names[] = { "blk.1.attn_q_norm.weight", "blk.2.post_ffw_norm.weight",
                                         "blk.1.ffn_up.bias",        "blk.1.attn_q.bias",
                                         "rope_factors_long.weight", "blk.0.attn_q.scale",
                                         "output_norm.bias",         "blk.2147483648.attn_q.weight" };
    static const float ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    char *whole = test_path("whole.gguf"), *file = test_path("more.gguf");
    small_write_gguf(whole, &small_default);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char *words = xformat("more.gguf: tensor %s: not supported in architecture llama", names[i]);
        gguf_edit(whole, file, "{}", &(const struct gguf_vector){ names[i], 8, 0, ones, sizeof(ones) });
        assert_refused(file, words);
        free(words);
    }
    free(whole);
    free(file);
}

TEST(a_directory_with_tensors_that_are_not_used_is_refused)
{
    static const struct {
        const char *changes, *words; // changes of small_default, as head_change() reads them
    } wrong[] = {
        { "num_hidden_layers=2", "config.json: num_hidden_layers is 2, but the file has tensors of 3 layers: "
                                 "model.layers.2.input_layernorm.weight, " },
        { "+model.layers.0.self_attn.q_norm.weight 0 16 1",
          "model.safetensors: tensor model.layers.0.self_attn.q_norm.weight: not supported in architecture llama" },
        { "+model.layers.99.x 0 16 1", "but the file has a tensor of layer 99: model.layers.99.x would not be used" },
        { "+model.layers.9.x 0 16 1; num_hidden_layers=2",
          "but the file has tensors of layer 2: model.layers.2.input_layernorm.weight, " },
        { "+evil\033[31m 0 16 1", "tensor evil\\u001B[31m: not supported" },
        { "+model.layers.1.self_attn.k_scale 0 1 1", "k_scale: not supported" },
        { "+model.layers.1.self_attn.q_proj.bias 0 64 1", "q_proj.bias: not supported" },
        { "+model.layers.1.mlp.up_proj.bias 0 128 1", "up_proj.bias: not supported" },
        { "+score.weight 2 64 1", "score.weight: not supported" },
        { "+model.layers.7 0 1 1", "model.layers.7: not supported" },
        { "tie_word_embeddings=true",
          "tie_word_embeddings is true, but lm_head.weight is not equal to model.embed_tokens.weight" },
    };
    char *path = test_path("wrong");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        small_write_hf(path, &small_default);
        head_change(path, wrong[i].changes);
        assert_refused(path, wrong[i].words);
    }
    free(path);
}

TEST(tensors_without_an_effect_are_ignored)
{
    static const char *const harmless[] = { "+model.layers.0.self_attn.rotary_emb.inv_freq 0 8 1",
                                            "+model.rotary_emb.inv_freq 0 8 1", "+medusa_head.0.1.weight 0 8 1" };
    char *path = test_path("harmless");
    for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++) {
        small_write_hf(path, &small_default);
        head_change(path, harmless[i]);
        assert_opens(path);
    }
    // A head that is tied to the embedding, and stored nevertheless.
    small_write_hf(path, &small_default);
    struct head_edit *e = head_edit_open(path);
    json_set(head_edit_config(e), "tie_word_embeddings", json_new_bool(true));
    memcpy(head_edit_data(e, "lm_head.weight"), head_edit_data(e, "model.embed_tokens.weight"),
           (size_t)small_default.vocab * (size_t)small_default.width * sizeof(float));
    head_edit_close(e);
    assert_opens(path);
    free(path);
}

TEST(harmless_tensors_of_a_head_are_ignored)
{
    struct error err = { "" };
    struct form_bench b = form_bench_open(LAYERS);
    char *path = test_path("head");
    form_write(path, "eagle3_speculators",
               "+verifier_lm_head.weight 96 64 0; +verifier_norm.weight 0 64 1; "
               "+layers.0.self_attn.rotary_emb.inv_freq 0 8 1");
    struct eagle *e = form_open_eagle(&b, path, HEAD_EAGLE3, TRI_UNSET, &err);
    assert_ok(e != NULL, err);
    eagle_close(e);
    head_change(path, "+verifier_norm.weight_scale 0 64 1");
    assert_null(form_open_eagle(&b, path, HEAD_EAGLE3, TRI_UNSET, &err));
    assert_error_mentions(&err, path, "tensor verifier_norm.weight_scale: not supported in an EAGLE-3 head");
    form_bench_close(&b);
    free(path);
}

RUN_TESTS(NULL, NULL)
