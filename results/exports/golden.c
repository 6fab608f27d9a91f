// golden.c - golden acceptance lengths: what runs are expected to accept, in a file, and whether they still do.
//
// The length and the tolerance are those of vLLM's tests (tests/v1/spec_decode/test_acceptance_length.py): 1 + accepted / drafts, within 5 % of
// the expected one; by position not more than 5 % below it. InferenceX's golden_al_distribution has lengths of this definition.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "results/exports/export_parts.h"
#include "results/kept_views.h"
#include "results/query.h"
#include "results/report.h"
#include "results/tally.h"

static const double RTOL = 0.05; // vLLM's DEFAULT_RTOL

enum { NAMES = 5 }; // keys that say which runs an entry is about; one that is left out does not matter
static const char *const name_key[NAMES] = { "target", "drafter", "rule", "sampling", "prompts" };

static const char *name_value(const struct comparison *c, const struct tally *t, int i)
{
    const char *const value[NAMES] = { c->target, t->drafter, t->rule, c->sampling, c->prompts };
    return value[i];
}

// *length NAN, *rates NULL: the run has no drafts.
static bool read_run(const struct exported *e, double *length, struct json **rates, struct error *err)
{
    *length = NAN;
    *rates = NULL;
    struct query *q = query_open(e->s, "SELECT acceptance_length FROM vllm_metrics WHERE run = ?1");
    query_put_int(q, e->run->run);
    if (query_next(q))
        *length = query_real(q, 0);
    if (!query_close(q, err))
        return false;
    if (!isnan(*length))
        *rates = export_list(e, "SELECT acceptance_rate FROM vllm_positions WHERE run = ?1 ORDER BY position", err);
    return isnan(*length) || *rates != NULL;
}

static void put_text(struct text *to, const char *key, const char *value)
{
    struct json *text = json_new_text(value);
    char *quoted = json_write(text);
    text_printf(to, " \"%s\": %s,", key, quoted);
    free(quoted);
    json_free(text);
}

// Written by hand, with four digits and an entry on two lines: people edit this file.
bool export_golden(const struct exported *e, struct text *to, struct error *err)
{
    double length;
    struct json *rates;
    if (!read_run(e, &length, &rates, err))
        return false;
    if (isnan(length))
        return true;
    text_puts(to, to->n > 0 ? ",\n {" : " {");
    for (int i = 0; i < NAMES; i++)
        put_text(to, name_key[i], name_value(e->of, e->run, i));
    text_printf(to, "\n  \"acceptance_length\": %.4f, \"acceptance_lengths_per_pos\": [", length);
    for (size_t i = 0; i < json_count(rates); i++)
        text_printf(to, "%s%.4f", i > 0 ? ", " : "", json_number(json_at(rates, i)));
    text_printf(to, "], \"rtol\": %g}", RTOL);
    json_free(rates);
    return true;
}

// ---- the check

struct entry {
    const char *name[NAMES]; // NULL: any
    double length, rtol;
    const struct json *rates; // NULL: not checked
};

static bool read_rates(const struct json *list, const char *where, struct error *err)
{
    if (!json_is_array(list))
        return fail(err, "%s: acceptance_lengths_per_pos: expected an array of numbers from 0 to 1", where);
    for (size_t i = 0; i < json_count(list); i++) {
        const struct json *x = json_at(list, i);
        if (!json_is_number(x) || !(json_number(x) >= 0 && json_number(x) <= 1))
            return fail(err, "%s: acceptance_lengths_per_pos[%zu]: expected a number from 0 to 1", where, i);
    }
    return true;
}

static bool read_key(struct entry *e, const char *key, const struct json *value, const char *where, struct error *err)
{
    for (int i = 0; i < NAMES; i++)
        if (strcmp(key, name_key[i]) == 0) {
            e->name[i] = json_text(value);
            return json_is_text(value) || fail(err, "%s: %s: expected a text", where, key);
        }
    if (strcmp(key, "acceptance_length") == 0) {
        e->length = json_is_number(value) ? json_number(value) : NAN;
        return e->length >= 1 || fail(err, "%s: %s: expected a number of at least 1", where, key);
    }
    if (strcmp(key, "rtol") == 0) {
        e->rtol = json_is_number(value) ? json_number(value) : NAN;
        return e->rtol >= 0 || fail(err, "%s: %s: expected a number of at least 0", where, key);
    }
    e->rates = value;
    if (strcmp(key, "acceptance_lengths_per_pos") == 0)
        return read_rates(value, where, err);
    return fail(
        err,
        "%s: %s: no such key; expected target, drafter, rule, sampling, prompts, acceptance_length, acceptance_lengths_per_pos or rtol",
        where, key);
}

