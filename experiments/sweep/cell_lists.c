#include "experiments/sweep/cell_lists.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "drafters/length.h"
#include "experiments/cells.h"
#include "experiments/sweep/exclude.h"
#include "experiments/sweep/product.h"
#include "experiments/sweep/variants.h"
#include "experiments/yaml.h"
#include "verifier/rules/rule.h"

enum { SAMPLING, BATCH, RULE, DRAFTER, LISTS };
enum { MAX_CELLS = 1 << 16 };

static const char *const keys[LISTS + 1] = { "sampling", "batch", "rule", "drafter", NULL };

struct zipped { // a mapping under zip
    int n;
    int (*at)[LISTS]; // (n) the entry of each list at a position; -1: not one of its lists
};

struct reading {
    struct experiment *e;
    const struct settings *cells; // NULL: not in the file
    struct zipped *zip;           // (n_zips)
    int n_zips;
    struct error *err;
};

static struct entries *entries_of(struct experiment *e, int list)
{
    struct entries *const all[LISTS] = { &e->sampling, &e->batch, &e->rule, &e->drafter };
    return all[list];
}

// ---- entries

static bool read_sampling(const struct settings *given, struct entry *to, struct error *err)
{
    struct sampling sampling;
    if (!sampling_read(given, &sampling, err))
        return false;
    sampling_free(&sampling);
    to->settings = sampling_settings(given);
    to->shown = sampling_shown(to->settings);
    return true;
}

static bool read_batch(const struct settings *given, struct entry *to, struct error *err)
{
    long long v;
    if (!settings_int(given, "batch", 1, MAX_SLOTS, &v, err))
        return false;
    to->shown = xformat("%lld", v);
    to->settings = settings_scalar(to->shown);
    return true;
}

static bool read_rule(const struct settings *given, struct entry *to, struct error *err)
{
    struct pairing p;
    if (!pairing_read(&p, NULL, given, NULL, err))
        return false;
    to->settings = entry_settings(p.rule->name, given, p.rule->options);
    to->shown = entry_shown(to->settings, p.rule->options);
    pairing_close(&p);
    return true;
}

// Alone: the rules that it is paired with are known when all lists are read.
static bool read_drafter(const struct settings *given, struct entry *to, struct error *err)
{
    struct pairing p;
    if (!pairing_read_drafter(&p, given, err))
        return false;
    to->settings = entry_settings(p.type->name, given, p.type->options);
    to->shown = entry_shown(to->settings, p.type->options);
    pairing_close(&p);
    return true;
}

static bool (*const read_entry[LISTS])(const struct settings *given, struct entry *to,
                                       struct error *err) = { read_sampling, read_batch, read_rule, read_drafter };

static void free_entry(struct entry *e)
{
    settings_free(e->settings);
    free(e->shown);
    free(e->text);
}

// *at: the entry with these settings, found or added.
static bool find_entry(struct reading *r, int list, const struct settings *given, int *at)
{
    struct entries *to = entries_of(r->e, list);
    struct entry new = { .given = given };
    if (!read_entry[list](given, &new, r->err))
        return false;
    new.text = settings_line(new.settings);
    for (*at = 0; *at < to->n && strcmp(to->entry[*at].text, new.text) != 0;)
        ++*at;
    if (*at < to->n) {
        free_entry(&new);
        return true;
    }
    to->entry = xrealloc(to->entry, ((size_t)to->n + 1) * sizeof(*to->entry));
    to->entry[to->n++] = new;
    return true;
}

// ---- the lists

// The values of a list, owned by e. For drafters, `length` is resolved (drafters/length.h) before anything refers to them.
static struct settings *keep(struct reading *r, struct settings *values)
{
    if (values != NULL)
        settings_append(r->e->lists, values);
    return values;
}

static bool read_list(struct reading *r, int list, const struct settings *given)
{
    char *what = xformat("cells.%s", keys[list]);
    struct settings *values = keep(r, variants_read(given, what, r->err));
    const struct entries *to = entries_of(r->e, list);
    bool ok = values != NULL;
    for (int i = 0, at; ok && i < values->n; i++) {
        const int before = to->n;
        ok = (list != DRAFTER || drafter_length(values->item[i], r->err)) && find_entry(r, list, values->item[i], &at);
        if (ok && to->n == before)
            ok = settings_fail(r->err, values->item[i], "%s: %s is listed twice, first on line %d", what,
                               to->entry[at].shown, to->entry[at].given->line);
    }
    free(what);
    return ok;
}

