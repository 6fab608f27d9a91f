// memory.h - memory that is there, or the program ends: a step that could run out of it halfway
// would have nothing useful left to do. What may be refused because a file asks for too much is
// checked by whoever reads the file, before it comes here.
#pragma once
#include <stddef.h>

void *xmalloc(size_t bytes);
void *xcalloc(size_t n, size_t bytes);
void *xrealloc(void *p, size_t bytes);
void *xaligned(size_t to, size_t bytes); // zeros, at a multiple of a power of two; free() it
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
char *xformat(const char *format, ...) __attribute__((format(printf, 1, 2))); // a new string; free() it

// The next capacity for an array that must hold at least `need` elements: grows by half.
size_t grow_capacity(size_t capacity, size_t need);

// A text that grows at its end. Start with { 0 }; free() the text.
struct text {
    char *s; // NUL-terminated once anything was added; may be NULL before
    size_t n, capacity;
};
void text_add(struct text *t, const char *s, size_t n);
void text_puts(struct text *t, const char *s);
void text_printf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
