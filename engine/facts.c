// facts.c - what an opened target is: sizes, precisions, identity; and its weights as floats.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/names.h"
#include "engine/engine.h"
#include "kernels/backend.h"
#include "models/architectures.h"
#include "models/model.h"
#include "models/weights.h"

int speclab_target_vocab(const struct speclab_target *t)
{
    return t->used_vocab;
}

int speclab_target_context(const struct speclab_target *t)
{
    return model_shape(t->model)->context;
}

void speclab_target_facts(const struct speclab_target *t, struct speclab_target_facts *to)
{
    const struct model_shape *s = model_shape(t->model);
    *to = (struct speclab_target_facts){ .path = t->path,
                                         .device = t->backend->name,
                                         .processor = t->backend->describe(t->backend),
                                         .activations = activations_names[model_activations(t->model)],
                                         .cache = type_facts[t->cache].name,
                                         .layers = s->layers,
                                         .width = s->width,
                                         .vocab = s->vocab,
                                         .varies = t->backend->varies };
}

void speclab_target_identity(const struct speclab_target *t, char to[33])
{
    snprintf(to, 33, "%s", hash_text(model_identity(t->model)).s);
}

// ---- weights

static bool open_weights(struct speclab_target *t, struct error *err)
{
    if (t->weights == NULL)
        t->weights = weights_open(model_config(t->model), err); // the model has matrices packed
    return t->weights != NULL;
}

const char *speclab_weight_name(struct speclab_target *t, int i, struct speclab_error *error)
{
    struct error ignored, *err = error != NULL ? error : &ignored;
    err->text[0] = '\0';
    return open_weights(t, err) && i >= 0 && (size_t)i < t->weights->n ? t->weights->weight[i].name : NULL;
}

static bool read_floats(struct speclab_target *t, const char *name, const int64_t shape[2], float *to,
                        struct error *err)
{
    enum { ROWS = 1024 }; // rows of a chunk
    const struct model_config *c = model_config(t->model);
    struct tensor w;
    bool ok = weights_get(t->weights, name, shape[0], shape[1], &w, err);
    for (int64_t first = 0; ok && first < shape[0]; first += ROWS)
        ok = float_rows(t->backend, w, first, shape[0] - first < ROWS ? shape[0] - first : ROWS, to + first * shape[1],
                        err);
    const bool from_zero =
        shape[0] == 1 && !c->gguf && c->architecture->norms_from_zero && ends_with(name, "norm.weight");
    for (int64_t i = 0; ok && from_zero && i < shape[1]; i++)
        to[i] += 1;
    weights_drop(t->weights, name);
    return ok;
}

bool speclab_weight(struct speclab_target *t, const char *name, int64_t shape[2], float *to,
                    struct speclab_error *error)
{
    struct error ignored, *err = error != NULL ? error : &ignored;
    if (!open_weights(t, err))
        return false;
    if (strcmp(name, "lm_head.weight") == 0 && model_config(t->model)->tied)
        name = "model.embed_tokens.weight";
    const struct weight *w = weights_find(t->weights, name);
    if (w == NULL)
        return fail(err, "%s: there is no weight %s", t->path, name);
    shape[0] = w->tensor.rows;
    shape[1] = w->tensor.width;
    return to == NULL || read_floats(t, name, shape, to, err);
}
