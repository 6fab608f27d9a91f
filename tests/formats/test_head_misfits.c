// test_head_misfits.c - errors of heads that do not fit their target, or whose parts do not fit together.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/heads/medusa.h"
#include "tests/support/check.h"
#include "tests/support/checkpoint.h"
#include "tests/formats/head_edit.h"
#include "tests/formats/head_forms.h"
#include "tests/support/small_model.h"

static void medusa_of_another_width(const char *directory)
{
    struct head_shape s = form_shape();
    s.width = 32;
    heads_write_medusa(directory, &s);
}

static void medusa_of_another_vocabulary(const char *directory)
{
    struct head_shape s = form_shape();
    s.vocab = 90;
    heads_write_medusa(directory, &s);
}

static void medusa_without_an_output(const char *directory)
{
    form_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_drop(e, "2.1.weight");
    head_edit_close(e);
}

static void medusa_of_a_wrong_shape(const char *directory)
{
    form_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, WIDTH, 48, 0, "3.0.linear.weight");
    head_edit_close(e);
}

static void medusa_with_a_target_id_out_of_range(const char *directory)
{
    form_medusa_vllm(directory);
    struct head_edit *e = head_edit_open(directory);
    ((int64_t *)head_edit_data(e, "token_map"))[3] = VOCAB;
    head_edit_close(e);
}

static void eagle_of_another_width(const char *directory)
{
    struct head_shape s = form_shape();
    s.width = 32;
    heads_write_eagle(directory, &s);
}

static void eagle_of_another_vocabulary(const char *directory)
{
    struct head_shape s = form_shape();
    s.vocab = 90;
    heads_write_eagle(directory, &s);
}

static void eagle_without_a_tensor(const char *directory)
{
    form_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_drop(e, "layers.0.mlp.up_proj.weight");
    head_edit_close(e);
}

static void eagle_of_a_wrong_shape(const char *directory)
{
    form_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "num_key_value_heads", json_new_int(4));
    head_edit_close(e);
}

static void eagle_with_more_norms(const char *directory) // HASS has them
{
    form_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 0, WIDTH, 1, "embedding_layernorm.weight");
    head_edit_close(e);
}

static void eagle3_of_another_width(const char *directory)
{
    struct head_shape s = form_shape();
    s.width = 32;
    heads_write_eagle3(directory, &s);
}

static void eagle3_of_another_vocabulary(const char *directory)
{
    struct head_shape s = form_shape();
    s.vocab = 90;
    heads_write_eagle3(directory, &s);
}

static void eagle3_of_another_draft_vocabulary(const char *directory)
{
    form_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "draft_vocab_size", json_new_int(40));
    head_edit_close(e);
}

static void eagle3_of_layers(const char *directory, const int32_t *id)
{
    form_eagle3_speculators(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "eagle_aux_hidden_state_layer_ids", json_new_ids(id, 3));
    head_edit_close(e);
}

static void eagle3_of_deeper_layers(const char *directory)
{
    eagle3_of_layers(directory, (const int32_t[]){ 1, 4, 9 });
}

static void eagle3_with_query_norms(const char *directory) // as of Qwen 3
{
    form_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 0, 16, 1, "midlayer.self_attn.q_norm.weight");
    head_edit_close(e);
}

static void eagle3_of_an_id_out_of_range(const char *directory)
{
    form_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    ((int64_t *)head_edit_data(e, "d2t"))[3] = -4;
    head_edit_close(e);
}

static void medusa_with_one_target_id_twice(const char *directory)
{
    form_medusa_vllm(directory);
    struct head_edit *e = head_edit_open(directory);
    ((int64_t *)head_edit_data(e, "token_map"))[3] = form_medusa_target_id(1);
    head_edit_close(e);
}

static void eagle3_of_one_id_twice(const char *directory)
{
    form_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    ((int64_t *)head_edit_data(e, "d2t"))[2] = 1; // the target ids are 0, 3, 6, ...: the third becomes 3 again
    head_edit_close(e);
}

static void eagle3_whose_mask_lacks_a_token(const char *directory)
{
    form_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    ((uint8_t *)head_edit_data(e, "t2d"))[6] = 0;
    head_edit_close(e);
}

static void eagle3_without_ids(const char *directory)
{
    form_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_drop(e, "d2t");
    head_edit_close(e);
}

static void eagle3_with_both_norms(const char *directory)
{
    struct head_edit *e = form_eagle3_with_norm(directory, "fc_norm");
    json_set(head_edit_config(e), "norm_before_fc", json_new_bool(true));
    head_edit_close(e);
}

static void eagle3_whose_mask_has_a_token_more(const char *directory)
{
    form_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    ((uint8_t *)head_edit_data(e, "t2d"))[4] = 1;
    head_edit_close(e);
}

