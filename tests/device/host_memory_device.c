// host_memory_device.c - a wrapped backend: copies there, the operation, copies back.
#include "tests/device/host_memory_device.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "tests/support/check.h"

struct far {
    struct backend backend; // first
    struct backend *inner;
};

static struct backend *inner_of(struct backend *b)
{
    return ((struct far *)b)->inner;
}

// ---- tensors there and back

static struct tensor sent(struct backend *to, struct tensor t)
{
    if (t.data == NULL || t.packed != NULL) // nothing, or a weight that is there
        return t;
    struct tensor there = t;
    there.data = to->alloc(to, tensor_bytes(t));
    assert_non_null(there.data);
    to->upload(to, there.data, t.data, tensor_bytes(t));
    return there;
}

static void drop(struct backend *from, struct tensor there)
{
    if (there.packed == NULL)
        from->release(from, there.data);
}

static void fetch(struct backend *from, struct tensor there, struct tensor to)
{
    from->download(from, to.data, there.data, tensor_bytes(to));
    drop(from, there);
}

// ---- the host's memory

static void *far_alloc(struct backend *b, size_t bytes)
{
    (void)b;
    return xmalloc(bytes + 1);
}

static void far_release(struct backend *b, void *data)
{
    (void)b;
    free(data);
}

static void far_copy(struct backend *b, void *to, const void *from, size_t bytes)
{
    (void)b;
    memcpy(to, from, bytes);
}

static void *far_host(struct backend *b, void *data)
{
    (void)b;
    return data;
}

// ---- what is only passed on

static bool far_sync(struct backend *b, struct error *err)
{
    return inner_of(b)->sync(inner_of(b), err);
}

static void far_destroy(struct backend *b)
{
    inner_of(b)->destroy(inner_of(b));
    free(b);
}

static const char *far_describe(struct backend *b)
{
    return inner_of(b)->describe(inner_of(b));
}

static void far_stamp(struct backend *b, int number)
{
    inner_of(b)->stamp(inner_of(b), number);
}

static int64_t far_between(struct backend *b, int from, int to)
{
    return inner_of(b)->between(inner_of(b), from, to);
}

static bool far_memory(struct backend *b, size_t *free_bytes, size_t *all)
{
    return inner_of(b)->memory(inner_of(b), free_bytes, all);
}

static struct workers far_workers(struct backend *b)
{
    return inner_of(b)->workers(inner_of(b));
}

static enum activations far_rounds_to(struct backend *b, enum activations wanted, enum type weights)
{
    return inner_of(b)->rounds_to(inner_of(b), wanted, weights);
}

static struct tensor far_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err)
{
    return inner_of(b)->prepare(inner_of(b), w, a, err);
}

static void far_unprepare(struct backend *b, struct tensor w)
{
    inner_of(b)->unprepare(inner_of(b), w);
}

// ---- operations

static void far_matmul(struct backend *b, struct tensor x, const struct product *p, int count)
{
    struct backend *in = inner_of(b);
    struct product there[MAX_PRODUCTS];
    const struct tensor from = sent(in, x);
    for (int i = 0; i < count; i++) {
        there[i] = p[i];
        there[i].out = sent(in, p[i].out);
        there[i].bias = sent(in, p[i].bias);
    }
    in->matmul(in, from, there, count);
    for (int i = 0; i < count; i++) {
        fetch(in, there[i].out, p[i].out);
        drop(in, there[i].bias);
    }
    drop(in, from);
}

static void far_gated(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up)
{
    struct backend *in = inner_of(b);
    const struct tensor to = sent(in, out), from = sent(in, x);
    in->gated(in, to, from, gate, up);
    fetch(in, to, out);
    drop(in, from);
}

static void far_add(struct backend *b, struct tensor out, struct tensor x)
{
    struct backend *in = inner_of(b);
    const struct tensor to = sent(in, out), from = sent(in, x);
    in->add(in, to, from);
    fetch(in, to, out);
    drop(in, from);
}

static void far_rmsnorm(struct backend *b, struct tensor out, struct tensor x, struct tensor w, float eps)
{
    struct backend *in = inner_of(b);
    const struct tensor to = sent(in, out), from = sent(in, x), by = sent(in, w);
    in->rmsnorm(in, to, from, by, eps);
    fetch(in, to, out);
    drop(in, from);
    drop(in, by);
}

