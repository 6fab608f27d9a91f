// gguf_value.c - converts values of GGUF metadata to C types, and names GGUF's tensor types.
#include "models/formats/gguf_value.h"

#include <string.h>

#include "core/tensor.h"

// gguf_open has checked that the raw bytes lie in the file; they are unaligned and little-endian.
static bool int_at(enum gguf_type type, const uint8_t *raw, uint64_t i, int64_t *to)
{
    static const struct {
        uint8_t bytes;
        bool is_signed;
    } integer[GGUF_F64 + 1] = {
        [GGUF_U8] = { 1, false },  [GGUF_I8] = { 1, true },  [GGUF_U16] = { 2, false }, [GGUF_I16] = { 2, true },
        [GGUF_U32] = { 4, false }, [GGUF_I32] = { 4, true }, [GGUF_U64] = { 8, false }, [GGUF_I64] = { 8, true },
    };
    const size_t bytes = integer[type].bytes;
    const int unused = 64 - 8 * (int)bytes; // the bits of the 64 above the number's bits
    uint64_t u = 0;
    if (bytes == 0)
        return false;
    memcpy(&u, raw + bytes * i, bytes);
    if (integer[type].is_signed)
        u = (uint64_t)((int64_t)(u << unused) >> unused);
    else if (u > INT64_MAX)
        return false;
    *to = (int64_t)u;
    return true;
}

static bool real_at(enum gguf_type type, const uint8_t *raw, uint64_t i, double *to)
{
    float single;
    if (type == GGUF_F64)
        memcpy(to, raw + sizeof(*to) * i, sizeof(*to));
    if (type == GGUF_F32) {
        memcpy(&single, raw + sizeof(single) * i, sizeof(single));
        *to = (double)single;
    }
    return type == GGUF_F32 || type == GGUF_F64;
}

static struct gguf_string string_at(const uint8_t *raw)
{
    uint64_t n;
    memcpy(&n, raw, sizeof(n));
    return (struct gguf_string){ (const char *)raw + sizeof(n), (size_t)n };
}

bool gguf_value_int(const struct gguf_value *v, int64_t *to)
{
    return v != NULL && int_at(v->type, v->raw, 0, to);
}

bool gguf_value_real(const struct gguf_value *v, double *to)
{
    return v != NULL && real_at(v->type, v->raw, 0, to);
}

bool gguf_value_bool(const struct gguf_value *v, bool *to)
{
    if (v == NULL || v->type != GGUF_BOOL)
        return false;
    *to = *v->raw != 0;
    return true;
}

bool gguf_value_text(const struct gguf_value *v, struct gguf_string *to)
{
    if (v == NULL || v->type != GGUF_STRING)
        return false;
    *to = string_at(v->raw);
    return true;
}

bool gguf_is(struct gguf_string s, const char *word)
{
    return s.n == strlen(word) && memcmp(s.s, word, s.n) == 0;
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
    static const char *const unsupported[] = {
        [9] = "Q8_1",     [10] = "Q2_K",  [11] = "Q3_K",  [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS",
        [18] = "IQ3_XXS", [19] = "IQ1_S", [21] = "IQ3_S", [22] = "IQ2_S", [24] = "I8",      [25] = "I16",
        [26] = "I32",     [27] = "I64",   [28] = "F64",   [29] = "IQ1_M", [34] = "TQ1_0",   [35] = "TQ2_0",
    };
    enum type type;
    if (type_from_ggml(ggml_type, &type))
        return type_facts[type].file_name;
    const bool listed = ggml_type >= 0 && (size_t)ggml_type < sizeof(unsupported) / sizeof(*unsupported);
    return listed && unsupported[ggml_type] != NULL ? unsupported[ggml_type] : "unknown type";
}
