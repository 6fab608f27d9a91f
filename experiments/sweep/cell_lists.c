#include "experiments/sweep/cell_lists.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/options.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "experiments/cells.h"
#include "experiments/sweep/variants.h"
#include "experiments/yaml.h"
#include "verifier/rules/rule.h"

enum { MAX_CELLS = 1 << 16, MAX_ITEMS = 1024 };

static const char *const keys[AXES + 1] = { "sampling", "batch", "rule", "drafter", "target", NULL };

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

static struct entry plugin_entry(const char *kind, const struct settings *given, const struct option *options)
{
    struct settings *s = entry_settings(kind, given, options);
    struct entry e = { .given = given, .settings = s };
    e.shown = entry_shown(s, options, &e.options);
    return e;
}

static bool read_rule(const struct settings *given, struct entry *to, struct error *err)
{
    struct speclab_decoder *d = decoder_read(NULL, given, NULL, err);
    if (d == NULL)
        return false;
    *to = plugin_entry(d->rule->name, given, d->rule->options);
    speclab_decoder_destroy(d);
    return true;
}

// Reads a drafter alone. The rules with which it is paired are known only when all lists are read.
static bool read_drafter(const struct settings *given, struct entry *to, struct error *err)
{
    struct speclab_decoder *d = decoder_read_drafter(given, err);
    if (d == NULL)
        return false;
    *to = plugin_entry(d->type->name, given, d->type->options);
    speclab_decoder_destroy(d);
    return true;
}

static bool (*const read_entry[AXES])(const struct settings *given, struct entry *to,
                                      struct error *err) = { read_sampling, read_batch, read_rule, read_drafter,
                                                             target_entry_read };

static void free_entry(struct entry *e)
{
    settings_free(e->settings);
    free(e->shown);
    free(e->options);
    free(e->text);
    target_entry_free(e);
}

static void insert_entry(struct entries *to, int at, struct entry new)
{
    new.text = settings_line(new.settings);
    to->entry = xrealloc(to->entry, ((size_t)to->n + 1) * sizeof(*to->entry));
    memmove(to->entry + at + 1, to->entry + at, (size_t)(to->n++ - at) * sizeof(*to->entry));
    to->entry[at] = new;
}

// *at: the entry with these settings, found or added. For a drafter `length` is resolved before anything refers to it.
static bool find_entry(struct reading *r, int axis, struct settings *given, int *at)
{
    struct entries *to = &r->e->axis[axis];
    struct entry new = { .given = given };
    if ((axis == DRAFTER && !drafter_length(given, r->err)) || !read_entry[axis](given, &new, r->err)) {
        target_entry_free(&new);
        return false;
    }
    insert_entry(to, to->n, new);
    for (*at = 0; strcmp(to->entry[*at].text, to->entry[to->n - 1].text) != 0;)
        ++*at;
    if (*at < to->n - 1)
        free_entry(&to->entry[--to->n]);
    return true;
}

// ---- the lists

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
                return settings_fail(r->err, given, "%s%s: %s is listed twice, first on line %d",
                                     a == TARGET ? "" : "cells.", keys[a], r->e->axis[a].entry[f->at[k][a]].shown,
                                     r->e->axis[a].entry[f->at[k][a]].given->line);
        }
    return true;
}

static bool read_list(struct reading *r, int axis, const struct settings *given)
{
    char *what = xformat("%s%s", axis == TARGET ? "" : "cells.", keys[axis]);
    const bool ok = add_factor(r, axis, variants_read(given, what, r->err));
    free(what);
    return ok;
}

static bool read_zip(struct reading *r, const struct settings *zip)
{
    if (!settings_is_map(zip, "zip", keys, r->err))
        return false;
    for (int i = 0; i < zip->n; i++) {
        int axis = 0;
        while (strcmp(keys[axis], zip->key[i]) != 0)
            axis++;
        if (r->line[axis] != 0)
            return settings_fail_key(r->err, zip, i, "zip: \"%s\" is also given on line %d", keys[axis], r->line[axis]);
        r->line[axis] = zip->item[i]->line;
    }
    return add_factor(r, AXES, zip_read(zip, r->err));
}

static const struct rule *rule_of(const struct experiment *e, int rule)
{
    return rule_named(settings_get(e->rule.entry[rule].settings, "kind")->text);
}

