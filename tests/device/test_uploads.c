// test_uploads.c - weights of more than a panel (kernels/cuda/prepare.cu): threads copy them to pinned memory, two panels in turn.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "tests/device/gpus.h"
#include "tests/support/check.h"

// F32 keeps its form. The host's numbers change as soon as prepare() returns.
static void bytes_arrive_unchanged(void **state)
{
    enum { WIDTH = 1000 };
    static const int64_t sizes[] = { 1, 700, 33000, 3, 36001 }; // rows; a panel has 16777
    struct gpu_here gpu[MAX_GPUS_HERE];
    for (int g = gpus_here(gpu) - 1; g >= 0; g--) {
        struct backend *b = gpu_open(&gpu[g]);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            const size_t n = (size_t)sizes[i] * WIDTH, bytes = n * sizeof(float);
            struct error err;
            uint32_t *x = xmalloc(bytes), *got = xmalloc(bytes);
            for (size_t k = 0; k < n; k++)
                x[k] = (uint32_t)(k * 2654435761u >> 4);
            const struct tensor w = b->prepare(b, tensor_of(x, F32, sizes[i], WIDTH), ACTIVATIONS_F32, &err);
            assert_ok(w.data != NULL, err);
            memset(x, 0xFF, bytes);
            b->download(b, got, w.data, bytes);
            for (size_t k = 0; k < n; k++)
                if (got[k] != (uint32_t)(k * 2654435761u >> 4))
                    fail_msg("%s: number %zu of %zu: found %x", gpu[g].name, k, n, got[k]);
            b->unprepare(b, w);
            free(x);
            free(got);
        }
        gpu_close(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(bytes_arrive_unchanged) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
