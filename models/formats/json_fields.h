// json_fields.h - typed fields of a JSON object in a checkpoint's configuration. Errors read "file: key: expected ...,
// found ...".
#pragma once
#include <stdbool.h>

struct error;
struct json;

struct fields {
    const char *path;  // path of the file
    const char *where; // path of the object in the file, such as "rope_parameters"; "" for the top level
    const struct json *object;
    struct error *err;
};

// Sets err and returns false. found: NULL if the key is missing.
bool fields_refuse(const struct fields *f, const char *key, const char *expected, const struct json *found);
// These read a field. One that is missing or null leaves *to unchanged; it is an error if `required`.
bool fields_int(const struct fields *f, const char *key, bool required, int min, int max, int *to);
bool fields_bool(const struct fields *f, const char *key, bool *to);
bool fields_real(const struct fields *f, const char *key, bool required, double *to);
