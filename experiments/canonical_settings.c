// canonical_settings.c - how canonical settings (core/canonical_options.c) are shown, and those of sampling.
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "experiments/cells.h"
#include "sampling/stages.h"

static bool same_settings(const struct settings *a, const struct settings *b)
{
    char *s = settings_line(a), *t = settings_line(b);
    const bool same = strcmp(s, t) == 0;
    free(s);
    free(t);
    return same;
}

char *entry_shown(const struct settings *settings, const struct option *table)
{
    struct settings *defaults = entry_settings("", NULL, table);
    struct text t = { 0 };
    text_puts(&t, settings_get(settings, "kind")->text);
    bool first = true;
    for (int i = 0; i < settings->n; i++) {
        const struct settings *usual = settings_get(defaults, settings->key[i]);
        if (strcmp(settings->key[i], "kind") == 0 || (usual != NULL && same_settings(settings->item[i], usual)))
            continue;
        text_printf(&t, "%s%s=", first ? "(" : ", ", settings->key[i]);
        settings_write(settings->item[i], &t);
        first = false;
    }
    if (!first)
        text_puts(&t, ")");
    settings_free(defaults);
    return t.s;
}

struct settings *sampling_settings(const struct settings *given)
{
    struct settings *to = settings_map();
    for (int i = 0; stages[i] != NULL; i++) {
        const struct settings *v = settings_get(given, stages[i]->name);
        if (v != NULL)
            settings_put(to, stages[i]->name, option_settings(v, stages[i]->option[0].type));
        else if (stages[i] == &temperature_stage)
            settings_put(to, stages[i]->name, settings_scalar("1"));
    }
    return to;
}

char *sampling_shown(const struct settings *settings)
{
    struct text t = { 0 };
    for (int i = 0; i < settings->n; i++) {
        text_printf(&t, "%s%s=", i > 0 ? ", " : "", settings->key[i]);
        settings_write(settings->item[i], &t);
    }
    return t.s;
}
