#include "core/tensor.h"

#include <assert.h>

// clang-format off
const struct type_facts type_facts[TYPES] = {
    [F32] = { "f32", 1, 4, 0 },       [F16] = { "f16", 1, 2, 1 },       [BF16] = { "bf16", 1, 2, 30 },
    [Q8_0] = { "q8_0", 32, 34, 8 },   [Q4_0] = { "q4_0", 32, 18, 2 },   [Q4_1] = { "q4_1", 32, 20, 3 },
    [Q5_0] = { "q5_0", 32, 22, 6 },   [Q5_1] = { "q5_1", 32, 24, 7 },   [Q4_K] = { "q4_k", 256, 144, 12 },
    [Q5_K] = { "q5_k", 256, 176, 13 }, [Q6_K] = { "q6_k", 256, 210, 14 },
    [IQ4_NL] = { "iq4_nl", 32, 18, 20 }, [IQ4_XS] = { "iq4_xs", 256, 136, 23 }, [MXFP4] = { "mxfp4", 32, 17, 39 },
    [F8_E4M3] = { "f8_e4m3", 128, 132, -1 },
};
// clang-format on

const char *const activations_names[] = { "default", "f32", "bf16", "int8", NULL };

bool type_has_blocks(enum type type)
{
    return type_facts[type].block > 1;
}

bool type_is_quantized(enum type type)
{
    return type_has_blocks(type) && type != F8_E4M3;
}

enum activations activations_resolve(enum activations a, enum type type)
{
    if (a != ACTIVATIONS_DEFAULT)
        return a;
    const bool is_short = type == BF16 || type == F8_E4M3;
    return type_is_quantized(type) ? ACTIVATIONS_INT8 : is_short ? ACTIVATIONS_BF16 : ACTIVATIONS_F32;
}

size_t type_row_bytes(enum type type, int64_t width)
{
    const struct type_facts *f = &type_facts[type];
    assert(width % f->block == 0);
    return (size_t)(width / f->block) * (size_t)f->bytes;
}

size_t tensor_bytes(struct tensor t)
{
    return (size_t)t.rows * type_row_bytes(t.type, t.width);
}

struct tensor tensor_of(void *data, enum type type, int64_t rows, int64_t width)
{
    return (struct tensor){ .data = data, .type = type, .rows = rows, .width = width };
}

struct tensor tensor_rows(struct tensor t, int64_t first, int64_t n)
{
    assert(first >= 0 && n >= 0 && first + n <= t.rows && t.packed == NULL);
    struct tensor view =
        tensor_of((char *)t.data + (size_t)first * type_row_bytes(t.type, t.width), t.type, n, t.width);
    view.rounded = first == 0 ? t.rounded : 0;
    return view;
}

bool type_from_ggml(int ggml, enum type *type)
{
    for (int i = 0; i < TYPES; i++)
        if (ggml >= 0 && type_facts[i].ggml == ggml) {
            *type = (enum type)i;
            return true;
        }
    return false;
}
