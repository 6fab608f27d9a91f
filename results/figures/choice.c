// choice.c - which runs a figure draws. Of many groups of settings those with most series, of many series those with the largest speedup; a sentence
// says what is left out, which the page's table has.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "results/drafter_name.h"
#include "results/figures/figures.h"
#include "results/figures/labels.h"
#include "results/query.h"
#include "results/tally.h"

struct candidate {
    const struct comparison *of;
    const struct tally *run;
    char *group, *series; // what makes them; not yet what is shown
    const char *shape;    // CHOOSE_TREES: behind the drafter's name
    char *drafter;        // without what differs within the series
};

struct candidates {
    int n;
    struct candidate *of;
};

struct series { // runs of one series of a group
    int group, n, run[MAX_RUNS_OF_SERIES];
    double speedup;             // of its fastest run
    bool baseline, taken, more; // more: runs than these
};

static const char *const no_option[] = { NULL };
static const char *const length[] = { "tokens", NULL };
static const char *const size[] = { "tokens", "nodes", "widths", "tree", "pick", NULL };

// The settings without batch, rule and drafter, which stand at their end in this order.
static char *settings_without_batch(struct store *s, const struct comparison *c, int64_t run)
{
    struct error ignored;
    struct query *q = query_again(s, "SELECT settings FROM run WHERE id = ?1");
    query_put_int(q, run);
    const char *settings = query_next(q) ? query_text(q, 0) : "";
    const char *batch = strstr(settings, ", batch: "), *rule = batch != NULL ? strstr(batch, ", rule: ") : NULL;
    char *key = rule != NULL ? xformat("%s|%.*s", c->experiment, (int)(batch - settings), settings)
                             : xformat("%s|%s", c->experiment, c->peers);
    return query_close(q, &ignored) ? key : (free(key), xstrdup(c->peers));
}

static const char *shape_of(const struct tally *t)
{
    const bool greedy = strstr(t->drafter, "pick=greedy") != NULL;
    if (strstr(t->drafter, "nodes=") != NULL)
        return greedy ? " best-first, greedy" : " best-first";
    if (t->trees > 0)
        return greedy ? " fixed tree, greedy" : " fixed tree";
    return greedy ? " chain, greedy" : " chain";
}

static bool takes(const struct figure_kind *k, const struct comparison *c, const struct tally *t)
{
    switch (k->choice) {
    case CHOOSE_EVERY:
    case CHOOSE_THROUGHPUT:
        return t->new_tokens > 0;
    case CHOOSE_DRAFTING:
    case CHOOSE_TREES:
        return !t->baseline && t->drafted > 0;
    case CHOOSE_LENGTHS: // not of drafters of drafters, whose parts have options of this name
        return !t->baseline && t->drafted > 0 && t->trees == 0 && strstr(t->drafter, "nodes=") == NULL &&
               strstr(t->drafter, "{kind") == NULL;
    case CHOOSE_CATEGORIES:
        return !t->baseline && !isnan(tally_speedup(c, t)->value) && c->n_categories > 0;
    case CHOOSE_PAIRED:
        return !t->baseline && !isnan(t->speedup.value);
    case CHOOSE_BATCHES:
        return !t->baseline && !isnan(tally_speedup(c, t)->value);
    default:
        return false;
    }
}

static struct candidates candidates_of(const struct figure_kind *k, struct store *s, const struct comparisons *all)
{
    struct candidates to = { 0 };
    const bool batches = k->choice == CHOOSE_BATCHES || k->choice == CHOOSE_THROUGHPUT;
    const char *const *without = k->choice == CHOOSE_LENGTHS ? length : k->choice == CHOOSE_TREES ? size : no_option;
    for (int i = 0; i < all->n; i++)
        for (int r = 0; r < all->comparison[i].n; r++) {
            const struct comparison *c = &all->comparison[i];
            struct candidate x = { c, &c->run[r], NULL, NULL, "", NULL };
            if (!takes(k, c, x.run))
                continue;
            x.drafter = drafter_without(x.run->drafter, without);
            x.shape = k->choice == CHOOSE_TREES ? shape_of(x.run) : "";
            x.group = batches ? settings_without_batch(s, c, x.run->run) : xformat("%s|%s", c->experiment, c->peers);
            if (k->choice == CHOOSE_TREES) {
                char *group = xformat("%s|%s", x.group, x.drafter);
                free(x.group);
                x.group = group;
            }
            x.series = batches || k->choice == CHOOSE_LENGTHS || k->choice == CHOOSE_TREES
                           ? xformat("%s%s; %s", x.drafter, x.shape, x.run->rule)
                           : xformat("%lld", (long long)x.run->run);
            to.of = xrealloc(to.of, ((size_t)to.n + 1) * sizeof(*to.of));
            to.of[to.n++] = x;
        }
    return to;
}

