// error.h - how a function reports failure.
//
// It returns false (or NULL) and writes one sentence for the user to err: the operation, the file or key, and what was
// expected and found. Programming errors are assert()s; running out of memory ends the program (core/memory.h).
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct error {
    char text[1024]; // the last byte is a mark that error_is_usage reads
};
#define speclab_error error // the name of this struct in the library's interface (engine/speclab.h)

// Formats the message, with control characters of names made printable (core/printable.h), and returns false: `return
// fail(err, "%s: no tensor named %s", path, name);`
bool fail(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Fails in the same way because of a name, a number or a combination of options with which a command should not have
// been called. The command's exit status is then 2 (docs/commands.md).
bool fail_usage(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool error_is_usage(const struct error *err);
// The message of a plugin that failed (engine/foreign.h): it ends its cell, and an experiment goes on with the others.
bool fail_plugin(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool error_is_plugin(const struct error *err);

struct in_file {
    const char *file; // NULL: none
    int line, column; // counted from 1; 0: not known
};
// Puts the place before the message: "file:line:column: ", without the parts that are not known.
bool fail_in(struct error *err, struct in_file at, const char *format, ...) __attribute__((format(printf, 3, 4)));
// Returns whether all of s (n) is well-formed. If not, err is "WHAT is not UTF-8" with the byte and its offset.
bool require_utf8(const char *s, size_t n, const char *what, struct error *err);
