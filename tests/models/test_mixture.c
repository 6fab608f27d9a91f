// test_mixture.c - models with mixtures of experts: the bits of rows in passes of 1 to 64 rows on the CPU and on an emulated GPU, the experts
// that a pass reads against the union of those that its rows read alone, and the expected number against an enumeration.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/config.h"
#include "models/kv_cache.h"
#include "models/formats/shape.h"
#include "models/weights.h"
#include "tests/device/emulated.h"
#include "tests/device/host_memory_device.h"
#include "tests/support/tests.h"
#include "tests/support/model_runner.h"
#include "tests/support/small_model.h"

enum { LAYERS = 3, EXPERTS = 16, USED = 3, MOST = 64, VOCAB = 288 };

static char *made(enum type type)
{
    struct error err;
    char *name = xformat(
        "shape:qwen3-30b-a3b,layers=%d,width=64,heads=4,kv_heads=2,head_dim=16,hidden=128,vocab=%d,context=512,experts=%d,"
        "experts_used=%d,expert_hidden=32,seed=7,type=%s",
        LAYERS, VOCAB, EXPERTS, USED, type_facts[type].name);
    char *path = shape_path(name, 0, &err);
    assert_ok(path != NULL, err);
    free(name);
    return path;
}

// ---- a count of its own: which experts the groups of each layer have

static struct {
    struct tensor (*grouped)(struct backend *b, struct tensor out, struct tensor x, const int32_t *row,
                             const struct row_group *g, int count, enum gate_function f);
    int calls;             // gate and up of a layer, then down
    uint32_t read[LAYERS]; // bit e: expert e, in any pass since `calls` was set to 0
} counted;

static struct tensor count_groups(struct backend *b, struct tensor out, struct tensor x, const int32_t *row,
                                  const struct row_group *g, int count, enum gate_function f)
{
    assert_int_equal(count, EXPERTS);
    for (int e = 0; e < count; e++)
        counted.read[counted.calls / 2 % LAYERS] |= g[e].rows > 0 ? 1u << e : 0;
    counted.calls++;
    return counted.grouped(b, out, x, row, g, count, f);
}

static int experts_read(void)
{
    int n = 0;
    for (int l = 0; l < LAYERS; l++)
        n += __builtin_popcount(counted.read[l]);
    memset(counted.read, 0, sizeof(counted.read));
    counted.calls = 0;
    return n;
}

static const float *pass(struct runner *r, int n, const int32_t *token, const int32_t *slot, const int32_t *parent,
                         int *experts)
{
    const int64_t before = model_experts_touched(r->model);
    const float *logits = runner_pass(r, n, token, slot, parent);
    *experts = (int)(model_experts_touched(r->model) - before);
    return logits;
}

// A chain of n tokens: row i alone, after the rows before it; then all in one pass.
static void check_chains(struct runner *r)
{
    static const int rows[] = { 1, 2, 3, 5, 8, 13, 16, 17, 32, 33, 64 };
    int32_t token[MOST];
    uint32_t alone[MOST][LAYERS];
    int experts;
    for (int i = 0; i < MOST; i++)
        token[i] = i * i * 31 % VOCAB;
    float *logits = xmalloc((size_t)MOST * VOCAB * sizeof(*logits));
    kv_truncate(r->cache, 0, 0);
    for (int i = 0; i < MOST; i++) {
        memcpy(logits + i * VOCAB, pass(r, 1, token + i, NULL, NULL, &experts), VOCAB * sizeof(*logits));
        assert_int_equal(experts, LAYERS * USED);
        memcpy(alone[i], counted.read, sizeof(alone[i]));
        assert_int_equal(experts_read(), LAYERS * USED);
        kv_keep(r->cache, 0, &(const int32_t){ 0 }, 1);
    }
    for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
        const int n = rows[k];
        int united = 0;
        for (int l = 0; l < LAYERS; l++) {
            uint32_t all = 0;
            for (int i = 0; i < n; i++)
                all |= alone[i][l];
            united += __builtin_popcount(all);
        }
        kv_truncate(r->cache, 0, 0);
        const float *now = pass(r, n, token, NULL, NULL, &experts);
        for (int i = 0; i < n; i++)
            runner_same_bits(now + i * VOCAB, logits + i * VOCAB, VOCAB, "a chain", n);
        assert_int_equal(experts, united);
        assert_int_equal(experts_read(), united);
        assert_true(n == 1 || united > LAYERS * USED);
    }
    free(logits);
    kv_truncate(r->cache, 0, 0);
}

