#include "drafters/length.h"

#include <stdlib.h>
#include <string.h>

#include "core/settings.h"

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
    struct settings *of = settings_at(settings_map(), drafter), *whole = settings_at(settings_map(), drafter);
    for (int i = 0; i < drafter->n; i++)
        if (strcmp(drafter->key[i], "length") != 0)
            settings_put_key(of, drafter, i, settings_copy(drafter->item[i]));
    settings_put(whole, "kind", settings_scalar("adaptive"));
    settings_put(whole, "of", of);
    for (int i = 0; is_map && i < length->n; i++)
        settings_put_key(whole, length, i, settings_copy(length->item[i]));
    const struct settings old = *drafter;
    *drafter = *whole;
    *whole = old;
    settings_free(whole);
    return true;
}
