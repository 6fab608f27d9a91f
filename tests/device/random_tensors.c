#include "tests/device/random_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/splitmix.h"
#include "kernels/backend.h"

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

enum { MOST = 4096, MOST_WEIGHTS = 256 };
static void *kept[MOST]; // until scratch_free
static struct {
    struct backend *b;
    struct tensor w;
} weight[MOST_WEIGHTS];
static int n_kept, n_weights;

void *scratch(int64_t bytes)
{
    if (n_kept == MOST)
        abort();
    return kept[n_kept++] = xcalloc((size_t)bytes + 1, 1);
}

struct tensor prepared(struct backend *b, void *data, enum type type, int64_t rows, int64_t width, enum activations a)
{
    struct error err = { "" };
    const struct tensor w = b->prepare(b, tensor_of(data, type, rows, width), a, &err);
    if (w.data == NULL || n_weights == MOST_WEIGHTS) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    weight[n_weights].b = b;
    weight[n_weights++].w = w;
    return w;
}

void scratch_free(void)
{
    for (; n_weights > 0; n_weights--)
        weight[n_weights - 1].b->unprepare(weight[n_weights - 1].b, weight[n_weights - 1].w);
    while (n_kept > 0)
        free(kept[--n_kept]);
}

float *zeros(int64_t n)
{
    return scratch(n * (int64_t)sizeof(float));
}

double *doubles(int64_t n)
{
    return scratch(n * (int64_t)sizeof(double));
}

float *copied(const float *x, int64_t n)
{
    return memcpy(zeros(n), x, (size_t)n * sizeof(*x));
}

int32_t *each_row(int64_t n)
{
    int32_t *row = scratch(n * (int64_t)sizeof(*row));
    for (int64_t i = 0; i < n; i++)
        row[i] = (int32_t)i;
    return row;
}

float *uniforms(int64_t n)
{
    float *x = zeros(n);
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
        [Q8_0] = { 0, -1 },   [Q4_0] = { 0, -1 },   [Q4_1] = { 0, 2 },    [Q5_0] = { 0, -1 },
        [Q5_1] = { 0, 2 },    [Q4_K] = { 0, 2 },    [Q5_K] = { 0, 2 },    [Q6_K] = { 208, -1 },
        [IQ4_NL] = { 0, -1 }, [IQ4_XS] = { 0, -1 }, [MXFP4] = { -1, -1 }, [F8_E4M3] = { -1, -1 }
    };
    size_t bytes = (size_t)rows * type_row_bytes(type, width);
    uint8_t *b = scratch((int64_t)bytes);
    for (size_t i = 0; i < bytes; i++)
        b[i] = (uint8_t)next();
    for (size_t at = 0; at < bytes; at += (size_t)type_facts[type].bytes) {
        if (type == F16 || type == BF16) {
            uint16_t h = (uint16_t)((type == F16 ? 0x3000 : 0x3E00) | (next() & 0x83FF));
            memcpy(b + at, &h, 2);
        } else if (type == F32) {
            float x = uniform();
            memcpy(b + at, &x, 4);
        } else if (type == F8_E4M3) {
            const float d = uniform() * 0x1p-9f;
            memcpy(b + at, &d, 4);
            for (int i = 4; i < type_facts[type].bytes; i++)
                b[at + (size_t)i] ^= (b[at + (size_t)i] & 0x7F) == 0x7F; // NaN
        } else if (type == MXFP4) {
            b[at] = (uint8_t)(112 + next() % 8);
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
