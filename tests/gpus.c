#include "tests/gpus.h"

#include <stdio.h>

#include "core/error.h"
#include "kernels/backend.h"
#include "tests/emulated.h"

#if defined(EMULATED_DEVICE)
static struct backend *open_emulated(struct error *err)
{
    return backend_emulated(0, err);
}
#endif

static struct backend *open_cuda(struct error *err)
{
    return backend_cuda(0, err);
}

int gpus_here(struct gpu_here to[MAX_GPUS_HERE])
{
    int n = 0;
    struct error err;
#if defined(EMULATED_DEVICE)
    to[n++] = (struct gpu_here){ "emulated", open_emulated };
#endif
    struct backend *b = backend_cuda(0, &err);
    if (b == NULL) {
        printf("not on this machine: %s\n", err.text);
        return n;
    }
    b->destroy(b);
    to[n++] = (struct gpu_here){ "cuda", open_cuda };
    return n;
}
