#include "experiments/sweep/variants.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"

enum { MAX_WHOLE = 1000000000, MAX_DECIMALS = 6, ONE = 1000000, MAX_COPIES = 1 << 20 };

struct reading {
    const char *what;
    int64_t copied; // number of copied values: many variants of a large value are too many
    struct error *err;
};

static bool expand(struct reading *r, const struct settings *s, struct settings *to);

// Returns whether `to` has capacity for n more variants of s.
static bool has_space(struct reading *r, const struct settings *s, const struct settings *to, int64_t n)
{
    return to->n + n <= MAX_VARIANTS ||
           settings_fail(r->err, s, "%s: expected at most %d values, found more", r->what, MAX_VARIANTS);
}

static bool expand_all(struct reading *r, const struct settings *list, struct settings *to)
{
    for (int i = 0; i < list->n; i++)
        if (!expand(r, list->item[i], to))
            return false;
    return true;
}

// ---- any

static bool expand_any(struct reading *r, const struct settings *s, struct settings *to)
{
    const struct settings *any = settings_get(s, "any");
    for (int i = 0; i < s->n; i++)
        if (s->item[i] != any)
            return settings_fail_key(r->err, s, i, "any: expected no other key beside it, found \"%s\"", s->key[i]);
    if (any->kind != SETTINGS_LIST || any->n == 0)
        return settings_fail(r->err, any, "any: expected a list of values, as in {any: [1, 2, 4]}, found %s",
                             any->kind == SETTINGS_LIST ? "an empty one" : settings_described(any));
    return expand_all(r, any, to);
}

// ---- ranges

// Reads a decimal number times ONE: sums of tenths are exact.
static bool read_decimal(struct reading *r, const struct settings *s, const char *key, int64_t *to)
{
    double v;
    if (!settings_real(s, key, -MAX_WHOLE, MAX_WHOLE, &v, r->err))
        return false;
    *to = llround(v * ONE);
    return fabs(v * ONE - (double)*to) < 1e-3 ||
           settings_fail(r->err, s, "%s: expected at most %d decimals, found %s", key, MAX_DECIMALS, s->text);
}

static struct settings *decimal(int64_t v)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%.*f", MAX_DECIMALS, (double)v / ONE);
    while (text[n - 1] == '0')
        n--;
    text[text[n - 1] == '.' ? n - 1 : n] = '\0';
    return settings_scalar(text);
}

static bool expand_range(struct reading *r, const struct settings *s, struct settings *to)
{
    static const char *const keys[] = { "from", "to", "step", "factor", NULL };
    const struct settings *from = settings_get(s, "from"), *end = settings_get(s, "to"),
                          *step = settings_get(s, "step"), *factor = settings_get(s, "factor");
    int64_t v, last, by = ONE;
    long long times = 1;
    if (!settings_is_map(s, "a range", keys, r->err))
        return false;
    if (from == NULL || end == NULL)
        return settings_fail(r->err, s, "a range needs the key \"%s\", as in {from: 1, to: 8}",
                             from == NULL ? "from" : "to");
    if (step != NULL && factor != NULL)
        return settings_fail(r->err, s, "a range has step or factor, found both");
    if (!read_decimal(r, from, "from", &v) || !read_decimal(r, end, "to", &last) ||
        (step != NULL && !read_decimal(r, step, "step", &by)) ||
        (factor != NULL && !settings_int(factor, "factor", 2, MAX_WHOLE, &times, r->err)))
        return false;
    if (v > last)
        return settings_fail(r->err, end, "to: expected at least %s, which is from, found %s", from->text, end->text);
    if (by <= 0)
        return settings_fail(r->err, step, "step: expected a number above 0, found %s", step->text);
    if (factor != NULL && v <= 0)
        return settings_fail(r->err, from, "from: expected a number above 0 beside factor, found %s", from->text);
    for (; v <= last; v = factor == NULL ? v + by : v <= last / times ? v * times : last + 1) {
        if (!has_space(r, s, to, 1))
            return false;
        settings_append(to, settings_at(decimal(v), s));
    }
    return true;
}

// ---- mappings and lists

static bool is_zip(const struct settings *s, int i)
{
    return s->kind == SETTINGS_MAP && strcmp(s->key[i], "zip") == 0;
}

