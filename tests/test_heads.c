// test_heads.c - the logits of speculators of every published form beside what PyTorch says of them, the originals' own
// modules wherever these run; and what is said of heads that do not fit.
//
// Goldens: tests/cases/make_heads.py, which makes the same weights, states and tokens again. A head reads five certain
// tokens with the target's states, then a little tree with its own: two guesses behind the last token, one behind the
// second guess.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/eagle.h"
#include "models/head.h"
#include "models/kv_cache.h"
#include "models/medusa.h"
#include "models/model.h"
#include "tests/check.h"
#include "tests/checkpoint.h"
#include "tests/head_edit.h"
#include "tests/heads.h"
#include "tests/reference.h"
#include "tests/tiny.h"

enum { VOCAB = 96, WIDTH = 64, LAYERS = 8, SEED = 5, CERTAIN = 5, ROWS = CERTAIN + 3, MEDUSA_ROWS = 3, DRAFT = 32 };

static struct tiny target_of(int layers)
{
    return (struct tiny){ .vocab = VOCAB,
                          .width = WIDTH,
                          .hidden = 96,
                          .layers = layers,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 16,
                          .seed = 21 };
}

static struct head_shape usual(void)
{
    return (struct head_shape){ .width = WIDTH,
                                .vocab = VOCAB,
                                .layers = LAYERS,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .hidden = 96,
                                .draft_vocab = DRAFT,
                                .medusa_heads = 4,
                                .seed = SEED };
}

struct bench {
    struct backend *backend;
    struct model *target;
};

static struct bench bench_open(int layers)
{
    struct bench b;
    struct error err;
    const struct tiny t = target_of(layers);
    char *path = xformat("%s/target_%d", tiny_directory(), layers);
    tiny_write_hf(path, &t);
    b.backend = backend_cpu(1, &err);
    assert_non_null(b.backend);
    b.target = model_open(path, b.backend, ACTIVATIONS_F32, ROWS, &err);
    if (b.target == NULL)
        fail_msg("%s", err.text);
    free(path);
    return b;
}

static void bench_close(struct bench *b)
{
    model_close(b->target);
    b->backend->destroy(b->backend);
}

// ---- forms

static void write_medusa(const char *directory)
{
    const struct head_shape s = usual();
    heads_write_medusa(directory, &s);
}

static void write_medusa_shared(const char *directory)
{
    struct head_shape s = usual();
    s.shared = true;
    heads_write_medusa(directory, &s);
}

static void write_medusa_layers(const char *directory)
{
    write_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    for (int h = 0; h < 4; h++) {
        head_edit_drop(e, "%d.1.weight", h);
        head_edit_floats(e, WIDTH, WIDTH, 0, "%d.1.linear.weight", h);
        head_edit_floats(e, 0, WIDTH, 0, "%d.1.linear.bias", h);
        head_edit_floats(e, VOCAB, WIDTH, 0, "%d.2.weight", h);
    }
    head_edit_close(e);
}

// What Medusa's names are made of goes; vLLM's come.
static struct head_edit *blocks(const char *directory)
{
    write_medusa_shared(directory);
    struct head_edit *e = head_edit_open(directory);
    for (int h = 0; h < 4; h++) {
        head_edit_drop(e, "%d.0.linear.weight", h);
        head_edit_drop(e, "%d.0.linear.bias", h);
        head_edit_floats(e, WIDTH, WIDTH, 0, "blocks.%d.layers.0.weight", h);
    }
    json_set(head_edit_config(e), "model_type", json_new_text("medusa"));
    return e;
}

static int64_t mapped(int i)
{
    return i * 37 % VOCAB; // by frequency, in no order
}

static void write_medusa_vllm(const char *directory)
{
    struct head_edit *e = blocks(directory);
    int64_t map[DRAFT];
    for (int i = 0; i < DRAFT; i++)
        map[i] = mapped(i);
    for (int h = 0; h < 4; h++)
        head_edit_floats(e, DRAFT, WIDTH, 0, "lm_heads.%d.weight", h);
    head_edit_ids(e, "token_map", map, DRAFT);
    json_set(head_edit_config(e), "truncated_vocab_size", json_new_int(DRAFT));
    head_edit_close(e);
}

