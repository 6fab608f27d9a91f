#include "experiments/sweep/partial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/settings.h"

static bool same_scalar(const struct settings *a, const struct settings *b)
{
    struct error ignored;
    double x, y;
    return strcmp(a->text, b->text) == 0 || (settings_real(a, "", -INFINITY, INFINITY, &x, &ignored) &&
                                             settings_real(b, "", -INFINITY, INFINITY, &y, &ignored) && x == y);
}

// Any of a list's values, or the list as a text: an option that is a text takes it so (core/canonical_options.c).
static bool is_among(const struct settings *scalar, const struct settings *list)
{
    struct text t = { 0 };
    settings_write(list, &t);
    bool found = strcmp(t.s, scalar->text) == 0;
    free(t.s);
    for (int i = 0; i < list->n && !found; i++)
        found = partial_matches(list->item[i], scalar);
    return found;
}

bool partial_matches(const struct settings *part, const struct settings *whole)
{
    if (part->kind == SETTINGS_SCALAR && whole->kind == SETTINGS_MAP)
        whole = settings_get(whole, "kind");
    if (whole == NULL)
        return false;
    if (part->kind == SETTINGS_LIST && whole->kind == SETTINGS_SCALAR)
        return is_among(whole, part);
    if (part->kind != whole->kind || (part->kind == SETTINGS_LIST && part->n != whole->n))
        return false;
    if (part->kind == SETTINGS_SCALAR)
        return same_scalar(part, whole);
    for (int i = 0; i < part->n; i++) {
        const struct settings *other = part->kind == SETTINGS_LIST ? whole->item[i] : settings_get(whole, part->key[i]);
        if (other == NULL || !partial_matches(part->item[i], other))
            return false;
    }
    return true;
}
