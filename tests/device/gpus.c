#include "tests/device/gpus.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "kernels/backend.h"
#include "tests/support/check.h"
#include "tests/device/emulated.h"

static struct backend *open_emulated(struct error *err)
{
    return backend_emulated(0, err);
}

static struct backend *open_emulated_cublas(struct error *err)
{
    return backend_emulated_cublas(0, err);
}

static struct backend *open_cuda(struct error *err)
{
    return backend_cuda(0, err);
}

static struct backend *open_cublas(struct error *err)
{
    return backend_cublas(0, err);
}

int gpus_here(struct gpu_here to[MAX_GPUS_HERE])
{
    static const struct gpu_here all[] = {
        { .name = "emulated", .open = open_emulated, .emulated = true },
        { .name = "emulated-cublas", .open = open_emulated_cublas, .emulated = true },
        { .name = "cuda", .open = open_cuda },
        { .name = "cublas", .open = open_cublas },
    };
    int n = 0;
    for (size_t i = EMULATED_HERE ? 0 : 2; i < sizeof(all) / sizeof(all[0]); i++) {
        struct error err;
        struct backend *b = all[i].open(&err);
        if (b == NULL) {
            printf("not on this machine: %s\n", err.text);
            continue;
        }
        to[n] = all[i];
        to[n++].varies = b->varies;
        b->destroy(b);
    }
    return n;
}

int gpus_of_bits(struct gpu_here to[MAX_GPUS_HERE], int argc, char **argv, int *count, uint64_t *seed)
{
    const bool long_run = argc > 1;
    if (argc > 1)
        *count = atoi(argv[1]);
    if (argc > 2 && seed != NULL)
        *seed = strtoull(argv[2], NULL, 0);
    struct gpu_here all[MAX_GPUS_HERE];
    const int found = gpus_here(all);
    bool real = false;
    int n = 0;
    for (int i = 0; i < found; i++)
        real = real || (!all[i].emulated && !all[i].varies);
    for (int i = 0; i < found; i++)
        if (!all[i].varies && !(long_run && real && all[i].emulated))
            to[n++] = all[i];
    return n;
}

struct backend *gpu_open(const struct gpu_here *g)
{
    struct error err;
    struct backend *b = g->open(&err);
    assert_ok(b != NULL, err);
    return b;
}

void gpu_close(struct backend *b)
{
    struct error err;
    assert_ok(b->sync(b, &err), err);
    b->destroy(b);
}
