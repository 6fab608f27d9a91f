#include "formats/gguf_cursor.h"

#include <stdio.h>
#include <string.h>

#include "core/error.h"

enum { MAX_KEY_BYTES = 65535 };

void cursor_show(char *to, size_t capacity, const struct gguf_string *name)
{
    size_t n = name->n < capacity - 1 ? name->n : capacity - 1;
    for (size_t i = 0; i < n; i++)
        to[i] = (unsigned char)name->s[i] < 0x20 || name->s[i] == 0x7f ? '?' : name->s[i];
    to[n] = '\0';
}

void cursor_set_where(struct gguf_cursor *c, const char *what, uint64_t i, const struct gguf_string *name)
{
    char shown[65] = "";
    if (name != NULL)
        cursor_show(shown, sizeof(shown), name);
    snprintf(c->where, sizeof(c->where), name != NULL ? "%s %llu (%s)" : "%s %llu", what, (unsigned long long)i, shown);
}

const uint8_t *cursor_take(struct gguf_cursor *c, uint64_t n)
{
    if (n > (uint64_t)(c->end - c->at)) {
        fail(c->err, "%s: the file ends too early: %s needs %llu bytes from byte %zu on, and the file has %zu", c->path,
             c->where, (unsigned long long)n, c->size - (size_t)(c->end - c->at), c->size);
        return NULL;
    }
    const uint8_t *p = c->at;
    c->at += n;
    return p;
}

bool cursor_u32(struct gguf_cursor *c, uint32_t *to)
{
    const uint8_t *p = cursor_take(c, sizeof(*to));
    if (p != NULL)
        memcpy(to, p, sizeof(*to));
    return p != NULL;
}

bool cursor_u64(struct gguf_cursor *c, uint64_t *to)
{
    const uint8_t *p = cursor_take(c, sizeof(*to));
    if (p != NULL)
        memcpy(to, p, sizeof(*to));
    return p != NULL;
}

bool cursor_string(struct gguf_cursor *c, struct gguf_string *to)
{
    uint64_t n;
    if (!cursor_u64(c, &n))
        return false;
    const uint8_t *p = cursor_take(c, n);
    if (p == NULL)
        return false;
    *to = (struct gguf_string){ (const char *)p, (size_t)n };
    return true;
}

bool cursor_key(struct gguf_cursor *c, const char *what, uint64_t i, struct gguf_string *to)
{
    cursor_set_where(c, what, i, NULL);
    if (!cursor_string(c, to))
        return false;
    if (to->n == 0 || to->n > MAX_KEY_BYTES)
        return fail(c->err, "%s: %s: expected a name of 1 to %d bytes, found %zu", c->path, c->where, MAX_KEY_BYTES,
                    to->n);
    cursor_set_where(c, what, i, to);
    return true;
}
