// error.h - how a function reports failure.
//
// It returns false (or NULL) and writes one sentence for the user to err: the operation, the file or key, and what was
// expected and found. Programming errors are assert()s; running out of memory ends the program (core/memory.h).
#pragma once
#include <stdbool.h>

struct error {
    char text[1024];
};

// Formats the message and returns false: `return fail(err, "%s: no tensor named %s", path, name);`
bool fail(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
