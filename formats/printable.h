// printable.h - bytes of a file as shown in a message: non-printable bytes become '?', long texts are cut.
#pragma once
#include <stddef.h>

struct shown {
    char s[81];
};

// Returned by value, for use in the arguments of fail(): shown(name, n).s
struct shown shown(const void *s, size_t n);
