// test_heads.c - the logits of heads of every published form equal PyTorch's, computed by the original modules where these
// run.
//
// Goldens: tests/cases/make_heads.py, which derives the same weights, states and tokens. A head reads five tokens of a
// sequence with the target's states, then a small tree with its own states: two draft tokens follow the last token, and one
// follows the second draft token.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/heads/eagle.h"
#include "models/heads/head.h"
#include "models/kv_cache.h"
#include "models/heads/medusa.h"
#include "models/model.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/checkpoint.h"
#include "tests/formats/head_edit.h"
#include "tests/formats/head_forms.h"
#include "tests/device/reference_operations.h"
#include "tests/support/small_model.h"

// ---- logits

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

static void check_medusa(const struct form_bench *b, const char *name, const struct json *rows)
{
    struct error err;
    char *path = test_path(name);
    float states[MEDUSA_ROWS * WIDTH], *logits = xmalloc((size_t)4 * MEDUSA_ROWS * VOCAB * sizeof(float));
    form_write(path, name, NULL);
    struct medusa *m = medusa_open(path, b->target, b->backend, ACTIVATIONS_F32, QUANTIZE_NONE, MEDUSA_ROWS, &err);
    assert_ok(m != NULL, err);
    const int vocab = medusa_facts(m)->vocab;
    assert_int_equal(medusa_facts(m)->heads, 4);
    head_numbers(states, MEDUSA_ROWS * WIDTH, SEED, "features");
    for (int h = 0; h < 4; h++)
        medusa_logits(m, h, tensor_of(logits + h * MEDUSA_ROWS * vocab, F32, MEDUSA_ROWS, vocab),
                      tensor_of(states, F32, MEDUSA_ROWS, WIDTH));
    check(name, logits, 4 * MEDUSA_ROWS, vocab, rows);
    for (int i = 0; i < vocab && medusa_facts(m)->target_id != NULL; i++)
        assert_int_equal(medusa_facts(m)->target_id[i], form_medusa_target_id(i));
    assert_int_equal(medusa_facts(m)->target_id != NULL, vocab < VOCAB);
    medusa_close(m);
    free(logits);
    free(path);
}

TEST(logits_of_medusa_heads_equal_the_originals)
{
    static const char *const forms[] = { "medusa", "medusa_shared", "medusa_layers", "medusa_vllm", "medusa_one" };
    struct form_bench b = form_bench_open(LAYERS);
    struct json *j = golden_json("heads.json");
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        check_medusa(&b, forms[i], json_get(j, forms[i]));
    json_free(j);
    form_bench_close(&b);
}

struct reading { // the rows that a head has read so far
    struct eagle *head;
    struct kv_cache *cache;
    struct eagle_states own;
    int32_t token[ROWS];
    float *logits; // (ROWS, vocab)
    int n;
};

static void read_rows(struct reading *r, int n, const int32_t *parent, struct tensor f)
{
    static const int32_t slot[CERTAIN];
    const struct pass p = { .n = n, .token = r->token + r->n, .slot = slot, .parent = parent };
    const int vocab = eagle_facts(r->head)->vocab;
    const struct tensor out = eagle_forward(r->head, r->cache, &p, f, &r->own);
    eagle_logits(r->head, tensor_of(r->logits + r->n * vocab, F32, n, vocab), out);
    r->n += n;
}

static void read_all(struct reading *r)
{
    static const int32_t chain[] = { -1, 0, 1, 2, 3 }, places[] = { 0, 1, 2, 3, 4 };
    const int of_target = eagle_facts(r->head)->taps.n * WIDTH;
    float *features = xmalloc((size_t)(CERTAIN * of_target) * sizeof(float));
    head_numbers(features, (size_t)(CERTAIN * of_target), SEED, "features");
    read_rows(r, CERTAIN, chain, tensor_of(features, F32, CERTAIN, of_target));
    kv_keep(r->cache, 0, places, CERTAIN);
    read_rows(r, 2, (const int32_t[]){ -1, -1 }, (struct tensor){ 0 });
    read_rows(r, 1, (const int32_t[]){ 1 }, (struct tensor){ 0 });
    free(features);
}

