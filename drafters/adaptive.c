// adaptive.c - decides how many tokens to draft, anew in each step and for each sequence of a batch, for any drafter.
//
//     {kind: adaptive, by: cost, of: {kind: eagle3, weights: PATH, tokens: 6}}
//
// by: confidence   the draft ends after a token whose path has a probability below `threshold` under q (drafters with
//                  rows of q only)
//     acceptance   the draft gets two tokens more than the last one if all of those were accepted, otherwise one less
//                  (the schedule `heuristic` of transformers' assisted generation)
//     cost         the draft gets the number of tokens that maximizes tokens per time: expected acceptance by depth
//                  against the measured cost of passes and draft tokens
//
// Every choice is made before the token it concerns is picked, from the text, the draft before it and earlier steps. So
// the output remains exact.
//
// Cost. A step with d draft tokens takes t(d) = t0 + t1 d, fitted to earlier steps by least squares with forgetting.
// The rate R is that of recent tokens per time. a(i) is the acceptance of depth i given that the depths before were
// accepted: the sequence's own acceptance, with that of all sequences as prior. d maximizes a(1) + a(1) a(2) + .. - R
// t1 d. To keep measuring cost and acceptance, in every PROBE steps one draft is longer by a token, and one is empty.
// Until drafts of two lengths were seen, every second draft has the maximum length, and the others are empty.
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/parts.h"

enum by { CONFIDENCE, ACCEPTANCE, COST };
enum { MAX_DEPTH = 256, PROBE = 32 };

// FORGET: weight of a step relative to the next one. PRIOR: weight of all sequences' acceptance, in draft tokens.
static const double FORGET = 0.98, PRIOR = 8;

static const struct part_form form = {
    .name = "adaptive", .what = "drafter adaptive: of", .one = true, .check = parts_check, .makes = parts_make
};

struct adaptive_options {
    struct settings *of;
    int by;
    double threshold;
};

struct accepted { // draft tokens that were accepted by depth, from 1, and those whose predecessors were all accepted
    double of[MAX_DEPTH + 1], tried[MAX_DEPTH + 1];
};

struct adaptive_slot {
    int depth, drafted; // length of the next draft; length of the last one
    int steps;
    struct accepted own;
};

struct fit { // the weighted sums of the fit of t(d)
    double n, d, dd, t, dt;
};

struct adaptive {
    struct parts parts; // must be first
    struct adaptive_options o;
    int most;                   // maximum number of draft tokens
    struct adaptive_slot *slot; // time at which the step under way began
    struct accepted all;
    struct fit fit;
    double tokens, time;   // recent tokens and the time they took
    int64_t began;         // time at which the step under way began
    int drafted, proposed; // draft tokens and sequences in the step under way; proposed 0: there is none
};

// Chains that end where their paths become improbable have different depths, so they are a tree.
static unsigned adaptive_makes(const void *options)
{
    const struct adaptive_options *o = options;
    enum draft_memory ignored;
    const unsigned makes = parts_make(o->of, &form, &ignored);
    return o->by == CONFIDENCE && (makes & TAKES_CHAINS) ? (makes & ~(unsigned)TAKES_CHAINS) | TAKES_TREES : makes;
}

static enum draft_memory adaptive_remembers(const void *options)
{
    static const enum draft_memory own[] = {
        [CONFIDENCE] = DRAFTS_OF_TEXT, [ACCEPTANCE] = DRAFTS_OF_PASSES, [COST] = DRAFTS_OF_OTHERS
    };
    const struct adaptive_options *o = options;
    enum draft_memory part;
    parts_make(o->of, &form, &part);
    return part > own[o->by] ? part : own[o->by];
}

static void adaptive_destroy(struct drafter *d)
{
    struct adaptive *g = (struct adaptive *)d;
    parts_close(&g->parts);
    free(g->slot);
    free(g);
}

static void begin_slot(struct adaptive *g, int slot)
{
    g->slot[slot] = (struct adaptive_slot){ .depth = g->most };
}

