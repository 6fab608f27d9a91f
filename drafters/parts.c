#include "drafters/parts.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/registry.h"
#include "core/settings.h"
#include "kernels/backend.h"

enum { CHUNK = 256 }; // maximum rows of a prompt's advance

// ---- options

static const struct drafter_type *const *known; // NULL-terminated

void parts_choose_among(const struct drafter_type *const *types)
{
    known = types;
}

static bool find_type(const struct part_form *f, const struct settings *s, const struct drafter_type **type,
                      struct error *err)
{
    const struct settings *kind = s->kind == SETTINGS_MAP ? settings_get(s, "kind") : s;
    if (kind == NULL || kind->kind != SETTINGS_SCALAR)
        return settings_fail(err, s, "%s: expected a kind, as in {kind: ngram}", f->what);
    const char *name = kind->text;
    *type = NULL;
    for (int i = 0; known[i] != NULL; i++)
        if (strcmp(known[i]->name, name) == 0)
            *type = known[i];
    if (*type == NULL || (*type)->of != NULL) {
        int n = 0;
        const char *names[MAX_REGISTERED + 1] = { NULL };
        for (int i = 0; known[i] != NULL; i++)
            if (known[i]->of == NULL)
                names[n++] = known[i]->name;
        char *said = xformat(*type == NULL ? "%s: unknown drafter"
                                           : "%s: a %s cannot be part of another; list its drafters here",
                             f->what, name);
        settings_fail_name(err, kind, -1, NAME_KIND, said, *type == NULL ? name : NULL, names);
        free(said);
        return false;
    }
    return true;
}

// Returns a part's own options: the mapping without at_least.
static struct settings *own_settings(const struct part_form *f, const struct settings *s)
{
    struct settings *to = settings_at(settings_map(), s);
    for (int i = 0; s->kind == SETTINGS_MAP && i < s->n; i++)
        if (!f->at_least || strcmp(s->key[i], "at_least") != 0)
            settings_put_key(to, s, i, settings_copy(s->item[i]));
    return to;
}

static bool read_at_least(const struct part_form *f, struct part *p, const struct settings *s, struct error *err)
{
    const struct settings *given = f->at_least && s->kind == SETTINGS_MAP ? settings_get(s, "at_least") : NULL;
    char *key = xformat("%s: at_least", f->what);
    long long v = 1;
    const bool ok = given == NULL || settings_int(given, key, 1, MAX_NODES - 1, &v, err);
    free(key);
    if (!ok)
        return false;
    p->at_least = (int)v;
    return v == 1 || !(drafter_makes(p->type, p->options) & (TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT)) ||
           settings_fail(err, given, "%s: drafter %s samples its draft tokens, so its at_least must be 1, found %lld",
                         f->what, p->type->name, v);
}

static bool read_part(const struct part_form *f, struct part *p, const struct settings *s, struct error *err)
{
    if (!find_type(f, s, &p->type, err))
        return false;
    struct settings *own = own_settings(f, s);
    char *owner = xformat("%s: drafter %s", f->what, p->type->name);
    p->options = xcalloc(1, p->type->options_size + 1);
    const bool ok = options_read(own, owner, p->type->options, p->options, err) &&
                    drafter_check(p->type, p->options, err) && read_at_least(f, p, s, err);
    p->settings = ok ? entry_settings(p->type->name, own, p->type->options) : NULL;
    settings_free(own);
    free(owner);
    return ok;
}

static void free_parts(struct part *p, int n)
{
    for (int i = 0; i < n; i++, p++) {
        if (p->type != NULL)
            options_free(p->type->options, p->options);
        free(p->options);
        settings_free(p->settings);
    }
}

// to: MAX_PARTS, all zero. *n: number of parts to free, also after a failure.
static bool read_parts(const struct settings *of, const struct part_form *f, struct part *to, int *n, struct error *err)
{
    *n = f->one;
    if (f->one)
        return read_part(f, to, of, err);
    if (of->kind != SETTINGS_LIST || of->n == 0)
        return settings_fail(err, of, "%s: expected a list of drafters, as in [ngram, {kind: small, model: PATH}]",
                             f->what);
    if (of->n > MAX_PARTS)
        return settings_fail(err, of, "%s: expected at most %d drafters, found %d", f->what, MAX_PARTS, of->n);
    while (*n < of->n) {
        const int i = (*n)++;
        if (!read_part(f, &to[i], of->item[i], err))
            return false;
    }
    return true;
}

bool parts_check(const struct settings *of, const struct part_form *f, struct error *err)
{
    struct part part[MAX_PARTS] = { 0 };
    int n;
    const bool ok = read_parts(of, f, part, &n, err);
    free_parts(part, n);
    return ok;
}

