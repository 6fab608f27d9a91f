// ladder.c - a drafter of drafters: of each draft the first of its parts that has something to say, a lookup before a head, for example.
//
//     {kind: ladder, of: [{kind: ngram, longest: 4, shortest: 3, at_least: 2}, {kind: eagle3, weights: PATH, tokens: 3}]}
//
// In each step and for each sequence the parts are asked in order; a draft of at least `at_least` draft tokens is taken, and later parts
// are not asked. So a head makes no pass of its own where the lookup has found something.
//
// Why it is exact: which part is taken must not depend on what a part sampled, or its tokens would not be distributed as the q that it
// reports. Whether there is a first draft token depends on the text alone; how many more there are may depend on earlier ones. So
// at_least above 1 is refused for parts that sample. Draws keep their addresses: the draws of the part that is taken are the only ones.
//
// What keeps the parts in step: each sees every advance. For a part whose draft was not verified, the accepted nodes are another's (-1,
// drafter.h). A draft model runs such tokens when it is next asked, all of them in its next pass; a head needs the target's states, which
// are there only now, and runs them at once.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/drafter.h"
#include "kernels/backend.h"

// NO_PART: yet. FORCED: none at all, as parts are evaluated one by one. CHUNK: rows of a prompt's advance.
enum { MAX_PARTS = 8, NO_PART = -1, FORCED = -2, CHUNK = 256 };

static const char *const what = "drafter ladder: of";

struct ladder_options {
    struct settings *of;
};

struct part {
    const struct drafter_type *type;
    void *options;
    int at_least;              // draft tokens
    struct settings *settings; // canonical
    struct drafter *drafter;
    int tap[MAX_TAPS];       // of each of its hidden states: its index in the ladder's
    bool all_taps;           // they are the ladder's
    struct tensor features;  // (rows, its taps * width) unless all_taps
    struct advance *advance; // (slots)
    struct request *request; // (slots)
};

struct ladder {
    struct drafter drafter; // first
    struct backend *target_backend;
    int n;
    struct part part[MAX_PARTS];
    int64_t width;     // of the target's states
    int *taken;        // (slots) the part whose draft is verified
    int32_t *row;      // (rows * MAX_TAPS)
    int rows;          // capacity of features
    int32_t *of_other; // (MAX_NODES) nodes of another's draft: 0, -1, -1, ..
};

// ---- options

static bool find_type(const struct settings *s, const struct drafter_type **type, struct error *err)
{
    const struct settings *kind = s->kind == SETTINGS_MAP ? settings_get(s, "kind") : s;
    const char *name;
    if (kind == NULL || kind->kind != SETTINGS_SCALAR)
        return settings_fail(err, s, "%s: expected a kind, as in {kind: ngram}", what);
    name = kind->text;
    *type = drafter_named(name);
    if (*type == NULL || strcmp(name, "ladder") == 0) {
        struct text names = { 0 };
        for (int i = 0; drafter_types[i] != NULL; i++)
            if (strcmp(drafter_types[i]->name, "ladder") != 0)
                text_printf(&names, "%s%s", i > 0 ? ", " : "", drafter_types[i]->name);
        settings_fail(err, kind,
                      *type == NULL ? "%s: unknown drafter \"%s\" (known: %s)"
                                    : "%s: a %s cannot be part of another; list its drafters here (known: %s)",
                      what, name, names.s);
        free(names.s);
        return false;
    }
    return !(*type)->uses_prompt_length ||
           settings_fail(err, kind, "%s: drafter %s needs the length of the prompt, which it does not see here", what,
                         name);
}

// Its own options: the mapping without at_least.
static struct settings *own_settings(const struct settings *s)
{
    struct settings *to = settings_map();
    to->file = s->file;
    to->line = s->line;
    to->column = s->column;
    for (int i = 0; s->kind == SETTINGS_MAP && i < s->n; i++)
        if (strcmp(s->key[i], "at_least") != 0) {
            settings_put(to, s->key[i], settings_copy(s->item[i]));
            to->key_line[to->n - 1] = s->key_line[i];
            to->key_column[to->n - 1] = s->key_column[i];
        }
    return to;
}

static bool read_at_least(struct part *p, const struct settings *s, struct error *err)
{
    const struct settings *given = s->kind == SETTINGS_MAP ? settings_get(s, "at_least") : NULL;
    long long v = 1;
    if (given != NULL && !settings_int(given, "drafter ladder: of: at_least", 1, MAX_NODES - 1, &v, err))
        return false;
    p->at_least = (int)v;
    return v == 1 || !(drafter_makes(p->type, p->options) & (TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT)) ||
           settings_fail(err, given, "%s: drafter %s samples its draft tokens, so its at_least must be 1, found %lld",
                         what, p->type->name, v);
}

