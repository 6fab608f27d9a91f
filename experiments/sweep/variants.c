#include "experiments/sweep/variants.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/settings.h"

enum { MAX_WHOLE = 1000000000, MAX_DECIMALS = 6, MAX_COPIES = 1 << 20 };

struct reading {
    const char *what;
    int copies; // of values: many variants of a large value are too many
    struct error *err;
};

static struct settings *at(struct settings *s, const struct settings *place)
{
    s->file = place->file;
    s->line = place->line;
    s->column = place->column;
    return s;
}

static bool expand(struct reading *r, const struct settings *s, struct settings *to);

static bool too_many(struct reading *r, const struct settings *s)
{
    return settings_fail(r->err, s, "%s: expected at most %d values, found more", r->what, MAX_VARIANTS);
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
    for (int i = 0; i < any->n; i++)
        if (!expand(r, any->item[i], to))
            return false;
    return true;
}

// ---- ranges

// A decimal number times 10^MAX_DECIMALS: sums of tenths are exact.
static bool read_decimal(struct reading *r, const struct settings *s, const char *key, int64_t *to)
{
    const char *t = s->kind == SETTINGS_SCALAR && !s->quoted ? s->text : "";
    const bool minus = *t == '-';
    int64_t v = 0;
    int digits = 0, decimals = 0;
    for (t += minus; isdigit((unsigned char)*t) && v <= MAX_WHOLE; t++, digits++)
        v = 10 * v + (*t - '0');
    const bool small = v <= MAX_WHOLE;
    if (*t == '.' && isdigit((unsigned char)t[1]))
        for (t++; isdigit((unsigned char)*t) && decimals < MAX_DECIMALS; t++, decimals++)
            v = 10 * v + (*t - '0');
    for (; decimals < MAX_DECIMALS; decimals++)
        v *= 10;
    *to = minus ? -v : v;
    return (small && digits > 0 && *t == '\0') ||
           settings_fail(r->err, s, "%s: expected a number up to %d with at most %d decimals, found %s", key, MAX_WHOLE,
                         MAX_DECIMALS, settings_described(s));
}

static struct settings *decimal(int64_t v)
{
    enum { ONE = 1000000 };
    char text[32];
    int n = snprintf(text, sizeof(text), "%s%lld.%06d", v < 0 ? "-" : "", (long long)(llabs(v) / ONE),
                     (int)(llabs(v) % ONE));
    while (text[n - 1] == '0')
        n--;
    text[text[n - 1] == '.' ? n - 1 : n] = '\0';
    return settings_scalar(text);
}

static bool read_bounds(struct reading *r, const struct settings *s, int64_t *from, int64_t *to)
{
    static const char *const keys = "from, to, step, factor";
    for (int i = 0; i < s->n; i++)
        if (choice_index("from|to|step|factor", s->key[i]) < 0)
            return settings_fail_key(r->err, s, i, "a range has no key \"%s\" (it has: %s)", s->key[i], keys);
    for (int i = 0; i < 2; i++)
        if (settings_get(s, i == 0 ? "from" : "to") == NULL)
            return settings_fail(r->err, s, "a range needs the key \"%s\", as in {from: 1, to: 8}",
                                 i == 0 ? "from" : "to");
    if (settings_get(s, "step") != NULL && settings_get(s, "factor") != NULL)
        return settings_fail(r->err, s, "a range has step or factor, found both");
    const struct settings *last = settings_get(s, "to");
    if (!read_decimal(r, settings_get(s, "from"), "from", from) || !read_decimal(r, last, "to", to))
        return false;
    return *from <= *to || settings_fail(r->err, last, "to: expected at least %s, which is from, found %s",
                                         settings_get(s, "from")->text, last->text);
}

static bool expand_range(struct reading *r, const struct settings *s, struct settings *to)
{
    const struct settings *step = settings_get(s, "step"), *factor = settings_get(s, "factor");
    int64_t v, last, by = 0;
    long long times = 1;
    if (!read_bounds(r, s, &v, &last) || (step != NULL && !read_decimal(r, step, "step", &by)) ||
        (factor != NULL && !settings_int(factor, "factor", 2, MAX_WHOLE, &times, r->err)))
        return false;
    if (step != NULL && by <= 0)
        return settings_fail(r->err, step, "step: expected a number above 0, found %s", step->text);
    if (factor != NULL && v <= 0)
        return settings_fail(r->err, settings_get(s, "from"), "from: expected a number above 0 beside factor, found %s",
                             settings_get(s, "from")->text);
    if (step == NULL && factor == NULL)
        by = 1000000;
    for (int64_t next; v <= last; v = next) {
        if (to->n >= MAX_VARIANTS)
            return too_many(r, s);
        settings_append(to, at(decimal(v), s));
        next = factor == NULL ? v + by : v <= last / times ? v * times : last + 1;
    }
    return true;
}

// ---- mappings and lists

static void put(struct settings *map, const struct settings *from, int i, struct settings *value)
{
    settings_put(map, from->key[i], value);
    map->key_line[map->n - 1] = from->key_line[i];
    map->key_column[map->n - 1] = from->key_column[i];
}

static int size(const struct settings *s)
{
    int n = 1;
    for (int i = 0; i < s->n; i++)
        n += size(s->item[i]);
    return n;
}

