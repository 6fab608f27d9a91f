#include "drafters/trees/draft_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "core/error.h"
#include "drafters/trees/drafts.h"
#include "kernels/backend.h"
#include "sampling/sampling.h"

// Returns the maximum number of padding ids that the top-k has to skip: a drafter does not rank more of them first.
static int padding(const struct draft_batch *g)
{
    enum { MAX_PADDING = 16 };
    int n = 0;
    for (int x = g->vocab - 1; x >= 0 && n < MAX_PADDING; x--)
        n += (g->target_id != NULL ? g->target_id[x] : x) >= g->used_vocab;
    return n;
}

bool draft_batch_create(struct draft_batch *g, const struct tree_shape *shape, const struct drafter_env *env, int vocab,
                        const int32_t *target_id, int used_vocab, struct error *err)
{
    *g = (struct draft_batch){
        .shape = *shape, .env = *env, .vocab = vocab, .target_id = target_id, .used_vocab = used_vocab
    };
    g->target_vocab = env->target != NULL ? model_shape(env->target)->vocab : vocab;
    g->child_vocab = target_id != NULL || vocab > g->target_vocab ? g->target_vocab : vocab;
    g->tree = shape->tree.n > 0 ? tree_write(&shape->tree) : NULL;
    g->k = shape->max_children + padding(g);
    g->k = g->k < vocab ? g->k : vocab;
    g->temperature.temperature = shape->o.temperature;
    if (env->sampling != NULL && shape->o.temperature > 0) {
        g->sampling = sampling_at(env->sampling, &g->temperature);
        g->env.sampling = &g->sampling;
    }
    g->staged = env->backend->step != NULL && env->sampling != NULL && sampling_row_stages(g->env.sampling, &g->stages);
    g->drafts = env->drafts_on_host ? NULL : device_drafts_create(g);
    if (g->drafts == NULL)
        g->drafts = host_drafts_create(g, (struct tensor){ 0 });
    if (g->drafts == NULL)
        return fail(err, "%s: not enough memory for the logits of a draft", env->backend->name);
    g->current = g->drafts;
    g->bytes = g->drafts->bytes;
    g->host_bytes = g->drafts->host_bytes;
    return true;
}

void draft_batch_destroy(struct draft_batch *g)
{
    if (g->drafts != NULL)
        g->drafts->destroy(g->drafts);
    free(g->tree);
}

bool draft_batch_build(struct draft_batch *g, const struct request *r, int n, int *first, const struct draft_logits *by,
                       void *self, struct error *err)
{
    struct request active[MAX_SLOTS];
    const int m = draft_batch_begin(g, r, n, active);
    for (int i = 0; i < m; i++)
        first[i] = i;
    bool ok = m == 0 || by->of_roots(self, active, m, err);
    for (bool more = m > 0; more && ok;) {
        ok = draft_batch_children(g, active, m, first, by->stride, err);
        more = ok && draft_batch_level(g, active, m) > 0;
        ok = ok && (!more || by->of_frontiers(self, active, m, err));
    }
    if (ok && m > 0)
        draft_batch_end(g, active, m);
    return ok;
}

int draft_batch_begin(struct draft_batch *g, const struct request *r, int n, struct request *active)
{
    int m = 0;
    g->current = g->drafts->begin(g->drafts, r, n, active, &m);
    return m;
}

struct tensor draft_batch_logits(struct draft_batch *g, int rows)
{
    return g->current->logits(g->current, rows);
}

bool draft_batch_children(struct draft_batch *g, const struct request *r, int n, const int *first, int stride,
                          struct error *err)
{
    return g->current->children(g->current, r, n, first, stride, err);
}

int draft_batch_level(struct draft_batch *g, const struct request *r, int n)
{
    return g->current->next_level(g->current, r, n);
}

struct pass draft_batch_rows(struct draft_batch *g, const struct request *r, int n, const struct kv_cache *cache,
                             int *first, int32_t *token, int32_t *slot, int32_t *parent)
{
    return g->current->rows(g->current, r, n, cache, first, token, slot, parent);
}

int draft_batch_paths(struct draft_batch *g, const struct request *r, int n, int *first, struct draft_path *to,
                      int32_t *token)
{
    assert(!g->current->on_device);
    return host_drafts_paths(g->current, r, n, first, to, token);
}

void draft_batch_end(struct draft_batch *g, const struct request *r, int n)
{
    g->current->end(g->current, r, n);
}

int draft_batch_row(const struct draft_batch *g, int slot, int node)
{
    return node < 0 ? -1 : g->current->row(g->current, slot, node);
}
