// safetensors_write.c - writes one safetensors file; tensors are stored in the given order.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/file.h"
#include "formats/safetensors.h"
#include "core/files/mapped.h"

static struct json *entry(const struct safetensor *t, size_t begin)
{
    struct json *shape = json_new_array(), *offsets = json_new_array();
    for (int d = 0; d < t->dims; d++)
        json_push(shape, json_new_int(t->dim[d]));
    json_push(offsets, json_new_int((int64_t)begin));
    json_push(offsets, json_new_int((int64_t)(begin + t->bytes)));
    return json_object_of(JSON("dtype", t->dtype), JSON("shape", shape), JSON("data_offsets", offsets));
}

// The header as JSON text.
static char *header_of(const struct safetensor *t, size_t n, struct json *metadata)
{
    struct json *header = json_new_object();
    if (metadata != NULL)
        json_set(header, "__metadata__", metadata);
    size_t begin = 0;
    for (size_t i = 0; i < n; i++) {
        json_set(header, t[i].name, entry(&t[i], begin));
        begin += t[i].bytes;
    }
    char *text = json_write(header);
    json_free(header);
    return text;
}

// Writes 8 bytes of length, the header, padded so that the data are aligned to 8 bytes, and the data; before them their number of bytes if the
// file is one of several.
static bool put_file(struct part *part, bool one_of_several, const struct safetensor *t, size_t n,
                     struct json *metadata, part_put *put, void *context, struct error *err)
{
    char *header = header_of(t, n, metadata);
    const size_t length = strlen(header);
    const uint64_t padded = (length + 7) / 8 * 8;
    uint64_t bytes = sizeof(padded) + padded;
    for (size_t i = 0; i < n; i++)
        bytes += t[i].bytes;
    if (one_of_several)
        part_write(part, &bytes, sizeof(bytes));
    part_write(part, &padded, sizeof(padded));
    part_write(part, header, length);
    part_write(part, "        ", (size_t)padded - length);
    free(header);
    for (size_t i = 0; i < n && !part_failed(part); i++) {
        size_t before = part_bytes(part);
        if (t[i].data != NULL)
            part_write(part, t[i].data, t[i].bytes);
        else if (t[i].bytes > 0 && !put(context, i, part, err))
            return false;
        assert(part_failed(part) || part_bytes(part) - before == t[i].bytes);
    }
    return mapped_unchanged(err);
}

bool safetensors_write(const char *path, const struct safetensor *t, size_t n, struct json *metadata, part_put *put,
                       void *context, struct error *err)
{
    struct part *part = part_begin(path, err);
    if (part == NULL) {
        json_free(metadata);
        return false;
    }
    if (put_file(part, false, t, n, metadata, put, context, err))
        return part_end(part, err);
    part_abandon(part);
    return false;
}

bool safetensors_stream(struct part *to, const struct safetensor *t, size_t n, struct json *metadata, part_put *put,
                        void *context, struct error *err)
{
    return put_file(to, true, t, n, metadata, put, context, err);
}