// ---- groups and series ----

struct plan {
    struct candidates all;
    int n_groups, n; // series, in the order of their first run
    const char **group;
    int *size;   // (n_groups) series of each
    bool *taken; // (n_groups)
    struct series *series;
};

static struct plan plan_of(struct candidates all)
{
    const size_t most = (size_t)all.n + 1;
    struct plan p = { .all = all };
    p.group = xcalloc(most, sizeof(*p.group));
    p.size = xcalloc(most, sizeof(*p.size));
    p.taken = xcalloc(most, sizeof(*p.taken));
    p.series = xcalloc(most, sizeof(*p.series));
    for (int i = 0; i < all.n; i++) {
        const int group = place_of_name(p.group, p.n_groups, all.of[i].group);
        p.group[group] = all.of[i].group;
        p.n_groups += group == p.n_groups;
        int at = 0;
        while (at < p.n &&
               (p.series[at].group != group || strcmp(all.of[p.series[at].run[0]].series, all.of[i].series) != 0))
            at++;
        struct series *s = &p.series[at];
        if (at == p.n) {
            *s = (struct series){ .group = group, .speedup = -1, .baseline = all.of[i].run->baseline };
            p.n++;
            p.size[group]++;
        }
        s->more = s->n == MAX_RUNS_OF_SERIES;
        if (!s->more)
            s->run[s->n++] = i;
        s->speedup = fmax(s->speedup, tally_speedup(all.of[i].of, all.of[i].run)->value);
    }
    return p;
}

static int trees_of(const struct plan *p, int group)
{
    int trees = 0;
    for (int i = 0; i < p->all.n; i++)
        trees += strcmp(p->all.of[i].group, p->group[group]) == 0 && strncmp(p->all.of[i].shape, " chain", 6) != 0;
    return trees;
}

// What has one point where a figure needs two is not drawn.
static void drop_points(const struct figure_kind *k, struct plan *p)
{
    for (int i = 0; i < p->n; i++) {
        struct series *s = &p->series[i];
        int64_t low = INT64_MAX, high = 0;
        for (int r = 0; r < s->n; r++) {
            const int64_t batch = p->all.of[s->run[r]].of->batch;
            low = batch < low ? batch : low;
            high = batch > high ? batch : high;
        }
        const bool one = k->choice == CHOOSE_LENGTHS ? s->n < 2
                         : k->choice == CHOOSE_TREES ? trees_of(p, s->group) == 0
                                                     : low == high;
        const bool needs_two = k->choice == CHOOSE_LENGTHS || k->choice == CHOOSE_TREES ||
                               k->choice == CHOOSE_BATCHES || k->choice == CHOOSE_THROUGHPUT;
        if (needs_two && one) {
            p->size[s->group]--;
            s->n = 0;
        }
    }
    for (int g = 0; g < p->n_groups && k->choice == CHOOSE_TREES; g++) {
        int runs = 0;
        for (int i = 0; i < p->n; i++)
            runs += p->series[i].group == g ? p->series[i].n : 0;
        p->size[g] = runs < 2 ? 0 : p->size[g];
    }
}

static void take_groups(struct plan *p)
{
    for (int k = 0; k < MAX_GROUPS; k++) {
        int best = -1;
        for (int g = 0; g < p->n_groups; g++)
            if (!p->taken[g] && p->size[g] > 0 && (best < 0 || p->size[g] > p->size[best]))
                best = g;
        if (best >= 0)
            p->taken[best] = true;
    }
}

static bool same_kind(const struct plan *p, const struct series *a, const struct series *b)
{
    const struct drafter_name x = drafter_name_of(p->all.of[a->run[0]].run->drafter),
                              y = drafter_name_of(p->all.of[b->run[0]].run->drafter);
    return drafter_same_kind(&x, &y);
}