// Returns the values of item i of s; for a zip, mappings of its keys. NULL on failure.
static struct settings *values_of(struct reading *r, const struct settings *s, int i)
{
    const struct settings *item = s->item[i];
    if (is_zip(s, i)) {
        for (int k = 0; k < item->n && item->kind == SETTINGS_MAP; k++)
            if (settings_get(s, item->key[k]) != NULL) {
                settings_fail_key(r->err, item, k, "zip: \"%s\" is also given beside zip, on line %d", item->key[k],
                                  settings_get(s, item->key[k])->line);
                return NULL;
            }
        return zip_read(item, r->err);
    }
    struct settings *values = settings_list();
    if (expand(r, item, values))
        return values;
    settings_free(values);
    return NULL;
}

// Returns s with one value of each of its items. A scalar has none.
static struct settings *variant_of(const struct settings *s, struct settings *const *values, int number)
{
    if (s->kind == SETTINGS_SCALAR)
        return settings_copy(s);
    struct settings *to = settings_at(s->kind == SETTINGS_LIST ? settings_list() : settings_map(), s);
    int left = 1;
    for (int i = 0; i < s->n; i++)
        left *= values[i]->n;
    for (int i = 0; i < s->n; i++) {
        left /= values[i]->n; // the last item varies fastest
        const struct settings *value = values[i]->item[number / left % values[i]->n];
        for (int k = 0; is_zip(s, i) && k < value->n; k++)
            settings_put_key(to, value, k, settings_copy(value->item[k]));
        if (s->kind == SETTINGS_LIST)
            settings_append(to, settings_copy(value));
        else if (!is_zip(s, i))
            settings_put_key(to, s, i, settings_copy(value));
    }
    return to;
}

static bool expand_items(struct reading *r, const struct settings *s, struct settings *to)
{
    struct settings **values = xcalloc((size_t)s->n + 1, sizeof(*values));
    int64_t n = 1;
    bool ok = has_space(r, s, to, 1);
    for (int i = 0; ok && i < s->n; i++) {
        values[i] = values_of(r, s, i);
        ok = values[i] != NULL && has_space(r, s, to, n *= values[i]->n);
    }
    for (int k = 0; ok && k < n; k++) {
        settings_append(to, variant_of(s, values, k));
        ok = (r->copied += settings_size(to->item[to->n - 1])) <= MAX_COPIES ||
             settings_fail(r->err, s, "%s: expected smaller values or fewer: these are more than %d in all", r->what,
                           MAX_COPIES);
    }
    for (int i = 0; i < s->n; i++)
        settings_free(values[i]);
    free(values);
    return ok;
}

// Appends the variants of s.
static bool expand(struct reading *r, const struct settings *s, struct settings *to)
{
    if (settings_get(s, "any") != NULL)
        return expand_any(r, s, to);
    if (settings_get(s, "from") != NULL || settings_get(s, "to") != NULL)
        return expand_range(r, s, to);
    return expand_items(r, s, to);
}

struct settings *variants_read(const struct settings *s, const char *what, struct error *err)
{
    struct reading r = { .what = what, .err = err };
    struct settings *to = settings_at(settings_list(), s);
    const bool list = s->kind == SETTINGS_LIST,
               ok = !list || s->n > 0 ||
                    settings_fail(err, s, "%s: expected at least one value, found an empty list", what);
    if (ok && (list ? expand_all : expand)(&r, s, to))
        return to;
    settings_free(to);
    return NULL;
}

struct settings *zip_read(const struct settings *zip, struct error *err)
{
    struct settings *to = settings_at(settings_list(), zip);
    bool ok = (zip->kind == SETTINGS_MAP && zip->n >= 2) ||
              settings_fail(err, zip, "zip: expected a mapping of two lists or more, as in {a: [1, 2], b: [3, 4]}");
    for (int i = 0; ok && i < zip->n; i++) {
        struct settings *values = variants_read(zip->item[i], zip->key[i], err);
        while (i == 0 && values != NULL && to->n < values->n)
            settings_append(to, settings_at(settings_map(), zip));
        ok =
            values != NULL && (values->n == to->n ||
                               settings_fail(err, zip->item[i],
                                             "zip: expected lists of equal length, found %d of \"%s\" and %d of \"%s\"",
                                             to->n, zip->key[0], values->n, zip->key[i]));
        for (int k = 0; ok && k < values->n; k++) {
            settings_put_key(to->item[k], zip, i, values->item[k]);
            values->item[k] = NULL;
        }
        settings_free(values);
    }
    if (ok)
        return to;
    settings_free(to);
    return NULL;
}