static void far_swiglu(struct backend *b, struct tensor out, struct tensor gate, struct tensor up)
{
    struct backend *in = inner_of(b);
    const struct tensor to = sent(in, out), from = sent(in, gate), by = sent(in, up);
    in->swiglu(in, to, from, by);
    fetch(in, to, out);
    drop(in, from);
    drop(in, by);
}

static void far_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor inverse_frequency)
{
    struct backend *in = inner_of(b);
    const struct tensor to = sent(in, out), by = sent(in, inverse_frequency);
    in->angles(in, to, s, by);
    fetch(in, to, out);
    drop(in, by);
}

static void far_store(struct backend *b, struct tensor q, struct tensor k, struct tensor v, struct tensor angles,
                      struct tensor keys, struct tensor values, const struct layout *s)
{
    struct backend *in = inner_of(b);
    const struct tensor to = sent(in, q), from_k = sent(in, k), from_v = sent(in, v), by = sent(in, angles),
                        to_keys = sent(in, keys), to_values = sent(in, values);
    in->store(in, to, from_k, from_v, by, to_keys, to_values, s);
    fetch(in, to, q);
    fetch(in, to_keys, keys);
    fetch(in, to_values, values);
    drop(in, from_k);
    drop(in, from_v);
    drop(in, by);
}

static void far_attend(struct backend *b, struct tensor out, struct tensor q, struct tensor keys, struct tensor values,
                       const struct layout *s, int head_dim)
{
    struct backend *in = inner_of(b);
    const struct tensor to = sent(in, out), from = sent(in, q), at = sent(in, keys), of = sent(in, values);
    in->attend(in, to, from, at, of, s, head_dim);
    fetch(in, to, out);
    drop(in, from);
    drop(in, at);
    drop(in, of);
}

static void far_take(struct backend *b, struct tensor out, struct tensor x, const int32_t *row)
{
    struct backend *in = inner_of(b);
    const struct tensor to = sent(in, out), from = sent(in, x);
    in->take(in, to, from, row);
    fetch(in, to, out);
    drop(in, from);
}

static void far_place(struct backend *b, struct tensor out, int column, struct tensor x)
{
    struct backend *in = inner_of(b);
    const struct tensor to = sent(in, out), from = sent(in, x);
    in->place(in, to, column, from);
    fetch(in, to, out);
    drop(in, from);
}

static void far_cut(struct backend *b, struct tensor out, struct tensor x, int column)
{
    struct backend *in = inner_of(b);
    const struct tensor to = sent(in, out), from = sent(in, x);
    in->cut(in, to, from, column);
    fetch(in, to, out);
    drop(in, from);
}

static void far_move(struct backend *b, const struct tensor *x, int count, int to, const int32_t *row, int n)
{
    struct backend *in = inner_of(b);
    struct tensor *there = xcalloc((size_t)count, sizeof(*there));
    for (int i = 0; i < count; i++)
        there[i] = sent(in, x[i]);
    in->move(in, there, count, to, row, n);
    for (int i = 0; i < count; i++)
        fetch(in, there[i], x[i]);
    free(there);
}

static void far_best(struct backend *b, struct tensor logits, int k, int32_t *token, float *log_p)
{
    struct backend *in = inner_of(b);
    const struct tensor from = sent(in, logits);
    in->best(in, from, k, token, log_p);
    drop(in, from);
}

struct backend *backend_host_memory(struct backend *inner)
{
    static const struct backend table = {
        .alloc = far_alloc,
        .release = far_release,
        .upload = far_copy,
        .download = far_copy,
        .host = far_host,
        .sync = far_sync,
        .destroy = far_destroy,
        .describe = far_describe,
        .stamp = far_stamp,
        .between = far_between,
        .memory = far_memory,
        .workers = far_workers,
        .rounds_to = far_rounds_to,
        .prepare = far_prepare,
        .unprepare = far_unprepare,
        .matmul = far_matmul,
        .gated = far_gated,
        .add = far_add,
        .rmsnorm = far_rmsnorm,
        .swiglu = far_swiglu,
        .angles = far_angles,
        .store = far_store,
        .attend = far_attend,
        .take = far_take,
        .place = far_place,
        .cut = far_cut,
        .move = far_move,
        .best = far_best,
    };
    struct far *f = xcalloc(1, sizeof(*f));
    f->backend = table;
    f->backend.name = inner->name;
    f->backend.varies = inner->varies;
    f->inner = inner;
    return &f->backend;
}