static bool kind_taken(const struct plan *p, const struct series *s)
{
    bool taken = false;
    for (int i = 0; i < p->n; i++)
        taken = taken || (p->series[i].taken && p->series[i].group == s->group && same_kind(p, &p->series[i], s));
    return taken;
}

// Of the series that are not taken the fastest whose kind of drafter is new, else the fastest; -1: none.
static int next_series(const struct plan *p, int group)
{
    int best = -1;
    bool best_is_new = false;
    for (int i = 0; i < p->n; i++) {
        const struct series *s = &p->series[i];
        if (s->group != group || s->n == 0 || s->taken)
            continue;
        const bool is_new = !kind_taken(p, s);
        if (best < 0 || is_new > best_is_new || (is_new == best_is_new && s->speedup > p->series[best].speedup)) {
            best = i;
            best_is_new = is_new;
        }
    }
    return best;
}

// The baseline; then the fastest of each kind of drafter, and the fastest of the rest.
static void take_series(struct plan *p, int group)
{
    for (int i = 0; i < p->n; i++) {
        struct series *s = &p->series[i];
        s->taken = s->taken || (s->group == group && s->baseline && s->n > 0);
    }
    for (int k = 0; k < MAX_SERIES; k++) {
        const int best = next_series(p, group);
        if (best >= 0)
            p->series[best].taken = true;
    }
}

static char *note_of(const struct plan *p)
{
    int groups = 0, most = 0;
    for (int g = 0; g < p->n_groups; g++) {
        groups += p->size[g] > 0;
        most = p->taken[g] && p->size[g] > most ? p->size[g] : most;
    }
    struct text t = { 0 };
    text_puts(&t, "");
    if (groups > MAX_GROUPS)
        text_printf(&t, "Of %d groups of settings the %d with most series are drawn. ", groups, MAX_GROUPS);
    if (most > MAX_SERIES)
        text_printf(&t,
                    "Of up to %d series of a group %d are drawn: the fastest of each kind of drafter, and the fastest"
                    " of the rest. ",
                    most, MAX_SERIES);
    bool lossy = false, more = false;
    for (int i = 0; i < p->n; i++) {
        const struct series *s = &p->series[i];
        lossy = lossy || (s->taken && !p->all.of[s->run[0]].run->lossless);
        more = more || (s->taken && s->more);
    }
    if (more)
        text_printf(&t, "Of a series up to %d runs are drawn. ", MAX_RUNS_OF_SERIES);
    text_puts(&t, t.n > 0 ? "The table of all cells has the others." : "");
    if (lossy)
        text_printf(&t, "%s*: LOSSY, the rule changes the target's distribution.", t.n > 0 ? " " : "");
    return t.s;
}

// ---- names ----

static void add_field(struct text *t, const char *field, bool differs)
{
    if (differs)
        text_printf(t, "%s%s", t->n > 0 ? ", " : "", field);
}

// What tells the comparison from the others of the report, and its sampling and batch.
static char *group_label(const struct figure_kind *k, const struct comparisons *all, const struct candidate *x)
{
    const struct comparison *c = x->of;
    bool differs[7] = { 0 };
    for (int i = 0; i < all->n; i++) {
        const struct comparison *o = &all->comparison[i];
        const bool other[] = { strcmp(o->experiment, c->experiment) != 0,
                               strcmp(o->target, c->target) != 0,
                               strcmp(o->activations, c->activations) != 0,
                               strcmp(o->cache, c->cache) != 0,
                               strcmp(o->prompts, c->prompts) != 0,
                               strcmp(o->limits, c->limits) != 0,
                               o->seed != c->seed };
        for (int f = 0; f < 7; f++)
            differs[f] = differs[f] || other[f];
    }
    struct text t = { 0 };
    char *seed = xformat("seed %llu", (unsigned long long)c->seed), *batch = xformat("batch %lld", (long long)c->batch);
    const char *const field[] = { c->experiment, c->target, c->activations, c->cache, c->prompts, c->limits, seed };
    text_puts(&t, "");
    add_field(&t, c->sampling, true);
    add_field(&t, batch, k->choice != CHOOSE_BATCHES && k->choice != CHOOSE_THROUGHPUT);
    for (int f = 0; f < 7; f++)
        add_field(&t, field[f], differs[f]);
    free(seed);
    free(batch);
    char *plain = plain_text(t.s, 120);
    free(t.s);
    return plain;
}

