// memory.h - allocation that ends the program on failure, with one sentence and status 1: a step that runs out of
// memory halfway has no useful way to continue. A reader checks the sizes in its file before it allocates.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Ends the program as a failed allocation does, for libraries that report such a failure. bytes: 0: unknown. What was
// written to stdout is kept.
void memory_out(size_t bytes) __attribute__((noreturn, cold));
void *xmalloc(size_t bytes);
void *xcalloc(size_t n, size_t bytes);
void *xrealloc(void *p, size_t bytes);
void *xaligned(size_t to, size_t bytes); // zeroed memory aligned to `to`, a power of two; free() it
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
char *xformat(const char *format, ...) __attribute__((format(printf, 1, 2))); // a new string; free() it

bool ends_with(const char *s, const char *end);

// Returns the next capacity of an array that must hold at least `need` elements:
// half as much again, or `need`, at least 16.
size_t next_capacity(size_t capacity, size_t need);
// Makes the capacity of an array at least `need` elements; both are changed.
#define array_reserve(array, capacity, need) \
    do \
        if ((size_t)(need) > (size_t)(capacity)) { \
            (capacity) = next_capacity((size_t)(capacity), (size_t)(need)); \
            (array) = xrealloc((array), (size_t)(capacity) * sizeof(*(array))); \
        } \
    while (0)

// A string that text can be appended to. Initialize with { 0 }; free() s.
struct text {
    char *s; // NUL-terminated after the first append; may be NULL before
    size_t n, capacity;
};
void text_add(struct text *t, const char *s, size_t n);
void text_puts(struct text *t, const char *s);
void text_printf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

// A growing list of token ids. Initialize with { 0 }; free() the array.
struct ids {
    int32_t *id;
    size_t n, capacity;
};
void ids_add(struct ids *ids, int32_t id);
