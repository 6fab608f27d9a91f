#include "tests/formats/derived_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "tests/formats/gguf_write.h"
#include "models/config.h"
#include "models/layer_list.h"
#include "models/layer_tensors.h"
#include "models/weights.h"

static void require(bool ok, const struct error *err)
{
    if (ok)
        return;
    fprintf(stderr, "derived_model: %s\n", err->text);
    exit(1);
}

static bool is_key(const struct gguf_value *v, const char *key)
{
    return v->key.n == strlen(key) && memcmp(v->key.s, key, v->key.n) == 0;
}

static void write_values(struct gguf_writer *w, const struct gguf *g, const struct derived *how)
{
    char *kept = how->keep != NULL ? layer_list_write(how->keep, how->n) : NULL;
    for (size_t i = 0; i < gguf_values(g); i++) {
        const struct gguf_value *v = gguf_value_at(g, i);
        struct gguf_string name = { "", 0 };
        if (kept != NULL && is_key(v, "llama.block_count"))
            gguf_write_int(w, "llama.block_count", v->type, how->n);
        else if (kept != NULL && is_key(v, "general.name") && gguf_text(g, "general.name", &name)) {
            char *named = xformat("%.*s (layers %s)", (int)name.n, name.s, kept);
            gguf_write_text(w, "general.name", named);
            free(named);
        } else
            gguf_write_copy(w, v);
    }
    if (how->inflated != NULL)
        gguf_write_text(w, CONFIG_INFLATED_GGUF, how->inflated);
    free(kept);
}

// The name in the new file, on the heap; NULL: the tensor's layer is left out.
static char *name_in(const struct derived *how, const char *name)
{
    int layer, at = 0;
    const char *rest = weights_layer(name, "blk.", &layer);
    if (how->keep == NULL || rest == NULL)
        return xstrdup(name);
    while (at < how->n && how->keep[at] != layer)
        at++;
    return at < how->n ? xformat("blk.%d%s", at, rest) : NULL;
}

static void *converted(const struct gguf_tensor *t, enum type type, size_t *bytes)
{
    const size_t row = type_row_bytes(type, t->tensor.width);
    uint8_t *to = xmalloc(*bytes = (size_t)t->tensor.rows * row);
    struct error err = { "a number does not fit the type" };
    float *x = xmalloc((size_t)t->tensor.width * sizeof(*x));
    for (int64_t r = 0; r < t->tensor.rows; r++) {
        const uint16_t *half = (const uint16_t *)t->tensor.data + r * t->tensor.width;
        const float *own = (const float *)t->tensor.data + r * t->tensor.width;
        for (int64_t i = 0; i < t->tensor.width && t->tensor.type == BF16; i++)
            memcpy(&x[i], &(uint32_t){ (uint32_t)half[i] << 16 }, sizeof(*x));
        require(quantize_floats(type, t->tensor.type == BF16 ? x : own, t->tensor.width, to + (size_t)r * row), &err);
    }
    free(x);
    return to;
}

void derived_write(const char *from, const char *to, const struct derived *how)
{
    struct error err = { "" };
    struct gguf *g = gguf_open(from, &err);
    require(g != NULL, &err);
    struct gguf_writer *w = gguf_write_begin(to, &err);
    require(w != NULL, &err);
    write_values(w, g, how);
    void **made = xcalloc(gguf_tensors(g), sizeof(*made));
    for (size_t i = 0; i < gguf_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char *old = xstrndup(t->name.s, t->name.n), *name = name_in(how, old);
        const bool changes = how->type != F32 && t->dims > 1 && t->tensor.width % type_facts[how->type].block == 0;
        size_t bytes = t->bytes;
        if (name != NULL && changes)
            made[i] = converted(t, how->type, &bytes);
        if (name != NULL)
            gguf_write_tensor(w, name, t->dims, t->dim, changes ? type_facts[how->type].ggml : t->ggml_type,
                              changes ? made[i] : t->tensor.data, bytes);
        free(name);
        free(old);
    }
    require(gguf_write_end(w, &err), &err);
    for (size_t i = 0; i < gguf_tensors(g); i++)
        free(made[i]);
    free(made);
    gguf_close(g);
}