static char *series_label(const struct figure_kind *k, const struct plan *p, const struct series *s,
                          const char *const *drafters, int n, bool rules)
{
    const struct candidate *x = &p->all.of[s->run[0]];
    char *drafter = drafter_label(x->drafter, drafters, n);
    const bool one = k->choice <= CHOOSE_CATEGORIES;
    char *number = one ? xformat("%lld ", (long long)x->run->run) : xstrdup("");
    char *whole = xformat("%s%s%s%s%s%s", number, drafter, x->shape, rules ? "; " : "", rules ? x->run->rule : "",
                          x->run->lossless ? "" : " *");
    char *label = plain_text(whole, 44);
    free(whole);
    free(number);
    free(drafter);
    return label;
}

static void add_chosen(struct choice *to, const char *group, const char *series, int64_t run)
{
    to->of = xrealloc(to->of, ((size_t)to->n + 1) * sizeof(*to->of));
    to->of[to->n++] = (struct chosen){ xstrdup(group), xstrdup(series), run };
}

// Labels that are cut may be alike: then each has a number, that of its first run.
static char *unlike(char *label, const struct choice *to, const char *group, int64_t run)
{
    for (int i = 0; i < to->n; i++)
        if (strcmp(to->of[i].group, group) == 0 && strcmp(to->of[i].series, label) == 0) {
            char *other = xformat("%s (run %lld)", label, (long long)run);
            free(label);
            return other;
        }
    return label;
}

static bool rules_differ(const struct plan *p, int group)
{
    const char *rule = NULL;
    bool differ = false;
    for (int i = 0; i < p->n; i++)
        if (p->series[i].taken && p->series[i].group == group) {
            const char *other = p->all.of[p->series[i].run[0]].run->rule;
            differ = differ || (rule != NULL && strcmp(rule, other) != 0);
            rule = other;
        }
    return differ;
}

static void name_group(const struct figure_kind *k, const struct comparisons *all, const struct plan *p, int group,
                       const char *const *drafters, int n, struct choice *to)
{
    const int before = to->n;
    const bool rules = rules_differ(p, group);
    char *label = NULL;
    for (int i = 0; i < p->n; i++) {
        const struct series *s = &p->series[i];
        if (!s->taken || s->group != group)
            continue;
        const struct candidate *x = &p->all.of[s->run[0]];
        if (label == NULL)
            label = group_label(k, all, x);
        for (int c = 0; c < before && label != NULL; c++)
            if (strcmp(to->of[c].group, label) == 0) {
                char *numbered = xformat("%s (%d)", label, group + 1);
                free(label);
                label = numbered;
            }
        char *series = unlike(series_label(k, p, s, drafters, n, rules), to, label, x->run->run);
        for (int r = 0; r < s->n; r++)
            add_chosen(to, label, series, p->all.of[s->run[r]].run->run);
        free(series);
    }
    free(label);
}

static void name_all(const struct figure_kind *k, const struct comparisons *all, const struct plan *p,
                     struct choice *to)
{
    const char **drafters = xcalloc((size_t)p->n + 1, sizeof(*drafters));
    int n = 0;
    for (int i = 0; i < p->n; i++)
        if (p->series[i].taken)
            drafters[n++] = p->all.of[p->series[i].run[0]].drafter;
    for (int g = 0; g < p->n_groups; g++)
        if (p->taken[g])
            name_group(k, all, p, g, drafters, n, to);
    free(drafters);
}

static void plan_free(struct plan *p)
{
    for (int i = 0; i < p->all.n; i++) {
        free(p->all.of[i].group);
        free(p->all.of[i].series);
        free(p->all.of[i].drafter);
    }
    free(p->all.of);
    free(p->group);
    free(p->size);
    free(p->taken);
    free(p->series);
}

struct choice choice_make(const struct figure_kind *k, struct store *s, const struct comparisons *all)
{
    struct choice to = { 0 };
    struct plan p = plan_of(candidates_of(k, s, all));
    drop_points(k, &p);
    take_groups(&p);
    for (int g = 0; g < p.n_groups; g++)
        if (p.taken[g])
            take_series(&p, g);
    name_all(k, all, &p, &to);
    to.note = note_of(&p);
    plan_free(&p);
    return to;
}

void choice_free(struct choice *c)
{
    for (int i = 0; i < c->n; i++) {
        free(c->of[i].group);
        free(c->of[i].series);
    }
    free(c->of);
    free(c->note);
}
