#include "drafters/medusa_heads.h"

#include <stdlib.h>

#include "core/memory.h"
#include "drafters/depth_heads.h"
#include "models/heads/medusa.h"
#include "models/paths.h"

struct medusa_heads {
    struct depth_heads heads; // first
    struct medusa *medusa;
};

void medusa_heads_destroy(struct drafter *d)
{
    struct medusa_heads *m = (struct medusa_heads *)d;
    depth_heads_close(&m->heads);
    medusa_close(m->medusa);
    free(m);
}

static void logits(struct depth_heads *h, int depth, struct tensor out, struct tensor states)
{
    medusa_logits(((struct medusa_heads *)h)->medusa, depth, out, states);
}

static bool open_heads(struct medusa_heads *m, const struct drafter_env *env, const struct medusa_heads_options *o,
                       const struct tree_shape *shape, const char *what, struct error *err)
{
    char *path = model_path(o->weights, env->beside, err);
    if (path != NULL)
        m->medusa = medusa_open(path, env->target, env->backend, (enum activations)o->activations,
                                (enum quantize)o->quantize, env->slots, err);
    free(path);
    if (m->medusa == NULL)
        return false;
    const struct depth_heads_setup setup = { .what = what,
                                             .path = o->weights,
                                             .heads = medusa_heads(m->medusa),
                                             .vocab = medusa_vocab(m->medusa),
                                             .target_id = medusa_target_id(m->medusa),
                                             .activations = medusa_activations(m->medusa),
                                             .bytes = medusa_bytes(m->medusa) };
    m->heads.logits = logits;
    m->heads.drafter.identity = medusa_hash(m->medusa);
    return depth_heads_open(&m->heads, &setup, shape, env, err);
}

struct drafter *medusa_heads_create(const struct drafter_env *env, const struct medusa_heads_options *o,
                                    const struct tree_options *tree, const char *what, struct error *err)
{
    struct tree_shape shape;
    if (!depth_heads_shape(&shape, tree, what, env, err))
        return NULL;
    struct medusa_heads *m = xcalloc(1, sizeof(*m));
    if (open_heads(m, env, o, &shape, what, err))
        return &m->heads.drafter;
    medusa_heads_destroy(&m->heads.drafter);
    return NULL;
}
