// ladder.c - combines drafters: each draft is made by the first part that has enough to propose, for example a lookup
// before a head.
//
//     {kind: ladder, of: [{kind: ngram, longest: 4, at_least: 2}, {kind: eagle3, weights: PATH, tokens: 3}]}
//
// In each step and for each sequence the parts are asked in order. The first draft of at least `at_least` draft tokens
// is taken, and later parts are not asked. So a head makes no draft pass if the lookup has found something.
//
// Why it is exact: which part is taken must not depend on what a part sampled, or its tokens would not be distributed
// as the q that it reports. Whether there is a first draft token depends on the text alone; how many more there are may
// depend on earlier ones. So an at_least above 1 is refused for parts that sample. Draws keep their addresses: only the
// part that is taken draws.
//
// How the parts follow the text: each sees every advance (parts.h). A draft model runs tokens that another part drafted
// when it is next asked, all of them in its next pass. A head needs the target's states, which exist only at the
// advance, and runs them at once.
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "drafters/parts.h"

enum { NO_PART = -1, FORCED = -2 }; // NO_PART: none so far. FORCED: none, since parts are evaluated one by one

static const struct part_form form = {
    .name = "ladder", .what = "drafter ladder: of", .at_least = true, .check = parts_check, .makes = parts_make
};

struct ladder_options {
    struct settings *of;
};

struct ladder {
    struct parts parts; // must be first
    int *taken;         // (slots) the part whose draft is verified
    int32_t *of_other;  // (MAX_NODES) node[] of another part's draft: 0, -1, -1, ..
};

static void ladder_destroy(struct drafter *d)
{
    struct ladder *g = (struct ladder *)d;
    parts_close(&g->parts);
    free(g->taken);
    free(g->of_other);
    free(g);
}

static void inform(struct parts *p, int k, const struct advance *a, struct advance *to)
{
    const struct ladder *g = (const struct ladder *)p;
    if (g->taken[a->slot] != k)
        to->node = g->of_other;
}

static struct drafter *ladder_create(const struct drafter_env *env, const void *options, struct error *err)
{
    struct ladder *g = xcalloc(1, sizeof(*g));
    g->parts.inform = inform;
    g->taken = xcalloc((size_t)env->slots, sizeof(*g->taken));
    g->of_other = xcalloc(MAX_NODES, sizeof(*g->of_other));
    for (int i = 1; i < MAX_NODES; i++)
        g->of_other[i] = -1;
    if (parts_open(&g->parts, env, ((const struct ladder_options *)options)->of, &form, 0, err))
        return &g->parts.drafter;
    ladder_destroy(&g->parts.drafter);
    return NULL;
}

// The host knows only the maximum size of a draft on the device.
static int draft_tokens(const struct draft *d)
{
    return (d->on_device != NULL ? d->on_device->max_nodes : d->n) - 1;
}

static bool ladder_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct ladder *g = (struct ladder *)d;
    d->untimed_ns = 0;
    for (int i = 0; i < n; i++)
        g->taken[r[i].slot] = r[i].forced != NULL ? FORCED : NO_PART;
    for (int k = 0; k < g->parts.n; k++) {
        struct part *p = &g->parts.part[k];
        int m = 0;
        for (int i = 0; i < n; i++)
            if (g->taken[r[i].slot] == NO_PART)
                p->request[m++] = r[i];
        if (!parts_propose(&g->parts, k, m, err))
            return false;
        for (int i = 0; i < m; i++) {
            struct draft *draft = p->request[i].draft;
            if (draft_tokens(draft) >= p->at_least) {
                g->taken[p->request[i].slot] = k;
                if (draft->source != NULL)
                    memset(draft->source, 1 << k, (size_t)draft->capacity);
            } else {
                draft->n = 1;
                draft->q = NULL;
                draft->on_device = NULL;
            }
        }
    }
    return true;
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
    .of = &form,
    .create = ladder_create,
    .propose = ladder_propose,
    .advance = parts_advance,
    .forget = parts_forget,
    .attach = parts_attach,
    .destroy = ladder_destroy,
};
