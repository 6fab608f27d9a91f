// report_words.c - a comparison and its cells in words: the settings, short names of the cells, their order in tables.
#include "results/report_words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "results/tally.h"

// ---- the settings of the runs

char *report_title(const struct comparisons *all, int which)
{
    const char *name = all->comparison[which].experiment;
    int before = 0, of = 0;
    for (int k = 0; k < all->n; k++)
        if (strcmp(all->comparison[k].experiment, name) == 0) {
            before += k < which;
            of++;
        }
    return of > 1 ? xformat("%s (%d of %d)", name, before + 1, of) : xstrdup(name);
}

char *report_target(const struct comparison *c)
{
    struct text t = { 0 };
    text_printf(&t, "%s (weights %s, activations %s", c->target, c->model_type, c->activations);
    if (strcmp(c->cache, "f32") != 0)
        text_printf(&t, ", cache %s", c->cache);
    text_puts(&t, c->n > 0 && c->run[0].inflated ? ", marked as inflated)" : ")");
    return t.s;
}

char *report_prompts(const struct comparison *c)
{
    struct text t = { 0 };
    text_printf(&t, "%lld of %s", (long long)c->n_prompts, c->prompts);
    if (c->turns > 1)
        text_printf(&t, ", up to %lld turns", (long long)c->turns);
    for (int i = 0; i < c->n_categories; i++)
        text_printf(&t, "%s%s %lld", i == 0 ? ": " : ", ", c->category[i], (long long)c->category_prompts[i]);
    return t.s;
}

char *report_decoding(const struct comparison *c)
{
    return xformat("batch %lld, seed %llu, %lld repeat%s", (long long)c->batch, (unsigned long long)c->seed,
                   (long long)c->repeats, c->repeats == 1 ? "" : "s");
}

char *report_values(const struct comparison *c, size_t field)
{
#define FIELD(i) (*(char *const *)((const char *)&c->run[i] + field))
    struct text words = { 0 };
    text_puts(&words, "");
    for (int i = 0; i < c->n; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen |= strcmp(FIELD(i), FIELD(k)) == 0;
        if (!seen)
            text_printf(&words, "%s%s", words.n > 0 ? "; " : "", FIELD(i));
    }
    return words.s;
#undef FIELD
}

char *report_equal(const struct comparison *c, const struct tally *t)
{
    if (t->baseline)
        return xstrdup("");
    if (!texts_comparable(c, t))
        return xstrdup("sampled");
    return t->compared == 0 ? xstrdup("-") : xformat("%lld/%lld", (long long)t->equal, (long long)t->compared);
}

// ---- names

// "kind(option, option)": from the columns of a run, {"longest": "3"}. A name that these do not make, in a stranger's
// database, is a kind without options.
struct drafter_name {
    const char *kind;
    struct json *options; // NULL: none
};

static struct drafter_name drafter_name_of(const struct tally *t)
{
    struct error ignored;
    struct drafter_name d = { t->drafter_kind,
                              json_parse(t->drafter_options, strlen(t->drafter_options), "options", &ignored) };
    struct text name = { 0 };
    text_puts(&name, d.kind);
    for (void *at = json_first(d.options); at != NULL; at = json_next(d.options, at))
        text_printf(&name, "%s%s=%s", name.n == strlen(d.kind) ? "(" : ", ", json_key(at), json_text(json_value(at)));
    text_puts(&name, name.n > strlen(d.kind) ? ")" : "");
    if (strcmp(name.s, t->drafter) != 0) {
        json_free(d.options);
        d = (struct drafter_name){ t->drafter, NULL };
    }
    free(name.s);
    return d;
}

// Whether all (n) of a kind have this option.
static bool is_common(const struct drafter_name *all, int n, const char *kind, const char *key, const char *value)
{
    for (int i = 0; i < n; i++) {
        const struct json *other = json_get(all[i].options, key);
        if (strcmp(all[i].kind, kind) == 0 && (other == NULL || strcmp(json_text(other), value) != 0))
            return false;
    }
    return true;
}

// Writes kind and options of cell i: those common to all, or the others. A kind alone is not common.
static void put_name(struct text *out, const struct drafter_name *all, int n, int i, bool common)
{
    const struct drafter_name *d = &all[i];
    struct text options = { 0 };
    for (void *at = json_first(d->options); at != NULL; at = json_next(d->options, at))
        if (is_common(all, n, d->kind, json_key(at), json_text(json_value(at))) == common)
            text_printf(&options, "%s%s=%s", options.n > 0 ? ", " : "", json_key(at), json_text(json_value(at)));
    if (!common || options.n > 0)
        text_printf(out, "%s%s", out->n > 0 ? "; " : "", d->kind);
    if (options.n > 0)
        text_printf(out, "(%s)", options.s);
    free(options.s);
}