// The same token in several slots: the rows are equal and share all their experts.
static void check_equal_rows(struct runner *r)
{
    const int32_t token[4] = { 9, 9, 9, 9 }, slot[4] = { 0, 1, 2, 3 }, parent[4] = { -1, -1, -1, -1 };
    int experts;
    const float *logits = pass(r, 4, token, slot, parent, &experts);
    assert_int_equal(experts, LAYERS * USED);
    assert_int_equal(experts_read(), LAYERS * USED);
    for (int i = 1; i < 4; i++)
        runner_same_bits(logits + i * VOCAB, logits, VOCAB, "equal rows", 4);
}

static void check(struct backend *b, enum type type, enum activations a)
{
    char *path = made(type);
    assert_non_null(b);
    counted.grouped = b->grouped;
    b->grouped = count_groups;
    struct runner r = runner_open_on(b, path, 4, a, F32);
    experts_read();
    check_chains(&r);
    check_equal_rows(&r);
    runner_close(&r);
    free(path);
}

TEST(passes_read_the_union_of_their_rows_and_keep_their_bits)
{
    struct error err;
    check(backend_cpu(1, &err), F32, ACTIVATIONS_F32);
    check(backend_cpu(2, &err), Q8_0, ACTIVATIONS_INT8);
    check(backend_cpu(3, &err), Q4_0, ACTIVATIONS_BF16);
    check(backend_cpu_with(2, "plain", &err), BF16, ACTIVATIONS_BF16);
}

#if defined(EMULATED_DEVICE)
TEST(passes_of_an_emulated_gpu_do_too)
{
    struct error err;
    check(backend_host_memory(backend_emulated(0, &err)), Q8_0, ACTIVATIONS_BF16);
    check(backend_host_memory(backend_emulated(0, &err)), F32, ACTIVATIONS_F32);
}
#endif

// ---- expectations

// All ways in which `rows` rows choose 2 of 5 experts each: the mean size of the union.
static double enumerated(int rows)
{
    int pair[10], pairs = 0, ways = 1;
    for (int a = 0; a < 5; a++)
        for (int b = a + 1; b < 5; b++)
            pair[pairs++] = 1 << a | 1 << b;
    double sum = 0;
    for (int i = 0; i < rows; i++)
        ways *= pairs;
    for (int way = 0; way < ways; way++) {
        int all = 0;
        for (int i = 0, left = way; i < rows; i++, left /= pairs)
            all |= pair[left % pairs];
        sum += __builtin_popcount((unsigned)all);
    }
    return sum / ways;
}

TEST(the_expected_union_is_that_of_an_enumeration)
{
    const struct model_config c = { .layers = 1, .experts = 5, .experts_used = 2 };
    for (int n = 1; n <= 5; n++)
        assert_true(fabs(config_experts_expected(&c, n) - enumerated(n)) < 1e-12);
    const struct model_config dense = { .layers = 1 };
    assert_true(config_experts_expected(&dense, 3) == 0 && config_mixed_layers(&dense) == 0);
}

// Bytes tensor by tensor: those of experts times the share that is read, all others whole, the embedding not at all.
TEST(bytes_of_passes_are_those_of_their_tensors)
{
    struct error err;
    char *path = made(Q8_0);
    struct backend *b = backend_cpu(1, &err);
    struct model *m = model_open(path, b, ACTIVATIONS_DEFAULT, 1, &err);
    assert_non_null(m);
    struct weights *w = weights_open(model_config(m), &err);
    double experts = 0, others = 0;
    for (const struct weight *t = w->weight; t < w->weight + w->n; t++)
        if (strstr(t->name, ".experts.") != NULL)
            experts += (double)t->bytes;
        else if (strstr(t->name, "embed_tokens") == NULL)
            others += (double)t->bytes;
    assert_true(experts > 0 && (double)model_bytes(m) == experts + others);
    for (int read = 0; read <= LAYERS * EXPERTS; read += 7)
        assert_true(fabs(model_bytes_read(m, read) - others - experts * read / (LAYERS * EXPERTS)) < 1e-6);
    for (int n = 1; n <= 64; n *= 2) {
        const double share = 1 - pow(13.0 / 16, n);
        assert_true(fabs(model_pass_bytes(m, n) - others - experts * share) < 1e-6 * experts);
    }
    weights_close(w);
    model_close(m);
    b->destroy(b);
    free(path);
}

RUN_TESTS(NULL, test_directory_tear_down)
