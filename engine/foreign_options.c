#include "engine/foreign_options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/registry.h"
#include "core/settings.h"

int32_t foreign_refuse(struct foreign_report *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->why, sizeof(r->why), format, args);
    va_end(args);
    return 0;
}

// ---- options: the fields of a table are 8 bytes each, behind the first 8 of the struct

enum { FIELD = 8 };

static const enum option_type types[] = { OPTION_INT, OPTION_REAL, OPTION_BOOL, OPTION_TEXT, OPTION_CHOICE };

static bool is_option_name(const char *name)
{
    static const char *const taken[] = { "any", "from", "to", "zip", "kind" }; // words of experiments
    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
        if (name != NULL && strcmp(name, taken[i]) == 0)
            return false;
    return registry_is_name(name);
}

static bool has(const struct option *table, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0)
            return true;
    return false;
}

// A default that cannot be read would be found out with the first cell.
static bool check_default(const struct option *o, struct error *err)
{
    struct option one[] = { *o, { 0 } };
    struct settings *value = settings_value(o->default_value, o->name, err);
    int64_t field[2];
    one[0].at = 0;
    const bool ok = value != NULL && options_read(NULL, "its default", one, field, err);
    if (ok)
        options_free(one, field);
    settings_free(value);
    return ok;
}

static bool make_option(struct option *to, int number, const struct foreign_option *o, struct foreign_report *r)
{
    struct error err;
    if (!is_option_name(o->name))
        return foreign_refuse(r,
                              "option \"%s\": expected a name of lower-case letters, digits and _, and not "
                              "any, from, to, zip or kind",
                              o->name != NULL ? o->name : "");
    if (o->type < FOREIGN_INT || o->type > FOREIGN_CHOICE)
        return foreign_refuse(r, "option %s: expected a type from 0 to %d, found %d", o->name, FOREIGN_CHOICE,
                              (int)o->type);
    *to = (struct option){ .name = o->name,
                           .type = types[o->type],
                           .at = (size_t)(FIELD * (number + 1)),
                           .default_value = o->default_value,
                           .help = o->help != NULL ? o->help : "",
                           .min = o->min,
                           .max = o->max,
                           .choices = o->choices };
    return o->default_value == NULL || o->default_value[0] == '\0' || check_default(to, &err) ||
           foreign_refuse(r, "the default of an option, %s", err.text);
}

static struct option *make_table(const struct foreign_option *o, int n, const struct option *more, int n_more,
                                 size_t *size, struct foreign_report *r)
{
    struct option *table = xcalloc((size_t)(n + n_more + 1), sizeof(*table));
    *size = (size_t)(FIELD * (n + 1));
    for (int i = 0; i < n; i++) {
        bool ok = make_option(&table[i], i, &o[i], r);
        if (ok && has(table, i, o[i].name))
            ok = foreign_refuse(r, "option %s: expected a name that no other option has", o[i].name);
        if (ok && has(more, n_more, o[i].name))
            ok = foreign_refuse(
                r, "option %s: a drafter of rows has it already, as an option of trees; remove this one", o[i].name);
        if (!ok) {
            free(table);
            return NULL;
        }
    }
    for (int i = 0; i < n_more; i++) {
        table[n + i] = more[i];
        table[n + i].at += *size;
    }
    return table;
}

int32_t foreign_register(const void *of, int32_t version, const struct foreign_option *option, int n,
                         const struct option *more, int n_more,
                         bool (*add)(const struct foreign_type *type, struct error *err), struct foreign_report *r)
{
    struct error err;
    size_t size;
    if (version != FOREIGN_VERSION)
        return foreign_refuse(r, "expected version %d of the door, found %d", FOREIGN_VERSION, (int)version);
    if (n < 0 || n > FOREIGN_OPTIONS)
        return foreign_refuse(r, "expected at most %d options, found %d", FOREIGN_OPTIONS, n);
    struct option *table = make_table(option, n, more, n_more, &size, r);
    if (table == NULL)
        return 0;
    struct foreign_type *type = xmalloc(sizeof(*type));
    *type = (struct foreign_type){ of, table, size };
    if (add(type, &err))
        return 1;
    free(table);
    free(type);
    return foreign_refuse(r, "%s", err.text);
}

void foreign_values(const struct option *table, int n, const void *options, struct foreign_value *value)
{
    for (int i = 0; i < n; i++) {
        const void *field = (const char *)options + table[i].at;
        value[i] = (struct foreign_value){ 0 };
        if (table[i].type == OPTION_INT || table[i].type == OPTION_CHOICE)
            value[i].number = *(const int *)field;
        else if (table[i].type == OPTION_REAL)
            value[i].number = *(const double *)field;
        else if (table[i].type == OPTION_BOOL)
            value[i].number = *(const bool *)field;
        else
            value[i].text = *(char *const *)field;
    }
}