static void write_medusa_one(const char *directory)
{
    struct head_edit *e = blocks(directory);
    head_edit_floats(e, VOCAB, WIDTH, 0, "lm_heads.0.weight");
    json_set(head_edit_config(e), "original_lm_head", json_new_bool(true));
    head_edit_close(e);
}

static void write_eagle(const char *directory)
{
    const struct head_shape s = usual();
    heads_write_eagle(directory, &s);
}

static void write_eagle_speculators(const char *directory)
{
    struct head_shape s = usual();
    s.speculators = true;
    heads_write_eagle(directory, &s);
}

static void write_eagle_bias(const char *directory)
{
    write_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 0, 64, 0, "layers.0.self_attn.q_proj.bias");
    head_edit_floats(e, 0, 32, 0, "layers.0.self_attn.k_proj.bias");
    head_edit_floats(e, 0, 32, 0, "layers.0.self_attn.v_proj.bias");
    json_set(head_edit_config(e), "qkv_bias", json_new_bool(true));
    json_set(head_edit_config(e), "rope_theta", json_new_number(1e6));
    json_set(head_edit_config(e), "rms_norm_eps", json_new_number(1e-6));
    head_edit_close(e);
}

static void write_eagle_own(const char *directory)
{
    write_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    struct json *scaling = json_new_object();
    json_set(scaling, "type", json_new_text("linear"));
    json_set(scaling, "factor", json_new_number(2));
    head_edit_drop(e, "fc.bias");
    head_edit_floats(e, VOCAB, WIDTH, 0, "embed_tokens.weight");
    json_set(head_edit_config(e), "bias", json_new_bool(false));
    json_set(head_edit_config(e), "rope_scaling", scaling);
    head_edit_close(e);
}

static void write_eagle_layers(const char *directory)
{
    write_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 64, WIDTH, 0, "layers.1.self_attn.q_proj.weight");
    head_edit_floats(e, 32, WIDTH, 0, "layers.1.self_attn.k_proj.weight");
    head_edit_floats(e, 32, WIDTH, 0, "layers.1.self_attn.v_proj.weight");
    head_edit_floats(e, WIDTH, 64, 0, "layers.1.self_attn.o_proj.weight");
    head_edit_floats(e, 96, WIDTH, 0, "layers.1.mlp.gate_proj.weight");
    head_edit_floats(e, 96, WIDTH, 0, "layers.1.mlp.up_proj.weight");
    head_edit_floats(e, WIDTH, 96, 0, "layers.1.mlp.down_proj.weight");
    head_edit_floats(e, 0, WIDTH, 1, "layers.1.input_layernorm.weight");
    head_edit_floats(e, 0, WIDTH, 1, "layers.1.post_attention_layernorm.weight");
    json_set(head_edit_config(e), "num_hidden_layers", json_new_int(2));
    head_edit_close(e);
}

static void write_eagle3(const char *directory)
{
    const struct head_shape s = usual();
    heads_write_eagle3(directory, &s);
}

static void write_eagle3_narrow(const char *directory)
{
    struct head_shape s = usual();
    s.width = 48;
    s.head_dim = 12;
    s.draft_vocab = 0;
    heads_write_eagle3(directory, &s);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 48, 3 * WIDTH, 0, "fc.weight");
    head_edit_floats(e, VOCAB, 48, 0, "embed_tokens.weight");
    json_set(head_edit_config(e), "target_hidden_size", json_new_int(WIDTH));
    head_edit_close(e);
}

static void write_eagle3_speculators(const char *directory)
{
    struct head_shape s = usual();
    s.speculators = true;
    heads_write_eagle3(directory, &s);
}

// One of the newer norms; attention is added to what is not normed.
static struct head_edit *with_norm(const char *directory, const char *key)
{
    write_eagle3_speculators(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "norm_before_residual", json_new_bool(false));
    json_set(head_edit_config(e), key, json_new_bool(true));
    return e;
}

static void write_eagle3_norm_output(const char *directory)
{
    head_edit_close(with_norm(directory, "norm_output"));
}

static void write_eagle3_fc_norm(const char *directory)
{
    struct head_edit *e = with_norm(directory, "fc_norm");
    for (int i = 0; i < 3; i++)
        head_edit_floats(e, 0, WIDTH, 1, "fc_norm.%d.weight", i);
    head_edit_close(e);
}