static bool read_position(struct reading *r, struct zipped *z, struct settings *position)
{
    int *at = z->at[z->n++];
    for (int list = 0; list < LISTS; list++) {
        struct settings *given = settings_get(position, keys[list]);
        at[list] = -1;
        if (given != NULL &&
            ((list == DRAFTER && !drafter_length(given, r->err)) || !find_entry(r, list, given, &at[list])))
            return false;
    }
    return true;
}

static bool read_zip(struct reading *r, const struct settings *zip)
{
    if (!settings_is_map(zip, "zip", keys, r->err))
        return false;
    for (int i = 0; i < zip->n; i++)
        if (settings_get(r->cells, zip->key[i]) != NULL)
            return settings_fail_key(r->err, zip, i, "zip: \"%s\" is also given beside zip, on line %d", zip->key[i],
                                     settings_get(r->cells, zip->key[i])->line);
    struct settings *positions = keep(r, zip_read(zip, r->err));
    if (positions == NULL)
        return false;
    r->zip = xrealloc(r->zip, ((size_t)r->n_zips + 1) * sizeof(*r->zip));
    struct zipped *z = &r->zip[r->n_zips++];
    *z = (struct zipped){ .at = xcalloc((size_t)positions->n, sizeof(*z->at)) };
    for (int i = 0; i < positions->n; i++)
        if (!read_position(r, z, positions->item[i]))
            return false;
    return true;
}

static bool read_zips(struct reading *r)
{
    const struct settings *zip = settings_get(r->cells, "zip");
    if (zip == NULL || zip->kind != SETTINGS_LIST || zip->n == 0)
        return zip == NULL || read_zip(r, zip);
    for (int i = 0; i < zip->n; i++) {
        for (int k = 0; k < i; k++)
            for (int key = 0; key < zip->item[i]->n && zip->item[i]->kind == SETTINGS_MAP; key++)
                if (settings_get(zip->item[k], zip->item[i]->key[key]) != NULL)
                    return settings_fail_key(r->err, zip->item[i], key, "zip: \"%s\" is also given on line %d",
                                             zip->item[i]->key[key],
                                             settings_get(zip->item[k], zip->item[i]->key[key])->line);
        if (!read_zip(r, zip->item[i]))
            return false;
    }
    return true;
}

static bool is_zipped(const struct reading *r, int list)
{
    for (int i = 0; i < r->n_zips; i++)
        if (r->zip[i].at[0][list] >= 0)
            return true;
    return false;
}

// Adds `none` as the first drafter, unless it is listed.
static void add_none(struct reading *r)
{
    struct entries *d = &r->e->drafter;
    for (int i = 0; i < d->n; i++)
        if (experiment_is_none(r->e, i))
            return;
    struct settings *s = entry_settings(drafter_types[0]->name, NULL, NULL);
    d->entry = xrealloc(d->entry, ((size_t)d->n + 1) * sizeof(*d->entry));
    memmove(d->entry + 1, d->entry, (size_t)d->n * sizeof(*d->entry));
    d->entry[0] = (struct entry){ NULL, s, entry_shown(s, NULL), settings_line(s) };
    d->n++;
    r->e->none_added = true;
    for (int i = 0; i < r->n_zips; i++)
        for (int k = 0; k < r->zip[i].n; k++)
            r->zip[i].at[k][DRAFTER] += r->zip[i].at[k][DRAFTER] >= 0;
}

// Adds rules[0] as the last rule, for the baseline of those that share one, unless it is listed.
static void add_rule(struct reading *r)
{
    struct entries *all = &r->e->rule;
    bool shared = false;
    for (int i = 0; i < all->n; i++) {
        if (experiment_is_first_rule(r->e, i))
            return;
        shared = shared || rule_named(settings_get(all->entry[i].settings, "kind")->text)->bonus_alone;
    }
    if (!shared)
        return;
    struct settings *s = entry_settings(rules[0]->name, NULL, rules[0]->options);
    all->entry = xrealloc(all->entry, ((size_t)all->n + 1) * sizeof(*all->entry));
    all->entry[all->n++] = (struct entry){ NULL, s, entry_shown(s, rules[0]->options), settings_line(s) };
    r->e->rule_added = true;
}

