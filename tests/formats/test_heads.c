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
#include "tests/support/check.h"
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

static void check_medusa(const struct form_bench *b, const char *name, void (*write)(const char *),
                         const struct json *rows)
{
    struct error err;
    char *path = test_path(name);
    float states[MEDUSA_ROWS * WIDTH], *logits = xmalloc((size_t)4 * MEDUSA_ROWS * VOCAB * sizeof(float));
    write(path);
    struct medusa *m = medusa_open(path, b->target, b->backend, ACTIVATIONS_F32, QUANTIZE_NONE, MEDUSA_ROWS, &err);
    assert_ok(m != NULL, err);
    const int vocab = medusa_vocab(m);
    assert_int_equal(medusa_heads(m), 4);
    head_numbers(states, MEDUSA_ROWS * WIDTH, SEED, "features");
    for (int h = 0; h < 4; h++)
        medusa_logits(m, h, tensor_of(logits + h * MEDUSA_ROWS * vocab, F32, MEDUSA_ROWS, vocab),
                      tensor_of(states, F32, MEDUSA_ROWS, WIDTH));
    check(name, logits, 4 * MEDUSA_ROWS, vocab, rows);
    for (int i = 0; i < vocab && medusa_target_id(m) != NULL; i++)
        assert_int_equal(medusa_target_id(m)[i], form_medusa_target_id(i));
    assert_int_equal(medusa_target_id(m) != NULL, vocab < VOCAB);
    medusa_close(m);
    free(logits);
    free(path);
}

static void logits_of_medusa_heads_equal_the_originals(void **unused)
{
    static const struct {
        const char *name;
        void (*write)(const char *directory);
    } forms[] = {
        { "medusa", form_medusa },
        { "medusa_shared", form_medusa_shared },
        { "medusa_layers", form_medusa_layers },
        { "medusa_vllm", form_medusa_vllm },
        { "medusa_one", form_medusa_one },
    };
    struct form_bench b = form_bench_open(LAYERS);
    struct json *j = golden_json("heads.json");
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        check_medusa(&b, forms[i].name, forms[i].write, json_get(j, forms[i].name));
    json_free(j);
    form_bench_close(&b);
}

struct reading { // the rows that a head has read so far
    struct eagle *head;
    struct kv_cache *cache;
    int32_t token[ROWS];
    float *logits; // (ROWS, vocab)
    int n;
};

static struct tensor read_rows(struct reading *r, int n, const int32_t *parent, struct tensor f, bool own)
{
    static const int32_t slot[CERTAIN];
    const struct pass p = { .n = n, .token = r->token + r->n, .slot = slot, .parent = parent };
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

static void check_eagle(const struct form_bench *b, const char *name, struct eagle *e, const struct json *j)
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

static void logits_of_eagle_heads_equal_the_originals(void **unused)
{
    static const struct {
        const char *name;
        enum head_kind kind;
        void (*write)(const char *directory);
    } forms[] = {
        { "eagle", HEAD_EAGLE, form_eagle },
        { "eagle_bias", HEAD_EAGLE, form_eagle_bias },
        { "eagle_own", HEAD_EAGLE, form_eagle_own },
        { "eagle_layers", HEAD_EAGLE, form_eagle_layers },
        { "eagle_speculators", HEAD_EAGLE, form_eagle_speculators },
        { "eagle3", HEAD_EAGLE3, form_eagle3 },
        { "eagle3_narrow", HEAD_EAGLE3, form_eagle3_narrow },
        { "eagle3_speculators", HEAD_EAGLE3, form_eagle3_speculators },
        { "eagle3_norm_output", HEAD_EAGLE3, form_eagle3_norm_output },
        { "eagle3_fc_norm", HEAD_EAGLE3, form_eagle3_fc_norm },
        { "eagle3_norm_before_fc", HEAD_EAGLE3, form_eagle3_norm_before_fc },
    };
    struct form_bench b = form_bench_open(LAYERS);
    struct json *j = golden_json("heads.json");
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        struct error err;
        char *path = test_path(forms[i].name);
        forms[i].write(path);
        struct eagle *e = form_open_eagle(&b, path, forms[i].kind, TRI_UNSET, &err);
        assert_ok(e != NULL, err);
        check_taps_and_ids(e, forms[i].kind);
        check_eagle(&b, forms[i].name, e, j);
        eagle_close(e);
        free(path);
    }
    json_free(j);
    form_bench_close(&b);
}

// The option stands in for the missing key: the logits are those of the head that was trained with it.
static void a_missing_norm_before_residual_can_be_set(void **unused)
{
    struct form_bench b = form_bench_open(LAYERS);
    struct error err;
    struct json *j = golden_json("heads.json");
    char *path = test_path("silent");
    form_eagle3_without_norm_key(path);
    struct eagle *e = form_open_eagle(&b, path, HEAD_EAGLE3, TRI_TRUE, &err);
    assert_ok(e != NULL, err);
    check_eagle(&b, "eagle3_speculators", e, j);
    eagle_close(e);
    json_free(j);
    free(path);
    form_bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_of_medusa_heads_equal_the_originals),
        cmocka_unit_test(logits_of_eagle_heads_equal_the_originals),
        cmocka_unit_test(a_missing_norm_before_residual_can_be_set),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove();
    return failed;
}
