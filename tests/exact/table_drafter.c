#include "tests/exact/table_drafter.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "drafters/parts.h"
#include "sampling/rng.h"
#include "tests/support/check.h"

unsigned draft_kinds(const struct draft_shape *g)
{
    unsigned makes = (g->source != TABLE ? TAKES_DETERMINISTIC : 0) | (g->chains ? TAKES_CHAINS : 0) |
                     (g->source == UNION ? TAKES_TREES : 0);
    for (int k = 1; k < g->nodes && g->source != LOOKUP; k++) {
        makes |= g->proposal[k] == DETERMINISTIC ? TAKES_DETERMINISTIC
                 : g->proposal[k] == SAMPLED     ? TAKES_SAMPLED
                                                 : TAKES_WITHOUT_REPLACEMENT;
        for (int s = 1; s < k && !g->chains; s++)
            makes |= g->parent[s] == g->parent[k] ? TAKES_TREES : 0;
    }
    return makes;
}

int draft_nodes(const struct draft_shape *g)
{
    return g->source == UNION ? LOOP_NODES : g->nodes;
}

bool rule_takes(const struct rule *rule, const struct draft_shape *g)
{
    unsigned takes = rule->takes | (rule->takes & TAKES_TREES ? TAKES_CHAINS : 0);
    return (draft_kinds(g) & ~takes) == 0;
}

static const float *draft_row(struct rows *self, int node)
{
    struct draft_rows *r = (struct draft_rows *)self;
    double weight[TABLE_VOCAB];
    table_weights(r->q, r->text[node], weight);
    for (int x = 0; x < r->rows.vocab; x++)
        r->row[node][x] = (float)weight[x];
    return r->row[node];
}

// The token of node k of the shape below parent; -1: its row has no mass left. DETERMINISTIC tokens alternate between
// argmax and arbitrary ones.
static int draft_token_of(const struct table_drafter *g, int k, const struct draft *d, int parent, struct rng *rng)
{
    struct draft_rows *r = (struct draft_rows *)d->q;
    const float *row = draft_row(d->q, parent);
    double weight[TABLE_VOCAB], sum = 0;
    int argmax = 0, vocab = g->table_instance->vocab;
    for (int x = 0; x < vocab; x++) {
        weight[x] = (double)row[x];
        argmax = weight[x] > weight[argmax] ? x : argmax;
    }
    if (g->shape->proposal[k] == DETERMINISTIC)
        return k % 2 == 0 ? argmax : (int)(table_hash(r->text[parent], (uint64_t)k) % (uint64_t)vocab);
    for (int s = draft_next_child(d, parent, parent); s >= 0; s = draft_next_child(d, parent, s))
        if (g->shape->proposal[k] == SAMPLED_WITHOUT_REPLACEMENT)
            weight[d->token[s]] = 0;
    for (int x = 0; x < vocab; x++)
        sum += weight[x];
    return sum > 0 ? rng->pick(rng, weight, vocab, (struct address){ FOR_DRAFT, rng->root, k }) : -1;
}

static void build_draft(const struct table_drafter *g, struct request *r, struct draft_rows *rows)
{
    struct draft *d = r->draft;
    int at[LOOP_NODES] = { 0 }, depth = g->table_instance->deep ? LOOP_NODES : r->depth, chains = 0;
    for (int k = 1; k < g->shape->nodes; k++)
        chains += g->shape->parent[k] == 0;
    if (g->shape->chains && depth > (d->capacity - 1) / chains) // chains are equally deep
        depth = (d->capacity - 1) / chains;
    rows->rows = (struct rows){ g->table_instance->vocab, draft_row };
    rows->q = &g->q;
    rows->text[0] = text_number(g->table_instance->vocab, r->token, r->n);
    d->q = &rows->rows;
    for (int k = 1; k < g->shape->nodes; k++) {
        int parent = at[g->shape->parent[k]];
        at[k] = -1;
        if (parent < 0 || draft_depth(d, parent) >= depth)
            continue;
        int token = draft_token_of(g, k, d, parent, r->rng);
        at[k] = token < 0 ? -1 : draft_add(d, parent, token, (enum proposal)g->shape->proposal[k]);
        if (at[k] >= 0)
            rows->text[at[k]] = text_then(rows->text[parent], g->table_instance->vocab, token);
    }
}

