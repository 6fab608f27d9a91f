#include "core/options.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"

static const size_t field_bytes[] = {
    [OPTION_INT] = sizeof(int),
    [OPTION_REAL] = sizeof(double),
    [OPTION_BOOL] = sizeof(bool),
    [OPTION_TEXT] = sizeof(char *),
    [OPTION_PATH] = sizeof(char *),
    [OPTION_CHOICE] = sizeof(int),
    [OPTION_INTS] = sizeof(struct ints),
    [OPTION_PAIRS] = sizeof(struct pairs),
    [OPTION_ANY] = sizeof(struct settings *),
};

static double lower_bound(const struct option *o)
{
    return o->min != 0 || o->max != 0                          ? o->min
           : o->type == OPTION_REAL || o->type == OPTION_PAIRS ? -HUGE_VAL
                                                               : INT_MIN;
}

static double upper_bound(const struct option *o)
{
    return o->min != 0 || o->max != 0 ? o->max : o->type == OPTION_REAL || o->type == OPTION_PAIRS ? HUGE_VAL : INT_MAX;
}

// key, here and below: the option's name in messages, "drafter ngram: longest".
static bool read_int(const struct settings *s, const struct option *o, const char *key, int *to, struct error *err)
{
    long long v;
    if (!settings_int(s, key, (long long)lower_bound(o), (long long)upper_bound(o), &v, err))
        return false;
    *to = (int)v;
    return true;
}

static bool read_choice(const struct settings *s, const struct option *o, const char *key, int *to, struct error *err)
{
    const char *text;
    if (!settings_text(s, key, &text, err))
        return false;
    const int i = choice_index(o->choices, text);
    if (i < 0)
        return settings_fail(err, s, "%s: expected one of %s, found \"%s\"", key, o->choices, text);
    *to = i;
    return true;
}

static bool read_ints(const struct settings *s, const struct option *o, const char *key, struct ints *to,
                      struct error *err)
{
    int capacity = (int)(sizeof(to->v) / sizeof(to->v[0]));
    if (s->kind != SETTINGS_LIST)
        return settings_fail(err, s, "%s: expected a list of integers, as in [4, 2, 1]", key);
    if (s->n > capacity)
        return settings_fail(err, s, "%s: expected at most %d numbers, found %d", key, capacity, s->n);
    for (int i = 0; i < s->n; i++)
        if (!read_int(s->item[i], o, key, &to->v[i], err))
            return false;
    to->n = s->n;
    return true;
}

static bool read_pairs(const struct settings *s, const struct option *o, const char *key, struct pairs *to,
                       struct error *err)
{
    if (s->kind != SETTINGS_MAP)
        return settings_fail(err, s, "%s: expected a mapping from token ids to numbers, as in {11: -2.5}", key);
    to->key = xcalloc((size_t)s->n + 1, sizeof(*to->key));
    to->value = xcalloc((size_t)s->n + 1, sizeof(*to->value));
    for (int i = 0; i < s->n; i++) {
        char *end;
        long id = strtol(s->key[i], &end, 10);
        if (*end != '\0' || end == s->key[i] || id < 0 || id > INT_MAX)
            return settings_fail_key(err, s, i, "%s: expected a token id, found \"%s\"", key, s->key[i]);
        to->key[i] = (int32_t)id;
        if (!settings_real(s->item[i], key, lower_bound(o), upper_bound(o), &to->value[i], err))
            return false;
    }
    to->n = s->n;
    return true;
}

