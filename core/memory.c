#include "core/memory.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void memory_out(size_t bytes)
{
    char text[96];
    const int n = bytes > 0 ? snprintf(text, sizeof(text), "speclab: out of memory (%zu bytes)\n", bytes)
                            : snprintf(text, sizeof(text), "speclab: out of memory\n");
    fflush(stdout); // results that are complete are kept
    const ssize_t written = write(STDERR_FILENO, text, (size_t)n);
    (void)written;
    _exit(1); // other threads may still use what exit() would free
}

static void *checked(void *p, size_t bytes)
{
    if (p == NULL && bytes != 0)
        memory_out(bytes);
    return p;
}

void *xmalloc(size_t bytes)
{
    return checked(malloc(bytes), bytes);
}

void *xcalloc(size_t n, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(n, bytes, &all))
        all = SIZE_MAX;
    return checked(calloc(n, bytes), all);
}

void *xrealloc(void *p, size_t bytes)
{
    return checked(realloc(p, bytes), bytes);
}

void *xaligned(size_t to, size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, to, bytes) != 0)
        p = NULL;
    return memset(checked(p, bytes), 0, bytes);
}

char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
    char *p = xmalloc(n + 1);
    memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

static char *vformat(const char *format, va_list args, size_t *n)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length < 0)
        memory_out(0);
    char *s = xmalloc((size_t)length + 1);
    vsnprintf(s, (size_t)length + 1, format, again);
    va_end(again);
    *n = (size_t)length;
    return s;
}

char *xformat(const char *format, ...)
{
    va_list args;
    size_t n;
    va_start(args, format);
    char *s = vformat(format, args, &n);
    va_end(args);
    return s;
}

bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

size_t next_capacity(size_t capacity, size_t need)
{
    size_t next = capacity + capacity / 2;
    if (next < need)
        next = need;
    return next < 16 ? 16 : next;
}

void text_add(struct text *t, const char *s, size_t n)
{
    if (t->n + n + 1 > t->capacity) {
        t->capacity = next_capacity(t->capacity, t->n + n + 1);
        t->s = xrealloc(t->s, t->capacity);
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
}

void text_puts(struct text *t, const char *s)
{
    text_add(t, s, strlen(s));
}

void text_printf(struct text *t, const char *format, ...)
{
    va_list args;
    size_t n;
    va_start(args, format);
    char *s = vformat(format, args, &n);
    va_end(args);
    text_add(t, s, n);
    free(s);
}

void ids_add(struct ids *ids, int32_t id)
{
    array_reserve(ids->id, ids->capacity, ids->n + 1);
    ids->id[ids->n++] = id;
}