static void eagle3_that_lists_two_layers(const char *directory)
{
    form_eagle3_speculators(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "eagle_aux_hidden_state_layer_ids", json_new_ids((const int32_t[]){ 1, 4 }, 2));
    head_edit_close(e);
}

static void eagle_that_declares(const char *directory, const char *key)
{
    form_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), key, json_new_bool(true));
    head_edit_drop(e, "fc.bias");
    head_edit_close(e);
}

static void eagle_that_declares_missing_biases(const char *directory)
{
    eagle_that_declares(directory, "qkv_bias");
}

static void eagle_that_lacks_one_bias(const char *directory)
{
    eagle_that_declares(directory, "qkv_bias");
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 0, WIDTH, 0, "layers.0.self_attn.q_proj.bias");
    head_edit_floats(e, 0, WIDTH / 2, 0, "layers.0.self_attn.v_proj.bias");
    head_edit_close(e);
}

static void eagle_that_declares_a_missing_bias(const char *directory)
{
    eagle_that_declares(directory, "bias");
}

static void medusa_that_lacks_a_head(const char *directory)
{
    form_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_drop(e, "2.0.linear.weight");
    head_edit_close(e);
}

static void medusa_that_lacks_an_output(const char *directory)
{
    form_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_drop(e, "0.1.weight");
    head_edit_close(e);
}

static void medusa_with_something_more(const char *directory)
{
    form_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 0, WIDTH, 1, "norm.weight");
    head_edit_close(e);
}

static void medusa_2_with_something_more(const char *directory)
{
    form_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 96, WIDTH, 1, "model.embed_tokens.weight"); // what shows that the model is there
    head_edit_floats(e, 0, WIDTH, 1, "model.layers.0.input_layernorm.weight");
    head_edit_floats(e, 0, WIDTH, 1, "visual.weight");
    head_edit_close(e);
}

static void eagle_with_a_layer_too_many(const char *directory)
{
    form_eagle_layers(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "num_hidden_layers", json_new_int(1));
    head_edit_close(e);
}

static void check_refused(const struct form_bench *b, int number, enum head_kind kind, void (*write)(const char *),
                          const char *message)
{
    struct error err = { "" };
    char *path = xformat("%s/wrong_%d", test_directory(), number);
    write(path);
    if (kind == HEAD_MEDUSA) {
        struct medusa *m = medusa_open(path, b->target, b->backend, ACTIVATIONS_F32, QUANTIZE_NONE, MEDUSA_ROWS, &err);
        if (m != NULL)
            fail_msg("opened, where \"%s\" was expected", message);
    } else {
        struct eagle *e = form_open_eagle(b, path, kind, TRI_UNSET, &err);
        if (e != NULL)
            fail_msg("opened, where \"%s\" was expected", message);
    }
    assert_error_mentions(&err, path, message);
    free(path);
}

