// gguf_value.c - GGUF metadata as C types, and the names of GGUF's tensor types.
#include <string.h>

#include "formats/gguf.h"

// gguf_open has checked that the raw bytes lie in the file; they are unaligned.
#define LOAD(type, raw, to) \
    do { \
        type loaded; \
        memcpy(&loaded, raw, sizeof(type)); \
        *(to) = loaded; \
    } while (0)

static bool int_at(enum gguf_type type, const uint8_t *raw, uint64_t i, int64_t *to)
{
    uint64_t u;
    switch (type) {
    case GGUF_U8:
        LOAD(uint8_t, raw + i, to);
        return true;
    case GGUF_I8:
        LOAD(int8_t, raw + i, to);
        return true;
    case GGUF_U16:
        LOAD(uint16_t, raw + 2 * i, to);
        return true;
    case GGUF_I16:
        LOAD(int16_t, raw + 2 * i, to);
        return true;
    case GGUF_U32:
        LOAD(uint32_t, raw + 4 * i, to);
        return true;
    case GGUF_I32:
        LOAD(int32_t, raw + 4 * i, to);
        return true;
    case GGUF_U64:
        LOAD(uint64_t, raw + 8 * i, &u);
        if (u > INT64_MAX)
            return false;
        *to = (int64_t)u;
        return true;
    case GGUF_I64:
        LOAD(int64_t, raw + 8 * i, to);
        return true;
    default:
        return false;
    }
}

static bool real_at(enum gguf_type type, const uint8_t *raw, uint64_t i, double *to)
{
    if (type == GGUF_F32)
        LOAD(float, raw + 4 * i, to);
    else if (type == GGUF_F64)
        LOAD(double, raw + 8 * i, to);
    return type == GGUF_F32 || type == GGUF_F64;
}

static struct gguf_string string_at(const uint8_t *raw)
{
    uint64_t n;
    LOAD(uint64_t, raw, &n);
    return (struct gguf_string){ (const char *)raw + sizeof(n), (size_t)n };
}

bool gguf_int(const struct gguf *g, const char *key, int64_t *to)
{
    const struct gguf_value *v = gguf_find(g, key);
    return v != NULL && int_at(v->type, v->raw, 0, to);
}

bool gguf_real(const struct gguf *g, const char *key, double *to)
{
    const struct gguf_value *v = gguf_find(g, key);
    return v != NULL && real_at(v->type, v->raw, 0, to);
}

bool gguf_bool(const struct gguf *g, const char *key, bool *to)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (v == NULL || v->type != GGUF_BOOL)
        return false;
    *to = *v->raw != 0;
    return true;
}

bool gguf_text(const struct gguf *g, const char *key, struct gguf_string *to)
{
    const struct gguf_value *v = gguf_find(g, key);
    if (v == NULL || v->type != GGUF_STRING)
        return false;
    *to = string_at(v->raw);
    return true;
}

bool gguf_next_string(const struct gguf_value *array, size_t *at, struct gguf_string *to)
{
    if (array == NULL || array->type != GGUF_ARRAY || array->element != GGUF_STRING || *at >= array->raw_bytes)
        return false;
    *to = string_at(array->raw + *at);
    *at += sizeof(uint64_t) + to->n;
    return true;
}

int64_t gguf_array_int(const struct gguf_value *array, uint64_t i)
{
    int64_t v = 0;
    if (array != NULL && array->type == GGUF_ARRAY && i < array->n)
        int_at(array->element, array->raw, i, &v);
    return v;
}

double gguf_array_real(const struct gguf_value *array, uint64_t i)
{
    double v = 0;
    if (array != NULL && array->type == GGUF_ARRAY && i < array->n && !real_at(array->element, array->raw, i, &v))
        v = (double)gguf_array_int(array, i);
    return v;
}

const char *gguf_type_name(int ggml_type)
{
    static const char *const name[] = {
        [0] = "F32",     [1] = "F16",    [2] = "Q4_0",     [3] = "Q4_1",    [6] = "Q5_0",     [7] = "Q5_1",
        [8] = "Q8_0",    [9] = "Q8_1",   [10] = "Q2_K",    [11] = "Q3_K",   [12] = "Q4_K",    [13] = "Q5_K",
        [14] = "Q6_K",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
        [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",      [25] = "I16",
        [26] = "I32",    [27] = "I64",   [28] = "F64",     [29] = "IQ1_M",  [30] = "BF16",    [34] = "TQ1_0",
        [35] = "TQ2_0",  [39] = "MXFP4",
    };
    bool listed = ggml_type >= 0 && (size_t)ggml_type < sizeof(name) / sizeof(*name) && name[ggml_type] != NULL;
    return listed ? name[ggml_type] : "unknown type";
}
