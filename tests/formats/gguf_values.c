#include "tests/formats/gguf_values.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

static void put(struct gguf_writer *w, const char *key, enum gguf_type type, enum gguf_type element, size_t n,
                const void *raw, size_t bytes)
{
    gguf_write_copy(
        w, &(struct gguf_value){
               .key = { key, strlen(key) }, .type = type, .element = element, .n = n, .raw = raw, .raw_bytes = bytes });
}

void gguf_write_bool(struct gguf_writer *w, const char *key, bool v)
{
    put(w, key, GGUF_BOOL, GGUF_BOOL, 1, &(uint8_t){ v }, 1);
}

void gguf_write_ints(struct gguf_writer *w, const char *key, const int32_t *v, size_t n)
{
    put(w, key, GGUF_ARRAY, GGUF_I32, n, v, n * sizeof(*v));
}

void gguf_write_texts(struct gguf_writer *w, const char *key, const char *const *s, size_t n)
{
    struct text raw = { 0 };
    for (size_t i = 0; i < n; i++) {
        const uint64_t length = strlen(s[i]);
        text_add(&raw, (const char *)&length, sizeof(length));
        text_add(&raw, s[i], length);
    }
    put(w, key, GGUF_ARRAY, GGUF_STRING, n, raw.s, raw.n);
    free(raw.s);
}