static struct drafter *adaptive_create(const struct drafter_env *env, const void *options, struct error *err)
{
    struct adaptive *g = xcalloc(1, sizeof(*g));
    g->o = *(const struct adaptive_options *)options;
    if (!parts_open(&g->parts, env, g->o.of, &form, 0, err)) {
        adaptive_destroy(&g->parts.drafter);
        return NULL;
    }
    g->most = g->parts.drafter.nodes - 1 < MAX_DEPTH ? g->parts.drafter.nodes - 1 : MAX_DEPTH;
    g->slot = xcalloc((size_t)env->slots, sizeof(*g->slot));
    for (int i = 0; i < env->slots; i++)
        begin_slot(g, i);
    return &g->parts.drafter;
}

// ---- measurements

static double acceptance(const struct adaptive *g, const struct adaptive_slot *s, int depth)
{
    const double prior = (g->all.of[depth] + 1) / (g->all.tried[depth] + 2);
    return (s->own.of[depth] + PRIOR * prior) / (s->own.tried[depth] + PRIOR);
}

static void count(struct accepted *to, int accepted, int drafted)
{
    for (int depth = 1; depth <= drafted && depth <= accepted + 1 && depth <= MAX_DEPTH; depth++) {
        to->of[depth] = FORGET * to->of[depth] + (depth <= accepted);
        to->tried[depth] = FORGET * to->tried[depth] + 1;
    }
}

static void see_acceptance(struct adaptive *g, const struct advance *a)
{
    struct adaptive_slot *s = &g->slot[a->slot];
    const int accepted = a->n - 1;
    count(&s->own, accepted, s->drafted);
    count(&g->all, accepted, s->drafted);
    if (g->o.by == ACCEPTANCE && s->drafted > 0)
        s->depth += accepted == s->drafted ? 2 : -1;
    s->depth = s->depth < 1 ? 1 : s->depth > g->most ? g->most : s->depth;
    g->tokens += a->n;
}

// Adds the time of the step under way, divided among its sequences.
static void see_time(struct adaptive *g)
{
    struct fit *f = &g->fit;
    const int64_t took = clock_ns() - g->began - g->parts.drafter.untimed_ns;
    const double t = (double)took / g->proposed, d = (double)g->drafted / g->proposed;
    f->n = FORGET * f->n + 1;
    f->d = FORGET * f->d + d;
    f->dd = FORGET * f->dd + d * d;
    f->t = FORGET * f->t + t;
    f->dt = FORGET * f->dt + d * t;
    g->time += t * g->proposed;
    g->proposed = 0;
}

static bool adaptive_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    struct adaptive *g = (struct adaptive *)d;
    if (!parts_advance(d, a, n, err))
        return false;
    if (n == 0 || a[0].node == NULL || g->proposed == 0)
        return true;
    g->tokens *= FORGET;
    g->time *= FORGET;
    for (int i = 0; i < n; i++)
        see_acceptance(g, &a[i]);
    see_time(g);
    return true;
}

static void adaptive_forget(struct drafter *d, int slot)
{
    parts_forget(d, slot);
    begin_slot((struct adaptive *)d, slot);
}

// ---- the number of draft tokens

// Returns whether drafts of different lengths were seen.
static bool is_fitted(const struct fit *f)
{
    return f->n * f->dd - f->d * f->d > 1e-3 * f->n * f->n;
}

static double token_cost(const struct fit *f) // the fitted t1
{
    const double cost = (f->n * f->dt - f->d * f->t) / (f->n * f->dd - f->d * f->d);
    return cost > 0 ? cost : 0;
}