static struct settings *copy(struct reading *r, const struct settings *s)
{
    r->copies += size(s);
    return settings_copy(s);
}

static void add(struct reading *r, struct settings *to, const struct settings *s, int i, const struct settings *value)
{
    for (int k = 0; i < 0 && k < value->n; k++)
        put(to, value, k, copy(r, value->item[k]));
    if (i >= 0 && s->kind == SETTINGS_MAP)
        put(to, s, i, copy(r, value));
    else if (i >= 0)
        settings_append(to, copy(r, value));
}

// Adds item i of s, which has these values, to each variant made so far: to a copy for each further value. i < 0: the keys of a zip.
static bool multiply(struct reading *r, struct settings *made, const struct settings *s, int i,
                     const struct settings *values)
{
    const int n = made->n;
    if ((int64_t)n * values->n > MAX_VARIANTS)
        return too_many(r, s);
    struct settings *next = settings_list();
    for (int k = 0; k < n * values->n && r->copies <= MAX_COPIES; k++) {
        const bool last = k % values->n == values->n - 1;
        struct settings *one = last ? made->item[k / values->n] : copy(r, made->item[k / values->n]);
        if (last)
            made->item[k / values->n] = NULL;
        add(r, one, s, i, values->item[k % values->n]);
        settings_append(next, one);
    }
    const struct settings old = *made;
    *made = *next;
    *next = old;
    settings_free(next);
    return r->copies <= MAX_COPIES ||
           settings_fail(r->err, s, "%s: expected smaller values or fewer: these are more than %d in all", r->what,
                         MAX_COPIES);
}

static bool multiply_zip(struct reading *r, struct settings *made, const struct settings *s, const struct settings *zip)
{
    for (int k = 0; k < zip->n && zip->kind == SETTINGS_MAP; k++)
        if (settings_get(s, zip->key[k]) != NULL)
            return settings_fail_key(r->err, zip, k, "zip: \"%s\" is also given beside zip, on line %d", zip->key[k],
                                     settings_get(s, zip->key[k])->line);
    struct settings *positions = zip_read(zip, r->err);
    const bool ok = positions != NULL && multiply(r, made, s, -1, positions);
    settings_free(positions);
    return ok;
}

static bool expand_items(struct reading *r, const struct settings *s, struct settings *to)
{
    struct settings *made = settings_list();
    bool ok = true;
    settings_append(made, at(s->kind == SETTINGS_LIST ? settings_list() : settings_map(), s));
    for (int i = 0; i < s->n && ok; i++) {
        const bool zip = s->kind == SETTINGS_MAP && strcmp(s->key[i], "zip") == 0;
        struct settings *values = settings_list();
        if (zip)
            ok = multiply_zip(r, made, s, s->item[i]);
        else
            ok = expand(r, s->item[i], values) && multiply(r, made, s, i, values);
        settings_free(values);
    }
    ok = ok && (to->n + made->n <= MAX_VARIANTS || too_many(r, s));
    for (int i = 0; i < made->n && ok; i++) {
        settings_append(to, made->item[i]);
        made->item[i] = NULL;
    }
    settings_free(made);
    return ok;
}

// Appends the variants of s.
static bool expand(struct reading *r, const struct settings *s, struct settings *to)
{
    if (settings_get(s, "any") != NULL)
        return expand_any(r, s, to);
    if (settings_get(s, "from") != NULL || settings_get(s, "to") != NULL)
        return expand_range(r, s, to);
    if (s->kind != SETTINGS_SCALAR)
        return expand_items(r, s, to);
    if (to->n >= MAX_VARIANTS)
        return too_many(r, s);
    settings_append(to, settings_copy(s));
    return true;
}

struct settings *variants_read(const struct settings *s, const char *what, struct error *err)
{
    struct reading r = { .what = what, .err = err };
    struct settings *to = at(settings_list(), s);
    bool ok = true;
    if (s->kind == SETTINGS_LIST && s->n == 0)
        ok = settings_fail(err, s, "%s: expected at least one value, found an empty list", what);
    for (int i = 0; s->kind == SETTINGS_LIST && i < s->n && ok; i++)
        ok = expand(&r, s->item[i], to);
    if (ok && (s->kind == SETTINGS_LIST || expand(&r, s, to)))
        return to;
    settings_free(to);
    return NULL;
}

struct settings *zip_read(const struct settings *zip, struct error *err)
{
    struct settings *to = at(settings_list(), zip);
    bool ok = (zip->kind == SETTINGS_MAP && zip->n >= 2) ||
              settings_fail(err, zip, "zip: expected a mapping of two lists or more, as in {a: [1, 2], b: [3, 4]}");
    for (int i = 0; i < zip->n && ok; i++) {
        struct settings *values = variants_read(zip->item[i], zip->key[i], err);
        ok =
            values != NULL && (i == 0 || values->n == to->n ||
                               settings_fail(err, zip->item[i],
                                             "zip: expected lists of equal length, found %d of \"%s\" and %d of \"%s\"",
                                             to->n, zip->key[0], values->n, zip->key[i]));
        for (int k = 0; ok && k < values->n; k++) {
            if (i == 0)
                settings_append(to, at(settings_map(), zip));
            put(to->item[k], zip, i, values->item[k]);
            values->item[k] = NULL;
        }
        settings_free(values);
    }
    if (ok)
        return to;
    settings_free(to);
    return NULL;
}
