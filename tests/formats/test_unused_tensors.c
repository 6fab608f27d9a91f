// test_unused_tensors.c - a checkpoint with tensors that no layer uses is refused with an error that names them, except for those
// that are known to have no effect.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "tests/formats/gguf_write.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "tests/formats/head_edit.h"
#include "tests/formats/head_forms.h"
#include "tests/support/check.h"
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

// Copies a GGUF file with another number of blocks (0: its own) and, unless `tensor` is NULL, one more vector of f32.
static void copy_gguf(const char *from, const char *to, int blocks, const char *tensor, uint64_t width)
{
    struct error err;
    struct gguf *g = gguf_open(from, &err);
    struct gguf_writer *w = gguf_write_begin(to, &err);
    float *ones = xmalloc((size_t)width * sizeof(*ones));
    for (uint64_t i = 0; i < width; i++)
        ones[i] = 1;
    for (size_t i = 0; i < gguf_values(g); i++)
        if (blocks != 0 && gguf_value_at(g, i) == gguf_find(g, "llama.block_count"))
            gguf_write_int(w, "llama.block_count", GGUF_U32, blocks);
        else
            gguf_write_copy(w, gguf_value_at(g, i));
    char *names[64];
    size_t n = gguf_tensors(g);
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        names[i] = xstrndup(t->name.s, t->name.n);
        gguf_write_tensor(w, names[i], t->dims, t->dim, t->ggml_type, t->tensor.data, t->bytes);
    }
    if (tensor != NULL)
        gguf_write_tensor(w, tensor, 1, &width, type_facts[F32].ggml, ones, (size_t)width * sizeof(*ones));
    assert_true(gguf_write_end(w, &err));
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(ones);
    gguf_close(g);
}

static void a_gguf_file_with_more_layers_than_block_count_is_refused(void **unused)
{
    char *whole = test_path("whole.gguf"), *file = test_path("fewer.gguf");
    small_write_gguf(whole, &small_default);
    copy_gguf(whole, file, 3, NULL, 0);
    assert_opens(file);
    copy_gguf(whole, file, 2, NULL, 0);
    assert_refused(file,
                   "fewer.gguf: llama.block_count is 2, but the file has tensors of 3 layers: blk.2.attn_norm.weight, "
                   "blk.2.ffn_down.weight, blk.2.ffn_gate.weight and 6 more would not be used");
    copy_gguf(whole, file, 1, NULL, 0);
    assert_refused(file, "llama.block_count is 1, but the file has tensors of 3 layers");
    free(whole);
    free(file);
}

static void a_gguf_file_with_a_tensor_that_its_architecture_does_not_have_is_refused(void **unused)
{
    static const struct {
        const char *name;
        uint64_t width;
    } more[] = {
        { "blk.1.attn_q_norm.weight", 16 },
        { "blk.2.post_ffw_norm.weight", 64 },
        { "blk.1.ffn_up.bias", 128 },
        { "blk.1.attn_q.bias", 64 },
        { "rope_factors_long.weight", 8 },
        { "blk.0.attn_q.scale", 1 },
        { "blk.2147483648.attn_q.weight", 64 },
        { "output_norm.bias", 64 },
        { "blk.0.attn_rot_embd.inv_freq_x", 8 },
    };
    char *whole = test_path("whole.gguf"), *file = test_path("more.gguf");
    small_write_gguf(whole, &small_default);
    for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++) {
        char *words = xformat("more.gguf: tensor %s: not supported in architecture llama", more[i].name);
        copy_gguf(whole, file, 0, more[i].name, more[i].width);
        assert_refused(file, words);
        free(words);
    }
    free(whole);
    free(file);
}

static void a_directory_with_tensors_that_are_not_used_is_refused(void **unused)
{
    static const struct {
        const char *changes, *words; // of small_default, as by head_change()
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

static void tensors_without_an_effect_are_ignored(void **unused)
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

static void harmless_tensors_of_a_head_are_ignored(void **unused)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gguf_file_with_more_layers_than_block_count_is_refused),
        cmocka_unit_test(a_gguf_file_with_a_tensor_that_its_architecture_does_not_have_is_refused),
        cmocka_unit_test(a_directory_with_tensors_that_are_not_used_is_refused),
        cmocka_unit_test(tensors_without_an_effect_are_ignored),
        cmocka_unit_test(harmless_tensors_of_a_head_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
