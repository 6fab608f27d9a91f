#include "core/tensor.h"

#include <assert.h>

#include "core/settings.h"

#define ROW(...) TYPE_FACTS(__VA_ARGS__),
const struct type_facts type_facts[TYPES] = { ALL_TYPES(ROW) };

const char *const activations_names[] = { "default", "f32", "bf16", "int8", NULL };

bool type_has_blocks(enum type type)
{
    return type_facts[type].block > 1;
}

bool type_is_quantized(enum type type)
{
    return type_has_blocks(type) && type_facts[type].numbers != NUMBERS_E4M3;
}

enum activations activations_resolve(enum activations a, enum type type)
{
    if (a != ACTIVATIONS_DEFAULT)
        return a;
    const bool is_short = type == BF16 || type_facts[type].numbers == NUMBERS_E4M3;
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

enum type type_chosen(const char *choices, int i)
{
    enum type type = 0;
    while (type < TYPES && choice_index(choices, type_facts[type].name) != i)
        type++;
    return type;
}
