// cpu.c - the CPU backend: its table of operations, its memory and its threads.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/packed.h"
#include "kernels/cpu/threads.h"

// ---- memory

static void *cpu_alloc(struct backend *b, size_t bytes)
{
    (void)b;
    void *p = NULL;
    return posix_memalign(&p, 64, bytes != 0 ? bytes : 64) == 0 ? p : NULL;
}

static void cpu_release(struct backend *b, void *data)
{
    (void)b;
    free(data);
}

static void cpu_copy(struct backend *b, void *to, const void *from, size_t bytes)
{
    (void)b;
    memcpy(to, from, bytes);
}

static void *cpu_host(struct backend *b, void *data)
{
    (void)b;
    return data;
}

static bool cpu_sync(struct backend *b, struct error *err)
{
    (void)b, (void)err;
    return true;
}

// Nothing is queued, so the stamp is taken now.
static void cpu_stamp(struct backend *b, int number)
{
    assert(number >= 0 && number < MAX_STAMPS);
    ((struct cpu *)b)->stamp[number] = clock_ns();
}

static int64_t cpu_between(struct backend *b, int from, int to)
{
    const struct cpu *c = (const struct cpu *)b;
    return c->stamp[to] - c->stamp[from];
}

static bool cpu_memory(struct backend *b, size_t *free_bytes, size_t *all)
{
    (void)b, (void)free_bytes, (void)all;
    return false;
}

static enum activations cpu_rounds_to(struct backend *b, enum activations wanted, enum type weights)
{
    (void)b;
    return activations_resolve(wanted, weights);
}

static const char *cpu_describe(struct backend *b)
{
    return ((struct cpu *)b)->description;
}

// ---- the threads, for other modules

struct workers_job {
    void (*job)(void *of, int number);
    void *of;
};

static void run_workers_job(void *self, int number, int thread)
{
    (void)thread;
    const struct workers_job *l = self;
    l->job(l->of, number);
}

static void run_on_threads(void *self, int jobs, void (*job)(void *of, int number), void *of)
{
    struct workers_job l = { job, of };
    threads_run(self, jobs, run_workers_job, &l);
}

static struct workers cpu_workers(struct backend *b)
{
    return (struct workers){ run_on_threads, ((struct cpu *)b)->threads };
}

static void cpu_destroy(struct backend *b)
{
    struct cpu *c = (struct cpu *)b;
    for (int i = 0; i < threads_count(c->threads); i++)
        free(c->scratch[i].data);
    free(c->scratch);
    free(c->rounded.data);
    free(c->gated.data);
    free(c->groups.data);
    free(c->positions.data);
    free(c->partial.data);
    threads_destroy(c->threads);
    free(c);
}

static const struct backend table = { .name = "cpu",
                                      .alloc = cpu_alloc,
                                      .release = cpu_release,
                                      .upload = cpu_copy,
                                      .download = cpu_copy,
                                      .host = cpu_host,
                                      .sync = cpu_sync,
                                      .destroy = cpu_destroy,
                                      .describe = cpu_describe,
                                      .stamp = cpu_stamp,
                                      .between = cpu_between,
                                      .memory = cpu_memory,
                                      .rounds_to = cpu_rounds_to,
                                      .workers = cpu_workers,
                                      .prepare = cpu_prepare,
                                      .unprepare = cpu_unprepare,
                                      .packed_layout = PACKED_LAYOUT,
                                      .packed = cpu_packed,
#define ENTRY(name, SIGNATURE) .name = cpu_##name,
                                      ALL_OPERATIONS(ENTRY, ENTRY)
#undef ENTRY
};

static struct backend *create(int threads, struct threads *shared, const char *isa, struct error *err)
{
    const struct cpu_kernels *kernels = cpu_kernels_choose(isa);
    if (kernels == NULL) {
        fail(err, "cpu: this processor does not support %s", isa);
        return NULL;
    }
    struct cpu *c = xcalloc(1, sizeof(*c));
    c->backend = table;
    c->kernels = kernels;
    c->threads = shared != NULL ? threads_share(shared) : threads_create(threads > 0 ? threads : threads_available());
    int n = threads_count(c->threads);
    c->scratch = xcalloc((size_t)n, sizeof(*c->scratch));
    snprintf(c->description, sizeof(c->description), "%s, %d thread%s", kernels->name, n, n == 1 ? "" : "s");
    return &c->backend;
}

struct backend *backend_cpu_with(int threads, const char *isa, struct error *err)
{
    return create(threads, NULL, isa, err);
}

struct backend *backend_cpu_beside(struct backend *beside, const char *isa, struct error *err)
{
    return create(0, beside->workers(beside).self, isa, err);
}

struct backend *backend_cpu(int threads, struct error *err)
{
    return backend_cpu_with(threads, NULL, err);
}
