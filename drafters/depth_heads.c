#include "drafters/depth_heads.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"

bool depth_heads_shape(struct tree_shape *shape, const struct tree_options *o, const char *what,
                       const struct drafter_env *env, struct error *err)
{
    if (!tree_shape(shape, o, what, env->beside, err))
        return false;
    return env->backend == env->target_backend ||
           fail(err, "%s: its heads read the target's states, and must be on the target's device", what);
}

static bool allocate(struct tensor *t, const struct drafter_env *env, struct error *err)
{
    *t = rows_on(env->backend, env->slots, model_shape(env->target)->width);
    return t->data != NULL ||
           fail(err, "%s: not enough memory for the states of %d sequences", env->backend->name, env->slots);
}

bool depth_heads_open(struct depth_heads *h, const struct depth_heads_setup *setup, const struct tree_shape *shape,
                      const struct drafter_env *env, struct error *err)
{
    if (shape->levels > setup->heads)
        return fail(err, "%s: a draft of depth %d needs as many heads, but %s has %d", setup->what, shape->levels,
                    setup->path, setup->heads);
    if (!draft_batch_create(&h->draft_batch, shape, env, setup->vocab, setup->target_id, env->used_vocab, err) ||
        !allocate(&h->state, env, err) || !allocate(&h->active, env, err))
        return false;
    h->has_state = xcalloc((size_t)env->slots, sizeof(*h->has_state));
    h->drafter.nodes = shape->nodes;
    h->drafter.taps = (struct taps){ 1, { FINAL_STATE } };
    h->drafter.host_bytes = h->draft_batch.host_bytes;
    h->drafter.bytes = setup->bytes + h->draft_batch.bytes + tensor_bytes(h->state) + tensor_bytes(h->active);
    h->drafter.resolved[0] = (struct resolved){ "activations", activations_names[setup->activations] };
    if (h->draft_batch.tree != NULL)
        h->drafter.resolved[1] = (struct resolved){ "tree", h->draft_batch.tree };
    return true;
}

void depth_heads_close(struct depth_heads *h)
{
    struct backend *b = h->draft_batch.env.backend;
    if (b != NULL) {
        b->release(b, h->state.data);
        b->release(b, h->active.data);
    }
    draft_batch_destroy(&h->draft_batch);
    free(h->has_state);
}

static bool logits_of_roots(void *self, const struct request *r, int n, struct error *err)
{
    struct depth_heads *h = self;
    struct backend *b = h->draft_batch.env.backend;
    int32_t slot[MAX_SLOTS];
    (void)err;
    for (int i = 0; i < n; i++)
        slot[i] = r[i].slot;
    b->take(b, tensor_rows(h->active, 0, n), h->state, slot);
    h->depth = 0;
    h->logits(h, 0, draft_batch_logits(&h->draft_batch, n), tensor_rows(h->active, 0, n));
    return true;
}

static bool logits_of_frontiers(void *self, const struct request *r, int n, struct error *err)
{
    struct depth_heads *h = self;
    (void)r, (void)err;
    h->logits(h, ++h->depth, draft_batch_logits(&h->draft_batch, n), tensor_rows(h->active, 0, n));
    return true;
}

bool depth_heads_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    static const struct draft_logits by = { logits_of_roots, logits_of_frontiers, 0 };
    struct depth_heads *h = (struct depth_heads *)d;
    struct request usable[MAX_SLOTS]; // requests whose root has a state
    int first[MAX_SLOTS], k = 0;
    for (int i = 0; i < n; i++)
        if (h->has_state[r[i].slot])
            usable[k++] = r[i];
    return draft_batch_build(&h->draft_batch, usable, k, first, &by, h, err);
}

bool depth_heads_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    (void)err;
    struct depth_heads *h = (struct depth_heads *)d;
    struct backend *b = h->draft_batch.env.backend;
    for (int i = 0; i < n; i++) {
        b->take(b, tensor_rows(h->state, a[i].slot, 1), a[i].features, &(const int32_t){ a[i].n - 1 });
        h->has_state[a[i].slot] = true;
    }
    return true;
}

void depth_heads_forget(struct drafter *d, int slot)
{
    ((struct depth_heads *)d)->has_state[slot] = false;
}