unsigned parts_make(const struct settings *of, const struct part_form *f, enum draft_memory *memory)
{
    struct part part[MAX_PARTS] = { 0 };
    struct error ignored;
    unsigned makes = f->adds;
    int n;
    const bool ok = read_parts(of, f, part, &n, &ignored);
    *memory = DRAFTS_OF_TEXT;
    for (int i = 0; i < n && ok; i++) {
        makes |= drafter_makes(part[i].type, part[i].options) & ~(unsigned)CONTINUES;
        const enum draft_memory own = drafter_remembers(part[i].type, part[i].options);
        *memory = own > *memory ? own : *memory;
    }
    free_parts(part, n);
    return makes;
}

// ---- creation

void parts_close(struct parts *g)
{
    for (int i = 0; i < g->n; i++) {
        drafter_destroy(g->part[i].drafter);
        if (g->env.target_backend != NULL)
            g->env.target_backend->release(g->env.target_backend, g->part[i].features.data);
        free(g->part[i].advance);
        free(g->part[i].request);
        free(g->name[i]);
    }
    free_parts(g->part, g->n);
    settings_free((struct settings *)g->drafter.resolved_options);
    free(g->row);
}

// Adds a part's hidden states to the list of all.
static bool add_taps(struct parts *g, struct part *p, struct error *err)
{
    struct taps *all = &g->drafter.taps;
    for (int k = 0; k < p->drafter->taps.n; k++) {
        int at = 0;
        while (at < all->n && all->layer[at] != p->drafter->taps.layer[k])
            at++;
        if (at == MAX_TAPS)
            return fail(err, "%s: its drafters read more than %d hidden states of the target", g->form->what, MAX_TAPS);
        all->layer[at] = p->drafter->taps.layer[k];
        all->n = at < all->n ? all->n : at + 1;
        p->tap[k] = at;
    }
    return true;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static bool open_part(struct parts *g, struct part *p, struct error *err)
{
    const struct drafter_env *env = &g->env;
    struct drafter *all = &g->drafter;
    struct error why;
    p->drafter = drafter_create(p->type, env, p->options, &why);
    if (p->drafter == NULL)
        return fail(err, "%s: %s", g->form->what, why.text);
    const struct drafter *d = p->drafter;
    if (p->at_least > d->nodes - 1 && g->form->at_least)
        return fail(err, "%s: drafter %s makes drafts of at most %d draft tokens, fewer than its at_least (%d)",
                    g->form->what, p->type->name, d->nodes - 1, p->at_least);
    struct backend *on = d->backend != NULL ? d->backend : env->target_backend;
    if (d->bytes > 0 && all->bytes > 0 && on != all->backend)
        return fail(err, "%s: its drafters must compute on one device; drafter %s is on another", g->form->what,
                    p->type->name);
    if (d->bytes > 0)
        all->backend = on;
    all->bytes += d->bytes;
    all->host_bytes += d->host_bytes;
    all->nodes = larger(all->nodes, d->nodes);
    all->top = larger(all->top, d->top);
    all->cache_rows = larger(all->cache_rows, d->cache_rows);
    p->advance = xcalloc((size_t)env->slots, sizeof(*p->advance));
    p->request = xcalloc((size_t)env->slots, sizeof(*p->request));
    return add_taps(g, p, err);
}

// Allocates the features of parts that read only some of the hidden states, or read them in another order.
static bool reserve_features(struct parts *g, int rows, struct error *err)
{
    struct backend *b = g->env.target_backend;
    if (rows <= g->rows)
        return true;
    g->row = xrealloc(g->row, (size_t)rows * MAX_TAPS * sizeof(*g->row));
    for (int i = 0; i < g->n; i++) {
        struct part *p = &g->part[i];
        const struct taps *t = &p->drafter->taps;
        p->all_taps = t->n == 0 || (t->n == g->drafter.taps.n &&
                                    memcmp(t->layer, g->drafter.taps.layer, (size_t)t->n * sizeof(*t->layer)) == 0);
        if (p->all_taps)
            continue;
        b->release(b, p->features.data);
        p->features = rows_on(b, rows, t->n * g->width);
        if (p->features.data == NULL)
            return fail(err, "%s: not enough memory for the states of a draft", b->name);
        g->drafter.bytes += tensor_bytes(p->features);
    }
    g->rows = rows;
    return true;
}

static void name_parts(struct parts *g)
{
    for (int i = 0; i < g->n; i++) {
        int of_kind = 1;
        for (int k = 0; k < i; k++)
            of_kind += g->part[k].type == g->part[i].type;
        g->name[i] = of_kind == 1 ? xstrdup(g->part[i].type->name) : xformat("%s %d", g->part[i].type->name, of_kind);
    }
    g->drafter.part = (const char *const *)g->name;
    g->drafter.parts = g->n;
}

static void describe(struct parts *g)
{
    struct settings *all = settings_map(), *of = settings_list();
    struct digest *d = digest_begin();
    bool any = false;
    for (int i = 0; i < g->n; i++) {
        struct part *p = &g->part[i];
        struct settings *s = settings_copy(p->settings);
        drafter_resolve(p->drafter, s);
        if (g->form->at_least) {
            char *at_least = xformat("%d", p->at_least);
            settings_put(s, "at_least", settings_scalar(at_least));
            free(at_least);
        }
        if (g->form->one)
            settings_put(all, "of", s);
        else
            settings_append(of, s);
        digest_hash(d, p->drafter->identity);
        any = any || !hash_is_none(p->drafter->identity);
    }
    if (g->form->one)
        settings_free(of);
    else
        settings_put(all, "of", of);
    const struct hash identity = digest_end(d);
    g->drafter.identity = any ? identity : (struct hash){ 0 };
    g->drafter.resolved_options = all;
}

bool parts_open(struct parts *g, const struct drafter_env *env, const struct settings *of, const struct part_form *f,
                int nodes, struct error *err)
{
    g->form = f;
    g->env = *env;
    g->width = env->target != NULL ? model_shape(env->target)->width : 0;
    bool ok = read_parts(of, f, g->part, &g->n, err);
    for (int i = 0; i < g->n && ok; i++)
        ok = open_part(g, &g->part[i], err);
    if (nodes > 0)
        g->drafter.nodes = nodes;
    const int advanced = ok ? env->slots * g->drafter.nodes : 0;
    if (!ok || !reserve_features(g, larger(advanced, CHUNK), err))
        return false;
    describe(g);
    if (!f->one)
        name_parts(g);
    return true;
}

// ---- a step

bool parts_propose(struct parts *g, int k, int n, struct error *err)
{
    struct part *p = &g->part[k];
    if (n > 0 && !p->type->propose(p->drafter, p->request, n, err))
        return false;
    g->drafter.untimed_ns += n > 0 ? p->drafter->untimed_ns : 0;
    return true;
}

// Returns the hidden states of a part among all: row i's are rows i * taps .. of a tensor of single states.
static struct tensor features_of(struct parts *g, const struct part *p, struct tensor all, int first)
{
    struct backend *b = g->env.target_backend;
    const int n = p->drafter->taps.n, of = g->drafter.taps.n;
    if (n == 0 || p->all_taps)
        return n == 0 ? (struct tensor){ 0 } : all;
    const struct tensor to = tensor_rows(p->features, first, all.rows);
    for (int i = 0; i < all.rows; i++)
        for (int k = 0; k < n; k++)
            g->row[i * n + k] = i * of + p->tap[k];
    b->take(b, tensor_of(to.data, to.type, all.rows * n, g->width),
            tensor_of(all.data, all.type, all.rows * of, g->width), g->row);
    return to;
}

bool parts_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    struct parts *g = (struct parts *)d;
    int rows = 0;
    for (int i = 0; i < n; i++)
        rows += a[i].n;
    if (!reserve_features(g, rows, err))
        return false;
    for (int k = 0; k < g->n; k++) {
        struct part *p = &g->part[k];
        if (p->type->advance == NULL)
            continue;
        for (int i = 0, at = 0; i < n; at += a[i].n, i++) {
            p->advance[i] = a[i];
            p->advance[i].features = features_of(g, p, a[i].features, at);
            if (a[i].node != NULL && g->inform != NULL)
                g->inform(g, k, &a[i], &p->advance[i]);
        }
        if (!p->type->advance(p->drafter, p->advance, n, err))
            return false;
    }
    return true;
}

void parts_attach(struct drafter *d, struct kv_cache *target_cache)
{
    struct parts *g = (struct parts *)d;
    for (int k = 0; k < g->n; k++)
        if (g->part[k].type->attach != NULL)
            g->part[k].type->attach(g->part[k].drafter, target_cache);
}

void parts_forget(struct drafter *d, int slot)
{
    struct parts *g = (struct parts *)d;
    for (int k = 0; k < g->n; k++)
        if (g->part[k].type->forget != NULL) {
            g->part[k].type->forget(g->part[k].drafter, slot);
            d->failed = d->failed != NULL ? d->failed : g->part[k].drafter->failed;
        }
}