static int best_depth(const struct adaptive *g, struct adaptive_slot *s)
{
    double reached = 1, gain = 0, best = 0;
    int depth = 0;
    s->steps++;
    if (!is_fitted(&g->fit))
        return s->steps % 2 * g->most;
    const double price = g->tokens / g->time * token_cost(&g->fit);
    for (int d = 1; d <= g->most; d++) {
        reached *= acceptance(g, s, d);
        gain += reached - price;
        if (gain > best) {
            best = gain;
            depth = d;
        }
    }
    if (s->steps % PROBE == 0)
        return 0;
    return s->steps % PROBE == PROBE / 2 && depth < g->most ? depth + 1 : depth;
}

static bool adaptive_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct adaptive *g = (struct adaptive *)d;
    struct request *to = g->parts.part[0].request;
    g->began = clock_ns();
    g->proposed = n;
    g->drafted = 0;
    d->untimed_ns = 0;
    for (int i = 0; i < n; i++) {
        struct adaptive_slot *s = &g->slot[r[i].slot];
        to[i] = r[i];
        if (r[i].forced != NULL)
            continue;
        if (g->o.by == CONFIDENCE)
            to[i].least = g->o.threshold;
        else if (g->o.by == COST)
            s->depth = best_depth(g, s);
        if (g->o.by != CONFIDENCE)
            to[i].depth = s->depth < r[i].depth ? s->depth : r[i].depth;
    }
    if (!parts_propose(&g->parts, 0, n, err))
        return false;
    for (int i = 0; i < n; i++) {
        const struct draft *draft = r[i].draft;
        const int depth = draft->on_device != NULL ? draft->on_device->max_depth : draft_max_depth(draft);
        g->slot[r[i].slot].drafted = depth;
        g->drafted += depth;
    }
    return true;
}

// clang-format off
static const struct option adaptive_options[] = {
    { "of", OPTION_ANY, offsetof(struct adaptive_options, of), NULL, "the drafter, with its options; its drafts are as long as they allow, at most", 0, 0, NULL },
    { "by", OPTION_CHOICE, offsetof(struct adaptive_options, by), "cost", "what decides: q's probability of the draft so far, recent acceptance, or expected tokens per time", 0, 0, "confidence|acceptance|cost" },
    { "threshold", OPTION_REAL, offsetof(struct adaptive_options, threshold), "0.4", "of confidence: probability below which a draft ends", 0, 1, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type adaptive_drafter = {
    .name = "adaptive",
    .summary = "any drafter, with as many draft tokens as pay in each step",
    .options = adaptive_options,
    .options_size = sizeof(struct adaptive_options),
    .of = &form,
    .create = adaptive_create,
    .propose = adaptive_propose,
    .advance = adaptive_advance,
    .forget = adaptive_forget,
    .attach = parts_attach,
    .destroy = adaptive_destroy,
    .makes = adaptive_makes,
    .remembers = adaptive_remembers,
};

// ---- length: adaptive

bool drafter_length(struct settings *drafter, struct error *err)
{
    const struct settings *length = drafter->kind == SETTINGS_MAP ? settings_get(drafter, "length") : NULL;
    if (length == NULL)
        return true;
    const bool is_word = length->kind == SETTINGS_SCALAR && strcmp(length->text, "adaptive") == 0,
               is_map = length->kind == SETTINGS_MAP && settings_get(length, "kind") == NULL &&
                        settings_get(length, "of") == NULL;
    if (!is_word && !is_map)
        return settings_fail(err, length,
                             "length: expected adaptive, or options of the drafter adaptive, as in {by: confidence}");
    struct settings *of = settings_at(settings_map(), drafter), *whole = settings_at(settings_map(), drafter);
    for (int i = 0; i < drafter->n; i++)
        if (strcmp(drafter->key[i], "length") != 0)
            settings_put_key(of, drafter, i, settings_copy(drafter->item[i]));
    settings_put(whole, "kind", settings_scalar("adaptive"));
    settings_put(whole, "of", of);
    for (int i = 0; is_map && i < length->n; i++)
        settings_put_key(whole, length, i, settings_copy(length->item[i]));
    const struct settings old = *drafter;
    *drafter = *whole;
    *whole = old;
    settings_free(whole);
    return true;
}
