#include "experiments/sweep/cell_lists.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/sweep/variants.h"
#include "experiments/yaml.h"
#include "verifier/rules/rule.h"

enum { MAX_CELLS = 1 << 16, MAX_ITEMS = 1024 };

static const char *const keys[AXES + 1] = { "sampling", "batch", "rule", "drafter", "target", NULL };
static const char *const places[AXES] = { "cells.sampling", "cells.batch", "cells.rule", "cells.drafter", "target" };

struct factor { // lists that vary together: those of a mapping under zip, or a single list
    int n;
    int (*at)[AXES]; // (n) index of each list's entry at a position; -1: the list is not one of its lists
};

struct reading {
    struct experiment *e;
    const struct settings *cells; // NULL: missing in the file
    struct factor factor[AXES];   // (n_factors) each list is in one of them
    int n_factors;
    int line[AXES]; // line where the list is given; 0: not yet
    struct error *err;
};

// ---- the lists

static void insert_entry(struct entries *to, int at, struct entry new)
{
    to->entry = xrealloc(to->entry, ((size_t)to->n + 1) * sizeof(*to->entry));
    memmove(to->entry + at + 1, to->entry + at, (size_t)(to->n++ - at) * sizeof(*to->entry));
    to->entry[at] = new;
}

// *at: the entry with these settings, found or added. For a drafter `length` is resolved before anything refers to it.
static bool find_entry(struct reading *r, int axis, struct settings *given, int *at)
{
    struct entries *to = &r->e->axis[axis];
    struct entry new;
    if ((axis == DRAFTER && !drafter_length(given, r->err)) || !entry_read(axis, given, &new, r->err))
        return false;
    for (*at = 0; *at < to->n; ++*at)
        if (strcmp(to->entry[*at].text, new.text) == 0) {
            entry_free(&new);
            return true;
        }
    insert_entry(to, to->n, new);
    return true;
}

// Adds lists that vary together. positions: the values of list `axis`, or, for all its lists, a mapping for each
// position; NULL on failure.
static bool add_factor(struct reading *r, int axis, struct settings *positions)
{
    if (positions == NULL)
        return false;
    struct factor *f = &r->factor[r->n_factors++];
    settings_append(r->e->lists, positions);
    *f = (struct factor){ positions->n, xcalloc((size_t)positions->n, sizeof(*f->at)) };
    for (int k = 0; k < f->n; k++)
        for (int a = 0; a < AXES; a++) {
            struct settings *one = positions->item[k], *given = axis == AXES ? settings_get(one, keys[a]) : one;
            f->at[k][a] = -1;
            if ((axis == AXES || axis == a) && given != NULL && !find_entry(r, a, given, &f->at[k][a]))
                return false;
            if (axis == a && f->at[k][a] < k)
                return settings_fail(r->err, given, "%s: %s is listed twice, first on line %d", places[a],
                                     r->e->axis[a].entry[f->at[k][a]].shown,
                                     r->e->axis[a].entry[f->at[k][a]].given->line);
        }
    return true;
}

static bool read_zip(struct reading *r, const struct settings *zip)
{
    if (!settings_is_map(zip, "zip", keys, r->err))
        return false;
    for (int axis = 0; axis < AXES; axis++) {
        const int i = settings_find(zip, keys[axis]);
        if (i >= 0 && r->line[axis] != 0)
            return settings_fail_key(r->err, zip, i, "zip: \"%s\" is also given on line %d", keys[axis], r->line[axis]);
        if (i >= 0)
            r->line[axis] = zip->item[i]->line;
    }
    return add_factor(r, AXES, zip_read(zip, r->err));
}

static const struct rule *rule_of(const struct experiment *e, int rule)
{
    return rule_named(settings_get(e->rule.entry[rule].settings, "kind")->text);
}

// An entry that no list has: the default of an axis.
static struct entry usual_entry(const struct experiment *e, int axis)
{
    struct entry new;
    struct error ignored;
    entry_read(axis, settings_get(e->lists->item[0], keys[axis]), &new, &ignored);
    new.given = NULL;
    return new;
}

// Finds `none`, or adds it as the first drafter.
static void find_none(struct reading *r)
{
    struct experiment *e = r->e;
    for (e->none = 0; e->none < e->drafter.n; e->none++)
        if (strcmp(settings_get(e->drafter.entry[e->none].settings, "kind")->text, drafter_types[0]->name) == 0)
            return;
    e->none = 0;
    e->none_added = true;
    insert_entry(&e->drafter, 0, usual_entry(e, DRAFTER));
    for (int i = 0; i < r->n_factors; i++)
        for (int k = 0; k < r->factor[i].n; k++)
            r->factor[i].at[k][DRAFTER] += r->factor[i].at[k][DRAFTER] >= 0;
}