static void write_eagle3_norm_before_fc(const char *directory)
{
    struct head_edit *e = with_norm(directory, "norm_before_fc");
    head_edit_floats(e, 0, 3 * WIDTH, 1, "input_norm.weight");
    head_edit_close(e);
}

// ---- logits

static struct json *golden(void)
{
    struct error err;
    struct json *j = json_read(CASES "/heads.json", &err);
    if (j == NULL)
        fail_msg("%s", err.text);
    return j;
}

static void check(const char *name, const float *logits, int n, int vocab, const struct json *expected)
{
    double worst = 0, row[VOCAB];
    assert_int_equal(json_count(expected), n);
    for (int i = 0; i < n; i++) {
        const struct json *list = json_at(expected, (size_t)i);
        assert_int_equal(json_count(list), vocab);
        for (int v = 0; v < vocab; v++)
            row[v] = json_number(json_at(list, (size_t)v));
        const double d = reference_distance(logits + i * vocab, row, vocab);
        if (!(d <= 1e-5))
            fail_msg("%s, row %d: max |difference| / max |reference| is %g", name, i, d);
        worst = d > worst ? d : worst;
    }
    printf("    %-21s: %2d rows of %d, max |difference| / max |reference| %.2g\n", name, n, vocab, worst);
}

static void check_medusa(const struct bench *b, const char *name, void (*write)(const char *), const struct json *rows)
{
    struct error err;
    char *path = tiny_path(name);
    float states[MEDUSA_ROWS * WIDTH], *logits = xmalloc((size_t)4 * MEDUSA_ROWS * VOCAB * sizeof(float));
    write(path);
    struct medusa *m = medusa_open(path, b->target, b->backend, ACTIVATIONS_F32, MEDUSA_ROWS, &err);
    if (m == NULL)
        fail_msg("%s", err.text);
    const int vocab = medusa_vocab(m);
    assert_int_equal(medusa_heads(m), 4);
    head_numbers(states, MEDUSA_ROWS * WIDTH, SEED, "features");
    for (int h = 0; h < 4; h++)
        medusa_logits(m, h, tensor_of(logits + h * MEDUSA_ROWS * vocab, F32, MEDUSA_ROWS, vocab),
                      tensor_of(states, F32, MEDUSA_ROWS, WIDTH));
    check(name, logits, 4 * MEDUSA_ROWS, vocab, rows);
    for (int i = 0; i < vocab && medusa_target_id(m) != NULL; i++)
        assert_int_equal(medusa_target_id(m)[i], mapped(i));
    assert_int_equal(medusa_target_id(m) != NULL, vocab < VOCAB);
    medusa_close(m);
    free(logits);
    free(path);
}

static void logits_of_medusa_heads_are_medusas(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        void (*write)(const char *directory);
    } forms[] = {
        { "medusa", write_medusa },
        { "medusa_shared", write_medusa_shared },
        { "medusa_layers", write_medusa_layers },
        { "medusa_vllm", write_medusa_vllm },
        { "medusa_one", write_medusa_one },
    };
    struct bench b = bench_open(LAYERS);
    struct json *j = golden();
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        check_medusa(&b, forms[i].name, forms[i].write, json_get(j, forms[i].name));
    json_free(j);
    bench_close(&b);
}

static struct eagle *open_eagle(const struct bench *b, const char *path, enum head_kind kind, enum tri said,
                                struct error *err)
{
    const struct eagle_setup s = {
        .kind = kind, .activations = ACTIVATIONS_F32, .norm_before_residual = said, .rows = ROWS
    };
    return eagle_open(path, b->target, b->backend, &s, err);
}

struct reading { // of rows, one after another
    struct eagle *head;
    struct kv_cache *cache;
    int32_t token[ROWS];
    float *logits; // (ROWS, vocab)
    int n;
};

static struct tensor read_rows(struct reading *r, int n, const int32_t *parent, struct tensor f, bool own)
{
    static const int32_t slot[CERTAIN];
    const struct pass p = { n, r->token + r->n, slot, parent };
    const int vocab = eagle_vocab(r->head);
    const struct tensor out = eagle_forward(r->head, r->cache, &p, f, own);
    eagle_logits(r->head, tensor_of(r->logits + r->n * vocab, F32, n, vocab), out);
    r->n += n;
    return out;
}