static bool read_part(struct part *p, const struct settings *s, struct error *err)
{
    if (!find_type(s, &p->type, err))
        return false;
    struct settings *own = own_settings(s);
    char *owner = xformat("%s: drafter %s", what, p->type->name);
    p->options = xcalloc(1, p->type->options_size + 1);
    const bool ok = options_read(own, owner, p->type->options, p->options, err) &&
                    (p->type->check == NULL || p->type->check(p->options, err)) && read_at_least(p, s, err);
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

// to: MAX_PARTS, all zero. *n: those to free, also after a failure.
static bool read_parts(const struct settings *of, struct part *to, int *n, struct error *err)
{
    *n = 0;
    if (of->kind != SETTINGS_LIST || of->n == 0)
        return settings_fail(err, of, "%s: expected a list of drafters, as in [ngram, {kind: small, model: PATH}]",
                             what);
    if (of->n > MAX_PARTS)
        return settings_fail(err, of, "%s: expected at most %d drafters, found %d", what, MAX_PARTS, of->n);
    for (bool ok = true; ok && *n < of->n;) {
        ok = read_part(&to[*n], of->item[*n], err);
        ++*n;
        if (!ok)
            return false;
    }
    return true;
}

static bool ladder_check(const void *options, struct error *err)
{
    struct part part[MAX_PARTS] = { 0 };
    int n;
    const bool ok = read_parts(((const struct ladder_options *)options)->of, part, &n, err);
    free_parts(part, n);
    return ok;
}

static unsigned ladder_makes(const void *options)
{
    struct part part[MAX_PARTS] = { 0 };
    struct error ignored;
    unsigned makes = 0;
    int n;
    const bool ok = read_parts(((const struct ladder_options *)options)->of, part, &n, &ignored);
    for (int i = 0; i < n && ok; i++)
        makes |= drafter_makes(part[i].type, part[i].options);
    free_parts(part, n);
    return makes;
}

// ---- creation

static void ladder_destroy(struct drafter *d)
{
    struct ladder *g = (struct ladder *)d;
    for (int i = 0; i < g->n; i++) {
        drafter_destroy(g->part[i].drafter);
        if (g->target_backend != NULL)
            g->target_backend->release(g->target_backend, g->part[i].features.data);
        free(g->part[i].advance);
        free(g->part[i].request);
    }
    free_parts(g->part, g->n);
    settings_free((struct settings *)d->resolved_options);
    free(g->taken);
    free(g->row);
    free(g->of_other);
    free(g);
}

// Adds a part's hidden states to the ladder's.
static bool add_taps(struct ladder *g, struct part *p, struct error *err)
{
    struct taps *all = &g->drafter.taps;
    for (int k = 0; k < p->drafter->taps.n; k++) {
        int at = 0;
        while (at < all->n && all->layer[at] != p->drafter->taps.layer[k])
            at++;
        if (at == MAX_TAPS)
            return fail(err, "%s: its drafters read more than %d hidden states of the target", what, MAX_TAPS);
        all->layer[at] = p->drafter->taps.layer[k];
        all->n = at < all->n ? all->n : at + 1;
        p->tap[k] = at;
    }
    return true;
}

static bool open_part(struct ladder *g, struct part *p, const struct drafter_env *env, struct error *err)
{
    struct drafter *all = &g->drafter;
    struct error why;
    p->drafter = drafter_create(p->type, env, p->options, &why);
    if (p->drafter == NULL)
        return fail(err, "%s: %s", what, why.text);
    const struct drafter *d = p->drafter;
    if (p->at_least > d->nodes - 1)
        return fail(err, "%s: drafter %s makes drafts of at most %d draft tokens, fewer than its at_least (%d)", what,
                    p->type->name, d->nodes - 1, p->at_least);
    struct backend *on = d->backend != NULL ? d->backend : env->target_backend;
    if (d->bytes > 0 && all->bytes > 0 && on != all->backend)
        return fail(err, "%s: its drafters must compute on one device; drafter %s is on another", what, p->type->name);
    if (d->bytes > 0)
        all->backend = on;
    all->bytes += d->bytes;
    all->host_bytes += d->host_bytes;
    all->nodes = d->nodes > all->nodes ? d->nodes : all->nodes;
    p->advance = xcalloc((size_t)env->slots, sizeof(*p->advance));
    p->request = xcalloc((size_t)env->slots, sizeof(*p->request));
    return add_taps(g, p, err);
}

// Memory for the features of parts that read some of the hidden states only, or in another order.
static bool reserve_features(struct ladder *g, int rows, struct error *err)
{
    struct backend *b = g->target_backend;
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

static void describe(struct ladder *g)
{
    struct settings *all = settings_map(), *of = settings_list();
    struct digest *d = digest_begin();
    bool any = false;
    for (int i = 0; i < g->n; i++) {
        struct part *p = &g->part[i];
        struct settings *s = settings_copy(p->settings);
        char *at_least = xformat("%d", p->at_least);
        drafter_resolve(p->drafter, s);
        settings_put(s, "at_least", settings_scalar(at_least));
        settings_append(of, s);
        digest_hash(d, p->drafter->identity);
        any = any || !hash_is_none(p->drafter->identity);
        free(at_least);
    }
    settings_put(all, "of", of);
    const struct hash identity = digest_end(d);
    g->drafter.identity = any ? identity : (struct hash){ 0 };
    g->drafter.resolved_options = all;
}

static struct drafter *ladder_create(const struct drafter_env *env, const void *options, struct error *err)
{
    struct ladder *g = xcalloc(1, sizeof(*g));
    g->target_backend = env->target_backend;
    g->width = env->target != NULL ? model_shape(env->target)->width : 0;
    g->taken = xcalloc((size_t)env->slots, sizeof(*g->taken));
    g->of_other = xcalloc(MAX_NODES, sizeof(*g->of_other));
    for (int i = 1; i < MAX_NODES; i++)
        g->of_other[i] = -1;
    bool ok = read_parts(((const struct ladder_options *)options)->of, g->part, &g->n, err);
    for (int i = 0; i < g->n && ok; i++)
        ok = open_part(g, &g->part[i], env, err);
    const int advanced = ok ? env->slots * g->drafter.nodes : 0;
    if (ok && reserve_features(g, advanced > CHUNK ? advanced : CHUNK, err)) {
        describe(g);
        return &g->drafter;
    }
    ladder_destroy(&g->drafter);
    return NULL;
}

// ---- a step

// The host knows only the maximum of a draft on the device.
static int draft_tokens(const struct draft *d)
{
    return (d->on_device != NULL ? d->on_device->max_nodes : d->n) - 1;
}

static bool ladder_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct ladder *g = (struct ladder *)d;
    for (int i = 0; i < n; i++)
        g->taken[r[i].slot] = r[i].forced != NULL ? FORCED : NO_PART;
    for (int k = 0; k < g->n; k++) {
        struct part *p = &g->part[k];
        int m = 0;
        for (int i = 0; i < n; i++)
            if (g->taken[r[i].slot] == NO_PART)
                p->request[m++] = r[i];
        if (m > 0 && !p->type->propose(p->drafter, p->request, m, err))
            return false;
        for (int i = 0; i < m; i++) {
            struct draft *draft = p->request[i].draft;
            if (draft_tokens(draft) >= p->at_least) {
                g->taken[p->request[i].slot] = k;
            } else {
                draft->n = 1;
                draft->q = NULL;
                draft->on_device = NULL;
            }
        }
    }
    return true;
}

// The hidden states of a part among all: row i's are rows i * taps .. of a tensor of single states.
static struct tensor features_of(struct ladder *g, const struct part *p, struct tensor all, int first)
{
    struct backend *b = g->target_backend;
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

static bool ladder_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    struct ladder *g = (struct ladder *)d;
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
            if (a[i].node != NULL && g->taken[a[i].slot] != k)
                p->advance[i].node = g->of_other;
        }
        if (!p->type->advance(p->drafter, p->advance, n, err))
            return false;
    }
    return true;
}

static void ladder_forget(struct drafter *d, int slot)
{
    struct ladder *g = (struct ladder *)d;
    for (int k = 0; k < g->n; k++)
        if (g->part[k].type->forget != NULL)
            g->part[k].type->forget(g->part[k].drafter, slot);
}

// clang-format off
static const struct option ladder_options[] = {
    { "of", OPTION_ANY, offsetof(struct ladder_options, of), NULL,
      "drafters in order, each with its options and at_least: the draft tokens that it must have to be taken, default 1", 0, 0, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type ladder_drafter = {
    .name = "ladder",
    .summary =
        "several drafters: of each draft the first that has something to say, a lookup before a head for example",
    .options = ladder_options,
    .options_size = sizeof(struct ladder_options),
    .check = ladder_check,
    .create = ladder_create,
    .propose = ladder_propose,
    .advance = ladder_advance,
    .forget = ladder_forget,
    .destroy = ladder_destroy,
    .makes = ladder_makes,
};
