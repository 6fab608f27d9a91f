// union.c - combines drafters: the drafts of all its parts are merged into one tree.
//
//     {kind: union, nodes: 12, of: [{kind: suffix}, {kind: eagle3, weights: PATH, nodes: 8, tokens: 4, pick: greedy}]}
//
// Nodes with equal texts are one node. A part that samples is asked first and gets an empty draft before the others add
// theirs. Then the parts add nodes in the order of the list, until the draft has `nodes` draft tokens. draft.source
// tells which parts proposed a node.
//
// Why it is exact: the sampled nodes are those of one part, drawn from the q that it reports. Whether a DETERMINISTIC
// node is added may depend on sampled nodes before it, since they are tried before it (core/draft.h). Which part
// samples does not depend on the text, so at most one part may sample.
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/parts.h"

static const struct part_form form = {
    .name = "union", .what = "drafter union: of", .adds = TAKES_TREES, .check = parts_check, .makes = parts_make
};

struct union_options {
    struct settings *of;
    int nodes;
};

struct part_draft { // the draft of a part, in one slot
    struct draft draft;
    int *merged;     // (nodes of the part) each node's number in the whole draft; -1: none
    int32_t *number; // (nodes of the whole) the inverse
};

struct union_slot {
    struct rows q;           // must be first; q of the part that samples
    struct part_draft *part; // (parts)
    const struct part_draft *sampled;
    int32_t *node; // (nodes) the nodes of an advance
};

struct union_drafter {
    struct parts parts;      // must be first
    struct union_slot *slot; // (slots)
    int *order;              // (parts) their order: one that samples is first
};

static bool samples(const struct drafter_type *type, const void *options)
{
    return drafter_makes(type, options) & (TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT);
}

// ---- creation

static void free_draft(struct part_draft *p)
{
    free(p->draft.token);
    free(p->draft.parent);
    free(p->draft.proposal);
    free(p->merged);
    free(p->number);
}

static void union_destroy(struct drafter *d)
{
    struct union_drafter *g = (struct union_drafter *)d;
    for (int s = 0; g->slot != NULL && s < g->parts.env.slots; s++) {
        for (int k = 0; k < g->parts.n; k++)
            free_draft(&g->slot[s].part[k]);
        free(g->slot[s].part);
        free(g->slot[s].node);
    }
    parts_close(&g->parts);
    free(g->slot);
    free(g->order);
    free(g);
}

// Returns row `node` of q, numbered as in the whole draft.
static const float *q_row(struct rows *self, int node)
{
    const struct part_draft *p = ((struct union_slot *)self)->sampled;
    return p->draft.q->row(p->draft.q, p->number[node]);
}

static void create_slot(struct union_drafter *g, struct union_slot *s)
{
    const size_t whole = (size_t)g->parts.drafter.nodes;
    s->q.row = q_row;
    s->part = xcalloc((size_t)g->parts.n, sizeof(*s->part));
    s->node = xcalloc(whole, sizeof(*s->node));
    for (int k = 0; k < g->parts.n; k++) {
        const size_t nodes = (size_t)g->parts.part[k].drafter->nodes;
        s->part[k].draft = (struct draft){ .capacity = (int)nodes,
                                           .token = xcalloc(nodes, sizeof(int32_t)),
                                           .parent = xcalloc(nodes, sizeof(int32_t)),
                                           .proposal = xcalloc(nodes, sizeof(uint8_t)) };
        s->part[k].merged = xcalloc(nodes, sizeof(int));
        s->part[k].number = xcalloc(whole, sizeof(int32_t));
    }
}

static bool order_parts(struct union_drafter *g, struct error *err)
{
    int sampling = -1, n = 0;
    for (int k = 0; k < g->parts.n; k++) {
        if (!samples(g->parts.part[k].type, g->parts.part[k].options))
            continue;
        if (sampling >= 0)
            return fail(
                err,
                "%s: drafters %s and %s both sample their draft tokens (pick: greedy does not); only one of them may",
                form.what, g->parts.part[sampling].type->name, g->parts.part[k].type->name);
        sampling = k;
    }
    g->order = xcalloc((size_t)g->parts.n, sizeof(*g->order));
    if (sampling >= 0)
        g->order[n++] = sampling;
    for (int k = 0; k < g->parts.n; k++)
        if (k != sampling)
            g->order[n++] = k;
    return true;
}