static void read_all(struct reading *r)
{
    static const int32_t chain[] = { -1, 0, 1, 2, 3 }, places[] = { 0, 1, 2, 3, 4 };
    const int width = eagle_width(r->head), of_target = eagle_taps(r->head).n * WIDTH;
    const size_t row = (size_t)width * sizeof(float);
    float *features = xmalloc((size_t)(CERTAIN * of_target) * sizeof(float)), *before = xmalloc(2 * row);
    head_numbers(features, (size_t)(CERTAIN * of_target), SEED, "features");
    struct tensor out = read_rows(r, CERTAIN, chain, tensor_of(features, F32, CERTAIN, of_target), false);
    kv_keep(r->cache, 0, places, CERTAIN);
    memcpy(before, tensor_rows(out, CERTAIN - 1, 1).data, row);
    memcpy(before + width, before, row);
    out = read_rows(r, 2, (const int32_t[]){ -1, -1 }, tensor_of(before, F32, 2, width), true);
    memcpy(before, tensor_rows(out, 1, 1).data, row);
    read_rows(r, 1, (const int32_t[]){ 1 }, tensor_of(before, F32, 1, width), true);
    free(features);
    free(before);
}

static void check_eagle(const struct bench *b, const char *name, struct eagle *e, const struct json *j)
{
    struct error err;
    const struct kv_shape shape = eagle_kv_shape(e, 1, ROWS, CERTAIN);
    struct reading r = { .head = e, .cache = kv_create(b->backend, &shape, &err) };
    r.logits = xmalloc((size_t)ROWS * (size_t)eagle_vocab(e) * sizeof(float));
    for (size_t i = 0; i < ROWS; i++)
        r.token[i] = (int32_t)json_int(json_at(json_get(j, "tokens"), i));
    read_all(&r);
    check(name, r.logits, ROWS, eagle_vocab(e), json_get(j, name));
    kv_destroy(r.cache);
    free(r.logits);
}

static void check_taps_and_ids(const struct eagle *e, enum head_kind kind)
{
    const struct taps t = eagle_taps(e);
    if (kind == HEAD_EAGLE) {
        assert_true(t.n == 1 && t.layer[0] == FINAL_STATE);
        assert_null(eagle_target_id(e));
        return;
    }
    assert_true(t.n == 3 && t.layer[0] == 2 && t.layer[1] == LAYERS / 2 && t.layer[2] == LAYERS - 3);
    assert_int_equal(eagle_target_id(e) != NULL, eagle_vocab(e) < VOCAB);
    for (int i = 0; i < DRAFT && eagle_target_id(e) != NULL; i++)
        assert_int_equal(eagle_target_id(e)[i], i * VOCAB / DRAFT);
}

static void logits_of_eagle_heads_are_eagles(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        enum head_kind kind;
        void (*write)(const char *directory);
    } forms[] = {
        { "eagle", HEAD_EAGLE, write_eagle },
        { "eagle_bias", HEAD_EAGLE, write_eagle_bias },
        { "eagle_own", HEAD_EAGLE, write_eagle_own },
        { "eagle_layers", HEAD_EAGLE, write_eagle_layers },
        { "eagle_speculators", HEAD_EAGLE, write_eagle_speculators },
        { "eagle3", HEAD_EAGLE3, write_eagle3 },
        { "eagle3_narrow", HEAD_EAGLE3, write_eagle3_narrow },
        { "eagle3_speculators", HEAD_EAGLE3, write_eagle3_speculators },
        { "eagle3_norm_output", HEAD_EAGLE3, write_eagle3_norm_output },
        { "eagle3_fc_norm", HEAD_EAGLE3, write_eagle3_fc_norm },
        { "eagle3_norm_before_fc", HEAD_EAGLE3, write_eagle3_norm_before_fc },
    };
    struct bench b = bench_open(LAYERS);
    struct json *j = golden();
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        struct error err;
        char *path = tiny_path(forms[i].name);
        forms[i].write(path);
        struct eagle *e = open_eagle(&b, path, forms[i].kind, BY_CHECKPOINT, &err);
        if (e == NULL)
            fail_msg("%s", err.text);
        check_taps_and_ids(e, forms[i].kind);
        check_eagle(&b, forms[i].name, e, j);
        eagle_close(e);
        free(path);
    }
    json_free(j);
    bench_close(&b);
}