// (ROWS, vocab) logits, to be freed. context: tokens that sequences may have.
static float *logits_of(const struct form_bench *b, struct eagle *e, const int32_t *token, int context)
{
    struct error err;
    struct kv_shape shape = eagle_kv_shape(e, 1, ROWS, CERTAIN);
    shape.context = context;
    struct reading r = { .head = e,
                         .cache = kv_create(b->backend, &shape, &err),
                         .own = { rows_on(b->backend, ROWS, eagle_facts(e)->width), ROWS } };
    r.logits = xmalloc((size_t)ROWS * (size_t)eagle_facts(e)->vocab * sizeof(float));
    memcpy(r.token, token, sizeof(r.token));
    read_all(&r);
    kv_destroy(r.cache);
    b->backend->release(b->backend, r.own.rows.data);
    return r.logits;
}

static void check_eagle(const struct form_bench *b, const char *name, struct eagle *e, const struct json *j)
{
    int32_t token[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        token[i] = (int32_t)json_int(json_at(json_get(j, "tokens"), i));
    float *logits = logits_of(b, e, token, ROWS);
    check(name, logits, ROWS, eagle_facts(e)->vocab, json_get(j, name));
    free(logits);
}

static void check_taps_and_ids(const struct eagle *e, enum head_kind kind)
{
    const struct taps t = eagle_facts(e)->taps;
    if (kind == HEAD_EAGLE) {
        assert_true(t.n == 1 && t.layer[0] == FINAL_STATE);
        assert_null(eagle_facts(e)->target_id);
        return;
    }
    assert_true(t.n == 3 && t.layer[0] == 2 && t.layer[1] == LAYERS / 2 && t.layer[2] == LAYERS - 3);
    assert_int_equal(eagle_facts(e)->target_id != NULL, eagle_facts(e)->vocab < VOCAB);
    for (int i = 0; i < DRAFT && eagle_facts(e)->target_id != NULL; i++)
        assert_int_equal(eagle_facts(e)->target_id[i], i * VOCAB / DRAFT);
}

TEST(logits_of_eagle_heads_equal_the_originals)
{
    static const char *const forms[] = { "eagle",          "eagle_bias",           "eagle_own",
                                         "eagle_layers",   "eagle_speculators",    "eagle3",
                                         "eagle3_narrow",  "eagle3_speculators",   "eagle3_norm_output",
                                         "eagle3_fc_norm", "eagle3_norm_before_fc" };
    struct form_bench b = form_bench_open(LAYERS);
    struct json *j = golden_json("heads.json");
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        struct error err;
        char *path = test_path(forms[i]);
        const enum head_kind kind = form_write(path, forms[i], NULL);
        struct eagle *e = form_open_eagle(&b, path, kind, TRI_UNSET, &err);
        assert_ok(e != NULL, err);
        check_taps_and_ids(e, kind);
        check_eagle(&b, forms[i], e, j);
        eagle_close(e);
        free(path);
    }
    json_free(j);
    form_bench_close(&b);
}

// The option stands in for the missing key: the logits are those of the head that was trained with it.
TEST(a_missing_norm_before_residual_can_be_set)
{
    struct form_bench b = form_bench_open(LAYERS);
    struct error err;
    struct json *j = golden_json("heads.json");
    char *path = test_path("silent");
    form_write(path, "eagle3_speculators", "norm_before_residual=null");
    struct eagle *e = form_open_eagle(&b, path, HEAD_EAGLE3, TRI_TRUE, &err);
    assert_ok(e != NULL, err);
    check_eagle(&b, "eagle3_speculators", e, j);
    eagle_close(e);
    json_free(j);
    free(path);
    form_bench_close(&b);
}