static void a_head_that_does_not_fit_is_refused_with_both_numbers(void **unused)
{
    static const struct {
        int layers; // the target's
        enum head_kind kind;
        void (*write)(const char *directory);
        const char *message;
    } wrong[] = {
        { 8, HEAD_MEDUSA, medusa_of_another_width, "a head for targets of width 32, but this target's is 64" },
        { 8, HEAD_MEDUSA, medusa_of_another_vocabulary, "a head for 90 tokens, but the target has 96" },
        { 8, HEAD_MEDUSA, medusa_without_an_output, "there is no tensor 2.1.weight" },
        { 8, HEAD_MEDUSA, medusa_of_a_wrong_shape, "3.0.linear.weight: expected 64 rows of 64, found 64 of 48" },
        { 8, HEAD_MEDUSA, medusa_with_a_target_id_out_of_range,
          "token_map: number 3: expected an id from 0 to 95, found 96" },
        { 8, HEAD_MEDUSA, medusa_with_one_target_id_twice,
          "token_map: number 3: expected another id than number 1, found 37 as well" },
        { 8, HEAD_MEDUSA, form_eagle, "drafter medusa: expected a Medusa head, found an EAGLE head" },
        { 8, HEAD_EAGLE, eagle_of_another_width, "a head for targets of width 32, but this target's is 64" },
        { 8, HEAD_EAGLE, eagle_of_another_vocabulary, "a head for 90 tokens, but the target has 96" },
        { 8, HEAD_EAGLE, eagle_without_a_tensor, "there is no tensor layers.0.mlp.up_proj.weight" },
        { 8, HEAD_EAGLE, eagle_of_a_wrong_shape,
          "layers.0.self_attn.k_proj.weight: expected 64 rows of 64, found 32 of 64" },
        { 8, HEAD_EAGLE, eagle_with_more_norms, "embedding_layernorm.weight: not supported in an EAGLE head" },
        { 8, HEAD_EAGLE, form_eagle3, "drafter eagle: expected an EAGLE head, found an EAGLE-3 head" },
        { 8, HEAD_EAGLE3, form_eagle, "drafter eagle3: expected an EAGLE-3 head, found an EAGLE head" },
        { 8, HEAD_EAGLE3, form_medusa, "drafter eagle3: expected an EAGLE-3 head, found a Medusa head" },
        { 8, HEAD_EAGLE3, eagle3_of_another_width, "a head for targets of width 32, but this target's is 64" },
        { 8, HEAD_EAGLE3, eagle3_of_another_vocabulary, "a head for 90 tokens, but the target has 96" },
        { 8, HEAD_EAGLE3, eagle3_of_another_draft_vocabulary,
          "lm_head.weight: expected 40 rows of 64, found 32 of 64" },
        { 3, HEAD_EAGLE3, form_eagle3, "reads layers 2, L / 2 and L - 3, but the target has only 3 layers" },
        { 8, HEAD_EAGLE3, eagle3_of_deeper_layers, "layer 9, but the target has 8 layers" },
        { 8, HEAD_EAGLE3, eagle3_with_query_norms, "self_attn.q_norm.weight: not supported in an EAGLE-3 head" },
        { 8, HEAD_EAGLE3, eagle3_of_one_id_twice, "d2t: number 2: expected another id than number 1, found 3 as well" },
        { 8, HEAD_EAGLE3, eagle3_of_an_id_out_of_range, "d2t: number 3: expected an id from 0 to 95, found -1" },
        { 8, HEAD_EAGLE3, eagle3_whose_mask_lacks_a_token,
          "t2d: number 6: expected 1, since d2t has this token, found 0" },
        { 8, HEAD_EAGLE3, eagle3_whose_mask_has_a_token_more,
          "t2d: number 4: expected 0, since d2t lacks this token, found 1" },
        { 8, HEAD_EAGLE3, eagle3_that_lists_two_layers, "fc.weight reads the states of 3 layers, but " },
        { 8, HEAD_EAGLE, eagle_that_declares_missing_biases,
          "there is no tensor layers.0.self_attn.q_proj.bias, but " },
        { 8, HEAD_EAGLE, eagle_that_lacks_one_bias, "there is no tensor layers.0.self_attn.k_proj.bias, but " },
        { 8, HEAD_EAGLE, eagle_that_declares_a_missing_bias, "there is no tensor fc.bias, but " },
        { 8, HEAD_MEDUSA, medusa_that_lacks_a_head, "not part of 2 heads of 1 layers, as head 0 has them" },
        { 8, HEAD_MEDUSA, medusa_that_lacks_an_output,
          "tensors 1.1.weight, 2.1.weight, 3.1.weight: not part of 4 heads of 1 layers" },
        { 8, HEAD_EAGLE, eagle_with_a_layer_too_many,
          "config.json: num_hidden_layers is 1, but the file has tensors of 2 layers: layers.1.input_layernorm.weight, " },
        { 8, HEAD_MEDUSA, medusa_2_with_something_more, "tensor visual.weight: not part of 4 heads of 1 layers" },
        { 8, HEAD_MEDUSA, medusa_with_something_more, "tensor norm.weight: not part of 4 heads of 1 layers" },
        { 8, HEAD_EAGLE3, eagle3_without_ids, "a vocabulary of 32 of 96 tokens, but there is no tensor d2t" },
        { 8, HEAD_EAGLE3, form_eagle3_without_norm_key, "set norm_before_residual: true or false" },
        { 8, HEAD_EAGLE3, eagle3_with_both_norms, "fc_norm: expected false beside norm_before_fc" },
    };
    struct form_bench b = form_bench_open(LAYERS), shallow = form_bench_open(3);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        check_refused(wrong[i].layers == 3 ? &shallow : &b, (int)i, wrong[i].kind, wrong[i].write, wrong[i].message);
    form_bench_close(&b);
    form_bench_close(&shallow);
}

static void layer_ids_name_the_state_entering_or_leaving_a_layer(void **unused)
{
    struct form_bench b = form_bench_open(LAYERS);
    struct error err;
    char *path = test_path("listed");
    eagle3_of_layers(path, (const int32_t[]){ 1, 4, 7 });
    for (int left = 0; left < 2; left++) {
        const struct eagle_setup s = { .kind = HEAD_EAGLE3,
                                       .activations = ACTIVATIONS_F32,
                                       .layer_ids = left ? LAYERS_LEFT : LAYERS_ENTERED,
                                       .rows = 1 };
        struct eagle *e = eagle_open(path, b.target, b.backend, &s, &err);
        assert_ok(e != NULL, err);
        const struct taps t = eagle_facts(e)->taps;
        assert_true(t.n == 3 && t.layer[0] == 1 + left && t.layer[1] == 4 + left && t.layer[2] == 7 + left);
        eagle_close(e);
    }
    free(path);
    form_bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_that_does_not_fit_is_refused_with_both_numbers),
        cmocka_unit_test(layer_ids_name_the_state_entering_or_leaving_a_layer),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    return failed;
}