// Finds rules[0], or adds it as the last rule if rules share its baseline.
static void find_first_rule(struct experiment *e)
{
    for (e->first_rule = 0; e->first_rule < e->rule.n; e->first_rule++)
        if (rule_of(e, e->first_rule) == rules[0])
            return;
    for (int i = 0; i < e->rule.n; i++)
        e->rule_added = e->rule_added || rule_of(e, i)->bonus_alone;
    if (e->rule_added)
        insert_entry(&e->rule, e->rule.n, usual_entry(e, RULE));
}

// Returns the list of an axis that is given outside zip; targets may be given in `cells` or next to it. NULL: none is.
static const struct settings *place_of(const struct reading *r, int axis)
{
    const struct settings *given = settings_get(r->cells, keys[axis]);
    return given == NULL && axis == TARGET ? settings_get(r->e->file, keys[axis]) : given;
}

static bool read_lists(struct reading *r)
{
    static const char defaults[] = "{sampling: {temperature: 0}, batch: 1, rule: rejection, drafter: none}";
    static const char *const all[] = { "sampling", "batch", "rule", "drafter", "target", "zip", "exclude", NULL };
    struct experiment *e = r->e;
    struct settings *usual = yaml_parse(defaults, sizeof(defaults) - 1, "default", r->err);
    const struct settings *zip = settings_get(r->cells, "zip"), *given;
    const bool zips = zip != NULL && zip->kind == SETTINGS_LIST && zip->n > 0;
    e->lists = settings_list();
    settings_append(e->lists, usual);
    if (r->cells != NULL && !settings_is_map(r->cells, "cells", all, r->err))
        return false;
    for (int axis = 0; axis < AXES; axis++)
        r->line[axis] = (given = place_of(r, axis)) != NULL ? given->line : 0;
    if ((given = settings_get(r->cells, "target")) != NULL && settings_get(e->file, "target") != NULL)
        return settings_fail(r->err, given, "cells.target: \"target\" is also given on line %d",
                             settings_get(e->file, "target")->line);
    for (int i = 0; zip != NULL && i < (zips ? zip->n : 1); i++)
        if (!read_zip(r, zips ? zip->item[i] : zip))
            return false;
    for (int axis = 0; axis < AXES; axis++) {
        given = r->line[axis] != 0 ? place_of(r, axis) : settings_get(usual, keys[axis]);
        if (given != NULL && !add_factor(r, axis, variants_read(given, places[axis], r->err))) // NULL: it is in zip
            return false;
    }
    if (e->target.n == 0)
        return settings_fail(r->err, e->file, "an experiment needs the key \"target\"");
    find_none(r);
    find_first_rule(e);
    const int64_t n = (int64_t)e->target.n * e->sampling.n * e->batch.n * e->rule.n * e->drafter.n; // 2^50 at most
    return n <= MAX_CELLS ||
           settings_fail(r->err, r->cells, "cells: expected at most %d, found %lld", MAX_CELLS, (long long)n);
}

// ---- the cells that the lists multiply to

int experiment_baseline_rule(const struct experiment *e, int rule)
{
    return e->first_rule < e->rule.n && rule_of(e, rule)->bonus_alone ? e->first_rule : rule;
}

// Returns whether no list has this cell: its `none` or its rule was added as a baseline.
static bool was_added(const struct experiment *e, struct cell c)
{
    return (e->none_added && c.drafter == e->none) || (e->rule_added && c.rule == e->rule.n - 1);
}

int experiment_left_out(const struct experiment *e, int *listed)
{
    int n = *listed = 0;
    for (int i = 0; i < cell_numbers(e); i++) {
        const struct cell c = cell_numbered(e, i);
        const bool one = !was_added(e, c) && (c.drafter != e->none || experiment_baseline_rule(e, c.rule) == c.rule);
        *listed += one;
        n += one && !e->has[i];
    }
    return n;
}

// Marks the cells that have the entries of c in the first f factors, and any position of the others.
static void mark_listed(const struct reading *r, int f, struct cell c)
{
    if (f == r->n_factors || f == AXES) {
        r->e->has[cell_number(r->e, c)] = true;
        return;
    }
    for (int k = 0; k < r->factor[f].n; k++) {
        for (int axis = 0; axis < AXES; axis++)
            if (r->factor[f].at[k][axis] >= 0)
                c.axis[axis] = r->factor[f].at[k][axis];
        mark_listed(r, f + 1, c);
    }
}

// Adds the cells of `none` with which others of the same sampling and batch are compared, whose rule is
// experiment_baseline_rule. A cell of `none` with another rule becomes that one.
static void add_baselines(const struct experiment *e)
{
    for (int first = 0; first < cell_numbers(e); first += e->drafter.n) {
        bool any = false, *none = &e->has[first + e->none];
        for (int d = 0; d < e->drafter.n; d++)
            any = any || e->has[first + d];
        const int rule = cell_numbered(e, first).rule, by = experiment_baseline_rule(e, rule);
        *none = *none && by == rule;
        none[(by - rule) * e->drafter.n] |= any;
    }
}

