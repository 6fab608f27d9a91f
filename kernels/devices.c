#include "kernels/devices.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"

// The processor with the fastest instruction set that it supports, and with each one by name (kernels/cpu/isa.c), then
// the GPUs.
#define GPUS(kind) \
    kind ":0", kind ":1", kind ":2", kind ":3", kind ":4", kind ":5", kind ":6", kind ":7", kind ":8", kind ":9", \
        kind ":10", kind ":11", kind ":12", kind ":13", kind ":14", kind ":15"
static const char *const names[] = {
    "cpu",      "cpu:plain",        "cpu:avx2",   "cpu:avx2_vnni", "cpu:avx512", "cpu:avx512_vnni", "cpu:avx512_bf16",
    "cpu:neon", "cpu:neon_dotprod", GPUS("cuda"), GPUS("cublas")
};
enum { NAMES = sizeof(names) / sizeof(names[0]), MAX_GPUS = 16, CUBLAS = NAMES - MAX_GPUS, CUDA = CUBLAS - MAX_GPUS };

struct devices {
    int threads;
    void (*log)(void *self, const char *sentence);
    void *log_self;
    struct backend *backend[NAMES]; // backends, indexed like names
};

struct devices *devices_create(int threads)
{
    struct devices *d = xcalloc(1, sizeof(*d));
    d->threads = threads;
    return d;
}

void devices_log(struct devices *d, void (*log)(void *self, const char *sentence), void *self)
{
    d->log = log;
    d->log_self = self;
}

void devices_destroy(struct devices *d)
{
    for (int i = NAMES - 1; d != NULL && i >= 0; i--)
        if (d->backend[i] != NULL)
            d->backend[i]->destroy(d->backend[i]);
    free(d);
}

// Returns the index in `names` of a device; -1: there is none of that name.
static int number_of(const char *name)
{
    if (name == NULL)
        return 0;
    if (strcmp(name, "cuda") == 0)
        return CUDA;
    if (strcmp(name, "cublas") == 0)
        return CUBLAS;
    for (int i = 0; i < NAMES; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

bool device_name_check(const char *name, const char *what, struct error *err)
{
    if (number_of(name) >= 0)
        return true;
    if (strncmp(name, "cpu:", 4) == 0)
        return fail(err,
                    "%s: expected cpu:plain, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, neon or neon_dotprod, "
                    "found \"%s\"",
                    what, name);
    return fail(err, "%s: expected " DEVICE_NAMES " (N up to %d), found \"%s\"", what, MAX_GPUS - 1, name);
}

static struct backend *open_cpu(const struct devices *d, int number, struct error *err)
{
    const char *isa = number > 0 ? names[number] + strlen("cpu:") : NULL;
    for (int i = 0; i < CUDA; i++)
        if (d->backend[i] != NULL)
            return backend_cpu_beside(d->backend[i], isa, err);
    return backend_cpu_with(d->threads, isa, err);
}

struct backend *devices_get(struct devices *d, const char *name, struct error *err)
{
    if (!device_name_check(name, "device", err))
        return NULL;
    const int number = number_of(name);
    struct backend **b = &d->backend[number];
    if (*b != NULL)
        return *b;
    *b = number < CUDA     ? open_cpu(d, number, err)
         : number < CUBLAS ? backend_cuda(number - CUDA, err)
                           : backend_cublas(number - CUBLAS, err);
    if (*b != NULL) {
        (*b)->log = d->log;
        (*b)->log_self = d->log_self;
    }
    return *b;
}

const char *devices_name(const struct devices *d, const struct backend *b)
{
    int i = NAMES - 1;
    while (i > 0 && d->backend[i] != b)
        i--;
    return names[i];
}
