#include "tests/formats/safetensors_write.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/part.h"
#include "core/json.h"

static struct json *entry(const struct safetensor *t, size_t begin)
{
    struct json *shape = json_new_array(), *offsets = json_new_array();
    for (int d = 0; d < t->dims; d++)
        json_push(shape, json_new_int(t->dim[d]));
    json_push(offsets, json_new_int((int64_t)begin));
    json_push(offsets, json_new_int((int64_t)(begin + t->bytes)));
    return json_object_of(JSON("dtype", t->dtype), JSON("shape", shape), JSON("data_offsets", offsets));
}

// The length of the header in 8 bytes, the header, padded so that the data are aligned to 8 bytes, and the data.
bool safetensors_write(const char *path, const struct safetensor *t, size_t n, struct json *metadata, struct error *err)
{
    struct json *header = json_new_object();
    if (metadata != NULL)
        json_set(header, "__metadata__", metadata);
    size_t begin = 0;
    for (size_t i = 0; i < n; begin += t[i].bytes, i++)
        json_set(header, t[i].name, entry(&t[i], begin));
    char *text = json_write(header);
    json_free(header);
    const size_t length = strlen(text);
    const uint64_t padded = (length + 7) / 8 * 8;
    struct part *to = part_begin(path, err);
    if (to != NULL) {
        part_write(to, &padded, sizeof(padded));
        part_write(to, text, length);
        part_write(to, "        ", (size_t)padded - length);
        for (size_t i = 0; i < n; i++)
            part_write(to, t[i].data, t[i].bytes);
    }
    free(text);
    return to != NULL && part_end(to, err);
}
