#include "kernels/timed.h"

#include <assert.h>
#include <string.h>

#include "core/clock.h"
#include "kernels/operations.h"

static struct timed_entry *entry_of(struct timed *t, const char *operation)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->entry[i].operation, operation) == 0)
            return &t->entry[i];
    assert(t->n < MAX_TIMED);
    t->entry[t->n] = (struct timed_entry){ .operation = operation };
    return &t->entry[t->n++];
}

static int64_t begin(struct timed *t)
{
    t->depth++;
    return clock_ns();
}

static void end(struct timed *t, int64_t from, const char *operation)
{
    struct error err;
    if (--t->depth > 0)
        return;
    if (!t->real.sync(t->backend, &err) && !t->failed) {
        t->failed = true;
        t->err = err;
    }
    int64_t to = clock_ns();
    struct timed_entry *e = entry_of(t, operation);
    e->calls++;
    e->ns += to - from;
}

static bool timed_sync(struct backend *b, struct error *err)
{
    struct timed *t = b->timed;
    bool well = t->real.sync(b, err);
    if (!t->failed)
        return well;
    t->failed = false;
    *err = t->err;
    return false;
}

// ---- the other operations. TABLE: the table of the real one; entry: the name under which it is counted.

#define TIMED_VOID(TABLE, name, SIGNATURE, entry) \
    static void timed_##name OPERATION_PARAMETERS(SIGNATURE) \
    { \
        struct timed *t = b->timed; \
        const int64_t from = begin(t); \
        TABLE name(b OPERATION_ARGUMENTS(SIGNATURE)); \
        end(t, from, entry); \
    }
#define TIMED_OPERATION(name, SIGNATURE) TIMED_VOID(t->real., name, SIGNATURE, #name)
#define TIMED_VALUE(name, SIGNATURE) \
    static struct tensor timed_##name OPERATION_PARAMETERS(SIGNATURE) { \
        struct timed *t = b->timed; \
        const int64_t from = begin(t); \
        const struct tensor value = t->real.name(b OPERATION_ARGUMENTS(SIGNATURE)); \
        end(t, from, #name); \
        return value; \
    }

#define UPLOAD_SIGNATURE(OUT, IN, ARG) ARG(void *, to) ARG(const void *, host) ARG(size_t, bytes)
#define DOWNLOAD_SIGNATURE(OUT, IN, ARG) ARG(void *, host) ARG(const void *, data) ARG(size_t, bytes)
#define COPIES(VOID) VOID(upload, UPLOAD_SIGNATURE) VOID(download, DOWNLOAD_SIGNATURE)

#define PROBABILITIES_SIGNATURE(OUT, IN, ARG) \
    IN(logits) ARG(int, used_vocab) ARG(const struct row_stages *, s) ARG(struct part_sum *, sums)
#define CERTAIN_SIGNATURE(OUT, IN, ARG) IN(logits) ARG(int, used_vocab) ARG(int32_t *, token)
#define VERIFY_SIGNATURE(OUT, IN, ARG) ARG(const struct verify_request *, r) ARG(int, n)
#define VERIFY_WAIT_SIGNATURE(OUT, IN, ARG) \
    ARG(const struct verify_request *, r) ARG(struct verify_result *, to) ARG(int, n)
#define DRAFTS_BEGIN_SIGNATURE(OUT, IN, ARG) \
    ARG(struct drafting *, g) ARG(const struct drafting_request *, r) ARG(int, n)
#define DRAFTS_LEVEL_SIGNATURE(OUT, IN, ARG) ARG(struct drafting *, g) ARG(const struct drafting_level *, l)
#define STEP_OPERATIONS(VOID) \
    VOID(t->real.step->, probabilities, PROBABILITIES_SIGNATURE, "probabilities") \
    VOID(t->real.step->, certain, CERTAIN_SIGNATURE, "probabilities") \
    VOID(t->real.step->, verify, VERIFY_SIGNATURE, "verify") \
    VOID(t->real.step->, verify_wait, VERIFY_WAIT_SIGNATURE, "verify") \
    VOID(t->real.step->, drafts_begin, DRAFTS_BEGIN_SIGNATURE, "draft") \
    VOID(t->real.step->, drafts_level, DRAFTS_LEVEL_SIGNATURE, "draft")

// clang-format off
ALL_OPERATIONS(TIMED_OPERATION, TIMED_VALUE)
COPIES(TIMED_OPERATION)
STEP_OPERATIONS(TIMED_VOID)
// clang-format on

#define TIME(name, SIGNATURE) b->name = timed_##name;
#define TIME_STEP(TABLE, name, SIGNATURE, entry) t->step.name = timed_##name;

void timed_begin(struct timed *t, struct backend *b)
{
    assert(b->timed == NULL);
    *t = (struct timed){ .backend = b, .real = *b };
    ALL_OPERATIONS(TIME, TIME)
    COPIES(TIME)
    if (b->step != NULL) {
        t->step = *b->step;
        STEP_OPERATIONS(TIME_STEP)
        b->step = &t->step;
    }
    b->sync = timed_sync;
    b->graph_launch = NULL;
    b->graph_end = NULL;
    b->bucket = NULL;
    b->timed = t;
}

bool timed_end(struct timed *t, struct error *err)
{
    *t->backend = t->real;
    if (t->failed)
        *err = t->err;
    return !t->failed;
}
