// safetensors.c - reads safetensors files.
//
//     u64 n | n bytes of JSON: {"name": {"dtype": "BF16", "shape": [r, c], "data_offsets": [begin, end]}, ...} | bytes
//
// A model is one file, or several that model.safetensors.index.json lists: {"weight_map": {"name": "file", ...}}.
#include "models/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "models/files.h"
#include "models/weight_map.h"

enum { LONGEST_HEADER = 100000000 }; // the limit of the safetensors library

struct shard {
    char *path;
    struct mapping file;
};

struct safetensors {
    int files;
    struct shard *file; // (files)
    size_t n, room;
    struct safetensor *tensor; // (n) sorted by name; the names are owned
};

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

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct safetensor *)a)->name, ((const struct safetensor *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    if (x->data != y->data)
        return (uintptr_t)x->data < (uintptr_t)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); // empty tensors first
}

// One tensor of the header; `start` is where the file's bytes begin, and there are `room` of them.
static bool read_tensor(const char *path, const char *name, const struct json *j, const uint8_t *start, size_t room,
                        struct safetensor *t, struct error *err)
{
    const struct json *shape = json_get(j, "shape"), *offsets = json_get(j, "data_offsets");
    if (!json_is_text(json_get(j, "dtype")) || !json_is_array(shape) || !json_is_array(offsets) ||
        json_count(offsets) != 2)
        return fail(err, "%s: tensor %s: expected dtype, shape and two data_offsets", path, name);

    const struct dtype *type = dtype_named(json_text(json_get(j, "dtype")));
    if (type == NULL)
        return fail(err, "%s: tensor %s: there is no dtype \"%s\"", path, name, json_text(json_get(j, "dtype")));
    t->dtype = type->name;