// A draft vocabulary in another order, as by frequency: logits and ids of its tokens are those of the ascending one, at other places.
TEST(a_draft_vocabulary_may_have_any_order)
{
    static const int32_t token[ROWS] = { 5, 17, 60, 2, 33, 8, 91, 40 };
    struct form_bench b = form_bench_open(LAYERS);
    struct error err;
    int32_t id[2][DRAFT];
    float *logits[2];
    for (int other = 0; other < 2; other++) {
        char *path = test_path("order");
        form_write(path, "eagle3", NULL);
        struct head_edit *e = head_edit_open(path);
        float *head = head_edit_data(e, "lm_head.weight"), *before = xmalloc(sizeof(float) * DRAFT * WIDTH);
        int64_t *d2t = head_edit_data(e, "d2t");
        memcpy(before, head, sizeof(float) * DRAFT * WIDTH);
        for (int i = 0; i < DRAFT && other; i++) { // number i becomes number 7 i: an odd factor keeps 32 numbers apart
            const int to = 7 * i % DRAFT;
            memcpy(head + to * WIDTH, before + i * WIDTH, sizeof(float) * WIDTH);
            d2t[to] = i * VOCAB / DRAFT - to;
        }
        free(before);
        head_edit_close(e);
        struct eagle *eagle = form_open_eagle(&b, path, HEAD_EAGLE3, TRI_UNSET, &err);
        assert_ok(eagle != NULL, err);
        memcpy(id[other], eagle_facts(eagle)->target_id, sizeof(id[other]));
        logits[other] = logits_of(&b, eagle, token, ROWS);
        eagle_close(eagle);
        free(path);
    }
    assert_true(id[1][1] > id[1][2]);
    for (int i = 0; i < DRAFT; i++) {
        assert_int_equal(id[1][7 * i % DRAFT], id[0][i]);
        for (int r = 0; r < ROWS; r++)
            assert_float_equal(logits[1][r * DRAFT + 7 * i % DRAFT], logits[0][r * DRAFT + i], 1e-5);
    }
    free(logits[0]);
    free(logits[1]);
    form_bench_close(&b);
}

// ---- every RoPE in every kind of head

#define FACTORS(x) "[" x "," x "," x "," x "," x "," x "," x "," x "]"
#define LONG(x, y) \
    "{'type':'longrope','short_factor':" FACTORS(x) ",'long_factor':" FACTORS( \
        y) "," \
           "'original_max_position_embeddings':64,'attention_factor':1}"
#define LINEAR(x) "{'rope_type':'linear','rope_theta':10000,'factor':" x "}"
#define PLAIN "{'rope_type':'default','rope_theta':10000}"
#define OF_LAYERS(full, windowed) "{'full_attention':" full ",'sliding_attention':" windowed "}"
enum { EAGLE_FORMS = 4, NOT_GEMMA = 0, ALL_LAYERS_ALIKE = 1, WINDOWED = 2 };

static const struct rope_form {
    const char *name, *parameters; // NULL: none
    int context;                   // tokens that sequences may have
    int gemma;                     // the layer is one of Gemma 3, without or with a window
    const char *as;                // an earlier form, whose angles are the same
    const char *refused;           // what both who open heads say; NULL: they accept it
} rope_forms[] = {
    { .name = "none" },
    { .name = "default", .parameters = PLAIN, .as = "none" },
    { .name = "linear 2", .parameters = LINEAR("2") },
    { .name = "linear 8", .parameters = LINEAR("8") },
    { .name = "longrope, short", .parameters = LONG("2", "8"), .context = 64, .as = "linear 2" },
    { .name = "longrope, long", .parameters = LONG("2", "8"), .context = 65, .as = "linear 8" },
    { .name = "llama3",
      .parameters = "{'rope_type':'llama3','factor':1,'low_freq_factor':1,'high_freq_factor':4,"
                    "'original_max_position_embeddings':64}",
      .as = "none" },
    { .name = "yarn",
      .parameters = "{'rope_type':'yarn','factor':1,'original_max_position_embeddings':64}",
      .as = "none" },
    { .name = "full linear", .parameters = OF_LAYERS(LINEAR("2"), PLAIN), .gemma = ALL_LAYERS_ALIKE },
    { .name = "windowed linear", .parameters = OF_LAYERS(PLAIN, LINEAR("2")), .gemma = WINDOWED, .as = "full linear" },
    { .name = "dynamic",
      .parameters = "{'rope_type':'dynamic','factor':2}",
      .refused = "expected a rope_type of default, linear, llama3, yarn or longrope, found \"dynamic\"" },
    { .name = "longrope without divisors",
      .parameters = "{'rope_type':'longrope','original_max_position_embeddings':64}",
      .refused = "short_factor: expected a list of 8 numbers above 0" },
};
enum { ROPE_FORMS = sizeof(rope_forms) / sizeof(*rope_forms) };

static const struct eagle_form {
    enum head_kind kind;
    const char *name, *prefix; // before the names of the layer's tensors
} eagle_forms[EAGLE_FORMS] = {
    { HEAD_EAGLE, "eagle", "layers.0." },
    { HEAD_EAGLE, "eagle_speculators", "transformer." },
    { HEAD_EAGLE3, "eagle3", "midlayer." },
    { HEAD_EAGLE3, "eagle3_speculators", "layers.0." },
};

