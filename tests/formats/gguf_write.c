// gguf_write.c - writes a GGUF file. Metadata is buffered in memory; the tensors' bytes are borrowed until the end.
#include "tests/formats/gguf_write.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/files/part.h"

struct pending {
    struct text entry; // name, dimensions and type, serialized; the offset follows
    const void *data;  // (bytes) borrowed
    size_t bytes;
};

struct gguf_writer {
    struct part *part;
    struct text values;
    uint64_t n_values;
    size_t alignment;
    size_t n, capacity;
    struct pending *tensor; // (n)
};

struct gguf_writer *gguf_write_begin(const char *path, struct error *err)
{
    struct part *part = part_begin(path, err);
    struct gguf_writer *w = part != NULL ? xcalloc(1, sizeof(*w)) : NULL;
    if (w != NULL)
        *w = (struct gguf_writer){ .part = part, .alignment = 32 };
    return w;
}

static void put(struct text *t, const void *bytes, size_t n)
{
    if (n != 0)
        text_add(t, bytes, n);
}

static void put_u32(struct text *t, uint32_t v)
{
    put(t, &v, sizeof(v));
}

static void put_u64(struct text *t, uint64_t v)
{
    put(t, &v, sizeof(v));
}

static void put_string(struct text *t, const char *s, size_t n)
{
    put_u64(t, n);
    put(t, s, n);
}

void gguf_write_copy(struct gguf_writer *w, const struct gguf_value *v)
{
    static const char alignment[] = "general.alignment"; // tensors have it, if it stands in the file
    put_string(&w->values, v->key.s, v->key.n);
    put_u32(&w->values, v->type);
    w->n_values++;
    if (v->type == GGUF_ARRAY) {
        put_u32(&w->values, v->element);
        put_u64(&w->values, v->n);
    }
    put(&w->values, v->raw, v->raw_bytes);
    if (v->key.n == sizeof(alignment) - 1 && memcmp(v->key.s, alignment, v->key.n) == 0) {
        w->alignment = 0;
        memcpy(&w->alignment, v->raw, v->raw_bytes < sizeof(w->alignment) ? v->raw_bytes : sizeof(w->alignment));
    }
}

static void put_value(struct gguf_writer *w, const char *key, enum gguf_type type, enum gguf_type element, size_t n,
                      const void *raw, size_t bytes)
{
    gguf_write_copy(
        w, &(struct gguf_value){
               .key = { key, strlen(key) }, .type = type, .element = element, .n = n, .raw = raw, .raw_bytes = bytes });
}

void gguf_write_int(struct gguf_writer *w, const char *key, enum gguf_type type, int64_t v)
{
    static const uint8_t bytes[GGUF_F64 + 1] = { [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
                                                 [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_U64] = 8, [GGUF_I64] = 8 };
    put_value(w, key, type, type, 1, &v, bytes[type]); // little-endian: the low bytes come first
}

void gguf_write_real(struct gguf_writer *w, const char *key, float v)
{
    put_value(w, key, GGUF_F32, GGUF_F32, 1, &v, sizeof(v));
}

void gguf_write_bool(struct gguf_writer *w, const char *key, bool v)
{
    put_value(w, key, GGUF_BOOL, GGUF_BOOL, 1, &(uint8_t){ v }, 1);
}

void gguf_write_ints(struct gguf_writer *w, const char *key, const int32_t *v, size_t n)
{
    put_value(w, key, GGUF_ARRAY, GGUF_I32, n, v, n * sizeof(*v));
}

static void put_texts(struct gguf_writer *w, const char *key, enum gguf_type type, const char *const *s, size_t n)
{
    struct text raw = { 0 };
    for (size_t i = 0; i < n; i++)
        put_string(&raw, s[i], strlen(s[i]));
    put_value(w, key, type, GGUF_STRING, n, raw.s, raw.n);
    free(raw.s);
}

void gguf_write_text(struct gguf_writer *w, const char *key, const char *s)
{
    put_texts(w, key, GGUF_STRING, &s, 1);
}

void gguf_write_texts(struct gguf_writer *w, const char *key, const char *const *s, size_t n)
{
    put_texts(w, key, GGUF_ARRAY, s, n);
}

void gguf_write_tensor(struct gguf_writer *w, const char *name, int dims, const uint64_t *dim, int ggml_type,
                       const void *data, size_t bytes)
{
    array_reserve(w->tensor, w->capacity, w->n + 1);
    struct pending *t = &w->tensor[w->n++];
    *t = (struct pending){ .data = data, .bytes = bytes };
    put_string(&t->entry, name, strlen(name));
    put_u32(&t->entry, (uint32_t)dims);
    put(&t->entry, dim, (size_t)dims * sizeof(*dim));
    put_u32(&t->entry, (uint32_t)ggml_type);
}

static void put_header(struct gguf_writer *w)
{
    struct text head = { 0 };
    text_puts(&head, "GGUF");
    put_u32(&head, 3);
    put_u64(&head, w->n);
    put_u64(&head, w->n_values);
    part_write(w->part, head.s, head.n);
    part_write(w->part, w->values.s, w->values.n);
    uint64_t offset = 0;
    for (size_t i = 0; i < w->n; i++) {
        part_write(w->part, w->tensor[i].entry.s, w->tensor[i].entry.n);
        part_write(w->part, &offset, sizeof(offset));
        offset += (w->tensor[i].bytes + w->alignment - 1) / w->alignment * w->alignment;
    }
    part_pad(w->part, w->alignment);
    free(head.s);
}

static void release(struct gguf_writer *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->tensor[i].entry.s);
    free(w->tensor);
    free(w->values.s);
    free(w);
}

bool gguf_write_end(struct gguf_writer *w, struct error *err)
{
    put_header(w);
    for (size_t i = 0; i < w->n; i++) {
        part_write(w->part, w->tensor[i].data, w->tensor[i].bytes);
        part_pad(w->part, w->alignment);
    }
    const bool ok = part_end(w->part, err);
    release(w);
    return ok;
}
