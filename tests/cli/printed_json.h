// printed_json.h - what `generate` and `inspect` print, parsed. The test fails if it is not valid.
#pragma once
#include <stddef.h>

struct child_result;
struct json;

// Runs generate --json, checks the numbers of its steps, and returns the object.
struct json *generated_json(const char *arguments);
void assert_same_ids(const struct json *a, const struct json *b, const char *what); // `new_ids` of both
// Lines of stdout; returns how many of them are in `to`.
size_t printed_lines(const struct child_result *s, struct json **to, size_t capacity);
// The ids of a text by `inspect --tokenize`, as "9,8,7"; to be freed.
char *ids_of(const char *text, const char *flags);
