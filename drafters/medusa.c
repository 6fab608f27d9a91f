// medusa.c - heads on the target's last hidden state predict the following positions, each independently (Cai et al. 2024,
// arXiv 2401.10774).
//
// All heads read the state that predicted the root: head d predicts the token d + 1 positions behind the root, whatever the
// tokens between are. So a level of a draft has one row of logits, which all nodes of the level above share, and a draft
// needs no pass. Medusa's own trees are of the most probable tokens; sampled chains and trees have the heads' rows as q.
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/drafter.h"
#include "drafters/draft_batch.h"
#include "kernels/backend.h"
#include "models/medusa.h"
#include "models/paths.h"

struct medusa_options {
    char *weights;
    struct tree_options tree;
    int activations;
};

struct medusa_drafter {
    struct drafter drafter; // first
    struct medusa *heads;
    struct draft_batch draft_batch;
    struct tensor state,
        active;      // (slots, width) states that predicted the roots: of each slot; of the current requests
    bool *has_state; // (slots) false for a sequence of one token, which no state predicted
    int32_t *slot;   // (slots) of the current requests
    int *first;      // (slots) row of each request's logits
};

static bool allocate(struct tensor *t, const struct drafter_env *env, struct error *err)
{
    *t = rows_on(env->backend, env->slots, model_shape(env->target)->width);
    return t->data != NULL ||
           fail(err, "%s: not enough memory for the states of %d sequences", env->backend->name, env->slots);
}

static void medusa_drafter_destroy(struct drafter *d)
{
    struct medusa_drafter *m = (struct medusa_drafter *)d;
    struct backend *b = m->draft_batch.env.backend;
    if (b != NULL) {
        b->release(b, m->state.data);
        b->release(b, m->active.data);
    }
    draft_batch_destroy(&m->draft_batch);
    medusa_close(m->heads);
    free(m->has_state);
    free(m->slot);
    free(m->first);
    free(m);
}

static bool open_heads(struct medusa_drafter *m, const struct drafter_env *env, const struct medusa_options *o,
                       const struct tree_shape *shape, struct error *err)
{
    if (env->backend != env->target_backend)
        return fail(err, "drafter medusa: its heads read the target's states, and must be on the target's device");
    char *path = model_path(o->weights, env->beside, err);
    if (path != NULL)
        m->heads = medusa_open(path, env->target, env->backend, (enum activations)o->activations, env->slots, err);
    free(path);
    if (m->heads == NULL)
        return false;
    if (tree_shape_levels(shape) > medusa_heads(m->heads))
        return fail(err, "drafter medusa: a draft of depth %d needs as many heads, but %s has %d",
                    tree_shape_levels(shape), o->weights, medusa_heads(m->heads));
    return true;
}

static struct drafter *medusa_drafter_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct medusa_options *o = options;
    struct tree_shape shape;
    if (!tree_shape(&shape, &o->tree, "drafter medusa", env->beside, err))
        return NULL;
    struct medusa_drafter *m = xcalloc(1, sizeof(*m));
    bool ok = open_heads(m, env, o, &shape, err) &&
              draft_batch_create(&m->draft_batch, &shape, env, medusa_vocab(m->heads), medusa_target_id(m->heads),
                                 env->used_vocab, err) &&
              allocate(&m->state, env, err) && allocate(&m->active, env, err);
    if (!ok) {
        medusa_drafter_destroy(&m->drafter);
        return NULL;
    }
    m->has_state = xcalloc((size_t)env->slots, sizeof(*m->has_state));
    m->slot = xcalloc((size_t)env->slots, sizeof(*m->slot));
    m->first = xcalloc((size_t)env->slots, sizeof(*m->first));
    m->drafter.nodes = shape.nodes;
    m->drafter.taps = (struct taps){ 1, { FINAL_STATE } };
    m->drafter.identity = medusa_hash(m->heads);
    m->drafter.host_bytes = m->draft_batch.host_bytes;
    m->drafter.bytes = medusa_bytes(m->heads) + m->draft_batch.bytes + tensor_bytes(m->state) + tensor_bytes(m->active);
    m->drafter.resolved[0] = (struct resolved){ "activations", activations_names[medusa_activations(m->heads)] };
    if (m->draft_batch.tree != NULL)
        m->drafter.resolved[1] = (struct resolved){ "tree", m->draft_batch.tree };
    return &m->drafter;
}

static bool medusa_propose(struct drafter *d, struct request *r, int n, struct error *err)
{
    struct medusa_drafter *m = (struct medusa_drafter *)d;
    struct backend *b = m->draft_batch.env.backend;
    struct request usable[MAX_SLOTS], active[MAX_SLOTS]; // with a state; with draft tokens to propose
    int k = 0, depth = 0;
    for (int i = 0; i < n; i++)
        if (m->has_state[r[i].slot])
            usable[k++] = r[i];
    const int count = draft_batch_begin(&m->draft_batch, usable, k, active);
    if (count == 0)
        return true;
    for (int i = 0; i < count; i++) {
        m->slot[i] = active[i].slot;
        m->first[i] = i;
    }
    struct tensor states = tensor_rows(m->active, 0, count);
    b->take(b, states, m->state, m->slot);
    do {
        medusa_logits(m->heads, depth++, draft_batch_logits(&m->draft_batch, count), states);
        if (!draft_batch_children(&m->draft_batch, active, count, m->first, 0, err))
            return false;
    } while (draft_batch_level(&m->draft_batch, active, count) > 0);
    draft_batch_end(&m->draft_batch, active, count);
    return true;
}

static bool medusa_advance(struct drafter *d, const struct advance *a, int n, struct error *err)
{
    (void)err;
    struct medusa_drafter *m = (struct medusa_drafter *)d;
    struct backend *b = m->draft_batch.env.backend;
    for (int i = 0; i < n; i++) {
        b->take(b, tensor_rows(m->state, a[i].slot, 1), a[i].features, &(const int32_t){ a[i].n - 1 });
        m->has_state[a[i].slot] = true;
    }
    return true;
}

static void medusa_forget(struct drafter *d, int slot)
{
    ((struct medusa_drafter *)d)->has_state[slot] = false;
}

static unsigned medusa_makes(const void *options)
{
    return tree_options_kinds(&((const struct medusa_options *)options)->tree);
}

// clang-format off
static const struct option medusa_options[] = {
    { "weights", OPTION_PATH, offsetof(struct medusa_options, weights), NULL, "the heads: a folder, a .pt or a .safetensors file", 0, 0, NULL },
    TREE_OPTIONS(struct medusa_options, tree),
    { "activations", OPTION_CHOICE, offsetof(struct medusa_options, activations), "default",
      "type that matmul inputs are rounded to; default: by the type of its weights", 0, 0, ACTIVATIONS_CHOICES },
    { 0 },
};
// clang-format on

const struct drafter_type medusa_drafter = {
    .name = "medusa",
    .summary = "heads on the target's last hidden state, one per position: greedy or sampled chains and trees",
    .options = medusa_options,
    .options_size = sizeof(struct medusa_options),
    .create = medusa_drafter_create,
    .propose = medusa_propose,
    .advance = medusa_advance,
    .forget = medusa_forget,
    .destroy = medusa_drafter_destroy,
    .makes = medusa_makes,
};
