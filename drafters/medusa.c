// medusa.c - heads on the target's last state guess the places that follow, each by itself (Cai et al. 2024, arXiv
// 2401.10774).
//
// The state that predicted the root is the only one there is to look at: head d guesses the tokens d + 1 places behind the
// root, whatever stands between. So a level of a draft has one row of logits, which all its families share, and a draft
// costs no pass. Trees of the likeliest tokens are Medusa's own; drawn chains and trees have the heads' rows for q.
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
    struct tree_options grow;
    int activations;
};

struct medusa_drafter {
    struct drafter drafter; // first
    struct medusa *heads;
    struct draft_batch draft_batch;
    struct tensor state, active; // (slots, width) that predicted each slot's root; those of the requests at hand
    bool *has_state;             // (slots) a text of one token has none
    int32_t *slot;               // (slots) of the requests at hand
    int *first;                  // (slots) row of each one's logits
};

static bool make(struct tensor *t, const struct drafter_env *env, struct error *err)
{
    *t = rows_on(env->backend, env->slots, model_shape(env->target)->width);
    return t->data != NULL || fail(err, "%s: no room for the states of %d texts", env->backend->name, env->slots);
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
        return fail(err, "drafter medusa: a draft %d deep needs as many heads, and %s has %d", tree_shape_levels(shape),
                    o->weights, medusa_heads(m->heads));
    return true;
}

static struct drafter *medusa_drafter_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct medusa_options *o = options;
    struct tree_shape shape;
    if (!tree_shape(&shape, &o->grow, "drafter medusa", env->beside, err))
        return NULL;
    struct medusa_drafter *m = xcalloc(1, sizeof(*m));
    bool ok = open_heads(m, env, o, &shape, err) &&
              draft_batch_create(&m->draft_batch, &shape, env, medusa_vocab(m->heads), medusa_target_id(m->heads),
                                 env->used_vocab, err) &&
              make(&m->state, env, err) && make(&m->active, env, err);
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
    struct request known[MAX_SLOTS], active[MAX_SLOTS];
    int k = 0, depth = 0;
    for (int i = 0; i < n; i++)
        if (m->has_state[r[i].slot])
            known[k++] = r[i];
    const int count = draft_batch_begin(&m->draft_batch, known, k, active);
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
    return tree_options_kinds(&((const struct medusa_options *)options)->grow);
}

// clang-format off
static const struct option medusa_options[] = {
    { "weights", OPTION_PATH, offsetof(struct medusa_options, weights), NULL, "the heads: a folder, a .pt or a .safetensors file", 0, 0, NULL },
    TREE_OPTIONS(struct medusa_options, grow),
    { "activations", OPTION_CHOICE, offsetof(struct medusa_options, activations), "default",
      "what its products round their input to; default: as its weights allow", 0, 0, ACTIVATIONS_CHOICES },
    { 0 },
};
// clang-format on

const struct drafter_type medusa_drafter = {
    .name = "medusa",
    .summary = "heads on the target's last state, one for each place: trees of the likeliest, or drawn",
    .options = medusa_options,
    .options_size = sizeof(struct medusa_options),
    .create = medusa_drafter_create,
    .propose = medusa_propose,
    .advance = medusa_advance,
    .forget = medusa_forget,
    .destroy = medusa_drafter_destroy,
    .makes = medusa_makes,
};