// ---- heads that do not fit

static void medusa_of_another_width(const char *directory)
{
    struct head_shape s = usual();
    s.width = 32;
    heads_write_medusa(directory, &s);
}

static void medusa_of_another_vocabulary(const char *directory)
{
    struct head_shape s = usual();
    s.vocab = 90;
    heads_write_medusa(directory, &s);
}

static void medusa_without_an_output(const char *directory)
{
    write_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_drop(e, "2.1.weight");
    head_edit_close(e);
}

static void medusa_of_a_wrong_shape(const char *directory)
{
    write_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, WIDTH, 48, 0, "3.0.linear.weight");
    head_edit_close(e);
}

static void medusa_of_a_long_map(const char *directory)
{
    write_medusa_vllm(directory);
    struct head_edit *e = head_edit_open(directory);
    ((int64_t *)head_edit_data(e, "token_map"))[3] = VOCAB;
    head_edit_close(e);
}

static void eagle_of_another_width(const char *directory)
{
    struct head_shape s = usual();
    s.width = 32;
    heads_write_eagle(directory, &s);
}

static void eagle_of_another_vocabulary(const char *directory)
{
    struct head_shape s = usual();
    s.vocab = 90;
    heads_write_eagle(directory, &s);
}

static void eagle_without_a_tensor(const char *directory)
{
    write_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_drop(e, "layers.0.mlp.up_proj.weight");
    head_edit_close(e);
}

static void eagle_of_a_wrong_shape(const char *directory)
{
    write_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "num_key_value_heads", json_new_int(4));
    head_edit_close(e);
}

static void eagle_with_more_norms(const char *directory) // HASS has them
{
    write_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 0, WIDTH, 1, "embedding_layernorm.weight");
    head_edit_close(e);
}

static void eagle3_of_another_width(const char *directory)
{
    struct head_shape s = usual();
    s.width = 32;
    heads_write_eagle3(directory, &s);
}

static void eagle3_of_another_vocabulary(const char *directory)
{
    struct head_shape s = usual();
    s.vocab = 90;
    heads_write_eagle3(directory, &s);
}

static void eagle3_of_another_draft_vocabulary(const char *directory)
{
    write_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "draft_vocab_size", json_new_int(40));
    head_edit_close(e);
}

static void eagle3_of_layers(const char *directory, const int32_t *id)
{
    write_eagle3_speculators(directory);
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
    write_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 0, 16, 1, "midlayer.self_attn.q_norm.weight");
    head_edit_close(e);
}

static void eagle3_of_unordered_ids(const char *directory)
{
    write_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    ((int64_t *)head_edit_data(e, "d2t"))[2] = 1; // of tokens 0, 3, 6, ... the third becomes 3 again
    head_edit_close(e);
}

static void eagle3_whose_mask_lacks_a_token(const char *directory)
{
    write_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    ((uint8_t *)head_edit_data(e, "t2d"))[6] = 0;
    head_edit_close(e);
}

static void eagle3_without_ids(const char *directory)
{
    write_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_drop(e, "d2t");
    head_edit_close(e);
}

static void eagle3_silent_about_residuals(const char *directory)
{
    write_eagle3_speculators(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "norm_before_residual", json_new_null());
    head_edit_close(e);
}

static void eagle3_with_both_norms(const char *directory)
{
    struct head_edit *e = with_norm(directory, "fc_norm");
    json_set(head_edit_config(e), "norm_before_fc", json_new_bool(true));
    head_edit_close(e);
}

static void eagle3_whose_mask_has_a_token_more(const char *directory)
{
    write_eagle3(directory);
    struct head_edit *e = head_edit_open(directory);
    ((uint8_t *)head_edit_data(e, "t2d"))[4] = 1;
    head_edit_close(e);
}

static void eagle3_that_lists_two_layers(const char *directory)
{
    write_eagle3_speculators(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), "eagle_aux_hidden_state_layer_ids", json_new_ids((const int32_t[]){ 1, 4 }, 2));
    head_edit_close(e);
}

static void eagle_that_says(const char *directory, const char *key)
{
    write_eagle(directory);
    struct head_edit *e = head_edit_open(directory);
    json_set(head_edit_config(e), key, json_new_bool(true));
    head_edit_drop(e, "fc.bias");
    head_edit_close(e);
}