static bool read_one(const struct settings *s, const struct option *o, const char *key, void *field, struct error *err)
{
    const char *text;
    switch (o->type) {
    case OPTION_INT:
        return read_int(s, o, key, field, err);
    case OPTION_REAL:
        return settings_real(s, key, lower_bound(o), upper_bound(o), field, err);
    case OPTION_BOOL:
        return settings_bool(s, key, field, err);
    case OPTION_CHOICE:
        return read_choice(s, o, key, field, err);
    case OPTION_INTS:
        return read_ints(s, o, key, field, err);
    case OPTION_PAIRS:
        return read_pairs(s, o, key, field, err);
    case OPTION_TEXT:
        if (s->kind == SETTINGS_LIST) {
            *(char **)field = settings_line(s);
            return true;
        }
        // fall through
    case OPTION_PATH:
        if (!settings_text(s, key, &text, err))
            return false;
        if (o->type == OPTION_PATH && *text == '\0')
            return settings_fail(err, s, "%s: expected a text, found nothing", key);
        *(char **)field = xstrdup(text);
        return true;
    case OPTION_ANY:
        *(struct settings **)field = settings_copy(s);
        return true;
    }
    return false;
}

static bool read_given(const struct settings *s, const struct option *o, const char *what, void *field,
                       struct error *err)
{
    char *key = xformat("%s: %s", what, o->name);
    const bool ok = read_one(s, o, key, field, err);
    free(key);
    return ok;
}

// Returns the default as settings; NULL: the default is no value.
static struct settings *default_value(const struct option *o)
{
    if (o->default_value[0] == '\0') {
        if (o->type == OPTION_INTS)
            return settings_list();
        return o->type == OPTION_PAIRS ? settings_map() : NULL;
    }
    if (o->type != OPTION_INTS && o->type != OPTION_PAIRS)
        return settings_scalar(o->default_value);
    struct error err;
    struct settings *value = settings_value(o->default_value, o->name, &err);
    assert(value != NULL);
    return value;
}

static const struct option *find(const struct option *table, const char *name)
{
    for (const struct option *o = table; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, name) == 0)
            return o;
    return NULL;
}

static bool fail_unknown(struct error *err, const struct settings *s, int i, const char *what,
                         const struct option *table)
{
    int n = 0;
    while (table != NULL && table[n].name != NULL)
        n++;
    const char **names = xcalloc((size_t)n + 1, sizeof(*names));
    for (int k = 0; k < n; k++)
        names[k] = table[k].name;
    char *said = xformat("%s has no option", what);
    settings_fail_name(err, s, i, NAME_OPTION, said, s->key[i], names);
    free(said);
    free(names);
    return false;
}

static void zero(const struct option *table, void *into)
{
    for (const struct option *o = table; o != NULL && o->name != NULL; o++)
        memset((char *)into + o->at, 0, field_bytes[o->type]);
}

bool options_read(const struct settings *s, const char *what, const struct option *table, void *into, struct error *err)
{
    zero(table, into);
    if (s != NULL && s->kind != SETTINGS_MAP)
        return settings_fail(err, s, "%s: expected a mapping, as in {kind: ngram, longest: 3}", what);
    for (int i = 0; s != NULL && i < s->n; i++)
        if (strcmp(s->key[i], "kind") != 0 && find(table, s->key[i]) == NULL)
            return fail_unknown(err, s, i, what, table);
    return options_take(s, what, table, into, err);
}

bool options_take(const struct settings *s, const char *what, const struct option *table, void *into, struct error *err)
{
    zero(table, into);
    for (const struct option *o = table; o != NULL && o->name != NULL; o++) {
        void *field = (char *)into + o->at;
        const struct settings *given = settings_get(s, o->name);
        if (given != NULL) {
            if (!read_given(given, o, what, field, err))
                return false;
        } else if (o->default_value == NULL) {
            return o->help[0] != '\0' ? settings_fail(err, s, "%s needs \"%s\" (%s)", what, o->name, o->help)
                                      : settings_fail(err, s, "%s needs \"%s\", which has no default", what, o->name);
        } else {
            struct settings *p = default_value(o);
            bool ok = p == NULL || read_one(p, o, o->name, field, err);
            settings_free(p);
            if (!ok)
                return false;
        }
    }
    return true;
}