    int most = (int)(sizeof(t->dim) / sizeof(*t->dim));
    if (json_count(shape) > (size_t)most)
        return fail(err, "%s: tensor %s: expected at most %d dimensions, found %zu", path, name, most,
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
    if ((uint64_t)end > room)
        return fail(err, "%s: tensor %s: its data end at byte %" PRId64 ", and the file has %zu bytes of data", path,
                    name, end, room);
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

// The regions follow one another from the first byte to the last, without holes and without overlap.
static bool check_regions(const char *path, struct safetensor *t, size_t n, const uint8_t *start, size_t room,
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
    if (used != room)
        return fail(err, "%s: the tensors end at byte %zu of the data, and the file has %zu", path, used, room);
    return true;
}

static struct safetensor *append(struct safetensors *s, const char *name)
{
    if (s->n == s->room) {
        s->room = grown(s->room, s->n + 1);
        s->tensor = xrealloc(s->tensor, s->room * sizeof(*s->tensor));
    }
    s->tensor[s->n] = (struct safetensor){ .name = xstrdup(name) };
    return &s->tensor[s->n++];
}

static bool read_tensors(struct safetensors *s, int file, const struct json *header, const uint8_t *start, size_t room,
                         struct error *err)
{
    const char *path = s->file[file].path;
    if (!json_is_object(header))
        return fail(err, "%s: expected a JSON object in the header", path);
    size_t first = s->n;
    for (void *at = json_first(header); at != NULL; at = json_next(header, at)) {
        if (strcmp(json_key(at), "__metadata__") == 0) {
            if (!check_metadata(path, json_value(at), err))
                return false;
            continue;
        }
        struct safetensor *t = append(s, json_key(at));
        t->file = file;
        if (!read_tensor(path, t->name, json_value(at), start, room, t, err))
            return false;
    }
    return check_regions(path, s->tensor + first, s->n - first, start, room, err);
}

// Adds the tensors of one file.
static bool read_file(struct safetensors *s, int file, struct error *err)
{
    struct shard *f = &s->file[file];
    if (!file_map(f->path, &f->file, err))
        return false;
    const uint8_t *at = f->file.at;
    size_t size = f->file.n;
    uint64_t n;
    if (size < sizeof(n))
        return fail(err, "%s: not a safetensors file: it has only %zu bytes", f->path, size);
    memcpy(&n, at, sizeof(n));
    if (n > LONGEST_HEADER)
        return fail(err, "%s: not a safetensors file: its header would have %" PRIu64 " bytes, and %d are allowed",
                    f->path, n, LONGEST_HEADER);
    if (n > size - sizeof(n))
        return fail(err, "%s: the file ends too early: a header of %" PRIu64 " bytes does not fit into %zu", f->path, n,
                    size);
    if (n == 0 || at[sizeof(n)] != '{')
        return fail(err, "%s: not a safetensors file: the header does not begin with '{'", f->path);

    struct json *header = json_parse((const char *)at + sizeof(n), (size_t)n, f->path, err);
    bool ok = header != NULL && read_tensors(s, file, header, at + sizeof(n) + n, size - sizeof(n) - (size_t)n, err);
    json_free(header);
    return ok;
}

static int add_file(struct safetensors *s, char *path)
{
    s->file = xrealloc(s->file, (size_t)(s->files + 1) * sizeof(*s->file));
    s->file[s->files] = (struct shard){ .path = path };
    return s->files++;
}

static void sort(struct safetensors *s)
{
    if (s->n != 0)
        qsort(s->tensor, s->n, sizeof(*s->tensor), by_name);
}

static bool read_files(struct safetensors *s, const char *directory, const char *index, struct error *err)
{
    struct weight_map *map = weight_map_read(index, err);
    bool ok = map != NULL;
    for (size_t i = 0; ok && i < weight_map_files(map); i++)
        ok = read_file(s, add_file(s, xformat("%s/%s", directory, weight_map_file(map, i))), err);
    if (ok) {
        sort(s);
        ok = weight_map_keep(map, directory, index, s->tensor, &s->n, err);
    }
    weight_map_close(map);
    return ok;
}

static bool open_directory(struct safetensors *s, const char *directory, struct error *err)
{
    char *index = xformat("%s/model.safetensors.index.json", directory);
    char *single = xformat("%s/model.safetensors", directory);
    bool ok;
    if (file_exists(index)) {
        ok = read_files(s, directory, index, err);
    } else if (file_exists(single)) {
        ok = read_file(s, add_file(s, xstrdup(single)), err);
    } else {
        char *pickled = xformat("%s/pytorch_model.bin", directory);
        ok = fail(err, "%s: there is neither model.safetensors nor model.safetensors.index.json%s", directory,
                  file_exists(pickled) ? "; pytorch_model.bin must be converted to safetensors first" : "");
        free(pickled);
    }
    free(single);
    free(index);
    return ok;
}

struct safetensors *safetensors_open(const char *path, struct error *err)
{
    struct safetensors *s = xcalloc(1, sizeof(*s));
    bool ok = file_is_directory(path) ? open_directory(s, path, err) : read_file(s, add_file(s, xstrdup(path)), err);
    if (!ok) {
        safetensors_close(s);
        return NULL;
    }
    sort(s);
    return s;
}

void safetensors_close(struct safetensors *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n; i++)
        free((void *)(uintptr_t)s->tensor[i].name);
    for (int i = 0; i < s->files; i++) {
        file_unmap(&s->file[i].file);
        free(s->file[i].path);
    }
    free(s->tensor);
    free(s->file);
    free(s);
}

size_t safetensors_count(const struct safetensors *s)
{
    return s->n;
}

const struct safetensor *safetensors_at(const struct safetensors *s, size_t i)
{
    return i < s->n ? &s->tensor[i] : NULL;
}

const struct safetensor *safetensors_find(const struct safetensors *s, const char *name)
{
    struct safetensor wanted = { .name = name };
    return s->n == 0 ? NULL : bsearch(&wanted, s->tensor, s->n, sizeof(wanted), by_name);
}

int safetensors_files(const struct safetensors *s)
{
    return s->files;
}

const char *safetensors_file(const struct safetensors *s, int file)
{
    return file >= 0 && file < s->files ? s->file[file].path : NULL;
}
