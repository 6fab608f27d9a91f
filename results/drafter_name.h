// drafter_name.h - a drafter's name, "kind(option, option)", in parts.
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { MAX_OPTIONS = 64 };

struct drafter_name {                       // borrowed from the name
    const char *kind, *option[MAX_OPTIONS]; // "tokens=3"
    size_t kind_bytes, option_bytes[MAX_OPTIONS];
    int n;
};
struct drafter_name drafter_name_of(const char *name); // of another form: a kind without options
bool drafter_same_kind(const struct drafter_name *a, const struct drafter_name *b);
// Whether all (n) of d's kind have its option.
bool drafter_option_common(const struct drafter_name *all, int n, const struct drafter_name *d, int option);