static void eagle_that_says_biases(const char *directory)
{
    eagle_that_says(directory, "qkv_bias");
}

static void eagle_that_says_a_bias(const char *directory)
{
    eagle_that_says(directory, "bias");
}

static void medusa_that_lacks_a_head(const char *directory)
{
    write_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_drop(e, "2.0.linear.weight");
    head_edit_close(e);
}

static void medusa_that_lacks_an_output(const char *directory)
{
    write_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_drop(e, "0.1.weight");
    head_edit_close(e);
}

static void medusa_with_something_more(const char *directory)
{
    write_medusa(directory);
    struct head_edit *e = head_edit_open(directory);
    head_edit_floats(e, 0, WIDTH, 1, "norm.weight");
    head_edit_close(e);
}

static void check_refused(const struct bench *b, int number, enum head_kind kind, void (*write)(const char *),
                          const char *words)
{
    struct error err = { "" };
    char *path = xformat("%s/wrong_%d", tiny_directory(), number);
    write(path);
    if (kind == HEAD_MEDUSA) {
        struct medusa *m = medusa_open(path, b->target, b->backend, ACTIVATIONS_F32, MEDUSA_ROWS, &err);
        if (m != NULL)
            fail_msg("opened, where \"%s\" was expected", words);
    } else {
        struct eagle *e = open_eagle(b, path, kind, BY_CHECKPOINT, &err);
        if (e != NULL)
            fail_msg("opened, where \"%s\" was expected", words);
    }
    assert_says(&err, path, words);
    free(path);
}

static void a_head_that_does_not_fit_is_refused_with_both_numbers(void **unused)
{
    (void)unused;
    static const struct {
        int layers; // the target's
        enum head_kind kind;
        void (*write)(const char *directory);
        const char *words;
    } wrong[] = {
        { 8, HEAD_MEDUSA, medusa_of_another_width, "a head for targets of width 32, and this one has 64" },
        { 8, HEAD_MEDUSA, medusa_of_another_vocabulary, "a head for 90 tokens, and the target has 96" },
        { 8, HEAD_MEDUSA, medusa_without_an_output, "there is no tensor 2.1.weight" },
        { 8, HEAD_MEDUSA, medusa_of_a_wrong_shape, "3.0.linear.weight: expected 64 rows of 64, found 64 of 48" },
        { 8, HEAD_MEDUSA, medusa_of_a_long_map, "token_map: number 3: expected 0 to 95, found 96" },
        { 8, HEAD_MEDUSA, write_eagle, "drafter medusa: expected a Medusa head, found an EAGLE head" },
        { 8, HEAD_EAGLE, eagle_of_another_width, "a head for targets of width 32, and this one has 64" },
        { 8, HEAD_EAGLE, eagle_of_another_vocabulary, "a head for 90 tokens, and the target has 96" },
        { 8, HEAD_EAGLE, eagle_without_a_tensor, "there is no tensor layers.0.mlp.up_proj.weight" },
        { 8, HEAD_EAGLE, eagle_of_a_wrong_shape,
          "layers.0.self_attn.k_proj.weight: expected 64 rows of 64, found 32 of 64" },
        { 8, HEAD_EAGLE, eagle_with_more_norms, "embedding_layernorm.weight: an EAGLE head has no such thing" },
        { 8, HEAD_EAGLE, write_eagle3, "drafter eagle: expected an EAGLE head, found an EAGLE-3 head" },
        { 8, HEAD_EAGLE3, write_eagle, "drafter eagle3: expected an EAGLE-3 head, found an EAGLE head" },
        { 8, HEAD_EAGLE3, write_medusa, "drafter eagle3: expected an EAGLE-3 head, found a Medusa head" },
        { 8, HEAD_EAGLE3, eagle3_of_another_width, "a head for targets of width 32, and this one has 64" },
        { 8, HEAD_EAGLE3, eagle3_of_another_vocabulary, "a head for 90 tokens, and the target has 96" },
        { 8, HEAD_EAGLE3, eagle3_of_another_draft_vocabulary,
          "lm_head.weight: expected 40 rows of 64, found 32 of 64" },
        { 3, HEAD_EAGLE3, write_eagle3, "reads layers 2, L / 2 and L - 3; the target's 3 layers have no three such" },
        { 8, HEAD_EAGLE3, eagle3_of_deeper_layers, "layer 9, and the target has 8" },
        { 8, HEAD_EAGLE3, eagle3_with_query_norms, "self_attn.q_norm.weight: an EAGLE-3 head has no such thing" },
        { 8, HEAD_EAGLE3, eagle3_of_unordered_ids, "d2t: number 2: expected an id from 4 to 95, found 3" },
        { 8, HEAD_EAGLE3, eagle3_whose_mask_lacks_a_token, "tensors d2t and t2d disagree about token 6" },
        { 8, HEAD_EAGLE3, eagle3_whose_mask_has_a_token_more, "tensors d2t and t2d disagree about token 4" },
        { 8, HEAD_EAGLE3, eagle3_that_lists_two_layers, "fc.weight reads the states of 3 layers, and " },
        { 8, HEAD_EAGLE, eagle_that_says_biases, "there is no tensor layers.0.self_attn.q_proj.bias, and " },
        { 8, HEAD_EAGLE, eagle_that_says_a_bias, "there is no tensor fc.bias, and " },
        { 8, HEAD_MEDUSA, medusa_that_lacks_a_head, "2 heads of 1 layers, as head 0 has them, have no such thing" },
        { 8, HEAD_MEDUSA, medusa_that_lacks_an_output, "tensor 1.1.weight: 4 heads of 1 layers" },
        { 8, HEAD_MEDUSA, medusa_with_something_more, "tensor norm.weight: 4 heads of 1 layers" },
        { 8, HEAD_EAGLE3, eagle3_without_ids, "a vocabulary of 32 of 96 tokens, and no tensor d2t says which" },
        { 8, HEAD_EAGLE3, eagle3_silent_about_residuals, "say norm_before_residual: true or false" },
        { 8, HEAD_EAGLE3, eagle3_with_both_norms, "fc_norm: expected false beside norm_before_fc" },
    };
    struct bench b = bench_open(LAYERS), shallow = bench_open(3);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        check_refused(wrong[i].layers == 3 ? &shallow : &b, (int)i, wrong[i].kind, wrong[i].write, wrong[i].words);
    bench_close(&b);
    bench_close(&shallow);
}