static bool read_entry(struct entry *e, struct json *from, const char *where, struct error *err)
{
    *e = (struct entry){ .length = NAN, .rtol = RTOL };
    if (!json_is_object(from))
        return fail(err, "%s: expected an object", where);
    for (void *at = json_first(from); at != NULL; at = json_next(from, at))
        if (!read_key(e, json_key(at), json_value(at), where, err))
            return false;
    return !isnan(e->length) || fail(err, "%s: acceptance_length: expected a number of at least 1, found none", where);
}

static bool is_about(const struct entry *e, const struct comparison *c, const struct tally *t)
{
    for (int i = 0; i < NAMES; i++)
        if (e->name[i] != NULL && strcmp(e->name[i], name_value(c, t, i)) != 0)
            return false;
    return !t->baseline;
}

static bool check_rates(const struct entry *e, const struct json *found, struct text *out)
{
    bool within = true;
    for (size_t i = 0; i < json_count(e->rates); i++) {
        const double least = json_number(json_at(e->rates, i)) * (1 - e->rtol);
        const double rate = i < json_count(found) ? json_number(json_at(found, i)) : 0;
        if (rate < least) {
            text_printf(out, "     position %zu: expected at least %.4f, found %.4f\n", i + 1, least, rate);
            within = false;
        }
    }
    return within;
}

static bool check_run(const struct entry *e, const struct exported *x, struct text *out, bool *within,
                      struct error *err)
{
    double length;
    struct json *rates;
    if (!read_run(x, &length, &rates, err))
        return false;
    if (isnan(length)) {
        text_printf(out, "%4lld %9.3f         -           -  NO DRAFTS     %s\n", (long long)x->run->run, e->length,
                    x->run->drafter);
        *within = false;
        return true;
    }
    const double off = length / e->length - 1;
    const bool ok = fabs(off) <= e->rtol;
    text_printf(out, "%4lld %9.3f %9.3f %+9.2f %%  %-8s%4.1f %%  %s\n", (long long)x->run->run, e->length, length,
                100 * off, ok ? "within" : "OUTSIDE", 100 * e->rtol, x->run->drafter);
    *within = check_rates(e, rates, out) && ok && *within;
    json_free(rates);
    return true;
}

static bool check_entry(struct store *s, const struct comparisons *all, const struct entry *e, struct text *out,
                        bool *within, struct error *err)
{
    int found = 0;
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < all->comparison[i].n; k++) {
            const struct exported x = { s, &all->comparison[i], &all->comparison[i].run[k], "" };
            if (!is_about(e, x.of, x.run))
                continue;
            found++;
            if (!check_run(e, &x, out, within, err))
                return false;
        }
    if (found == 0) {
        text_printf(out, "   - %9.3f         -           -  NO RUN       ", e->length);
        for (int i = 0; i < NAMES; i++)
            if (e->name[i] != NULL)
                text_printf(out, " %s", e->name[i]);
        text_puts(out, "\n");
        *within = false;
    }
    return true;
}

static bool check_all(struct store *s, const struct comparisons *all, struct json *list, const char *path,
                      struct text *out, bool *within, struct error *err)
{
    text_puts(out, " run  expected  measured   difference                  drafter\n");
    for (size_t i = 0; i < json_count(list); i++) {
        struct entry e;
        char *where = xformat("%s: acceptance_lengths[%zu]", path, i);
        const bool ok = read_entry(&e, json_at(list, i), where, err) && check_entry(s, all, &e, out, within, err);
        free(where);
        if (!ok)
            return false;
    }
    return true;
}

bool report_golden(struct store *s, const struct report_options *o, const char *path, FILE *out, bool *within,
                   struct error *err)
{
    struct json *golden = json_read(path, err), *list = json_get(golden, "acceptance_lengths");
    struct comparisons all;
    struct text text = { 0 };
    *within = true;
    if (golden == NULL)
        return false;
    bool ok =
        (json_is_array(list) && json_count(list) > 0) ||
        fail(err,
             "%s: acceptance_lengths: expected an array with entries, as `speclab report --export golden` writes it",
             path);
    ok = ok && comparisons_read(s, o->experiment, &all, err);
    if (ok) {
        int n;
        const struct kept_view *views = exports_views(REPORT_GOLDEN, &n);
        ok = views_keep(s, views, n, err) && check_all(s, &all, list, path, &text, within, err);
        views_forget(s, views, n);
        comparisons_free(&all);
    }
    if (ok && (fwrite(text.s, 1, text.n, out) != text.n || fflush(out) != 0))
        ok = fail(err, "the comparison could not be written");
    free(text.s);
    json_free(golden);
    return ok;
}
