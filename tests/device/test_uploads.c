// test_uploads.c - weights of more than a panel (kernels/cuda/prepare.cu), which threads copy to pinned memory, two panels in turn; and rows of zeros
// in a cache.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/device/gpus.h"
#include "tests/support/tests.h"

// F32 keeps its form. The host's numbers change as soon as prepare() returns.
TEST(bytes_arrive_unchanged)
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

TEST(only_the_rows_behind_the_prefix_become_zeros)
{
    enum { LAYERS = 2, LENGTH = 20, WIDTH = 32, SLOTS = 2, BYTES = SLOTS * LENGTH * WIDTH * 2 };
    struct kv_shape shape = {
        .layers = LAYERS, .width = WIDTH, .head_dim = 16, .slots = SLOTS, .length = LENGTH, .pending = 4, .type = BF16
    };
    static uint8_t bytes[BYTES];
    struct gpu_here gpu[MAX_GPUS_HERE];
    for (int g = gpus_here(gpu) - 1; g >= 0; g--) {
        struct error err;
        struct backend *b = gpu_open(&gpu[g]);
        struct kv_cache *c = kv_create(b, &shape, &err);
        assert_ok(c != NULL, err);
        memset(bytes, 0x11, BYTES);
        for (int l = 0; l < LAYERS; l++) {
            b->upload(b, kv_keys(c, l).data, bytes, BYTES);
            b->upload(b, kv_values(c, l).data, bytes, BYTES);
        }
        assert_true(kv_append_zeros(c, 1, 3) && kv_append_zeros(c, 1, 0) && kv_append_zeros(c, 1, 4));
        assert_true(kv_length(c, 0) == 0 && kv_length(c, 1) == 7 && kv_pending(c, 1) == 0);
        for (int i = 0; i < 2 * LAYERS; i++) {
            b->download(b, bytes, (i % 2 == 0 ? kv_keys(c, i / 2) : kv_values(c, i / 2)).data, BYTES);
            for (int k = 0; k < BYTES; k++)
                assert_int_equal(bytes[k], k / (2 * WIDTH) >= LENGTH && k / (2 * WIDTH) < LENGTH + 7 ? 0 : 0x11);
        }
        kv_destroy(c);
        gpu_close(b);
    }

    struct kv_shape windowed = shape;
    windowed.length = 8192;
    windowed.window = 256;
    layer_set_add(&windowed.windowed, 0);
    struct error err;
    struct backend *b = backend_cpu(1, &err);
    struct kv_cache *c = kv_create(b, &windowed, &err);
    assert_ok(c != NULL, err);
    assert_false(kv_append_zeros(c, 0, 3));
    assert_int_equal(kv_length(c, 0), 0);
    kv_destroy(c);
    b->destroy(b);
}

RUN_TESTS(NULL, NULL)