// Whoever says it in the experiment gets the head that was trained so.
static void what_a_configuration_leaves_open_can_be_said(void **unused)
{
    (void)unused;
    struct bench b = bench_open(LAYERS);
    struct error err;
    struct json *j = golden();
    char *path = tiny_path("silent");
    eagle3_silent_about_residuals(path);
    struct eagle *e = open_eagle(&b, path, HEAD_EAGLE3, SAID_TRUE, &err);
    if (e == NULL)
        fail_msg("%s", err.text);
    check_eagle(&b, "eagle3_speculators", e, j);
    eagle_close(e);
    json_free(j);
    free(path);
    bench_close(&b);
}

static void ids_of_layers_count_those_entered_or_left(void **unused)
{
    (void)unused;
    struct bench b = bench_open(LAYERS);
    struct error err;
    char *path = tiny_path("listed");
    eagle3_of_layers(path, (const int32_t[]){ 1, 4, 7 });
    for (int left = 0; left < 2; left++) {
        const struct eagle_setup s = { .kind = HEAD_EAGLE3,
                                       .activations = ACTIVATIONS_F32,
                                       .layer_ids = left ? LAYERS_LEFT : LAYERS_ENTERED,
                                       .rows = 1 };
        struct eagle *e = eagle_open(path, b.target, b.backend, &s, &err);
        if (e == NULL)
            fail_msg("%s", err.text);
        const struct taps t = eagle_taps(e);
        assert_true(t.n == 3 && t.layer[0] == 1 + left && t.layer[1] == 4 + left && t.layer[2] == 7 + left);
        eagle_close(e);
    }
    free(path);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_of_medusa_heads_are_medusas),
        cmocka_unit_test(logits_of_eagle_heads_are_eagles),
        cmocka_unit_test(a_head_that_does_not_fit_is_refused_with_both_numbers),
        cmocka_unit_test(what_a_configuration_leaves_open_can_be_said),
        cmocka_unit_test(ids_of_layers_count_those_entered_or_left),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_clean();
    return failed;
}
