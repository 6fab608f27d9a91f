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
    struct backend *cpu, *gpu[MAX_GPUS];
    char gpu_name[MAX_GPUS][24];
};

struct devices *devices_create(int threads, struct backend *(*wrap)(struct backend *b))
{
    struct devices *d = xcalloc(1, sizeof(*d));
    d->threads = threads;
    d->wrap = wrap;
    for (int i = 0; i < MAX_GPUS; i++)
        snprintf(d->gpu_name[i], sizeof(d->gpu_name[i]), "cuda:%d", i);
    return d;
}

void devices_destroy(struct devices *d)
{
    if (d == NULL)
        return;
    for (int i = 0; i < MAX_GPUS; i++)
        if (d->gpu[i] != NULL)
            d->gpu[i]->destroy(d->gpu[i]);
    if (d->cpu != NULL)
        d->cpu->destroy(d->cpu);
    free(d);
}

// The number of the GPU; -1: the CPU; -2: no name of a device.
static int number_of(const char *name)
{
    if (name == NULL || strcmp(name, "cpu") == 0)
        return -1;
    if (strcmp(name, "cuda") == 0)
        return 0;
    if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -2;
    char *end;
    const long n = strtol(name + 5, &end, 10);
    return *end == '\0' && n < MAX_GPUS ? (int)n : -2;
}

bool device_name_check(const char *name, const char *what, struct error *err)
{
    return number_of(name) != -2 ||
           fail(err, "%s: expected cpu, cuda or cuda:0 to cuda:%d, found \"%s\"", what, MAX_GPUS - 1, name);
}

struct backend *devices_get(struct devices *d, const char *name, struct error *err)
{
    if (!device_name_check(name, "device", err))
        return NULL;
    const int n = number_of(name);
    struct backend **at = n < 0 ? &d->cpu : &d->gpu[n];
    if (*at != NULL)
        return *at;
    struct backend *b = n < 0 ? backend_cpu(d->threads, err) : backend_cuda(n, err);
    return *at = b != NULL && d->wrap != NULL ? d->wrap(b) : b;
}

const char *devices_name(const struct devices *d, const struct backend *b)
{
    for (int i = 0; i < MAX_GPUS; i++)
        if (d->gpu[i] == b)
            return d->gpu_name[i];
    return "cpu";
}
