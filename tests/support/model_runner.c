#include "tests/support/model_runner.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/support/check.h"
#include "tests/support/small_model.h"

struct backend *one_cpu;

int cpu_set_up(void **state)
{
    struct error err;
    one_cpu = backend_cpu(1, &err);
    return one_cpu != NULL ? 0 : -1;
}

int cpu_tear_down(void **state)
{
    one_cpu->destroy(one_cpu);
    return test_directory_tear_down(state);
}

struct runner runner_open_as(const char *path, int threads, const char *isa, int slots, enum activations a,
                             enum type cache)
{
    struct error err;
    struct backend *b = backend_cpu_with(threads, isa, &err);
    assert_ok(b != NULL, err);
    return runner_open_on(b, path, slots, a, cache);
}

struct runner runner_open_on(struct backend *b, const char *path, int slots, enum activations a, enum type cache)
{
    struct error err;
    struct model *m = model_open(path, b, a, RUNNER_ROWS, &err);
    assert_ok(m != NULL, err);
    return runner_of(b, m, slots, cache);
}

struct runner runner_of(struct backend *b, struct model *m, int slots, enum type cache)
{
    struct error err;
    struct runner r = { .backend = b, .model = m };
    struct kv_shape shape = model_kv_shape(r.model, slots, RUNNER_LENGTH, RUNNER_ROWS);
    shape.type = cache;
    r.cache = kv_create(r.backend, &shape, &err);
    r.vocab = model_shape(r.model)->vocab;
    r.logits = xmalloc((size_t)RUNNER_ROWS * (size_t)r.vocab * sizeof(float));
    r.on_device = rows_on(b, RUNNER_ROWS, r.vocab);
    assert_non_null(r.on_device.data);
    return r;
}

struct runner runner_open(const char *path, int threads, const char *isa, int slots)
{
    return runner_open_as(path, threads, isa, slots, ACTIVATIONS_F32, F32);
}

void runner_close(struct runner *r)
{
    kv_destroy(r->cache);
    r->backend->release(r->backend, r->on_device.data);
    model_close(r->model);
    r->backend->destroy(r->backend);
    free(r->logits);
}

static void pass(struct runner *r, int n, const int32_t *token, const int32_t *slot, const int32_t *parent, bool logits)
{
    static const int32_t zeros[RUNNER_ROWS];
    static int32_t chain[RUNNER_ROWS];
    struct error err;
    struct states states;
    for (int i = 0; i < n; i++)
        chain[i] = i - 1;
    struct pass p = {
        .n = n, .token = token, .slot = slot != NULL ? slot : zeros, .parent = parent != NULL ? parent : chain
    };
    assert_ok(model_forward(r->model, r->cache, &p, NULL, &states, &err), err);
    if (!logits)
        return;
    model_logits(r->model, tensor_rows(r->on_device, 0, n), states.last);
    r->backend->download(r->backend, r->logits, r->on_device.data, (size_t)n * (size_t)r->vocab * sizeof(float));
    assert_ok(r->backend->sync(r->backend, &err), err);
}

const float *runner_pass(struct runner *r, int n, const int32_t *token, const int32_t *slot, const int32_t *parent)
{
    pass(r, n, token, slot, parent, true);
    return r->logits;
}

float *runner_one_by_one(struct runner *r, const int32_t *token, int n)
{
    float *to = xmalloc((size_t)n * (size_t)r->vocab * sizeof(float));
    const int32_t row = 0;
    for (int i = 0; i < n; i++) {
        memcpy(to + (size_t)i * (size_t)r->vocab, runner_pass(r, 1, token + i, NULL, NULL),
               (size_t)r->vocab * sizeof(float));
        kv_keep(r->cache, 0, &row, 1);
    }
    return to;
}

void runner_same_bits(const float *a, const float *b, int vocab, const char *what, int n)
{
    if (memcmp(a, b, (size_t)vocab * sizeof(float)) != 0)
        fail_msg("%s, %d rows: the logits of a row are not the bits it has alone", what, n);
}

void runner_prefill(struct runner *r, int slot, const int32_t *token, int n)
{
    static int32_t slots[RUNNER_ROWS], row[RUNNER_ROWS];
    while (n > 0) {
        int count = n < RUNNER_ROWS ? n : RUNNER_ROWS;
        for (int i = 0; i < count; i++) {
            slots[i] = slot;
            row[i] = i;
        }
        pass(r, count, token, slots, NULL, false);
        kv_keep(r->cache, slot, row, count);
        token += count;
        n -= count;
    }
}
