// host_memory_device.c - a wrapped backend: uploads, the operation, downloads.
#include "tests/device/host_memory_device.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "kernels/operations.h"
#include "tests/support/check.h"

struct hosted {
    struct backend backend; // first
    struct backend *inner;
};

static struct backend *inner_of(struct backend *b)
{
    return ((struct hosted *)b)->inner;
}

// ---- tensors on the inner backend

static struct tensor sent(struct backend *to, struct tensor t)
{
    if (t.data == NULL || t.packed != NULL) // none, or a weight that is on the device
        return t;
    struct tensor on_device = t;
    on_device.rounded = 0;
    on_device.data = to->alloc(to, tensor_bytes(t));
    assert_non_null(on_device.data);
    to->upload(to, on_device.data, t.data, tensor_bytes(t));
    return on_device;
}

static void drop(struct backend *from, struct tensor on_device)
{
    if (on_device.packed == NULL)
        from->release(from, on_device.data);
}

static void fetch(struct backend *from, struct tensor on_device, struct tensor to)
{
    from->download(from, to.data, on_device.data, tensor_bytes(to));
    drop(from, on_device);
}

// ---- the host's memory

static void *hosted_alloc(struct backend *b, size_t bytes)
{
    return xmalloc(bytes + 1);
}

static void hosted_release(struct backend *b, void *data)
{
    free(data);
}

static void hosted_copy(struct backend *b, void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static void *hosted_host(struct backend *b, void *data)
{
    return data;
}

// ---- forwarded

static void hosted_destroy(struct backend *b)
{
    inner_of(b)->destroy(inner_of(b));
    free(b);
}

// clang-format off
#define FORWARD(type, name, parameters, ...) \
    static type hosted_##name parameters { return inner_of(b)->name(__VA_ARGS__); }
FORWARD(bool, sync, (struct backend *b, struct error *err), inner_of(b), err)
FORWARD(const char *, describe, (struct backend *b), inner_of(b))
FORWARD(int64_t, between, (struct backend *b, int from, int to), inner_of(b), from, to)
FORWARD(bool, memory, (struct backend *b, size_t *free_bytes, size_t *all), inner_of(b), free_bytes, all)
FORWARD(struct workers, workers, (struct backend *b), inner_of(b))
FORWARD(enum activations, rounds_to, (struct backend *b, enum activations a, enum type weights), inner_of(b), a, weights)
FORWARD(struct tensor, prepare, (struct backend *b, struct tensor w, enum activations a, struct error *err), inner_of(b), w, a, err)
// clang-format on

static void hosted_stamp(struct backend *b, int number)
{
    inner_of(b)->stamp(inner_of(b), number);
}

static void hosted_unprepare(struct backend *b, struct tensor w)
{
    inner_of(b)->unprepare(inner_of(b), w);
}

// ---- operations

#define SEND(name) const struct tensor name##_sent = sent(in, name);
#define FETCH(name) fetch(in, name##_sent, name);
#define DROP(name) drop(in, name##_sent);
#define PASS(name) , name##_sent
#define NOTHING(type, name)
#define HOSTED_VOID(name, SIGNATURE) \
    static void hosted_##name OPERATION_PARAMETERS(SIGNATURE) \
    { \
        struct backend *in = inner_of(b); \
        SIGNATURE(SEND, SEND, NOTHING) \
        in->name(in SIGNATURE(PASS, PASS, ARGUMENT_OTHER)); \
        SIGNATURE(FETCH, DROP, NOTHING) \
    }
// A value without its rounded form, which is the inner backend's.
#define HOSTED_VALUE(name, SIGNATURE) \
    static struct tensor hosted_##name OPERATION_PARAMETERS(SIGNATURE) { \
        struct backend *in = inner_of(b); \
        SIGNATURE(SEND, SEND, NOTHING) \
        in->name(in SIGNATURE(PASS, PASS, ARGUMENT_OTHER)); \
        SIGNATURE(FETCH, DROP, NOTHING) \
        return out; \
    }
// clang-format off
ROW_OPERATIONS(HOSTED_VOID, HOSTED_VALUE)
HEAVY_OPERATIONS(HOSTED_VOID, HOSTED_VALUE)
// clang-format on

static void hosted_matmul(struct backend *b, struct tensor x, const struct product *p, int count)
{
    struct backend *in = inner_of(b);
    struct product on_device[MAX_PRODUCTS];
    const struct tensor from = sent(in, x);
    for (int i = 0; i < count; i++) {
        on_device[i] = p[i];
        on_device[i].out = sent(in, p[i].out);
        on_device[i].bias = sent(in, p[i].bias);
    }
    in->matmul(in, from, on_device, count);
    for (int i = 0; i < count; i++) {
        fetch(in, on_device[i].out, p[i].out);
        drop(in, on_device[i].bias);
    }
    drop(in, from);
}

static void hosted_move(struct backend *b, const struct tensor *x, int count, const struct row_run *run, int runs)
{
    struct backend *in = inner_of(b);
    struct tensor *on_device = xcalloc((size_t)count, sizeof(*on_device));
    for (int i = 0; i < count; i++)
        on_device[i] = sent(in, x[i]);
    in->move(in, on_device, count, run, runs);
    for (int i = 0; i < count; i++)
        fetch(in, on_device[i], x[i]);
    free(on_device);
}

struct backend *backend_host_memory(struct backend *inner)
{
#define ENTRY(name, SIGNATURE) .name = hosted_##name,
    static const struct backend table = { .alloc = hosted_alloc,
                                          .release = hosted_release,
                                          .upload = hosted_copy,
                                          .download = hosted_copy,
                                          .host = hosted_host,
                                          .sync = hosted_sync,
                                          .destroy = hosted_destroy,
                                          .describe = hosted_describe,
                                          .stamp = hosted_stamp,
                                          .between = hosted_between,
                                          .memory = hosted_memory,
                                          .workers = hosted_workers,
                                          .rounds_to = hosted_rounds_to,
                                          .prepare = hosted_prepare,
                                          .unprepare = hosted_unprepare,
                                          .matmul = hosted_matmul,
                                          .move = hosted_move,
                                          ROW_OPERATIONS(ENTRY, ENTRY) HEAVY_OPERATIONS(ENTRY, ENTRY) };
#undef ENTRY
    struct hosted *f = xcalloc(1, sizeof(*f));
    f->backend = table;
    f->backend.name = inner->name;
    f->backend.varies = inner->varies;
    f->inner = inner;
    return &f->backend;
}
