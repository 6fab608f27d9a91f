// test_inflate_head.c - the head of a small target, inflated, computes the same logits for the inflated target: at four times the width to
// the bit.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/checkpoint/inflate.h"
#include "commands/checkpoint/inflate_head.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/file.h"
#include "kernels/backend.h"
#include "models/config.h"
#include "models/heads/eagle.h"
#include "models/kv_cache.h"
#include "models/heads/medusa.h"
#include "models/model.h"
#include "tests/formats/head_edit.h"
#include "tests/formats/head_forms.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"
#include "tests/support/printed_text.h"

enum { WIDER = 4 * WIDTH, MAX_STREAMS = 3 };
static struct error err;
static struct form_bench small, large;
static struct model_config inflated;

// states (rows, streams * WIDTH) of the small target, as the inflated one has them: each stream with zeros behind it.
static float *padded(const float *states, int rows, int streams)
{
    float *to = xcalloc((size_t)(rows * streams * WIDER), sizeof(*to));
    for (int i = 0; i < rows * streams; i++)
        memcpy(to + i * WIDER, states + i * WIDTH, WIDTH * sizeof(*to));
    return to;
}

// logits (CERTAIN + 2, vocab) of a chain that reads the target's states, and of two rows that read the head's own.
static float *eagle_rows(struct eagle *e, struct backend *b, const float *states)
{
    static const int32_t slot[CERTAIN], chain[] = { -1, 0, 1, 2, 3 }, both[] = { -1, -1 }, places[] = { 0, 1, 2, 3, 4 },
                                        token[] = { 7, 90, 3, 41, 12, 66, 8 };
    const struct kv_shape shape = eagle_kv_shape(e, 1, ROWS, CERTAIN);
    const int width = eagle_width(e), vocab = eagle_vocab(e), reads = eagle_taps(e).n * width;
    struct kv_cache *c = kv_create(b, &shape, &err);
    assert_ok(c != NULL, err);
    float *logits = xmalloc((size_t)((CERTAIN + 2) * vocab) * sizeof(*logits)),
          *own = xmalloc((size_t)(2 * width) * sizeof(*own));
    struct pass p = { .n = CERTAIN, .token = token, .slot = slot, .parent = chain };
    struct tensor out = eagle_forward(e, c, &p, tensor_of((float *)states, F32, CERTAIN, reads), false);
    eagle_logits(e, tensor_of(logits, F32, CERTAIN, vocab), out);
    for (int i = 0; i < 2; i++)
        memcpy(own + i * width, tensor_rows(out, CERTAIN - 1, 1).data, (size_t)width * sizeof(*own));
    kv_keep(c, 0, places, CERTAIN);
    p = (struct pass){ .n = 2, .token = token + CERTAIN, .slot = slot, .parent = both };
    out = eagle_forward(e, c, &p, tensor_of(own, F32, 2, width), true);
    eagle_logits(e, tensor_of(logits + CERTAIN * vocab, F32, 2, vocab), out);
    kv_destroy(c);
    free(own);
    return logits;
}

static float *eagle_logits_of(const struct form_bench *b, const char *path, enum head_kind kind, bool wide, int *n)
{
    struct eagle *e = form_open_eagle(b, path, kind, TRI_UNSET, &err);
    assert_ok(e != NULL, err);
    const int streams = eagle_taps(e).n;
    float states[CERTAIN * MAX_STREAMS * WIDTH];
    head_numbers(states, (size_t)(CERTAIN * streams * WIDTH), SEED, "features");
    float *wider = padded(states, CERTAIN, streams), *logits = eagle_rows(e, b->backend, wide ? wider : states);
    assert_int_equal(eagle_width(e), wide ? WIDER : WIDTH);
    *n = (CERTAIN + 2) * eagle_vocab(e);
    eagle_close(e);
    free(wider);
    return logits;
}

static float *medusa_logits_of(const struct form_bench *b, const char *path, bool wide, int *n)
{
    struct medusa *m = medusa_open(path, b->target, b->backend, ACTIVATIONS_F32, QUANTIZE_NONE, MEDUSA_ROWS, &err);
    assert_ok(m != NULL, err);
    const int vocab = medusa_vocab(m), width = wide ? WIDER : WIDTH;
    float states[MEDUSA_ROWS * WIDTH];
    head_numbers(states, MEDUSA_ROWS * WIDTH, SEED, "features");
    float *wider = padded(states, MEDUSA_ROWS, 1),
          *logits = xmalloc((size_t)(4 * MEDUSA_ROWS * vocab) * sizeof(*logits));
    for (int h = 0; h < 4; h++)
        medusa_logits(m, h, tensor_of(logits + h * MEDUSA_ROWS * vocab, F32, MEDUSA_ROWS, vocab),
                      tensor_of(wide ? wider : states, F32, MEDUSA_ROWS, width));
    *n = 4 * MEDUSA_ROWS * vocab;
    medusa_close(m);
    free(wider);
    return logits;
}

// Names the layers that an EAGLE-3 head reads. Without them it reads others in a target with more layers.
static void name_layers(const char *head)
{
    struct head_edit *e = head_edit_open(head);
    json_set(head_edit_config(e), "eagle_aux_hidden_state_layer_ids", json_new_ids((const int32_t[]){ 2, 4, 5 }, 3));
    head_edit_close(e);
}

