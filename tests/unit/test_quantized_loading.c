// test_quantized_loading.c - matrices of floats that are quantized as they are loaded: a model equals the one that `speclab
// quantize` writes, to the bit; heads compute nearly what they computed before, from fewer bytes.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/formats/derived_model.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "kernels/backend.h"
#include "models/heads/eagle.h"
#include "models/kv_cache.h"
#include "models/heads/medusa.h"
#include "tests/formats/head_edit.h"
#include "tests/support/tests.h"
#include "tests/support/file_write.h"
#include "tests/support/model_runner.h"
#include "tests/support/small_heads.h"
#include "tests/support/small_model.h"

static struct error err;
static const struct {
    enum quantize quantize;
    enum type type;
    double error; // of logits, relative to their size
} forms[] = { { QUANTIZE_Q8_0, Q8_0, 0.02 }, { QUANTIZE_Q4_0, Q4_0, 0.2 } };
enum { FORMS = sizeof(forms) / sizeof(*forms) };

static struct runner run_quantized(const char *path, enum quantize quantize, enum activations a)
{
    struct backend *b = backend_cpu(1, &err);
    struct model *m = model_open_as(path, b, a, quantize, RUNNER_ROWS, NULL, &err);
    assert_ok(m != NULL, err);
    return runner_of(b, m, 1, F32);
}

// small_blocks: rows of 256 and 64 are quantized, those of 80 are not, by either way.
TEST(a_model_equals_the_one_that_was_written)
{
    static const int32_t text[] = { 5, 80, 33, 101, 7, 250 };
    const int n = sizeof(text) / sizeof(*text);
    for (int i = 0; i < FORMS; i++)
        for (int tied = 0; tied < 2; tied++) {
            struct small_model t = small_blocks;
            t.tied = tied;
            t.type = tied ? BF16 : F32;
            char *from = xformat("%s/model_%d_%d", test_directory(), i, tied), *written = xformat("%s.gguf", from),
                 *plain = xformat("%s.plain.gguf", from);
            small_write_hf(from, &t);
            small_write_gguf(plain, &t);
            derived_write(plain, written, &(const struct derived){ .type = forms[i].type });
            for (enum activations a = ACTIVATIONS_DEFAULT; a <= ACTIVATIONS_INT8; a++) {
                struct runner x = run_quantized(tied ? plain : from, forms[i].quantize, a),
                              y = run_quantized(written, QUANTIZE_NONE, a);
                assert_int_equal(model_activations(x.model), model_activations(y.model));
                assert_int_equal(model_bytes(x.model), model_bytes(y.model));
                const float *p = runner_pass(&x, n, text, NULL, NULL), *q = runner_pass(&y, n, text, NULL, NULL);
                assert_memory_equal(p, q, (size_t)(n * x.vocab) * sizeof(*p));
                runner_close(&x);
                runner_close(&y);
            }
            free(from);
            free(plain);
            free(written);
        }
}

static double difference(const float *a, const float *b, int n)
{
    double sum = 0, all = 0;
    for (int i = 0; i < n; i++) {
        sum += pow((double)a[i] - (double)b[i], 2);
        all += pow((double)b[i], 2);
    }
    return sqrt(sum / all);
}

struct head_bench {
    char *target_path, *head_path;
    struct backend *backend;
    struct model *target;
    float *states, *logits;
};

enum { HEAD_ROWS = 3, MAX_NUMBERS = 4096 };

static struct head_bench bench_open_head(void (*write)(const char *, const struct head_shape *))
{
    struct head_bench b = { .target_path = test_path("target"), .head_path = test_path("head") };
    small_write_hf(b.target_path, &small_default);
    const struct head_shape s = head_shape_of(b.target_path);
    write(b.head_path, &s);
    b.backend = backend_cpu(1, &err);
    b.target = model_open(b.target_path, b.backend, ACTIVATIONS_F32, 8, &err);
    assert_ok(b.target != NULL, err);
    b.states = xcalloc(MAX_NUMBERS, sizeof(float));
    for (int i = 0; i < MAX_NUMBERS; i++)
        b.states[i] = sinf((float)(i * i % 1009));
    b.logits = xcalloc((1 + FORMS) * MAX_NUMBERS, sizeof(float));
    return b;
}

