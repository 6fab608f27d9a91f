#include "models/formats/json_fields.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"

bool fields_refuse(const struct fields *f, const char *key, const char *expected, const struct json *found)
{
    char *text = found != NULL ? json_write(found) : xstrdup("nothing");
    fail(f->err, "%s: %s%s%s: expected %s, found %.200s", f->path, f->where, *f->where != '\0' ? "." : "", key,
         expected, text);
    free(text);
    return false;
}

bool fields_int(const struct fields *f, const char *key, bool required, int min, int max, int *to)
{
    const struct json *v = json_get(f->object, key);
    if (json_is_null(v) && !required)
        return true;
    if (!json_is_int(v) || json_int(v) < min || json_int(v) > max) {
        char expected[64];
        snprintf(expected, sizeof(expected), "an integer from %d to %d", min, max);
        return fields_refuse(f, key, expected, v);
    }
    *to = (int)json_int(v);
    return true;
}

bool fields_bool(const struct fields *f, const char *key, bool *to)
{
    const struct json *v = json_get(f->object, key);
    if (json_is_null(v))
        return true;
    if (!json_is_bool(v))
        return fields_refuse(f, key, "true or false", v);
    *to = json_bool(v);
    return true;
}

bool fields_real(const struct fields *f, const char *key, bool required, double *to)
{
    const struct json *v = json_get(f->object, key);
    if (json_is_null(v) && !required)
        return true;
    if (!json_is_number(v))
        return fields_refuse(f, key, "a number", v);
    *to = json_number(v);
    return true;
}
