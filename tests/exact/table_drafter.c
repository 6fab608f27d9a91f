#include "tests/exact/table_drafter.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/settings.h"
#include "sampling/rng.h"
#include "tests/support/check.h"

unsigned draft_kinds(const struct draft_shape *g)
{
    unsigned makes = g->lookup ? TAKES_DETERMINISTIC : g->chains ? TAKES_CHAINS : 0;
    for (int k = 1; k < g->nodes && !g->lookup; k++) {
        makes |= g->proposal[k] == DETERMINISTIC ? TAKES_DETERMINISTIC
                 : g->proposal[k] == SAMPLED     ? TAKES_SAMPLED
                                                 : TAKES_WITHOUT_REPLACEMENT;
        for (int s = 1; s < k && !g->chains; s++)
            makes |= g->parent[s] == g->parent[k] ? TAKES_TREES : 0;
    }
    return makes;
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
        if (g->lookup == NULL)
            build_draft(g, &r[i], &g->rows[r[i].slot]);
    }
    return g->lookup == NULL || g->lookup->type->propose(g->lookup, r, n, err);
}

// Checks that the advance continues the text, that its tokens are those of the sequence, and that each hidden state is
// that of the text before its token.
static bool table_drafter_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    struct table_drafter *g = (struct table_drafter *)d;
    for (int i = 0; i < n; i++, a++) {
        struct announced *announced = &g->announced[a->slot];
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
    return true;
}

static void table_drafter_forget(struct drafter *d, int slot)
{
    struct table_drafter *g = (struct table_drafter *)d;
    g->announced[slot].n = 0;
    table_model_free_slot(g->target, slot);
}

static void table_drafter_destroy(struct drafter *d)
{
    struct table_drafter *g = (struct table_drafter *)d;
    if (g->lookup != NULL)
        g->lookup->type->destroy(g->lookup);
    free(g);
}

static const struct drafter_type table_drafter_type = { .name = "table",
                                                        .propose = table_drafter_propose,
                                                        .advance = table_drafter_advance,
                                                        .forget = table_drafter_forget,
                                                        .destroy = table_drafter_destroy };

// Not by drafters/registry.c, which would link drafters that need the models.
static struct drafter *lookup_create(int tokens)
{
    extern const struct drafter_type ngram_drafter;
    void *options = xcalloc(1, ngram_drafter.options_size);
    struct settings *s = settings_map();
    char *text = xformat("%d", tokens);
    settings_put(s, "tokens", settings_scalar(text));
    assert_true(options_read(s, "drafter ngram", ngram_drafter.options, options, NULL));
    struct drafter *d = ngram_drafter.create(&(struct drafter_env){ .slots = TABLE_SLOTS }, options, NULL);
    d->type = &ngram_drafter;
    settings_free(s);
    free(options);
    free(text);
    return d;
}

struct table_drafter *table_drafter_create(const struct table_instance *w, const struct draft_shape *shape,
                                           struct model *target, struct table q)
{
    struct table_drafter *g = xcalloc(1, sizeof(*g));
    g->drafter = (struct drafter){ .type = &table_drafter_type, .nodes = shape->nodes, .taps = { 1, { FINAL_STATE } } };
    g->table_instance = w;
    g->shape = shape;
    g->target = target;
    g->q = q;
    g->lookup = shape->lookup ? lookup_create(shape->nodes - 1) : NULL;
    return g;
}
