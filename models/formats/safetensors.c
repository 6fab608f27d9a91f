// safetensors.c - reads and writes safetensors files.
//
//     u64 n | n bytes of JSON: {"name": {"dtype": "BF16", "shape": [r, c], "data_offsets": [begin, end]}, ...} | bytes
#include "models/formats/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/mapped.h"
#include "core/json.h"
#include "core/memory.h"

enum { MAX_HEADER_BYTES = 100000000 }; // the limit of the safetensors library

// ---- lists

// Appends a tensor that is zero except for name and file. Takes ownership of the name.
static struct safetensor *add_tensor(struct tensor_list *l, char *name, int file)
{
    array_reserve(l->at, l->capacity, l->n + 1);
    l->at[l->n] = (struct safetensor){ .name = name, .file = file };
    return &l->at[l->n++];
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

void tensor_list_sort(struct tensor_list *l)
{
    if (l->n != 0)
        qsort(l->at, l->n, sizeof(*l->at), by_name);
}

void tensor_list_free(struct tensor_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free((void *)(uintptr_t)l->at[i].name);
    free(l->at);
    *l = (struct tensor_list){ 0 };
}

// ---- reading

static const struct dtype {
    const char *name;
    int bits;
} dtypes[] = {
    { "BOOL", 8 },        { "U8", 8 },          { "I8", 8 },      { "F8_E5M2", 8 }, { "F8_E4M3", 8 }, { "F8_E8M0", 8 },
    { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 }, { "I16", 16 },    { "U16", 16 },    { "F16", 16 },    { "BF16", 16 },
    { "I32", 32 },        { "U32", 32 },        { "F32", 32 },    { "I64", 64 },    { "U64", 64 },    { "F64", 64 },
    { "C64", 64 },        { "F4", 4 },          { "F6_E2M3", 6 }, { "F6_E3M2", 6 },
};

static const struct dtype *dtype_named(const char *name)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

static int by_place(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    if (x->data != y->data)
        return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); // empty tensors come first
}

// Reads one tensor of the header. `start` is the beginning of the file's data, which has `capacity` bytes.
static bool read_tensor(const char *path, const char *name, const struct json *j, const uint8_t *start, size_t capacity,
                        struct safetensor *t, struct error *err)
{
    const struct json *shape = json_get(j, "shape"), *offsets = json_get(j, "data_offsets");
    if (!json_is_text(json_get(j, "dtype")) || !json_is_array(shape) || !json_is_array(offsets) ||
        json_count(offsets) != 2)
        return fail(err, "%s: tensor %s: expected dtype, shape and two data_offsets", path, name);

    const struct dtype *type = dtype_named(json_text(json_get(j, "dtype")));
    if (type == NULL)
        return fail(err, "%s: tensor %s: unknown dtype \"%s\"", path, name, json_text(json_get(j, "dtype")));
    t->dtype = type->name;

    int max = (int)(sizeof(t->dim) / sizeof(*t->dim));
    if (json_count(shape) > (size_t)max)
        return fail(err, "%s: tensor %s: expected at most %d dimensions, found %zu", path, name, max,
                    json_count(shape));
    t->dims = (int)json_count(shape);
    uint64_t bits = (uint64_t)type->bits;
    bool empty = false;
    for (int d = 0; d < t->dims; d++) {
        const struct json *v = json_at(shape, (size_t)d);
        t->dim[d] = json_int(v);
        empty = empty || t->dim[d] == 0;
        if (!json_is_int(v) || t->dim[d] < 0)
            return fail(err, "%s: tensor %s: dimension %d of its shape is not a size", path, name, d);
        if (t->dim[d] != 0 && __builtin_mul_overflow(bits, (uint64_t)t->dim[d], &bits))
            return fail(err, "%s: tensor %s: its shape is too large for any file", path, name);
    }
    if (empty)
        bits = 0;
    if (bits % 8 != 0)
        return fail(err, "%s: tensor %s: %" PRIu64 " bits are not whole bytes", path, name, bits);