static bool read_lists(struct reading *r)
{
    static const char defaults[] = "{sampling: {temperature: 0}, batch: 1, rule: rejection, drafter: none}";
    static const char *const all[] = { "sampling", "batch", "rule", "drafter", "zip", "exclude", NULL };
    struct experiment *e = r->e;
    e->lists = settings_list();
    struct settings *usual = keep(r, yaml_parse(defaults, sizeof(defaults) - 1, "default", r->err));
    if (usual == NULL || (r->cells != NULL && !settings_is_map(r->cells, "cells", all, r->err)) || !read_zips(r))
        return false;
    for (int list = 0; list < LISTS; list++) {
        const struct settings *s = settings_get(r->cells, keys[list]);
        if (!is_zipped(r, list) && !read_list(r, list, s != NULL ? s : settings_get(usual, keys[list])))
            return false;
    }
    add_none(r);
    add_rule(r);
    const int64_t n = (int64_t)e->sampling.n * e->batch.n * e->rule.n * e->drafter.n; // at most 2^40
    return n <= MAX_CELLS ||
           settings_fail(r->err, r->cells, "cells: expected at most %d, found %lld", MAX_CELLS, (long long)n);
}

// ---- which cells there are

static int entry_of(struct cell c, int list)
{
    const int entry[LISTS] = { c.sampling, c.batch, c.rule, c.drafter };
    return entry[list];
}

// Whether every zip has a position with the cell's entries.
static bool is_listed(const struct reading *r, struct cell c)
{
    for (int i = 0; i < r->n_zips; i++) {
        bool found = false;
        for (int k = 0; k < r->zip[i].n && !found; k++) {
            found = true;
            for (int list = 0; list < LISTS; list++)
                found = found && (r->zip[i].at[k][list] < 0 || r->zip[i].at[k][list] == entry_of(c, list));
        }
        if (!found)
            return false;
    }
    return true;
}

// An added `none` that nothing is compared with is left out.
static bool read_cells(struct reading *r)
{
    struct experiment *e = r->e;
    const struct settings *exclude = settings_get(r->cells, "exclude");
    e->has = xcalloc((size_t)product_size(e), sizeof(*e->has));
    for (int i = 0; i < product_size(e); i++) {
        const struct cell c = product_cell(e, i);
        e->has[i] = is_listed(r, c) && !product_was_added(e, c);
    }
    product_add_baselines(e, e->has);
    if (exclude != NULL && !exclude_read(e, exclude, r->err))
        return false;
    for (int i = 0; e->none_added && i < product_size(e); i++)
        e->has[i] = e->has[i] && !experiment_is_none(e, product_cell(e, i).drafter);
    product_add_baselines(e, e->has);
    return experiment_cells(e) > 0 || settings_fail(r->err, exclude, "exclude: leaves out every cell");
}

static bool has_pairing(const struct experiment *e, int rule, int drafter)
{
    for (int s = 0; s < e->sampling.n; s++)
        for (int b = 0; b < e->batch.n; b++)
            if (experiment_has(e, (struct cell){ s, b, rule, drafter }))
                return true;
    return false;
}

static bool check_pairings(const struct experiment *e, struct error *err)
{
    for (int r = 0; r < e->rule.n; r++)
        for (int d = 0; d < e->drafter.n; d++) {
            struct pairing p;
            if (!has_pairing(e, r, d))
                continue;
            if (!pairing_read(&p, e->drafter.entry[d].given, e->rule.entry[r].given, NULL, err))
                return false;
            pairing_close(&p);
        }
    return true;
}

bool cell_lists_read(struct experiment *e, struct error *err)
{
    struct reading r = { .e = e, .cells = settings_get(e->file, "cells"), .err = err };
    const bool ok = read_lists(&r) && read_cells(&r) && check_pairings(e, err);
    for (int i = 0; i < r.n_zips; i++)
        free(r.zip[i].at);
    free(r.zip);
    return ok;
}

void cell_lists_free(struct experiment *e)
{
    for (int list = 0; list < LISTS; list++) {
        struct entries *s = entries_of(e, list);
        for (int i = 0; i < s->n; i++)
            free_entry(&s->entry[i]);
        free(s->entry);
    }
    settings_free(e->lists);
    free(e->has);
}
