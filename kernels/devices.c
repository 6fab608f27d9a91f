#include "kernels/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"

enum { MAX_GPUS = 16 };
// The processor with the fastest instruction set that it supports, and with each one by name (kernels/cpu/isa.c).
static const char *const cpu_name[] = {
    "cpu",      "cpu:plain",       "cpu:avx2", "cpu:avx2_vnni", "cpu:avx512", "cpu:avx512_vnni", "cpu:avx512_bf16",
    "cpu:neon", "cpu:neon_dotprod"
};
enum { CPUS = sizeof(cpu_name) / sizeof(cpu_name[0]) };

struct devices {
    int threads;
    struct backend *(*wrap)(struct backend *b); // NULL: no wrapper
    void (*log)(void *self, const char *sentence);
    void *log_self;
    struct backend *cpu[CPUS], *gpu[MAX_GPUS], *cublas[MAX_GPUS];
    char gpu_name[MAX_GPUS][24], cublas_name[MAX_GPUS][24];
};

struct devices *devices_create(int threads, struct backend *(*wrap)(struct backend *b))
{
    struct devices *d = xcalloc(1, sizeof(*d));
    d->threads = threads;
    d->wrap = wrap;
    for (int i = 0; i < MAX_GPUS; i++) {
        snprintf(d->gpu_name[i], sizeof(d->gpu_name[i]), "cuda:%d", i);
        snprintf(d->cublas_name[i], sizeof(d->cublas_name[i]), "cublas:%d", i);
    }
    return d;
}

void devices_log(struct devices *d, void (*log)(void *self, const char *sentence), void *self)
{
    d->log = log;
    d->log_self = self;
}

static void destroy_backend(struct backend *b)
{
    if (b != NULL)
        b->destroy(b);
}

void devices_destroy(struct devices *d)
{
    if (d == NULL)
        return;
    for (int i = 0; i < MAX_GPUS; i++) {
        destroy_backend(d->gpu[i]);
        destroy_backend(d->cublas[i]);
    }
    for (int i = 0; i < CPUS; i++)
        destroy_backend(d->cpu[i]);
    free(d);
}

struct device_id {
    enum { INVALID_DEVICE, CPU, CUDA, CUBLAS } kind;
    int number; // of the GPU, or in cpu_name
};

// Parses the rest of a name after "cuda" or "cublas": "" or ":1". Returns -1 if it is not the number of a GPU.
static int parse_number(const char *rest)
{
    if (*rest == '\0')
        return 0;
    if (rest[0] != ':' || rest[1] < '0' || rest[1] > '9')
        return -1;
    char *end;
    const long n = strtol(rest + 1, &end, 10);
    return *end == '\0' && n < MAX_GPUS ? (int)n : -1;
}

static struct device_id parse_device(const char *name)
{
    struct device_id at = { CPU, -1 };
    for (int i = 0; i < CPUS; i++)
        if (name == NULL || strcmp(name, cpu_name[i]) == 0)
            return (struct device_id){ CPU, i };
    if (strncmp(name, "cuda", 4) == 0)
        at = (struct device_id){ CUDA, parse_number(name + 4) };
    else if (strncmp(name, "cublas", 6) == 0)
        at = (struct device_id){ CUBLAS, parse_number(name + 6) };
    return at.number < 0 ? (struct device_id){ INVALID_DEVICE, 0 } : at;
}

bool device_name_check(const char *name, const char *what, struct error *err)
{
    if (parse_device(name).kind == INVALID_DEVICE && strncmp(name, "cpu:", 4) == 0)
        return fail(err,
                    "%s: expected cpu:plain, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, neon or neon_dotprod, "
                    "found \"%s\"",
                    what, name);
    return parse_device(name).kind != INVALID_DEVICE ||
           fail(err, "%s: expected " DEVICE_NAMES " (N up to %d), found \"%s\"", what, MAX_GPUS - 1, name);
}

static struct backend *open_cpu(const struct devices *d, int number, struct error *err)
{
    const char *isa = number > 0 ? cpu_name[number] + strlen("cpu:") : NULL;
    for (int i = 0; i < CPUS; i++)
        if (d->cpu[i] != NULL)
            return backend_cpu_beside(d->cpu[i], isa, err);
    return backend_cpu_with(d->threads, isa, err);
}

struct backend *devices_get(struct devices *d, const char *name, struct error *err)
{
    const struct device_id at = parse_device(name);
    if (!device_name_check(name, "device", err))
        return NULL;
    struct backend **backend = at.kind == CPU    ? &d->cpu[at.number]
                               : at.kind == CUDA ? &d->gpu[at.number]
                                                 : &d->cublas[at.number];
    if (*backend != NULL)
        return *backend;
    struct backend *b = at.kind == CPU    ? open_cpu(d, at.number, err)
                        : at.kind == CUDA ? backend_cuda(at.number, err)
                                          : backend_cublas(at.number, err);
    if (b != NULL) {
        b->log = d->log;
        b->log_self = d->log_self;
    }
    return *backend = b != NULL && d->wrap != NULL ? d->wrap(b) : b;
}

const char *devices_name(const struct devices *d, const struct backend *b)
{
    for (int i = 0; i < MAX_GPUS; i++)
        if (d->gpu[i] == b || d->cublas[i] == b)
            return d->gpu[i] == b ? d->gpu_name[i] : d->cublas_name[i];
    for (int i = 1; i < CPUS; i++)
        if (d->cpu[i] == b)
            return cpu_name[i];
    return "cpu";
}