    int64_t begin = json_int(json_at(offsets, 0)), end = json_int(json_at(offsets, 1));
    if (!json_is_int(json_at(offsets, 0)) || !json_is_int(json_at(offsets, 1)) || begin < 0 || end < begin)
        return fail(err, "%s: tensor %s: data_offsets are not a region of the file", path, name);
    if ((uint64_t)end > capacity)
        return fail(err, "%s: tensor %s: its data end at byte %" PRId64 ", and the file has %zu bytes of data", path,
                    name, end, capacity);
    if ((uint64_t)(end - begin) != bits / 8)
        return fail(err, "%s: tensor %s: its shape needs %" PRIu64 " bytes, its data_offsets span %" PRId64, path, name,
                    bits / 8, end - begin);
    t->data = start + begin;
    t->bytes = (size_t)(end - begin);
    return true;
}

static bool check_metadata(const char *path, const struct json *j, struct error *err)
{
    if (!json_is_object(j))
        return fail(err, "%s: __metadata__: expected an object", path);
    for (void *at = json_first(j); at != NULL; at = json_next(j, at))
        if (!json_is_text(json_value(at)))
            return fail(err, "%s: __metadata__: expected a text for %s", path, json_key(at));
    return true;
}

// Checks that the regions cover the data from the first byte to the last, without holes or overlap.
static bool check_regions(const char *path, struct safetensor *t, size_t n, const uint8_t *start, size_t capacity,
                          struct error *err)
{
    if (n != 0)
        qsort(t, n, sizeof(*t), by_place);
    const uint8_t *end = start;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *begin = t[i].data;
        if (begin != end)
            return fail(err, "%s: tensor %s %s", path, t[i].name,
                        begin < end ? "overlaps the tensor before it"
                                    : "does not begin where the tensor before it ends");
        end = begin + t[i].bytes;
    }
    size_t used = (size_t)(end - start);
    if (used != capacity)
        return fail(err, "%s: the tensors end at byte %zu of the data, and the file has %zu", path, used, capacity);
    return true;
}

static bool read_tensors(const char *path, int number, const struct json *header, const uint8_t *start, size_t capacity,
                         struct tensor_list *to, struct error *err)
{
    if (!json_is_object(header))
        return fail(err, "%s: expected a JSON object in the header", path);
    const size_t first = to->n;
    for (void *at = json_first(header); at != NULL; at = json_next(header, at)) {
        if (strcmp(json_key(at), "__metadata__") == 0) {
            if (!check_metadata(path, json_value(at), err))
                return false;
            continue;
        }
        struct safetensor *t = add_tensor(to, xstrdup(json_key(at)), number);
        if (!read_tensor(path, t->name, json_value(at), start, capacity, t, err))
            return false;
    }
    return check_regions(path, to->n > 0 ? to->at + first : NULL, to->n - first, start, capacity, err);
}

bool safetensors_read(const char *path, const struct mapping *file, int number, struct tensor_list *to,
                      struct error *err)
{
    const uint8_t *at = file->at;
    const size_t size = file->n;
    uint64_t n;
    if (size < sizeof(n))
        return fail(err, "%s: not a safetensors file: it has only %zu bytes", path, size);
    memcpy(&n, at, sizeof(n));
    if (n > MAX_HEADER_BYTES)
        return fail(err, "%s: not a safetensors file: its header would have %" PRIu64 " bytes, and %d are allowed",
                    path, n, MAX_HEADER_BYTES);
    if (n > size - sizeof(n))
        return fail(err, "%s: the file ends too early: a header of %" PRIu64 " bytes does not fit into %zu", path, n,
                    size);
    if (n == 0 || at[sizeof(n)] != '{')
        return fail(err, "%s: not a safetensors file: the header does not begin with '{'", path);

    struct json *header = json_parse((const char *)at + sizeof(n), (size_t)n, path, err);
    const bool ok =
        header != NULL && read_tensors(path, number, header, at + sizeof(n) + n, size - sizeof(n) - (size_t)n, to, err);
    json_free(header);
    return ok;
}
