#include "kernels/timed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "device_step/device_step.h"
#include "kernels/backend.h"
#include "kernels/operations.h"

enum { MAX_ENTRIES = 64 };

struct timed {
    struct backend backend; // first
    struct backend *inner;
    bool timing, failed;
    struct error err; // the first failure since the last sync(), found while waiting for an operation
    int n;
    struct timed_entry entry[MAX_ENTRIES];
};

static struct backend *inner_of(struct backend *b)
{
    return ((struct timed *)b)->inner;
}

static struct timed_entry *entry_of(struct timed *t, const char *operation)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->entry[i].operation, operation) == 0)
            return &t->entry[i];
    assert(t->n < MAX_ENTRIES);
    t->entry[t->n] = (struct timed_entry){ .operation = operation };
    return &t->entry[t->n++];
}

// 0: timing is off.
static int64_t begin(struct backend *b)
{
    return ((struct timed *)b)->timing ? clock_ns() : 0;
}

static void end(struct backend *b, int64_t from, const char *operation)
{
    struct timed *t = (struct timed *)b;
    struct error err;
    if (!t->timing)
        return;
    if (!t->inner->sync(t->inner, &err) && !t->failed) {
        t->failed = true;
        t->err = err;
    }
    int64_t to = clock_ns();
    struct timed_entry *e = entry_of(t, operation);
    e->calls++;
    e->ns += to - from;
}

// ---- memory: forwarded, timed only where bytes are copied

static void *timed_alloc(struct backend *b, size_t bytes)
{
    return inner_of(b)->alloc(inner_of(b), bytes);
}

static void timed_release(struct backend *b, void *data)
{
    inner_of(b)->release(inner_of(b), data);
}

static void timed_upload(struct backend *b, void *to, const void *host, size_t bytes)
{
    int64_t from = begin(b);
    inner_of(b)->upload(inner_of(b), to, host, bytes);
    end(b, from, "upload");
}

static void timed_download(struct backend *b, void *host, const void *data, size_t bytes)
{
    int64_t from = begin(b);
    inner_of(b)->download(inner_of(b), host, data, bytes);
    end(b, from, "download");
}

static void *timed_host(struct backend *b, void *data)
{
    return inner_of(b)->host(inner_of(b), data);
}

static bool timed_sync(struct backend *b, struct error *err)
{
    struct timed *t = (struct timed *)b;
    bool well = t->inner->sync(t->inner, err);
    if (!t->failed)
        return well;
    t->failed = false;
    *err = t->err;
    return false;
}

static void timed_destroy(struct backend *b)
{
    inner_of(b)->destroy(inner_of(b));
    free(b);
}

static const char *timed_describe(struct backend *b)
{
    return inner_of(b)->describe(inner_of(b));
}

static void timed_stamp(struct backend *b, int number)
{
    inner_of(b)->stamp(inner_of(b), number);
}

static int64_t timed_between(struct backend *b, int from, int to)
{
    return inner_of(b)->between(inner_of(b), from, to);
}

static bool timed_memory(struct backend *b, size_t *free_bytes, size_t *all)
{
    return inner_of(b)->memory(inner_of(b), free_bytes, all);
}

static uint64_t timed_upload_layout(struct backend *b, const struct layout *s)
{
    return inner_of(b)->upload_layout(inner_of(b), s);
}

static enum activations timed_rounds_to(struct backend *b, enum activations wanted, enum type weights)
{
    return inner_of(b)->rounds_to(inner_of(b), wanted, weights);
}

static struct workers timed_workers(struct backend *b)
{
    return inner_of(b)->workers(inner_of(b));
}

static struct tensor timed_prepare(struct backend *b, struct tensor w, enum activations a, struct error *err)
{
    return inner_of(b)->prepare(inner_of(b), w, a, err);
}

static void timed_unprepare(struct backend *b, struct tensor w)
{
    inner_of(b)->unprepare(inner_of(b), w);
}

static void *timed_packed(struct backend *b, struct tensor w, size_t *bytes)
{
    return inner_of(b)->packed(inner_of(b), w, bytes);
}

// ---- operations