void options_free(const struct option *table, void *options)
{
    for (const struct option *o = table; options != NULL && o != NULL && o->name != NULL; o++) {
        void *field = (char *)options + o->at;
        if (o->type == OPTION_TEXT || o->type == OPTION_PATH) {
            free(*(char **)field);
            *(char **)field = NULL;
        } else if (o->type == OPTION_PAIRS) {
            struct pairs *p = field;
            free(p->key);
            free(p->value);
            *p = (struct pairs){ 0 };
        } else if (o->type == OPTION_ANY) {
            settings_free(*(struct settings **)field);
            *(struct settings **)field = NULL;
        }
    }
}

void options_fill(struct settings *map, const struct option *table)
{
    for (const struct option *o = table; o != NULL && o->name != NULL; o++)
        if (settings_get(map, o->name) == NULL && o->default_value != NULL) {
            struct settings *p = default_value(o);
            if (p != NULL)
                settings_put(map, o->name, p);
        }
}

// ---- one spelling for equal settings
//
// The database identifies a cell by a hash of its settings, so {tokens: 8, longest: 3} must equal {longest: 3, tokens:
// 08}: options are in their table's order, defaults are filled in, and a number has the shortest spelling that reads
// back as the same number. Cells run from the canonical settings.

static struct settings *integer(const char *text)
{
    char s[32];
    snprintf(s, sizeof(s), "%lld", strtoll(text, NULL, 10));
    return settings_scalar(s);
}

static struct settings *number(const char *text)
{
    char s[40];
    double v = strtod(text, NULL) + 0.0; // -0 becomes 0
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(s, sizeof(s), "%.*g", digits, v);
        if (strtod(s, NULL) == v)
            break;
    }
    return settings_scalar(s);
}

static struct settings *integers(const struct settings *list)
{
    struct settings *to = settings_list();
    for (int i = 0; i < list->n; i++)
        settings_append(to, integer(list->item[i]->text));
    return to;
}

struct numbered {
    long key;
    int place;
};

static int by_key(const void *a, const void *b)
{
    const struct numbered *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->place - y->place;
}

// Sorts pairs by ascending key. If a key has two spellings (11 and 011), the later pair wins.
static struct settings *pairs(const struct settings *map)
{
    struct settings *to = settings_map();
    struct numbered *n = xcalloc((size_t)map->n + 1, sizeof(*n));
    for (int i = 0; i < map->n; i++)
        n[i] = (struct numbered){ strtol(map->key[i], NULL, 10), i };
    qsort(n, (size_t)map->n, sizeof(*n), by_key);
    for (int i = 0; i < map->n; i++) {
        char key[24];
        snprintf(key, sizeof(key), "%ld", n[i].key);
        settings_put(to, key, number(map->item[n[i].place]->text));
    }
    free(n);
    return to;
}

// A list that is given for a text option is that text, as in options_read.
static struct settings *one_line(const struct settings *given)
{
    char *line = settings_line(given);
    struct settings *s = settings_scalar(line);
    free(line);
    return s;
}

struct settings *option_settings(const struct settings *given, enum option_type type)
{
    switch (type) {
    case OPTION_INT:
        return integer(given->text);
    case OPTION_REAL:
        return number(given->text);
    case OPTION_INTS:
        return integers(given);
    case OPTION_PAIRS:
        return pairs(given);
    case OPTION_TEXT:
        return given->kind == SETTINGS_LIST ? one_line(given) : settings_scalar(given->text);
    case OPTION_ANY:
        return settings_copy(given);
    case OPTION_BOOL:
    case OPTION_PATH:
    case OPTION_CHOICE:
        break;
    }
    return settings_scalar(given->text);
}

struct settings *entry_settings(const char *kind, const struct settings *given, const struct option *table)
{
    struct settings *to = settings_map();
    settings_put(to, "kind", settings_scalar(kind));
    for (const struct option *o = table; o != NULL && o->name != NULL; o++) {
        const struct settings *own = settings_get(given, o->name);
        struct settings *usual = own == NULL && o->default_value != NULL ? default_value(o) : NULL;
        if (own != NULL || usual != NULL)
            settings_put(to, o->name, option_settings(own != NULL ? own : usual, o->type));
        settings_free(usual);
    }
    return to;
}
