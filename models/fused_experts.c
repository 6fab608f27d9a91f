#include "models/fused_experts.h"

#include <stdint.h>
#include <string.h>

#include "core/memory.h"
#include "models/formats/safetensors.h"
#include "models/architectures.h"
#include "models/config.h"
#include "models/layer_tensors.h"

// The matrices of an expert in one of the tensors, under Qwen's names and Mixtral's.
struct fused {
    const char *name;
    int n;
    const char *qwen[2], *mixtral[2];
};

static const struct fused tensors[] = {
    { ".mlp.experts.gate_up_proj", 2, { "gate_proj", "up_proj" }, { "w1", "w3" } },
    { ".mlp.experts.down_proj", 1, { "down_proj" }, { "w2" } },
};

// Returns NULL if t is no fused tensor. *suffix: what follows the matrix's name, ".weight", or that of its scales;
// *layer: the number of the layer.
static const struct fused *find(const struct architecture *a, const struct safetensor *t, const char **suffix,
                                int *layer)
{
    const char *rest = a != NULL && a->experts != NO_EXPERTS ? weights_layer(t->name, "model.layers.", layer) : NULL;
    for (size_t i = 0; rest != NULL && i < sizeof(tensors) / sizeof(*tensors); i++) {
        const size_t n = strlen(tensors[i].name);
        if (strncmp(rest, tensors[i].name, n) != 0)
            continue;
        *suffix = rest[n] == '\0' ? ".weight" : strcmp(rest + n, "_scale_inv") == 0 ? ".weight_scale_inv" : NULL;
        if (*suffix != NULL && t->dims == 3 && t->dim[0] > 0 && t->dim[0] <= LIMIT_EXPERTS && t->bytes > 0 &&
            t->dim[1] % tensors[i].n == 0 && t->bytes % ((size_t)t->dim[0] * (size_t)tensors[i].n) == 0)
            return &tensors[i];
    }
    return NULL;
}

size_t fused_experts_parts(const struct architecture *a, const struct safetensor *t)
{
    const char *suffix;
    int layer;
    const struct fused *f = find(a, t, &suffix, &layer);
    return f != NULL ? (size_t)t->dim[0] * (size_t)f->n : 1;
}

// If the tensors are fused, Mixtral's router has Qwen's name.
static char *name_of_other(const struct architecture *a, const char *name)
{
    int layer;
    const char *rest = a != NULL && a->experts == MIXTRAL_EXPERTS ? weights_layer(name, "model.layers.", &layer) : NULL;
    return rest != NULL && strcmp(rest, ".mlp.gate.weight") == 0
               ? xformat("model.layers.%d.block_sparse_moe.gate.weight", layer)
               : xstrdup(name);
}

struct safetensor fused_experts_part(const struct architecture *a, const struct safetensor *t, size_t i)
{
    const char *suffix;
    int layer;
    const struct fused *f = find(a, t, &suffix, &layer);
    struct safetensor part = *t;
    if (f == NULL) {
        part.name = name_of_other(a, t->name);
        return part;
    }
    const bool mixtral = a->experts == MIXTRAL_EXPERTS;
    const size_t n = (size_t)f->n, parts = (size_t)t->dim[0] * n;
    part.name = xformat("model.layers.%d.%s.experts.%zu.%s%s", layer, mixtral ? "block_sparse_moe" : "mlp", i / n,
                        (mixtral ? f->mixtral : f->qwen)[i % n], suffix);
    part.dims = 2;
    part.dim[0] = t->dim[1] / f->n;
    part.dim[1] = t->dim[2];
    part.bytes = t->bytes / parts;
    part.data = (const uint8_t *)t->data + i * part.bytes;
    return part;
}
