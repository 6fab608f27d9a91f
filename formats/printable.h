// printable.h - bytes of a file as a message shows them: what could upset a terminal is a '?', what does not fit is left
// out.
#pragma once
#include <stddef.h>

struct shown {
    char s[81];
};

// By value, for use among the arguments of fail(): shown(name, n).s
struct shown shown(const void *s, size_t n);
