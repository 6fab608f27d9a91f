// json_fields.h - the fields of a JSON object in a checkpoint's configuration. What is wrong is said as "file: key: expected ...,
// found ...".
#pragma once
#include <stdbool.h>

struct error;
struct json;

struct fields {
    const char *path;  // of the file
    const char *where; // of the object in it, as "rope_parameters"; "": it is the whole file
    const struct json *object;
    struct error *err;
};

// Always false. found: NULL for nothing.
bool fields_refuse(const struct fields *f, const char *key, const char *expected, const struct json *found);
// A field that is not there, or null, leaves *to as it is; if it is needed that is refused.
bool fields_int(const struct fields *f, const char *key, bool needed, int least, int most, int *to);
bool fields_bool(const struct fields *f, const char *key, bool *to);
bool fields_real(const struct fields *f, const char *key, bool needed, double *to);
