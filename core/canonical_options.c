// canonical_options.c - one spelling for equal settings.
//
// The database identifies a cell by a hash of its settings, so {tokens: 8, longest: 3} must equal {longest: 3, tokens: 08}:
// options are in their table's order, defaults are filled in, and a number has the shortest spelling that reads back as the
// same number. Cells run from the canonical settings.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"

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

// By ascending key; of two spellings of one key (11 and 011) the later wins.
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

// A list given for a text option is that text, as in options_read.
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
    struct settings *full = given != NULL && given->kind == SETTINGS_MAP ? settings_copy(given) : settings_map();
    options_fill(full, table);
    struct settings *to = settings_map();
    settings_put(to, "kind", settings_scalar(kind));
    for (const struct option *o = table; o != NULL && o->name != NULL; o++) {
        const struct settings *v = settings_get(full, o->name);
        if (v != NULL)
            settings_put(to, o->name, option_settings(v, o->type));
    }
    settings_free(full);
    return to;
}