// Finds `none`, or adds it as the first drafter.
static void find_none(struct reading *r)
{
    struct experiment *e = r->e;
    const char *name = drafter_types[0]->name;
    for (e->none = 0; e->none < e->drafter.n; e->none++)
        if (strcmp(settings_get(e->drafter.entry[e->none].settings, "kind")->text, name) == 0)
            return;
    e->none = 0;
    e->none_added = true;
    insert_entry(&e->drafter, 0, plugin_entry(name, NULL, NULL));
    for (int i = 0; i < r->n_factors; i++)
        for (int k = 0; k < r->factor[i].n; k++)
            r->factor[i].at[k][DRAFTER] += r->factor[i].at[k][DRAFTER] >= 0;
}

// Finds rules[0], or adds it as the last rule if rules share its baseline.
static void find_first_rule(struct experiment *e)
{
    bool shared = false;
    for (e->first_rule = 0; e->first_rule < e->rule.n; e->first_rule++) {
        if (rule_of(e, e->first_rule) == rules[0])
            return;
        shared = shared || rule_of(e, e->first_rule)->bonus_alone;
    }
    e->rule_added = shared;
    if (shared)
        insert_entry(&e->rule, e->rule.n, plugin_entry(rules[0]->name, NULL, rules[0]->options));
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
    if (settings_get(r->cells, "target") != NULL && settings_get(e->file, "target") != NULL)
        return settings_fail(r->err, settings_get(r->cells, "target"),
                             "cells.target: \"target\" is also given on line %d",
                             settings_get(e->file, "target")->line);
    for (int i = 0; zip != NULL && i < (zips ? zip->n : 1); i++)
        if (!read_zip(r, zips ? zip->item[i] : zip))
            return false;
    for (int axis = 0; axis < AXES; axis++) {
        given = r->line[axis] != 0 ? place_of(r, axis) : settings_get(usual, keys[axis]);
        if (given != NULL && !read_list(r, axis, given)) // NULL: it is in zip
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

// ---- the cells that the lists multiply to, numbered: drafters vary fastest, then rules, batches, samplings, targets

int groups(const struct experiment *e)
{
    return e->target.n * target_groups(e);
}

int target_groups(const struct experiment *e)
{
    return e->sampling.n * e->batch.n;
}

struct cell group_cell(const struct experiment *e, int number)
{
    const int of_target = number % target_groups(e);
    return (struct cell){ .sampling = of_target / e->batch.n,
                          .batch = of_target % e->batch.n,
                          .target = number / target_groups(e) };
}

static int product_size(const struct experiment *e)
{
    return groups(e) * e->rule.n * e->drafter.n;
}

static int number_of(const struct experiment *e, struct cell c)
{
    return (((c.target * e->sampling.n + c.sampling) * e->batch.n + c.batch) * e->rule.n + c.rule) * e->drafter.n +
           c.drafter;
}

static struct cell cell_of(const struct experiment *e, int number)
{
    const int pairings = e->rule.n * e->drafter.n;
    struct cell c = group_cell(e, number / pairings);
    c.rule = number % pairings / e->drafter.n;
    c.drafter = number % e->drafter.n;
    return c;
}

bool experiment_is_none(const struct experiment *e, int drafter)
{
    return drafter == e->none;
}

bool experiment_has(const struct experiment *e, struct cell c)
{
    return e->has[number_of(e, c)];
}

int experiment_cells(const struct experiment *e)
{
    int n = 0;
    for (int i = 0; i < product_size(e); i++)
        n += e->has[i];
    return n;
}

int experiment_baseline_rule(const struct experiment *e, int rule)
{
    return e->first_rule < e->rule.n && rule_of(e, rule)->bonus_alone ? e->first_rule : rule;
}

// Returns whether no list has this cell: its `none` or its rule was added as a baseline.
static bool was_added(const struct experiment *e, struct cell c)
{
    return (e->none_added && experiment_is_none(e, c.drafter)) || (e->rule_added && c.rule == e->rule.n - 1);
}

int experiment_left_out(const struct experiment *e, int *listed)
{
    int n = *listed = 0;
    for (int i = 0; i < product_size(e); i++) {
        const struct cell c = cell_of(e, i);
        const bool one =
            !was_added(e, c) && (!experiment_is_none(e, c.drafter) || experiment_baseline_rule(e, c.rule) == c.rule);
        *listed += one;
        n += one && !e->has[i];
    }
    return n;
}

// Marks the cells of all positions of all factors.
static void mark_listed(const struct reading *r)
{
    const struct experiment *e = r->e;
    int64_t n = 1;
    for (int f = 0; f < r->n_factors; f++)
        n *= r->factor[f].n;
    for (int64_t i = 0; i < n; i++) {
        int entry[AXES] = { 0 };
        int64_t left = i;
        for (int f = 0; f < r->n_factors; left /= r->factor[f++].n)
            for (int axis = 0; axis < AXES; axis++) {
                const int at = r->factor[f].at[left % r->factor[f].n][axis];
                entry[axis] = at >= 0 ? at : entry[axis];
            }
        e->has[number_of(
            e, (struct cell){ entry[SAMPLING], entry[BATCH], entry[RULE], entry[DRAFTER], entry[TARGET] })] = true;
    }
}

// Adds the cells of `none` with which others of the same sampling and batch are compared, whose rule is
// experiment_baseline_rule. A cell of `none` with another rule becomes that one.
static void add_baselines(const struct experiment *e)
{
    for (int first = 0; first < product_size(e); first += e->drafter.n) {
        bool any = false, *none = &e->has[first + e->none];
        for (int d = 0; d < e->drafter.n; d++)
            any = any || e->has[first + d];
        const int rule = cell_of(e, first).rule, by = experiment_baseline_rule(e, rule);
        *none = *none && by == rule;
        none[(by - rule) * e->drafter.n] |= any;
    }
}

// ---- exclude

static bool partial_matches(const struct settings *part, const struct settings *whole);

static bool same_scalar(const struct settings *a, const struct settings *b)
{
    struct error ignored;
    double x, y;
    return strcmp(a->text, b->text) == 0 || (settings_real(a, "", -INFINITY, INFINITY, &x, &ignored) &&
                                             settings_real(b, "", -INFINITY, INFINITY, &y, &ignored) && x == y);
}

// Returns whether the scalar is any of a list's values, or the list as a text: an option that is a text takes it so
// (core/options.c).
static bool is_among(const struct settings *scalar, const struct settings *list)
{
    char *line = settings_line(list);
    bool found = strcmp(line, scalar->text) == 0;
    free(line);
    for (int i = 0; i < list->n && !found; i++)
        found = partial_matches(list->item[i], scalar);
    return found;
}

// Returns whether settings have all that partial settings specify: {kind: small, tokens: 4} matches a drafter with all
// its options. whole: canonical. A mapping matches one with its keys and more; a scalar for a mapping is its `kind`, or
// a target's `model`; a list for a scalar is any of its values; 04 is 4.
static bool partial_matches(const struct settings *part, const struct settings *whole)
{
    if (part->kind == SETTINGS_SCALAR && whole != NULL && whole->kind == SETTINGS_MAP)
        whole = settings_get(whole, settings_get(whole, "kind") != NULL ? "kind" : "model");
    if (whole == NULL)
        return false;
    if (part->kind == SETTINGS_LIST && whole->kind == SETTINGS_SCALAR)
        return is_among(whole, part);
    if (part->kind != whole->kind || (part->kind == SETTINGS_LIST && part->n != whole->n))
        return false;
    if (part->kind == SETTINGS_SCALAR)
        return same_scalar(part, whole);
    for (int i = 0; i < part->n; i++)
        if (!partial_matches(part->item[i],
                             part->kind == SETTINGS_LIST ? whole->item[i] : settings_get(whole, part->key[i])))
            return false;
    return true;
}

// Finds the entries of a list that an item matches. Every value that it gives has to match one.
static bool match_list(const struct reading *r, int axis, const struct settings *given, bool *match)
{
    const struct entries *of = &r->e->axis[axis];
    struct settings *parts = given != NULL ? variants_read(given, keys[axis], r->err) : NULL;
    bool ok = given == NULL || parts != NULL;
    for (int i = 0; i < of->n; i++)
        match[i] = given == NULL;
    for (int k = 0; ok && parts != NULL && k < parts->n; k++) {
        bool found = false;
        ok = axis != DRAFTER || drafter_length(parts->item[k], r->err);
        for (int i = 0; ok && i < of->n; i++)
            if (partial_matches(parts->item[k], of->entry[i].settings))
                found = match[i] = true;
        if (ok && !found) {
            char *line = settings_line(parts->item[k]);
            ok = settings_fail(r->err, parts->item[k], "exclude: no %s of this experiment is %s", keys[axis], line);
            free(line);
        }
    }
    settings_free(parts);
    return ok;
}

static bool names_drafters(const struct settings *item)
{
    return item != NULL && settings_get(item, "drafter") != NULL;
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
    for (int i = 0; i < product_size(e); i++) {
        const struct cell c = cell_of(e, i);
        if (!e->has[i] || was_added(e, c) || !match[SAMPLING][c.sampling] || !match[BATCH][c.batch] ||
            !match[RULE][c.rule] || !match[DRAFTER][c.drafter] || !match[TARGET][c.target])
            continue;
        if (by[i] == NULL || (names_drafters(item) && !names_drafters(by[i])))
            by[i] = item;
        found++;
    }
    return found > 0 || settings_fail(r->err, item, "exclude: no cell has all of these settings");
}

static bool exclude_cells(const struct reading *r, const struct settings *exclude, const struct settings **by)
{
    const bool list = exclude != NULL && exclude->kind == SETTINGS_LIST;
    const int n = list ? exclude->n : exclude != NULL;
    bool ok =
        exclude == NULL || (n > 0 && n <= MAX_ITEMS) ||
        settings_fail(r->err, exclude, "exclude: expected a list of 1 to %d partial settings, found %d", MAX_ITEMS, n);
    for (int i = 0; ok && i < n; i++)
        ok = exclude_item(r, list ? exclude->item[i] : exclude, by);
    return ok;
}

// ---- the cells that exist

// `none` is kept if kept cells are compared with it, including those of another rule, unless an item names it; an added
// `none` is kept in no other case.
static bool read_cells(struct reading *r)
{
    struct experiment *e = r->e;
    const struct settings *exclude = settings_get(r->cells, "exclude");
    const int n = product_size(e);
    const struct settings **by = xcalloc((size_t)n, sizeof(*by));
    e->has = xcalloc((size_t)n, sizeof(*e->has));
    mark_listed(r);
    add_baselines(e);
    bool ok = exclude_cells(r, exclude, by);
    for (int i = 0; ok && i < n; i++)
        e->has[i] = e->has[i] && by[i] == NULL && !(e->none_added && experiment_is_none(e, cell_of(e, i).drafter));
    add_baselines(e);
    for (int i = 0; ok && i < n; i++) {
        const struct cell c = cell_of(e, i);
        if (e->has[i] && names_drafters(by[i]))
            ok = settings_fail(
                r->err, by[i],
                "exclude: leaves out none, with which other drafters are compared that stay (%s, batch %s, "
                "rule %s)",
                e->sampling.entry[c.sampling].shown, e->batch.entry[c.batch].shown, e->rule.entry[c.rule].shown);
    }
    free(by);
    return ok && (experiment_cells(e) > 0 || settings_fail(r->err, exclude, "exclude: leaves out every cell"));
}

// Checks each rule with each drafter with which it has a cell.
static bool check_pairings(const struct experiment *e, struct error *err)
{
    const int pairings = e->rule.n * e->drafter.n;
    for (int k = 0; k < pairings; k++) {
        int i = k;
        while (i < product_size(e) && !e->has[i])
            i += pairings;
        if (i >= product_size(e))
            continue;
        struct speclab_decoder *d =
            decoder_read(e->drafter.entry[k % e->drafter.n].given, e->rule.entry[k / e->drafter.n].given, NULL, err);
        if (d == NULL)
            return false;
        speclab_decoder_destroy(d);
    }
    return true;
}

bool cell_lists_read(struct experiment *e, struct error *err)
{
    struct reading r = { .e = e, .cells = settings_get(e->file, "cells"), .err = err };
    const bool ok = read_lists(&r) && read_cells(&r) && check_pairings(e, err);
    for (int i = 0; i < r.n_factors; i++)
        free(r.factor[i].at);
    return ok;
}

void cell_lists_free(struct experiment *e)
{
    for (int axis = 0; axis < AXES; axis++) {
        for (int i = 0; i < e->axis[axis].n; i++)
            free_entry(&e->axis[axis].entry[i]);
        free(e->axis[axis].entry);
    }
    settings_free(e->lists);
    free(e->has);
}