#define TIMED_VOID(name, SIGNATURE) \
    static void timed_##name OPERATION_PARAMETERS(SIGNATURE) \
    { \
        int64_t from = begin(b); \
        inner_of(b)->name(inner_of(b) OPERATION_ARGUMENTS(SIGNATURE)); \
        end(b, from, #name); \
    }
#define TIMED_VALUE(name, SIGNATURE) \
    static struct tensor timed_##name OPERATION_PARAMETERS(SIGNATURE) { \
        int64_t from = begin(b); \
        const struct tensor value = inner_of(b)->name(inner_of(b) OPERATION_ARGUMENTS(SIGNATURE)); \
        end(b, from, #name); \
        return value; \
    }
// clang-format off
ALL_OPERATIONS(TIMED_VOID, TIMED_VALUE)
// clang-format on

// ---- the step on the device

static void timed_probabilities(struct backend *b, struct tensor logits, int used_vocab, const struct row_stages *s,
                                struct part_sum *sums)
{
    int64_t from = begin(b);
    inner_of(b)->step->probabilities(inner_of(b), logits, used_vocab, s, sums);
    end(b, from, "probabilities");
}

static const struct rule_body *timed_rule_body(struct backend *b, const char *name)
{
    return inner_of(b)->step->rule_body(inner_of(b), name);
}

static size_t timed_verify_bytes(struct backend *b, const struct verify_request *j)
{
    return inner_of(b)->step->verify_bytes(inner_of(b), j);
}

static void timed_verify(struct backend *b, const struct verify_request *j, int n)
{
    int64_t from = begin(b);
    inner_of(b)->step->verify(inner_of(b), j, n);
    end(b, from, "verify");
}

static void timed_verify_wait(struct backend *b, const struct verify_request *j, struct verify_result *to, int n)
{
    int64_t from = begin(b);
    inner_of(b)->step->verify_wait(inner_of(b), j, to, n);
    end(b, from, "verify");
}

static struct drafting *timed_drafts_create(struct backend *b, const struct drafting_shape *s)
{
    return inner_of(b)->step->drafts_create(inner_of(b), s);
}

static void timed_drafts_destroy(struct backend *b, struct drafting *g)
{
    inner_of(b)->step->drafts_destroy(inner_of(b), g);
}

static void timed_drafts_begin(struct backend *b, struct drafting *g, const struct drafting_request *r, int n)
{
    int64_t from = begin(b);
    inner_of(b)->step->drafts_begin(inner_of(b), g, r, n);
    end(b, from, "draft");
}

static void timed_drafts_level(struct backend *b, struct drafting *g, const struct drafting_level *l)
{
    int64_t from = begin(b);
    inner_of(b)->step->drafts_level(inner_of(b), g, l);
    end(b, from, "draft");
}

static const struct device_step step = {
    .probabilities = timed_probabilities,
    .rule_body = timed_rule_body,
    .verify = timed_verify,
    .verify_wait = timed_verify_wait,
    .verify_bytes = timed_verify_bytes,
    .drafts_create = timed_drafts_create,
    .drafts_destroy = timed_drafts_destroy,
    .drafts_begin = timed_drafts_begin,
    .drafts_level = timed_drafts_level,
};

static const struct backend table = { .alloc = timed_alloc,
                                      .release = timed_release,
                                      .upload = timed_upload,
                                      .download = timed_download,
                                      .host = timed_host,
                                      .sync = timed_sync,
                                      .destroy = timed_destroy,
                                      .describe = timed_describe,
                                      .stamp = timed_stamp,
                                      .between = timed_between,
                                      .memory = timed_memory,
                                      .rounds_to = timed_rounds_to,
                                      .workers = timed_workers,
                                      .prepare = timed_prepare,
                                      .unprepare = timed_unprepare,
                                      .packed = timed_packed,
#define ENTRY(name, SIGNATURE) .name = timed_##name,
                                      ALL_OPERATIONS(ENTRY, ENTRY)
#undef ENTRY
};

struct backend *backend_timed(struct backend *inner)
{
    struct timed *t = xcalloc(1, sizeof(*t));
    t->backend = table;
    t->backend.name = inner->name;
    t->backend.varies = inner->varies;
    t->backend.queues = inner->queues;
    t->backend.upload_layout = inner->upload_layout != NULL ? timed_upload_layout : NULL;
    if (inner->gather_on_device == NULL)
        t->backend.gather_on_device = NULL;
    t->backend.step = inner->step != NULL ? &step : NULL;
    t->backend.packed_layout = inner->packed_layout;
    t->inner = inner;
    return &t->backend;
}

void timed_begin(struct backend *b)
{
    struct timed *t = (struct timed *)b;
    t->n = 0;
    t->timing = true;
}

void timed_end(struct backend *b)
{
    ((struct timed *)b)->timing = false;
}

int timed_entries(const struct backend *b)
{
    return ((const struct timed *)b)->n;
}

const struct timed_entry *timed_entry_at(const struct backend *b, int i)
{
    const struct timed *t = (const struct timed *)b;
    assert(i >= 0 && i < t->n);
    return &t->entry[i];
}
