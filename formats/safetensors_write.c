// safetensors_write.c - writes one safetensors file; tensors are stored in the given order.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/file.h"
#include "formats/safetensors.h"

static struct json *entry(const struct safetensor *t, size_t begin)
{
    struct json *j = json_new_object(), *shape = json_new_array(), *offsets = json_new_array();
    for (int d = 0; d < t->dims; d++)
        json_push(shape, json_new_int(t->dim[d]));
    json_push(offsets, json_new_int((int64_t)begin));
    json_push(offsets, json_new_int((int64_t)(begin + t->bytes)));
    json_set(j, "dtype", json_new_text(t->dtype));
    json_set(j, "shape", shape);
    json_set(j, "data_offsets", offsets);
    return j;
}

// The header as JSON text; NULL if metadata_json is not JSON.
static char *header_of(const struct safetensor *t, size_t n, const char *metadata_json, struct error *err)
{
    struct json *header = json_new_object();
    if (metadata_json != NULL) {
        struct json *metadata = json_parse(metadata_json, strlen(metadata_json), "metadata", err);
        if (metadata == NULL) {
            json_free(header);
            return NULL;
        }
        json_set(header, "__metadata__", metadata);
    }
    size_t begin = 0;
    for (size_t i = 0; i < n; i++) {
        json_set(header, t[i].name, entry(&t[i], begin));
        begin += t[i].bytes;
    }
    char *text = json_write(header);
    json_free(header);
    return text;
}

static bool put_tensors(struct part *part, const struct safetensor *t, size_t n, part_put *put, void *context,
                        struct error *err)
{
    for (size_t i = 0; i < n && !part_failed(part); i++) {
        size_t before = part_bytes(part);
        if (t[i].data != NULL)
            part_write(part, t[i].data, t[i].bytes);
        else if (t[i].bytes > 0 && !put(context, i, part, err))
            return false;
        assert(part_failed(part) || part_bytes(part) - before == t[i].bytes);
    }
    return true;
}

// Writes 8 bytes of length, then the header, padded so that the data are aligned to 8 bytes.
static void put_header(struct part *part, const char *header)
{
    const size_t length = strlen(header);
    const uint64_t padded = (length + 7) / 8 * 8;
    part_write(part, &padded, sizeof(padded));
    part_write(part, header, length);
    part_write(part, "        ", (size_t)padded - length);
}

bool safetensors_write(const char *path, const struct safetensor *t, size_t n, const char *metadata_json, part_put *put,
                       void *context, struct error *err)
{
    char *header = header_of(t, n, metadata_json, err);
    if (header == NULL)
        return false;
    struct part *part = part_begin(path, err);
    bool written = true;
    if (part != NULL) {
        put_header(part, header);
        written = put_tensors(part, t, n, put, context, err);
    }
    free(header);
    if (part != NULL && !written)
        part_abandon(part);
    return part != NULL && written && part_end(part, err);
}

bool safetensors_stream(struct part *to, const struct safetensor *t, size_t n, const char *metadata_json, part_put *put,
                        void *context, struct error *err)
{
    char *header = header_of(t, n, metadata_json, err);
    if (header == NULL)
        return false;
    uint64_t bytes = sizeof(uint64_t) + (strlen(header) + 7) / 8 * 8;
    for (size_t i = 0; i < n; i++)
        bytes += t[i].bytes;
    part_write(to, &bytes, sizeof(bytes));
    put_header(to, header);
    free(header);
    return put_tensors(to, t, n, put, context, err);
}
