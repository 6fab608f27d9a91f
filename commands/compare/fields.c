// fields.c - reading the fields of other programs' results.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/compare/compare.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"

bool field_fail(const struct compared_objects *from, int i, struct error *err, const char *format, ...)
{
    char message[700];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    return from->line[i] > 0 ? fail(err, "%s:%d: %s", from->path, from->line[i], message)
                             : fail(err, "%s: %s", from->path, message);
}

bool field_number(const struct compared_objects *from, int i, const struct json *o, const char *key, double *to,
                  struct error *err)
{
    const struct json *value = json_get(o, key);
    *to = NAN;
    if (json_is_null(value))
        return true;
    if (!json_is_number(value) || !(json_number(value) >= 0))
        return field_fail(from, i, err, "%s: expected a number of at least 0, found %s", key,
                          json_is_number(value) ? "a number below 0" : json_described(value));
    *to = json_number(value);
    return true;
}

bool field_needed(const struct compared_objects *from, int i, const struct json *o, const char *key, double *to,
                  struct error *err)
{
    return field_number(from, i, o, key, to, err) &&
           (!isnan(*to) || field_fail(from, i, err, "%s: expected a number of at least 0, found none", key));
}

bool field_count(const struct compared_objects *from, int i, const struct json *o, const char *key, int64_t *to,
                 struct error *err)
{
    double x;
    *to = 0;
    if (!field_number(from, i, o, key, &x, err))
        return false;
    if (x > 1e15)
        return field_fail(from, i, err, "%s: expected a count up to 10^15, found %g", key, x);
    *to = isnan(x) ? 0 : (int64_t)x;
    return true;
}

bool field_positions(const struct compared_objects *from, int i, const struct json *list, const char *key,
                     struct compared *to, struct error *err)
{
    if (json_is_null(list))
        return true;
    if (!json_is_array(list))
        return field_fail(from, i, err, "%s: expected a list of shares, found %s", key, json_described(list));
    for (size_t k = 0; k < json_count(list) && k < COMPARED_POSITIONS; k++) {
        const struct json *x = json_at(list, k);
        if (!json_is_number(x) || !(json_number(x) >= 0 && json_number(x) <= 1))
            return field_fail(from, i, err, "%s[%zu]: expected a number from 0 to 1", key, k);
        to->position[to->positions++] = json_number(x);
    }
    return true;
}

char *field_text(const struct json *o, const char *key)
{
    const struct json *value = json_get(o, key);
    return json_is_text(value) && json_text_length(value) > 0 ? xstrdup(json_text(value)) : NULL;
}

static void replace(char **to, char *with)
{
    if (with == NULL)
        return;
    free(*to);
    *to = with;
}

void field_facts(const struct json *o, struct compared *to)
{
    const struct json *facts = json_get(o, "speclab");
    if (!json_is_object(facts))
        return;
    replace(&to->method, field_text(facts, "drafter"));
    replace(&to->machine, field_text(facts, "machine"));
    replace(&to->sampling, field_text(facts, "sampling"));
    char *prompts = field_text(facts, "prompts");
    to->prompts_counted = to->prompts_counted && prompts == NULL;
    replace(&to->prompts, prompts);
    to->baseline = to->method != NULL && strcmp(to->method, "none") == 0;
    to->lossy = json_is_bool(json_get(facts, "lossless")) && !json_bool(json_get(facts, "lossless"));
    to->inflated = json_is_bool(json_get(facts, "marked_inflated")) && json_bool(json_get(facts, "marked_inflated"));
}
