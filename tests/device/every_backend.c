// every_backend.c - see every_backend.h.
#include "tests/device/every_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "tests/device/host_memory_device.h"

struct backend *backends[MAX_BACKENDS];
bool slow[MAX_BACKENDS];
int n_backends;
static double largest[MAX_BACKENDS]; // distance from a reference

static bool is_selected(const char *only, const char *device)
{
    return only == NULL || strcmp(only, device) == 0;
}

// A GPU has memory of its own, so it is wrapped for host tensors. The emulated one is slow, so it gets small shapes.
static void add_gpus(const char *only, bool small_shapes)
{
    struct error err;
    struct gpu_here gpu[MAX_GPUS_HERE];
    const int n = gpus_here(gpu);
    for (int i = 0; i < n; i++)
        if (is_selected(only, gpu[i].name)) {
            struct backend *b = gpu[i].open(&err);
            assert_non_null(b);
            slow[n_backends] = gpu[i].emulated || small_shapes;
            backends[n_backends++] = backend_host_memory(b);
        }
}

bool backends_open(int argc, char **argv)
{
    static const char *const isa[CPUS] = { "plain",       "avx2",        "avx2_vnni", "avx512",
                                           "avx512_vnni", "avx512_bf16", "neon",      "neon_dotprod" };
    static const int threads[CPUS] = { 3, 2, 3, 1, 2, 2, 2, 3 };
    const char *only = argc > 1 ? argv[1] : NULL;
    for (int i = 0; i < CPUS && is_selected(only, "cpu"); i++) {
        struct error err;
        struct backend *b = backend_cpu_with(threads[i], isa[i], &err);
        if (b == NULL)
            printf("skipped: %s\n", err.text);
        else
            backends[n_backends++] = b;
    }
    add_gpus(only, argc > 2);
    return n_backends > 0;
}

void backends_note(const struct backend *b, double distance)
{
    for (int i = 0; i < n_backends; i++)
        if (backends[i] == b && distance > largest[i])
            largest[i] = distance;
}

int backends_close(void **unused)
{
    for (int i = 0; i < n_backends; i++) {
        if (largest[i] > 0)
            printf("largest distance from a reference: %.2g, %s\n", largest[i], backends[i]->describe(backends[i]));
        backends[i]->destroy(backends[i]);
    }
    return 0;
}
