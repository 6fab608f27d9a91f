// linear.c - an example of a drafter with a head: a matrix per depth on the target's last hidden state.
//
// The tensor "0.weight" (vocab, width) gives the logits of the token after the root, "1.weight" those of the token after that, and so
// on; in a .safetensors file.
#include <stdio.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "drafters/depth_heads.h"
#include "engine/plugin.h"
#include "kernels/backend.h"
#include "models/paths.h"
#include "models/tensor_loading.h"
#include "models/weights.h"

enum { MAX_HEADS = 8 };

struct linear_options {
    char *weights;
    struct tree_options tree;
    int activations;
};

struct linear {
    struct depth_heads heads; // first
    struct weights *weights;  // the file
    struct tensor_loader loader;
    struct tensor w[MAX_HEADS]; // (vocab, width)
};

static void linear_destroy(struct drafter *d)
{
    struct linear *l = (struct linear *)d;
    depth_heads_close(&l->heads);
    tensor_loader_release(&l->loader);
    weights_close(l->weights);
    free(l);
}

static void linear_logits(struct depth_heads *h, int depth, struct tensor out, struct tensor states)
{
    struct linear *l = (struct linear *)h;
    multiply(l->loader.backend, out, states, l->w[depth]);
}

static char *same_name(const char *stored)
{
    return xstrdup(stored);
}

// Loads all heads to the target's device. *heads: their number.
static bool load(struct linear *l, const char *path, const struct drafter_env *env, int *heads, struct error *err)
{
    const struct model_shape *s = model_shape(env->target);
    char name[32];
    l->weights = weights_open_files(path, same_name, err);
    l->loader.backend = env->backend;
    l->loader.weights = l->weights;
    if (l->weights == NULL || !tensor_loader_begin(&l->loader, path, err))
        return false;
    for (*heads = 0; *heads < MAX_HEADS; (*heads)++) {
        snprintf(name, sizeof(name), "%d.weight", *heads);
        if (*heads > 0 && !weights_has(l->weights, name))
            break;
        if (!load_matrix(&l->loader, name, s->vocab, s->width, &l->w[*heads], err))
            return false;
    }
    const char *unused = weights_unused(l->weights, 0);
    if (unused != NULL)
        return fail(err, "%s: tensor %s: expected 0.weight, 1.weight, ..", path, unused);
    return env->backend->sync(env->backend, err);
}

static bool open_heads(struct linear *l, const struct drafter_env *env, const struct linear_options *o,
                       const struct tree_shape *shape, struct error *err)
{
    struct depth_heads_setup setup = { .what = "drafter linear", .path = o->weights };
    char *path = model_path(o->weights, env->beside, err);
    l->loader.activations = (enum activations)o->activations;
    const bool ok = path != NULL && load(l, path, env, &setup.heads, err);
    free(path);
    if (!ok)
        return false;
    setup.vocab = model_shape(env->target)->vocab;
    setup.activations = l->loader.activations;
    setup.bytes = l->loader.bytes;
    l->heads.logits = linear_logits;
    l->heads.drafter.identity = weights_hash(l->weights);
    return depth_heads_open(&l->heads, &setup, shape, env, err);
}

static struct drafter *linear_create(const struct drafter_env *env, const void *options, struct error *err)
{
    const struct linear_options *o = options;
    struct tree_shape shape;
    if (!depth_heads_shape(&shape, &o->tree, "drafter linear", env, err))
        return NULL;
    struct linear *l = xcalloc(1, sizeof(*l));
    if (open_heads(l, env, o, &shape, err))
        return &l->heads.drafter;
    linear_destroy(&l->heads.drafter);
    return NULL;
}

static const struct option linear_options[] = {
    { "weights", OPTION_PATH, offsetof(struct linear_options, weights), NULL, "the file with the matrices", 0, 0,
      NULL },
    TREE_OPTIONS(struct linear_options, tree),
    { "activations", OPTION_CHOICE, offsetof(struct linear_options, activations), "default",
      "type that matmul inputs are rounded to", 0, 0, ACTIVATIONS_CHOICES },
    { 0 },
};

static const struct drafter_type linear_drafter = {
    .name = "linear",
    .summary = "an example: a matrix per depth on the target's last hidden state",
    .options = linear_options,
    .options_size = sizeof(struct linear_options),
    .tree = offsetof(struct linear_options, tree),
    .create = linear_create,
    .propose = depth_heads_propose,
    .advance = depth_heads_advance,
    .forget = depth_heads_forget,
    .destroy = linear_destroy,
};

SPECLAB_PLUGIN(err)
{
    return speclab_register_drafter(&linear_drafter, err);
}
