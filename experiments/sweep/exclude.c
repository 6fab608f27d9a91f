#include "experiments/sweep/exclude.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/length.h"
#include "experiments/sweep/product.h"
#include "experiments/sweep/variants.h"

enum { MAX_ITEMS = 1024 };

static const char *const keys[] = { "sampling", "batch", "rule", "drafter", NULL };

struct matches { // by list, in the order of keys: which entries have what an item says
    bool entry[4][MAX_VARIANTS + 1];
};

static bool partial_matches(const struct settings *part, const struct settings *whole);

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
    char *line = settings_line(list);
    bool found = strcmp(line, scalar->text) == 0;
    free(line);
    for (int i = 0; i < list->n && !found; i++)
        found = partial_matches(list->item[i], scalar);
    return found;
}

// Whether settings have all that partial settings say: {kind: small, tokens: 4} of a drafter with all its options. whole: canonical. A mapping
// matches one with its keys and more; a scalar of a mapping is its `kind`; a list of a scalar is any of its values; 04 is 4.
static bool partial_matches(const struct settings *part, const struct settings *whole)
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

// What an item says about one list. NULL on failure.
static struct settings *parts_of(const struct settings *given, const char *key, struct error *err)
{
    struct settings *parts = variants_read(given, key, err);
    for (int i = 0; parts != NULL && strcmp(key, "drafter") == 0 && i < parts->n; i++)
        if (!drafter_length(parts->item[i], err)) {
            settings_free(parts);
            return NULL;
        }
    return parts;
}

static bool fail_unmatched(const struct settings *part, const char *key, struct error *err)
{
    char *line = settings_line(part);
    settings_fail(err, part, "exclude: no %s of this experiment is %s", key, line);
    free(line);
    return false;
}

// Every part has to match an entry.
static bool match_list(const struct entries *of, const struct settings *given, const char *key, bool *match,
                       struct error *err)
{
    for (int i = 0; i < of->n; i++)
        match[i] = given == NULL;
    if (given == NULL)
        return true;
    struct settings *parts = parts_of(given, key, err);
    bool ok = parts != NULL;
    for (int k = 0; ok && k < parts->n; k++) {
        bool found = false;
        for (int i = 0; i < of->n; i++)
            if (partial_matches(parts->item[k], of->entry[i].settings))
                found = match[i] = true;
        ok = found || fail_unmatched(parts->item[k], key, err);
    }
    settings_free(parts);
    return ok;
}

static bool match_lists(const struct experiment *e, const struct settings *item, struct matches *to, struct error *err)
{
    const struct entries *const lists[] = { &e->sampling, &e->batch, &e->rule, &e->drafter };
    if (!settings_is_map(item, "exclude", keys, err))
        return false;
    if (item->n == 0)
        return settings_fail(err, item, "exclude: expected settings of the cells to leave out, found none");
    for (int i = 0; i < 4; i++)
        if (!match_list(lists[i], settings_get(item, keys[i]), keys[i], to->entry[i], err))
            return false;
    return true;
}

static bool names_drafters(const struct settings *item)
{
    return item != NULL && settings_get(item, "drafter") != NULL;
}

// by: for each cell of the product the first item that leaves it out, those that name drafters before others; NULL: none does. Cells that were
// added are nobody's to leave out.
static bool exclude_item(const struct experiment *e, const struct settings *item, const struct settings **by,
                         struct error *err)
{
    struct matches m;
    int found = 0;
    if (!match_lists(e, item, &m, err))
        return false;
    for (int i = 0; i < product_size(e); i++) {
        const struct cell c = product_cell(e, i);
        if (!e->has[i] || product_was_added(e, c) || !m.entry[0][c.sampling] || !m.entry[1][c.batch] ||
            !m.entry[2][c.rule] || !m.entry[3][c.drafter])
            continue;
        if (by[i] == NULL || (names_drafters(item) && !names_drafters(by[i])))
            by[i] = item;
        found++;
    }
    return found > 0 || settings_fail(err, item, "exclude: no cell has all of these settings");
}

// `none` stays where cells that stay are compared with it, of another rule for instance, unless an item names it.
static bool take_cells(struct experiment *e, const struct settings *const *by, struct error *err)
{
    const size_t n = (size_t)product_size(e);
    bool *needed = xcalloc(n, sizeof(*needed)), ok = true;
    for (size_t i = 0; i < n; i++)
        needed[i] = e->has[i] = e->has[i] && by[i] == NULL;
    product_add_baselines(e, needed);
    for (size_t i = 0; ok && i < n; i++) {
        const struct cell c = product_cell(e, (int)i);
        if (needed[i] && !e->has[i] && names_drafters(by[i]))
            ok = settings_fail(
                err, by[i],
                "exclude: leaves out none, with which other drafters are compared that stay (%s, batch %s, "
                "rule %s)",
                e->sampling.entry[c.sampling].shown, e->batch.entry[c.batch].shown, e->rule.entry[c.rule].shown);
    }
    free(needed);
    return ok;
}

bool exclude_read(struct experiment *e, const struct settings *exclude, struct error *err)
{
    const bool list = exclude->kind == SETTINGS_LIST;
    const int n = list ? exclude->n : 1;
    if (n == 0 || n > MAX_ITEMS)
        return settings_fail(err, exclude, "exclude: expected a list of 1 to %d partial settings, found %d", MAX_ITEMS,
                             n);
    const struct settings **by = xcalloc((size_t)product_size(e), sizeof(*by));
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        ok = exclude_item(e, list ? exclude->item[i] : exclude, by, err);
    ok = ok && take_cells(e, by, err);
    free(by);
    return ok;
}