// Gemma 3's layer has more norms. Its window is wider than the test's texts.
static void write_with_rope(const char *path, const struct eagle_form *form, const struct rope_form *rope)
{
    static const char *const norms[] = { "pre_feedforward_layernorm", "post_feedforward_layernorm", "self_attn.q_norm",
                                         "self_attn.k_norm" };
    form_write(path, form->name, NULL);
    struct head_edit *e = head_edit_open(path);
    struct json *inner = json_get(head_edit_config(e), "transformer_layer_config"),
                *layer = inner != NULL ? inner : head_edit_config(e),
                *gemma = json_of("{'model_type': 'gemma3_text', 'architectures': null, 'hidden_act': null, "
                                 "'hidden_activation': 'gelu_pytorch_tanh', 'sliding_window': 64}");
    for (int i = 0; i < 4 && rope->gemma != NOT_GEMMA; i++)
        head_edit_floats(e, 0, i < 2 ? WIDTH : 16, 0, "%s%s.weight", form->prefix, norms[i]);
    if (rope->gemma != NOT_GEMMA) {
        json_object_update(layer, gemma);
        json_set(layer, "sliding_window_pattern", json_new_int(rope->gemma));
    }
    if (rope->parameters != NULL)
        json_set(layer, "rope_parameters", json_of(rope->parameters));
    json_free(gemma);
    head_edit_close(e);
}

static const float *logits_as(const char *name, float *const logits[ROPE_FORMS])
{
    for (int i = 0; i < ROPE_FORMS; i++)
        if (strcmp(rope_forms[i].name, name) == 0)
            return logits[i];
    fail_msg("there is no form %s", name);
    return NULL;
}

// NULL: it was refused, as expected.
static float *logits_with_rope(const struct form_bench *b, const struct eagle_form *form, const struct rope_form *rope,
                               int *vocab)
{
    static const int32_t token[ROWS] = { 5, 17, 60, 2, 33, 8, 91, 40 };
    struct error of_fit = { "" }, of_open = { "" };
    struct head_facts facts;
    enum head_kind kind;
    char *path = test_path("rope");
    write_with_rope(path, form, rope);
    const bool fits = head_fits(path, model_shape(b->target), &kind, &facts, &of_fit);
    struct eagle *e = form_open_eagle(b, path, form->kind, TRI_TRUE, &of_open);
    assert_int_equal(fits, e != NULL);
    if (rope->refused != NULL) {
        assert_false(fits);
        assert_error_mentions(&of_open, path, rope->refused);
        assert_string_equal(of_open.text, of_fit.text);
    } else
        assert_ok(e != NULL, of_open);
    float *logits = e != NULL ? logits_of(b, e, token, rope->context) : NULL;
    *vocab = e != NULL ? eagle_facts(e)->vocab : *vocab;
    eagle_close(e);
    free(path);
    return logits;
}

TEST(every_rope_runs_or_is_refused_by_whoever_opens_a_head)
{
    struct form_bench b = form_bench_open(LAYERS);
    for (int f = 0; f < EAGLE_FORMS; f++) {
        float *logits[ROPE_FORMS];
        int vocab = 0;
        for (int i = 0; i < ROPE_FORMS; i++) {
            const struct rope_form *rope = &rope_forms[i];
            logits[i] = logits_with_rope(&b, &eagle_forms[f], rope, &vocab);
            const float *same = rope->as != NULL ? logits_as(rope->as, logits) : NULL;
            for (int k = 0; same != NULL && k < ROWS * vocab; k++)
                assert_float_equal(logits[i][k], same[k], 1e-4);
        }
        const size_t bytes = (size_t)(ROWS * vocab) * sizeof(float);
        assert_memory_not_equal(logits_as("none", logits), logits_as("linear 2", logits), bytes);
        assert_memory_not_equal(logits_as("linear 2", logits), logits_as("linear 8", logits), bytes);
        for (int i = 0; i < ROPE_FORMS; i++)
            free(logits[i]);
    }
    form_bench_close(&b);
}

int main(void)
{
    int failed = tests_run(NULL, NULL);
    test_directory_remove();
    return failed;
}