static void inform(struct parts *p, int k, const struct advance *a, struct advance *to)
{
    const struct union_drafter *g = (const struct union_drafter *)p;
    const struct union_slot *s = &g->slot[a->slot];
    for (int i = 0; i < a->n; i++)
        s->node[i] = a->node[i] == 0 ? 0 : s->part[k].number[a->node[i]];
    to->node = s->node;
}

static struct drafter *union_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct union_options *o = options;
    struct union_drafter *g = xcalloc(1, sizeof(*g));
    struct drafter_env own = *env;
    own.drafts_on_host = true; // the parts' drafts are merged on the host
    g->parts.inform = inform;
    if (parts_open(&g->parts, &own, o->of, &form, 1 + o->nodes, err) && order_parts(g, err)) {
        g->slot = xcalloc((size_t)env->slots, sizeof(*g->slot));
        for (int s = 0; s < env->slots; s++)
            create_slot(g, &g->slot[s]);
        return &g->parts.drafter;
    }
    union_destroy(&g->parts.drafter);
    return NULL;
}

// ---- a draft

static void begin_part(struct union_drafter *g, int k, const struct request *r, int i)
{
    struct union_slot *s = &g->slot[r->slot];
    struct part_draft *p = &s->part[k];
    const int most = g->parts.part[k].drafter->nodes;
    p->draft.n = 1;
    p->draft.capacity = most < r->draft->capacity ? most : r->draft->capacity;
    p->draft.token[0] = r->draft->token[0];
    p->draft.parent[0] = -1;
    p->draft.proposal[0] = DETERMINISTIC;
    p->draft.q = NULL;
    g->parts.part[k].request[i] = *r;
    g->parts.part[k].request[i].draft = &p->draft;
}

// Adds a part's nodes to the whole draft. Sampled ones are all added, even two of one token: they were drawn so.
static void merge(struct union_drafter *g, int k, const struct request *r)
{
    struct union_slot *s = &g->slot[r->slot];
    struct part_draft *p = &s->part[k];
    struct draft *whole = r->draft;
    memset(p->number, -1, (size_t)g->parts.drafter.nodes * sizeof(*p->number));
    p->merged[0] = p->number[0] = 0;
    for (int i = 1; i < p->draft.n; i++) {
        const int parent = p->merged[p->draft.parent[i]];
        const bool sampled = p->draft.proposal[i] != DETERMINISTIC;
        int node = parent >= 0 && !sampled ? draft_child(whole, parent, p->draft.token[i]) : -1;
        if (parent >= 0 && node < 0)
            node = draft_add(whole, parent, p->draft.token[i], p->draft.proposal[i]);
        p->merged[i] = node;
        if (node >= 0) {
            p->number[node] = i;
            if (whole->source != NULL)
                whole->source[node] |= (uint8_t)(1 << k);
        }
        if (node >= 0 && sampled) {
            s->sampled = p;
            s->q.vocab = p->draft.q->vocab;
            whole->q = &s->q;
        }
    }
}

static bool union_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct union_drafter *g = (struct union_drafter *)d;
    struct request open[MAX_SLOTS];
    int m = 0;
    d->untimed_ns = 0;
    for (int i = 0; i < n; i++)
        if (r[i].forced == NULL) // parts are evaluated one by one
            open[m++] = r[i];
    for (int i = 0; i < m; i++)
        if (open[i].draft->source != NULL)
            memset(open[i].draft->source, 0, (size_t)open[i].draft->capacity);
    for (int o = 0; o < g->parts.n; o++) {
        const int k = g->order[o];
        for (int i = 0; i < m; i++)
            begin_part(g, k, &open[i], i);
        if (!parts_propose(&g->parts, k, m, err))
            return false;
        for (int i = 0; i < m; i++)
            merge(g, k, &open[i]);
    }
    return true;
}

// clang-format off
static const struct option union_options[] = {
    { "of", OPTION_ANY, offsetof(struct union_options, of), NULL, "drafters, each with its options; at most one may sample", 0, 0, NULL },
    { "nodes", OPTION_INT, offsetof(struct union_options, nodes), "16", "maximum number of draft tokens in total", 1, MAX_NODES - 1, NULL },
    { 0 },
};
// clang-format on

const struct drafter_type union_drafter = {
    .name = "union",
    .summary = "several drafters: their drafts as one tree, within one budget of nodes",
    .options = union_options,
    .options_size = sizeof(struct union_options),
    .of = &form,
    .create = union_create,
    .propose = union_propose,
    .advance = parts_advance,
    .forget = parts_forget,
    .attach = parts_attach,
    .destroy = union_destroy,
};
