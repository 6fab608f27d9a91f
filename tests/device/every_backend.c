// every_backend.c - see every_backend.h.
#include "tests/device/every_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "exact/instance.h"
#include "tests/device/host_memory_device.h"

struct backend *backends[MAX_BACKENDS];
bool slow[MAX_BACKENDS];
int n_backends;

static uint64_t state = 1;

uint64_t next(void)
{
    return splitmix(&state);
}

void seed(uint64_t to)
{
    state = to;
}

static float uniform(void)
{
    return (float)(next() >> 40) * 0x1p-23f - 1;
}

float *uniforms(int64_t n)
{
    float *x = xmalloc((size_t)n * sizeof(*x));
    for (int64_t i = 0; i < n; i++)
        x[i] = uniform();
    return x;
}

struct tensor floats(float *x, int64_t rows, int64_t width)
{
    return tensor_of(x, F32, rows, width);
}

// Random blocks with plausible scales: random bytes, in which the halves that scale a block are then replaced.
uint8_t *blocks(enum type type, int64_t rows, int64_t width)
{
    static const int scales[TYPES][2] = {
        [Q8_0] = { 0, -1 }, [Q4_0] = { 0, -1 }, [Q4_1] = { 0, 2 }, [Q5_0] = { 0, -1 },
        [Q5_1] = { 0, 2 },  [Q4_K] = { 0, 2 },  [Q5_K] = { 0, 2 }, [Q6_K] = { 208, -1 }
    };
    size_t bytes = (size_t)rows * type_row_bytes(type, width);
    uint8_t *b = xmalloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        b[i] = (uint8_t)next();
    for (size_t at = 0; at < bytes; at += (size_t)type_facts[type].bytes) {
        if (type == F16 || type == BF16) {
            uint16_t h = (uint16_t)((type == F16 ? 0x3000 : 0x3E00) | (next() & 0x83FF));
            memcpy(b + at, &h, 2);
        } else if (type == F32) {
            float x = uniform();
            memcpy(b + at, &x, 4);
        } else {
            for (int s = 0; s < 2; s++)
                if (scales[type][s] >= 0) {
                    uint16_t h = (uint16_t)(0x2000 | (next() & 0x87FF));
                    memcpy(b + at + scales[type][s], &h, 2);
                }
        }
    }
    return b;
}

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
    static const char *const isa[] = { "plain", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16" };
    static const int threads[] = { 3, 2, 3, 1, 2, 2 };
    const char *only = argc > 1 ? argv[1] : NULL;
    for (int i = 0; i < 6 && is_selected(only, "cpu"); i++) {
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

int backends_close(void **unused)
{
    for (int i = 0; i < n_backends; i++)
        backends[i]->destroy(backends[i]);
    return 0;
}