static bool table_drafter_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct table_drafter *g = (struct table_drafter *)d;
    for (int i = 0; i < n; i++) {
        const struct announced *announced = &g->announced[r[i].slot];
        if (r[i].n != (announced->n == 0 ? 1 : announced->n) ||
            memcmp(r[i].token, announced->token, (size_t)announced->n * sizeof(*announced->token)) != 0)
            table_model_violation(g->target, "slot %d: a request of %d tokens, expected %d as announced", r[i].slot,
                                  r[i].n, announced->n);
        table_model_expect(g->target, r[i].slot, r[i].token, r[i].n, r[i].n - 1);
        g->root_n = r[i].n;
        if (g->inner == NULL)
            build_draft(g, &r[i], &g->rows[r[i].slot]);
    }
    return g->inner == NULL || g->inner->type->propose(g->inner, r, n, err);
}

// Checks that the advance continues the text, that its tokens are those of the sequence, and that each hidden state is
// that of the text before its token.
static void check_advance(struct table_drafter *g, const struct advance *a, int n, struct announced *all)
{
    for (int i = 0; i < n; i++, a++) {
        struct announced *announced = &all[a->slot];
        int before = a->length - a->n;
        bool right = before == (announced->n == 0 ? 1 : announced->n) && a->features.rows == a->n &&
                     memcmp(a->sequence, announced->token, (size_t)announced->n * sizeof(*announced->token)) == 0 &&
                     memcmp(a->sequence + before, a->token, (size_t)a->n * sizeof(*a->token)) == 0;
        for (int k = 0; right && k < a->n; k++) {
            const float *state = (const float *)a->features.data + k;
            right = *state == (float)text_number(g->table_instance->vocab, a->sequence, before + k);
        }
        if (!right)
            table_model_violation(g->target, "slot %d: an advance of %d wrong tokens at place %d", a->slot, a->n,
                                  before);
        announced->n = a->length;
        memcpy(announced->token, a->sequence, (size_t)a->length * sizeof(*announced->token));
    }
}

static bool table_drafter_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    struct table_drafter *g = (struct table_drafter *)d;
    check_advance(g, a, n, g->announced);
    return g->inner == NULL || g->inner->type->advance == NULL || g->inner->type->advance(g->inner, a, n, err);
}

static void table_drafter_forget(struct drafter *d, int slot)
{
    struct table_drafter *g = (struct table_drafter *)d;
    g->announced[slot].n = 0;
    if (g->inner != NULL && g->inner->type->forget != NULL)
        g->inner->type->forget(g->inner, slot);
    table_model_free_slot(g->target, slot);
}

static void table_drafter_destroy(struct drafter *d)
{
    struct table_drafter *g = (struct table_drafter *)d;
    drafter_destroy(g->inner);
    free(g);
}

static const struct drafter_type table_drafter_type = { .name = "table",
                                                        .propose = table_drafter_propose,
                                                        .advance = table_drafter_advance,
                                                        .forget = table_drafter_forget,
                                                        .destroy = table_drafter_destroy };

// ---- drafters of a ladder: a registry of two, in place of drafters/registry.c, which would link drafters that need the models

struct table_part {
    struct drafter drafter; // first
    struct announced announced[TABLE_SLOTS];
    bool proposed[TABLE_SLOTS]; // since the last advance
};

static struct table_drafter *outer; // whose table the part drafts from

static bool part_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct table_part *p = (struct table_part *)d;
    for (int i = 0; i < n; i++) {
        build_draft(outer, &r[i], &outer->rows[r[i].slot]);
        p->proposed[r[i].slot] = true;
    }
    return true;
}

