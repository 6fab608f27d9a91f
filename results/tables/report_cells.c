// report_cells.c - a comparison and its cells in words: what was run, short names of the cells, and their order in tables.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/tally.h"
#include "results/tables/tables.h"

// ---- what was run

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

char *report_values(const struct comparison *c, size_t field, bool numbered)
{
#define FIELD(i) (*(char *const *)((const char *)&c->run[i] + field))
    struct text words = { 0 };
    text_puts(&words, "");
    for (int i = 0; i < c->n; i++) {
        bool seen = false, all_equal = true;
        for (int k = 0; k < c->n; k++) {
            bool same = strcmp(FIELD(i), FIELD(k)) == 0;
            seen |= same && k < i;
            all_equal &= same;
        }
        if (seen)
            continue;
        text_printf(&words, "%s%s", words.n > 0 ? "; " : "", FIELD(i));
        for (int k = i, n = 0; k < c->n && numbered && !all_equal; k++)
            if (strcmp(FIELD(i), FIELD(k)) == 0)
                text_printf(&words, "%s%lld", n++ == 0 ? " in run " : ", ", (long long)c->run[k].run);
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

enum { MAX_OPTIONS = 64 };

struct drafter { // "kind(option, option)", in parts; borrowed from the name
    const char *kind, *option[MAX_OPTIONS];
    size_t kind_bytes, option_bytes[MAX_OPTIONS];
    int n;
};

// Bytes up to the comma or parenthesis that ends an option; commas in brackets and quotes belong to it.
static size_t option_bytes(const char *s)
{
    int depth = 0;
    bool quoted = false;
    size_t n = 0;
    for (; s[n] != '\0'; n++) {
        if (depth == 0 && !quoted && (s[n] == ',' || s[n] == ')'))
            break;
        quoted ^= s[n] == '"';
        depth += quoted ? 0 : (strchr("([{", s[n]) != NULL) - (strchr(")]}", s[n]) != NULL);
    }
    return n;
}

// A name of another form is a kind without options.
static struct drafter drafter_of(const char *name)
{
    struct drafter d = { .kind = name, .kind_bytes = strcspn(name, "(") };
    const char *at = name + d.kind_bytes;
    while (*at == '(' || *at == ',') {
        at += 1 + strspn(at + 1, " ");
        if (d.n == MAX_OPTIONS)
            break;
        d.option[d.n] = at;
        d.option_bytes[d.n] = option_bytes(at);
        at += d.option_bytes[d.n++];
    }
    if (strcmp(at, ")") != 0)
        d = (struct drafter){ .kind = name, .kind_bytes = strlen(name) };
    return d;
}

static bool same_bytes(const char *a, size_t n, const char *b, size_t m)
{
    return n == m && memcmp(a, b, n) == 0;
}

static bool same_kind(const struct drafter *a, const struct drafter *b)
{
    return same_bytes(a->kind, a->kind_bytes, b->kind, b->kind_bytes);
}

static bool has_option(const struct drafter *d, const char *option, size_t bytes)
{
    bool any = false;
    for (int i = 0; i < d->n && !any; i++)
        any = same_bytes(d->option[i], d->option_bytes[i], option, bytes);
    return any;
}

// Whether all cells of the kind have option k of cell i.
static bool is_common(const struct drafter *all, int n, int i, int k)
{
    bool common = true;
    for (int j = 0; j < n && common; j++)
        common = !same_kind(&all[i], &all[j]) || has_option(&all[j], all[i].option[k], all[i].option_bytes[k]);
    return common;
}

// Kind and options of cell i: the common ones, or the others. A kind alone is no common part.
static void put_name(struct text *out, const struct drafter *all, int n, int i, bool common)
{
    const struct drafter *d = &all[i];
    struct text options = { 0 };
    for (int k = 0; k < d->n; k++)
        if (is_common(all, n, i, k) == common)
            text_printf(&options, "%s%.*s", options.n > 0 ? ", " : "", (int)d->option_bytes[k], d->option[k]);
    if (!common || options.n > 0)
        text_printf(out, "%s%.*s", out->n > 0 ? "; " : "", (int)d->kind_bytes, d->kind);
    if (options.n > 0)
        text_printf(out, "(%s)", options.s);
    free(options.s);
}

void cell_names_make(const struct comparison *c, struct cell_names *to)
{
    struct drafter *all = xmalloc(((size_t)c->n + 1) * sizeof(*all));
    struct text common = { 0 };
    bool one_rule = true;
    for (int i = 0; i < c->n; i++) {
        all[i] = drafter_of(c->run[i].drafter);
        one_rule = one_rule && strcmp(c->run[i].rule, c->run[0].rule) == 0;
    }
    text_puts(&common, c->n > 0 && one_rule ? c->run[0].rule : "");
    *to = (struct cell_names){ .n = c->n, .name = xcalloc((size_t)c->n + 1, sizeof(*to->name)) };
    for (int i = 0; i < c->n; i++) {
        bool first = true;
        for (int k = 0; k < i && first; k++)
            first = !same_kind(&all[i], &all[k]);
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
        const double speedup = t->baseline ? 0 : tally_speedup(c, t)->value;
        place[i] = (struct place){ t->baseline ? 0 : t->lossless ? 1 : 2, i, isnan(speedup) ? -1 : speedup };
    }
    qsort(place, (size_t)c->n, sizeof(*place), compare_places);
    for (int i = 0; i < c->n; i++)
        order[i] = place[i].i;
    free(place);
    return order;
}

int report_shown(const struct comparison *c, const int *order, int top, int *lossy)
{
    int shown = 0;
    while (shown < c->n && c->run[order[shown]].baseline)
        shown++;
    shown = top > 0 && c->n - shown > top ? shown + top : c->n;
    *lossy = 0;
    for (int i = shown; i < c->n; i++)
        *lossy += !c->run[order[i]].lossless;
    return shown;
}

char *report_left_out(const struct comparison *c, const int *order, int shown, int lossy)
{
    double high = NAN, low = NAN;
    for (int i = shown; i < c->n; i++) {
        high = fmax(high, tally_speedup(c, &c->run[order[i]])->value);
        low = fmin(low, tally_speedup(c, &c->run[order[i]])->value);
    }
    if (shown == c->n)
        return xstrdup("");
    struct text t = { 0 };
    char from[FIGURE], to[FIGURE];
    text_printf(&t, "%d more cell%s", c->n - shown, c->n - shown == 1 ? "" : "s");
    if (lossy > 0)
        text_printf(&t, ", %d of them lossy", lossy);
    if (!isnan(high))
        text_printf(&t, ", with speedups from %s down to %s", report_short_figure(from, high),
                    report_short_figure(to, low));
    return t.s;
}
