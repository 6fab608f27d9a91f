// test_head_misfits.c - errors of heads that do not fit their target, or whose parts do not fit together.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/heads/medusa.h"
#include "tests/support/tests.h"
#include "tests/support/checkpoint.h"
#include "tests/formats/head_forms.h"
#include "tests/support/small_model.h"

static void check_refused(const struct form_bench *b, enum head_kind kind, const char *path, const char *message)
{
    struct error err = { "" };
    struct medusa *m = NULL;
    struct eagle *e = NULL;
    if (kind == HEAD_MEDUSA)
        m = medusa_open(path, b->target, b->backend, ACTIVATIONS_F32, QUANTIZE_NONE, MEDUSA_ROWS, &err);
    else
        e = form_open_eagle(b, path, kind, TRI_UNSET, &err);
    if (m != NULL || e != NULL)
        fail_msg("opened, where \"%s\" was expected", message);
    assert_error_mentions(&err, path, message);
}

TEST(a_head_that_does_not_fit_is_refused_with_both_numbers)
{
    enum { MEDUSA = HEAD_MEDUSA, EAGLE = HEAD_EAGLE, EAGLE3 = HEAD_EAGLE3 };
    static const struct {
        int kind; // as which it is opened
        const char *form, *changes, *message;
    } wrong[] = {
        { MEDUSA, "medusa_32", NULL, "a head for targets of width 32, but this target's is 64" },
        { MEDUSA, "medusa_of_90", NULL, "a head for 90 tokens, but the target has 96" },
        { MEDUSA, "medusa", "-2.1.weight", "there is no tensor 2.1.weight" },
        { MEDUSA, "medusa", "+3.0.linear.weight 64 48 0", "3.0.linear.weight: expected 64 rows of 64, found 64 of 48" },
        { MEDUSA, "medusa_vllm", "token_map[3]=96", "token_map: number 3: expected an id from 0 to 95, found 96" },
        { MEDUSA, "medusa_vllm", "token_map[3]=37", "number 3: expected another id than number 1, found 37 as well" },
        { MEDUSA, "eagle", NULL, "drafter medusa: expected a Medusa head, found an EAGLE head" },
        { MEDUSA, "medusa", "-2.0.linear.weight", "not part of 2 heads of 1 layers, as head 0 has them" },
        { MEDUSA, "medusa", "-0.1.weight", "1.1.weight, 2.1.weight, 3.1.weight: not part of 4 heads of 1 layers" },
        { MEDUSA, "medusa", "+norm.weight 0 64 1", "tensor norm.weight: not part of 4 heads of 1 layers" },
        // the embedding shows that the model is there, too, as Medusa-2's
        { MEDUSA, "medusa",
          "+model.embed_tokens.weight 96 64 1; +model.layers.0.input_layernorm.weight 0 64 1; +visual.weight 0 64 1",
          "tensor visual.weight: not part of 4 heads of 1 layers" },
        { EAGLE, "eagle_32", NULL, "a head for targets of width 32, but this target's is 64" },
        { EAGLE, "eagle_of_90", NULL, "a head for 90 tokens, but the target has 96" },
        { EAGLE, "eagle", "-layers.0.mlp.up_proj.weight", "there is no tensor layers.0.mlp.up_proj.weight" },
        { EAGLE, "eagle", "num_key_value_heads=4", "k_proj.weight: expected 64 rows of 64, found 32 of 64" },
        { EAGLE, "eagle", "+embedding_layernorm.weight 0 64 1", // HASS has it
          "embedding_layernorm.weight: not supported in an EAGLE head" },
        { EAGLE, "eagle", "qkv_bias=true; -fc.bias", "there is no tensor layers.0.self_attn.q_proj.bias, but " },
        { EAGLE, "eagle", "bias=true; -fc.bias", "there is no tensor fc.bias, but " },
        { EAGLE, "eagle_bias", "-layers.0.self_attn.k_proj.bias",
          "there is no tensor layers.0.self_attn.k_proj.bias, but " },
        { EAGLE, "eagle_layers", "num_hidden_layers=1",
          "num_hidden_layers is 1, but the file has tensors of 2 layers: layers.1.input_layernorm.weight, " },
        { EAGLE, "eagle3", NULL, "drafter eagle: expected an EAGLE head, found an EAGLE-3 head" },
        { EAGLE3, "eagle", NULL, "drafter eagle3: expected an EAGLE-3 head, found an EAGLE head" },
        { EAGLE3, "medusa", NULL, "drafter eagle3: expected an EAGLE-3 head, found a Medusa head" },
        { EAGLE3, "eagle3_32", NULL, "a head for targets of width 32, but this target's is 64" },
        { EAGLE3, "eagle3_of_90", NULL, "a head for 90 tokens, but the target has 96" },
        { EAGLE3, "eagle3", "draft_vocab_size=40", "lm_head.weight: expected 40 rows of 64, found 32 of 64" },
        { EAGLE3, "eagle3_speculators", "eagle_aux_hidden_state_layer_ids=[1,4,9]",
          "layer 9, but the target has 8 layers" },
        { EAGLE3, "eagle3_speculators", "eagle_aux_hidden_state_layer_ids=[1,4]",
          "fc.weight reads the states of 3 layers, but " },
        { EAGLE3, "eagle3", "+midlayer.self_attn.q_norm.weight 0 16 1",
          "self_attn.q_norm.weight: not supported in an EAGLE-3 head" },
        // the target's ids are 0, 3, 6, ...
        { EAGLE3, "eagle3", "d2t[2]=1", "d2t: number 2: expected another id than number 1, found 3 as well" },
        { EAGLE3, "eagle3", "d2t[3]=-4", "d2t: number 3: expected an id from 0 to 95, found -1" },
        { EAGLE3, "eagle3", "t2d[6]=0", "t2d: number 6: expected 1, since d2t has this token, found 0" },
        { EAGLE3, "eagle3", "t2d[4]=1", "t2d: number 4: expected 0, since d2t lacks this token, found 1" },
        { EAGLE3, "eagle3", "-d2t", "a vocabulary of 32 of 96 tokens, but there is no tensor d2t" },
        { EAGLE3, "eagle3_speculators", "norm_before_residual=null", "set norm_before_residual: true or false" },
        { EAGLE3, "eagle3_fc_norm", "norm_before_fc=true", "fc_norm: expected false beside norm_before_fc" },
    };
    struct form_bench b = form_bench_open(LAYERS), shallow = form_bench_open(3);
    char *path = test_path("wrong");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        form_write(path, wrong[i].form, wrong[i].changes);
        check_refused(&b, (enum head_kind)wrong[i].kind, path, wrong[i].message);
    }
    form_write(path, "eagle3", NULL);
    check_refused(&shallow, HEAD_EAGLE3, path, "reads layers 2, L / 2 and L - 3, but the target has only 3 layers");
    free(path);
    form_bench_close(&b);
    form_bench_close(&shallow);
}

TEST(layer_ids_name_the_state_entering_or_leaving_a_layer)
{
    struct form_bench b = form_bench_open(LAYERS);
    struct error err;
    char *path = test_path("listed");
    form_write(path, "eagle3_speculators", "eagle_aux_hidden_state_layer_ids=[1,4,7]");
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
    const int failed = tests_run(NULL, NULL);
    test_directory_remove();
    return failed;
}