// As of the outer drafter; and accepted nodes are its own only if it has proposed.
static bool part_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    struct table_part *p = (struct table_part *)d;
    check_advance(outer, a, n, p->announced);
    for (int i = 0; i < n; i++) {
        for (int k = 1; a[i].node != NULL && k < a[i].n; k++)
            if (a[i].node[k] >= 0 && !p->proposed[a[i].slot])
                table_model_violation(outer->target, "slot %d: node %d of a draft that it did not propose", a[i].slot,
                                      a[i].node[k]);
        p->proposed[a[i].slot] = false;
    }
    return true;
}

static void part_forget(struct drafter *d, int slot)
{
    ((struct table_part *)d)->announced[slot].n = 0;
}

static void part_destroy(struct drafter *d)
{
    free(d);
}

static struct drafter *part_create(const struct drafter_env *env, const void *options, struct error *err)
{
    struct table_part *p = xcalloc(1, sizeof(*p));
    p->drafter.nodes = outer->shape->nodes;
    p->drafter.taps = outer->drafter.taps;
    return &p->drafter;
}

static unsigned part_makes(const void *options)
{
    return outer->shape->source == LADDER_BY_COUNT ? TAKES_DETERMINISTIC : draft_kinds(outer->shape);
}

static const struct drafter_type table_part_type = { .name = "table",
                                                     .create = part_create,
                                                     .propose = part_propose,
                                                     .advance = part_advance,
                                                     .forget = part_forget,
                                                     .destroy = part_destroy,
                                                     .makes = part_makes };
extern const struct drafter_type ngram_drafter, ladder_drafter, union_drafter;
const struct drafter_type *drafter_types[] = { &ngram_drafter, &table_part_type, NULL };

__attribute__((constructor)) static void parts_of_this_program(void)
{
    parts_choose_among(drafter_types);
}

const struct drafter_type *drafter_named(const char *name)
{
    for (int i = 0; drafter_types[i] != NULL; i++)
        if (strcmp(drafter_types[i]->name, name) == 0)
            return drafter_types[i];
    return NULL;
}

// As on the command line; the text is freed.
static struct drafter *inner_create(const struct drafter_type *type, char *text)
{
    struct error err;
    const struct drafter_env env = { .slots = TABLE_SLOTS };
    void *options = xcalloc(1, type->options_size);
    struct settings *s = settings_inline(text, "drafter", &err);
    assert_ok(s != NULL && options_read(s, "drafter", type->options, options, &err), err);
    struct drafter *d = drafter_create(type, &env, options, &err);
    assert_ok(d != NULL, err);
    settings_free(s);
    options_free(type->options, options);
    free(options);
    free(text);
    return d;
}

static struct drafter *inner_of(const struct draft_shape *g)
{
    switch (g->source) {
    case LOOKUP:
        return inner_create(&ngram_drafter, xformat("ngram:tokens=%d", g->nodes - 1));
    case LADDER:
        return inner_create(&ladder_drafter, xformat("ladder:of=[{kind: ngram, shortest: 2, tokens: 2},table]"));
    case UNION:
        return inner_create(&union_drafter,
                            xformat("union:of=[{kind: ngram, shortest: 1, tokens: 2},table],nodes=%d", LOOP_NODES - 1));
    case LADDER_BY_COUNT:
        return inner_create(&ladder_drafter, xformat("ladder:of=[{kind: table, at_least: %d},ngram]", g->nodes - 1));
    case TABLE:
        break;
    }
    return NULL;
}

struct table_drafter *table_drafter_create(const struct table_instance *w, const struct draft_shape *shape,
                                           struct model *target, struct table q)
{
    struct table_drafter *g = xcalloc(1, sizeof(*g));
    g->drafter =
        (struct drafter){ .type = &table_drafter_type, .nodes = draft_nodes(shape), .taps = { 1, { FINAL_STATE } } };
    g->table_instance = w;
    g->shape = shape;
    g->target = target;
    g->q = q;
    outer = g;
    g->inner = inner_of(shape);
    return g;
}