// Two cells of one name had other weights, plugins or inputs, as otherwise the later one would have resumed the first.
static void mark_older(const struct comparison *c, char **name)
{
    bool *older = xcalloc((size_t)c->n + 1, sizeof(*older));
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->n && !older[i]; k++)
            older[i] = c->run[k].run > c->run[i].run && strcmp(name[i], name[k]) == 0;
    for (int i = 0; i < c->n; i++)
        if (older[i]) {
            char *marked = xformat("%s (older: run %lld)", name[i], (long long)c->run[i].run);
            free(name[i]);
            name[i] = marked;
        }
    free(older);
}

void cell_names_make(const struct comparison *c, struct cell_names *to)
{
    struct drafter_name *all = xmalloc(((size_t)c->n + 1) * sizeof(*all));
    struct text common = { 0 };
    bool one_rule = true;
    for (int i = 0; i < c->n; i++) {
        all[i] = drafter_name_of(&c->run[i]);
        one_rule = one_rule && strcmp(c->run[i].rule, c->run[0].rule) == 0;
    }
    text_puts(&common, c->n > 0 && one_rule ? c->run[0].rule : "");
    *to = (struct cell_names){ .n = c->n, .name = xcalloc((size_t)c->n + 1, sizeof(*to->name)) };
    for (int i = 0; i < c->n; i++) {
        bool first = true;
        for (int k = 0; k < i && first; k++)
            first = strcmp(all[i].kind, all[k].kind) != 0;
        if (first)
            put_name(&common, all, c->n, i, true);
        struct text name = { 0 };
        put_name(&name, all, c->n, i, false);
        if (!one_rule)
            text_printf(&name, "; %s", c->run[i].rule);
        if (!c->run[i].finished)
            text_puts(&name, " - UNFINISHED");
        to->name[i] = name.s;
    }
    to->common = common.s;
    mark_older(c, to->name);
    for (int i = 0; i < c->n; i++)
        json_free(all[i].options);
    free(all);
}

void cell_names_free(struct cell_names *names)
{
    for (int i = 0; i < names->n; i++)
        free(names->name[i]);
    free(names->name);
    free(names->common);
}

// ---- order

struct place {
    int class, i; // 0: none, 1: lossless, 2: lossy
    double speedup;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->class != y->class)
        return x->class - y->class;
    if (x->speedup != y->speedup)
        return x->speedup < y->speedup ? 1 : -1;
    return x->i - y->i;
}

int *report_order(const struct comparison *c)
{
    struct place *place = xmalloc(((size_t)c->n + 1) * sizeof(*place));
    int *order = xmalloc(((size_t)c->n + 1) * sizeof(*order));
    for (int i = 0; i < c->n; i++) {
        const struct tally *t = &c->run[i];
        const double speedup = t->baseline ? 0 : t->speedup.value;
        place[i] = (struct place){ t->baseline ? 0 : t->lossless ? 1 : 2, i, isnan(speedup) ? -1 : speedup };
    }
    qsort(place, (size_t)c->n, sizeof(*place), compare_places);
    for (int i = 0; i < c->n; i++)
        order[i] = place[i].i;
    free(place);
    return order;
}

// ---- the machine

#define MUCH_DISTURBED 0.2

char *report_disturbed(const struct comparisons *all)
{
    struct text t = { 0 };
    int cells = 0, much = 0, whole = 0;
    double most = 0;
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < all->comparison[i].n; k++) {
            const struct tally *r = &all->comparison[i].run[k];
            cells++;
            much += r->disturbed > MUCH_DISTURBED || r->all_disturbed;
            whole += r->all_disturbed;
            most = r->disturbed > most ? r->disturbed : most;
        }
    text_puts(&t, "");
    if (much > 0)
        text_printf(
            &t,
            "DISTURBED: other processes used the processors while %d of %d cells decoded, up to %.0f %% of a cell's time. "
            "Speeds leave these slices out; repeat the experiment on a machine that does nothing else.",
            much, cells, 100 * most);
    if (whole > 0)
        text_printf(
            &t,
            " In every round of %d cell%s a slice of it or of its baseline was disturbed: its speeds have them all.",
            whole, whole > 1 ? "s" : "");
    return t.s;
}