// ---- exclude

// Finds the entries of a list that an item matches, which is all if it gives none. Every value that it gives has to
// match one.
static bool match_list(const struct reading *r, int axis, const struct settings *given, bool *match)
{
    const struct entries *of = &r->e->axis[axis];
    struct settings *parts = given != NULL ? variants_read(given, keys[axis], r->err) : NULL;
    bool ok = given == NULL || parts != NULL;
    for (int i = 0; i < of->n; i++)
        match[i] = given == NULL;
    for (int k = 0; ok && parts != NULL && k < parts->n; k++) {
        struct settings *part = parts->item[k];
        bool found = false;
        ok = axis != DRAFTER || drafter_length(part, r->err);
        for (int i = 0; ok && i < of->n; i++)
            if (entry_matches(&of->entry[i], part))
                found = match[i] = true;
        if (ok && !found) {
            char *line = settings_line(part);
            ok = settings_fail(r->err, part, "exclude: no %s of this experiment is %s", keys[axis], line);
            free(line);
        }
    }
    settings_free(parts);
    return ok;
}

// by: for each cell of the product the first item that leaves it out, those that name drafters before others; NULL:
// none does. No item can leave out cells that were added.
static bool exclude_item(const struct reading *r, const struct settings *item, const struct settings **by)
{
    const struct experiment *e = r->e;
    bool match[AXES][MAX_VARIANTS + 1]; // values of a list, and one for an added entry
    int found = 0;
    if (!settings_is_map(item, "exclude", keys, r->err))
        return false;
    if (item->n == 0)
        return settings_fail(r->err, item, "exclude: expected settings of the cells to leave out, found none");
    for (int axis = 0; axis < AXES; axis++)
        if (!match_list(r, axis, settings_get(item, keys[axis]), match[axis]))
            return false;
    for (int i = 0; i < cell_numbers(e); i++) {
        const struct cell c = cell_numbered(e, i);
        bool all = e->has[i] && !was_added(e, c);
        for (int axis = 0; axis < AXES; axis++)
            all = all && match[axis][c.axis[axis]];
        if (all && (by[i] == NULL || (settings_get(item, "drafter") != NULL && settings_get(by[i], "drafter") == NULL)))
            by[i] = item;
        found += all;
    }
    return found > 0 || settings_fail(r->err, item, "exclude: no cell has all of these settings");
}

// ---- the cells that exist

// `none` is kept if kept cells are compared with it, including those of another rule, unless an item names it; an added
// `none` is kept in no other case.
static bool read_cells(struct reading *r)
{
    struct experiment *e = r->e;
    const struct settings *exclude = settings_get(r->cells, "exclude");
    const bool list = exclude != NULL && exclude->kind == SETTINGS_LIST;
    const int n = cell_numbers(e), items = list ? exclude->n : exclude != NULL;
    const struct settings **by = xcalloc((size_t)n, sizeof(*by));
    e->has = xcalloc((size_t)n, sizeof(*e->has));
    mark_listed(r, 0, (struct cell){ 0 });
    add_baselines(e);
    bool ok = exclude == NULL || (items > 0 && items <= MAX_ITEMS) ||
              settings_fail(r->err, exclude, "exclude: expected a list of 1 to %d partial settings, found %d",
                            MAX_ITEMS, items);
    for (int i = 0; ok && i < items; i++)
        ok = exclude_item(r, list ? exclude->item[i] : exclude, by);
    for (int i = 0; ok && i < n; i++)
        e->has[i] = e->has[i] && by[i] == NULL && !(e->none_added && cell_numbered(e, i).drafter == e->none);
    add_baselines(e);
    for (int i = 0; ok && i < n; i++) {
        const struct cell c = cell_numbered(e, i);
        if (e->has[i] && settings_get(by[i], "drafter") != NULL)
            ok = settings_fail(
                r->err, by[i],
                "exclude: leaves out none, with which other drafters are compared that stay (%s, batch %s, "
                "rule %s)",
                e->sampling.entry[c.sampling].shown, e->batch.entry[c.batch].shown, e->rule.entry[c.rule].shown);
    }
    free(by);
    return ok && (experiment_cells(e) > 0 || settings_fail(r->err, exclude, "exclude: leaves out every cell"));
}

bool cell_lists_read(struct experiment *e, struct error *err)
{
    struct reading r = { .e = e, .cells = settings_get(e->file, "cells"), .err = err };
    const bool ok = read_lists(&r) && read_cells(&r);
    for (int i = 0; i < r.n_factors; i++)
        free(r.factor[i].at);
    return ok;
}

void cell_lists_free(struct experiment *e)
{
    for (int axis = 0; axis < AXES; axis++) {
        for (int i = 0; i < e->axis[axis].n; i++)
            entry_free(&e->axis[axis].entry[i]);
        free(e->axis[axis].entry);
    }
    settings_free(e->lists);
    free(e->has);
}
