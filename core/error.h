// error.h - how a function says that it could not do its work.
//
// It returns false (or NULL) and leaves one sentence in err, written for the person at the
// terminal: what was being done, to which file or key, and what was found instead.
// Mistakes of ours are assert()s; memory that cannot be had ends the program (core/memory.h).
#pragma once
#include <stdbool.h>

struct error {
    char text[1024];
};

// Always false, so that `return fail(err, "%s: no tensor named %s", path, name);` reads as it acts.
bool fail(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