static void set_heads(const char *head, int heads, int kv_heads)
{
    struct head_edit *e = head_edit_open(head);
    json_set(head_edit_config(e), "num_attention_heads", json_new_int(heads));
    json_set(head_edit_config(e), "num_key_value_heads", json_new_int(kv_heads));
    head_edit_close(e);
}

static void inflated_heads_have_the_same_bits(void **unused)
{
    static const struct {
        const char *name;
        enum head_kind kind;
        void (*write)(const char *directory);
    } forms[] = {
        { "eagle", HEAD_EAGLE, form_eagle },
        { "eagle_bias", HEAD_EAGLE, form_eagle_bias },
        { "eagle_own", HEAD_EAGLE, form_eagle_own },
        { "eagle3", HEAD_EAGLE3, form_eagle3 },
        { "eagle3_norm_output", HEAD_EAGLE3, form_eagle3_norm_output },
        { "eagle3_fc_norm", HEAD_EAGLE3, form_eagle3_fc_norm },
        { "eagle3_norm_before_fc", HEAD_EAGLE3, form_eagle3_norm_before_fc },
        { "medusa", HEAD_MEDUSA, form_medusa },
        { "medusa_vllm", HEAD_MEDUSA, form_medusa_vllm },
        { "medusa_one", HEAD_MEDUSA, form_medusa_one },
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        char *from = test_path(forms[i].name), *to = xformat("%s_inflated", from);
        forms[i].write(from);
        if (forms[i].kind == HEAD_EAGLE3)
            name_layers(from);
        assert_ok(inflate_head(from, &inflated, to, small.backend, &err), err);
        int n, m;
        float *a, *b;
        if (forms[i].kind == HEAD_MEDUSA) {
            a = medusa_logits_of(&small, from, false, &n);
            b = medusa_logits_of(&large, to, true, &m);
        } else {
            a = eagle_logits_of(&small, from, forms[i].kind, false, &n);
            b = eagle_logits_of(&large, to, forms[i].kind, true, &m);
        }
        assert_int_equal(n, m);
        if (memcmp(a, b, (size_t)n * sizeof(*a)) != 0)
            fail_msg("%s: the logits of the inflated head differ", forms[i].name);
        free(a);
        free(b);
        free(from);
        free(to);
    }
}

static void heads_that_do_not_fit_are_refused(void **unused)
{
    char *from = test_path("refused"), *to = test_path("refused_inflated");
    form_eagle3(from);
    assert_false(inflate_head(from, &inflated, to, small.backend, &err));
    expect_contains(err.text, "there is no eagle_aux_hidden_state_layer_ids");
    name_layers(from);
    struct model_config c = inflated;
    c.inflated = NULL;
    assert_false(inflate_head(from, &c, to, small.backend, &err));
    expect_contains(err.text, "not an inflated model");
    c = inflated;
    c.width = WIDTH;
    assert_false(inflate_head(from, &c, to, small.backend, &err));
    expect_contains(err.text, "the target's 64 is not larger");
    c = inflated;
    c.head_dim = 32;
    assert_false(inflate_head(from, &c, to, small.backend, &err));
    expect_contains(err.text, "attention heads of 16 numbers, and the target of 32");
    c = inflated;
    c.hidden = 8;
    assert_false(inflate_head(from, &c, to, small.backend, &err));
    expect_contains(err.text, "cannot become smaller");
    assert_false(inflate_head("/dev/null", &inflated, to, small.backend, &err));
    assert_false(inflate_head(from, &inflated, "/nonexistent/head", small.backend, &err));
    expect_contains(err.text, "/nonexistent/head");
    set_heads(from, 2, 3);
    assert_false(inflate_head(from, &inflated, to, small.backend, &err));
    expect_contains(err.text, "num_attention_heads: expected a multiple of num_key_value_heads (3), found 2");
    set_heads(from, 6, 2);
    assert_false(inflate_head(from, &inflated, to, small.backend, &err));
    expect_contains(err.text, "which do not fit the sizes in");
    assert_false(file_exists(to));
    free(from);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inflated_heads_have_the_same_bits),
        cmocka_unit_test(heads_that_do_not_fit_are_refused),
    };
    small = form_bench_open(LAYERS);

    char *from = xformat("%s/target_%d", test_directory(), LAYERS), *to = test_path("target_inflated");
    const struct sizes sizes = { .width = WIDER, .hidden = 224, .heads = 12, .kv_heads = 3, .layers = LAYERS + 4 };
    if (!inflate_model(from, &sizes, to, small.backend, NULL, NULL, &err) || !config_read(to, &inflated, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    large = (struct form_bench){ small.backend, model_open(to, small.backend, ACTIVATIONS_F32, ROWS, &err) };
    const int failed = large.target == NULL || cmocka_run_group_tests(tests, NULL, NULL);
    config_free(&inflated);
    model_close(large.target);
    form_bench_close(&small);
    free(from);
    free(to);
    test_directory_remove();
    return failed;
}