static void bench_close_head(struct head_bench *b)
{
    model_close(b->target);
    b->backend->destroy(b->backend);
    free(b->target_path);
    free(b->head_path);
    free(b->states);
    free(b->logits);
}

static void check_forms(const struct head_bench *b, const size_t bytes[1 + FORMS], int numbers)
{
    for (int i = 0; i < FORMS; i++) {
        const double d = difference(b->logits + (i + 1) * MAX_NUMBERS, b->logits, numbers);
        assert_true(d > 0 && d < forms[i].error);
        assert_true(bytes[i + 1] < bytes[i]);
    }
}

TEST(medusa_heads_are_quantized)
{
    struct head_bench b = bench_open_head(heads_write_medusa);
    size_t bytes[1 + FORMS];
    int numbers = 0;
    for (int i = 0; i <= FORMS; i++) {
        struct medusa *m = medusa_open(b.head_path, b.target, b.backend, ACTIVATIONS_F32,
                                       i > 0 ? forms[i - 1].quantize : QUANTIZE_NONE, HEAD_ROWS, &err);
        assert_ok(m != NULL, err);
        numbers = HEAD_ROWS * medusa_facts(m)->vocab;
        bytes[i] = medusa_facts(m)->memory;
        medusa_logits(m, 1, tensor_of(b.logits + i * MAX_NUMBERS, F32, HEAD_ROWS, medusa_facts(m)->vocab),
                      tensor_of(b.states, F32, HEAD_ROWS, model_shape(b.target)->width));
        medusa_close(m);
    }
    check_forms(&b, bytes, numbers);
    bench_close_head(&b);
}

TEST(eagle_heads_are_quantized)
{
    static const int32_t token[] = { 9, 70, 120 }, slot[HEAD_ROWS], parent[] = { -1, 0, 1 };
    struct head_bench b = bench_open_head(heads_write_eagle3);
    size_t bytes[1 + FORMS];
    int numbers = 0;
    for (int i = 0; i <= FORMS; i++) {
        const struct eagle_setup s = { .kind = HEAD_EAGLE3,
                                       .activations = ACTIVATIONS_F32,
                                       .quantize = i > 0 ? forms[i - 1].quantize : QUANTIZE_NONE,
                                       .rows = HEAD_ROWS };
        struct eagle *e = eagle_open(b.head_path, b.target, b.backend, &s, &err);
        assert_ok(e != NULL, err);
        const struct kv_shape shape = eagle_kv_shape(e, 1, 8, HEAD_ROWS);
        struct kv_cache *c = kv_create(b.backend, &shape, &err);
        const struct pass p = { .n = HEAD_ROWS, .token = token, .slot = slot, .parent = parent };
        const struct tensor f =
            tensor_of(b.states, F32, HEAD_ROWS, (int64_t)eagle_facts(e)->taps.n * model_shape(b.target)->width);
        const struct eagle_states own = { rows_on(b.backend, 1, eagle_facts(e)->width), 1 };
        const struct tensor out = eagle_forward(e, c, &p, f, &own);
        numbers = HEAD_ROWS * eagle_facts(e)->vocab;
        bytes[i] = eagle_facts(e)->memory;
        eagle_logits(e, tensor_of(b.logits + i * MAX_NUMBERS, F32, HEAD_ROWS, eagle_facts(e)->vocab), out);
        b.backend->release(b.backend, own.rows.data);
        kv_destroy(c);
        eagle_close(e);
    }
    check_forms(&b, bytes, numbers);
    bench_close_head(&b);
}

// 3.4e38 / 127 exceeds the largest half.
TEST(a_number_that_is_too_large_is_named)
{
    struct head_bench b = bench_open_head(heads_write_medusa);
    struct head_edit *e = head_edit_open(b.head_path);
    float *w = head_edit_data(e, "2.0.linear.weight");
    w[17 * model_shape(b.target)->width + 3] = 3e38f;
    head_edit_close(e);
    assert_null(medusa_open(b.head_path, b.target, b.backend, ACTIVATIONS_F32, QUANTIZE_Q8_0, 1, &err));
    assert_non_null(strstr(err.text, "row 17 holds a number that is too large for q8_0"));
    bench_close_head(&b);
}

RUN_TESTS(cpu_set_up, cpu_tear_down)
