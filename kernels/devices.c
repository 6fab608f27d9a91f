#include "kernels/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"

enum { MAX_GPUS = 16 };

struct devices {
    int threads;
    struct backend *(*wrap)(struct backend *b); // NULL: nothing
    struct backend *cpu, *gpu[MAX_GPUS], *by_cublas[MAX_GPUS];
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

static void close_one(struct backend *b)
{
    if (b != NULL)
        b->destroy(b);
}

void devices_destroy(struct devices *d)
{
    if (d == NULL)
        return;
    for (int i = 0; i < MAX_GPUS; i++) {
        close_one(d->gpu[i]);
        close_one(d->by_cublas[i]);
    }
    close_one(d->cpu);
    free(d);
}

struct place {
    enum { NOWHERE, ON_CPU, ON_GPU, BY_CUBLAS } kind;
    int number; // the GPU's
};

// What "cuda" and "cuda:1" say behind "cuda"; -1: nothing that is a GPU's number.
static int number_of(const char *rest)
{
    if (*rest == '\0')
        return 0;
    if (rest[0] != ':' || rest[1] < '0' || rest[1] > '9')
        return -1;
    char *end;
    const long n = strtol(rest + 1, &end, 10);
    return *end == '\0' && n < MAX_GPUS ? (int)n : -1;
}

static struct place place_of(const char *name)
{
    struct place at = { ON_CPU, 0 };
    if (name == NULL || strcmp(name, "cpu") == 0)
        return at;
    if (strncmp(name, "cuda", 4) == 0)
        at = (struct place){ ON_GPU, number_of(name + 4) };
    else if (strncmp(name, "cublas", 6) == 0)
        at = (struct place){ BY_CUBLAS, number_of(name + 6) };
    else
        at.number = -1;
    return at.number < 0 ? (struct place){ NOWHERE, 0 } : at;
}

bool device_name_check(const char *name, const char *what, struct error *err)
{
    return place_of(name).kind != NOWHERE ||
           fail(err, "%s: expected " DEVICE_NAMES " (N up to %d), found \"%s\"", what, MAX_GPUS - 1, name);
}

struct backend *devices_get(struct devices *d, const char *name, struct error *err)
{
    const struct place at = place_of(name);
    if (!device_name_check(name, "device", err))
        return NULL;
    struct backend **to = at.kind == ON_CPU   ? &d->cpu
                          : at.kind == ON_GPU ? &d->gpu[at.number]
                                              : &d->by_cublas[at.number];
    if (*to != NULL)
        return *to;
    struct backend *b = at.kind == ON_CPU   ? backend_cpu(d->threads, err)
                        : at.kind == ON_GPU ? backend_cuda(at.number, err)
                                            : backend_cublas(at.number, err);
    return *to = b != NULL && d->wrap != NULL ? d->wrap(b) : b;
}

const char *devices_name(const struct devices *d, const struct backend *b)
{
    for (int i = 0; i < MAX_GPUS; i++)
        if (d->gpu[i] == b || d->by_cublas[i] == b)
            return d->gpu[i] == b ? d->gpu_name[i] : d->cublas_name[i];
    return "cpu";
}
