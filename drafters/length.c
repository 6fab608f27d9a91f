#include "drafters/length.h"

#include <stdlib.h>
#include <string.h>

#include "core/settings.h"

static void copy_key(struct settings *to, const struct settings *from, int i)
{
    settings_put(to, from->key[i], settings_copy(from->item[i]));
    to->key_line[to->n - 1] = from->key_line[i];
    to->key_column[to->n - 1] = from->key_column[i];
}

static struct settings *map_at(const struct settings *at)
{
    struct settings *map = settings_map();
    map->file = at->file;
    map->line = at->line;
    map->column = at->column;
    return map;
}

bool drafter_length(struct settings *drafter, struct error *err)
{
    const struct settings *length = drafter->kind == SETTINGS_MAP ? settings_get(drafter, "length") : NULL;
    if (length == NULL)
        return true;
    const bool is_word = length->kind == SETTINGS_SCALAR && strcmp(length->text, "adaptive") == 0,
               is_map = length->kind == SETTINGS_MAP && settings_get(length, "kind") == NULL &&
                        settings_get(length, "of") == NULL;
    if (!is_word && !is_map)
        return settings_fail(err, length,
                             "length: expected adaptive, or options of the drafter adaptive, as in {by: confidence}");
    struct settings *of = map_at(drafter), *whole = map_at(drafter);
    for (int i = 0; i < drafter->n; i++)
        if (strcmp(drafter->key[i], "length") != 0)
            copy_key(of, drafter, i);
    settings_put(whole, "kind", settings_scalar("adaptive"));
    settings_put(whole, "of", of);
    for (int i = 0; is_map && i < length->n; i++)
        copy_key(whole, length, i);
    const struct settings old = *drafter;
    *drafter = *whole;
    *whole = old;
    settings_free(whole);
    return true;
}
