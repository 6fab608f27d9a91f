#include "commands/features/target_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "core/files/part.h"
#include "kernels/backend.h"
#include "models/architectures.h"
#include "models/config.h"
#include "models/model.h"
#include "models/layer_tensors.h"
#include "models/weights.h"

enum { ROWS = 1024 }; // rows of a chunk

void metadata_set(struct json *j, const char *key, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        memory_out(0);
    va_end(args);
    json_set(j, key, json_new_text(text));
    free(text);
}

struct safetensor described(const char *name, const char *dtype, size_t element, int64_t rows, int64_t width,
                            const void *data)
{
    return (struct safetensor){ .name = name,
                                .dtype = dtype,
                                .dims = width > 0 ? 2 : 1,
                                .dim = { rows, width },
                                .data = data,
                                .bytes = (size_t)(rows * (width > 0 ? width : 1)) * element };
}

// Under the names of Hugging Face's config.json.
struct json *target_file_metadata(const struct speclab_target *t, const char *model)
{
    const struct model_config *c = model_config(t->model);
    const struct {
        const char *key;
        int value;
    } sizes[] = {
        { "hidden_size", c->width },         { "intermediate_size", c->hidden },
        { "num_attention_heads", c->heads }, { "num_key_value_heads", c->kv_heads },
        { "head_dim", c->head_dim },         { "max_position_embeddings", c->context },
        { "vocab_size", c->vocab },          { "num_hidden_layers", c->layers },
    };
    struct json *j = json_object_of(JSON("format", "speclab-target-1"), JSON("model", model),
                                    JSON("model_hash", hash_text(model_identity(t->model)).s));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        metadata_set(j, sizes[i].key, "%d", sizes[i].value);
    metadata_set(j, "used_vocab_size", "%d", t->used_vocab);
    metadata_set(j, "rms_norm_eps", "%.9g", (double)c->norm_eps);
    metadata_set(j, "rope_theta", "%.17g", c->rope.theta);
    if (c->rope.scaling == ROPE_LINEAR)
        metadata_set(j, "rope_scaling", "{\"rope_type\": \"linear\", \"factor\": %.17g}", c->rope.factor);
    if (c->rope.scaling == ROPE_LLAMA3)
        metadata_set(j, "rope_scaling",
                     "{\"rope_type\": \"llama3\", \"factor\": %.17g, \"low_freq_factor\": %.17g, \"high_freq_factor\": "
                     "%.17g, \"original_max_position_embeddings\": %d}",
                     c->rope.factor, c->rope.low, c->rope.high, c->rope.original);
    json_set(j, "tie_word_embeddings", json_new_text(c->tied ? "true" : "false"));
    if (c->bos >= 0)
        metadata_set(j, "bos_token_id", "%d", c->bos);
    struct text ends = { 0 };
    text_puts(&ends, "");
    for (int i = 0; i < c->n_end; i++)
        text_printf(&ends, "%s%d", i > 0 ? "," : "", c->end[i]);
    json_set(j, "eos_token_id", json_new_text(ends.s));
    free(ends.s);
    return j;
}

static bool list_layers(struct target_file *f, struct error *err)
{
    int layer;
    const struct model_config *c = model_config(f->target->model);
    if (strcmp(c->architecture->model_type, "llama") != 0 || c->experts > 0)
        return fail(
            err, "%s: --kind small: a draft model is trained of Llama's layers only, and this target's are those of %s",
            f->target->path, c->architecture->name);
    if (c->rope.scaling == ROPE_YARN || c->rope.scaling == ROPE_LONG)
        return fail(err, "%s: --kind small: its RoPE is scaled by yarn or longrope, which the trainer does not compute",
                    f->target->path);
    if (c->rope.scaling == ROPE_TABLE)
        return fail(
            err,
            "%s: --kind small: its RoPE is scaled by a table (rope_freqs.weight), which no config.json of a draft model can say; "
            "use the Hugging Face folder of this model",
            f->target->path);
    for (const struct weight *w = f->weights->weight; w < f->weights->weight + f->weights->n; w++) {
        if (weights_layer(w->name, "model.layers.", &layer) == NULL)
            continue;
        f->tensor = xrealloc(f->tensor, (f->n + 1) * sizeof(*f->tensor));
        const struct tensor t = w->tensor;
        f->tensor[f->n++] = described(w->name + strlen("model."), "F32", sizeof(float), t.rows > 1 ? t.rows : t.width,
                                      t.rows > 1 ? t.width : 0, NULL);
    }
    return true;
}

bool target_file_begin(struct target_file *f, const struct speclab_target *t, bool layers, struct error *err)
{
    const struct model_shape *s = model_shape(t->model);
    *f = (struct target_file){ .target = t, .tensor = xcalloc(OUTER_TENSORS, sizeof(*f->tensor)) };
    f->tensor[f->n++] = described("embed_tokens.weight", "F32", sizeof(float), s->vocab, s->width, NULL);
    f->tensor[f->n++] = described("lm_head.weight", "F32", sizeof(float), s->vocab, s->width, NULL);
    f->tensor[f->n++] = described("norm.weight", "F32", sizeof(float), s->width, 0, NULL);
    f->weights = weights_open(model_config(t->model), err); // the model has matrices packed
    return f->weights != NULL && (!layers || list_layers(f, err));
}

void target_file_end(struct target_file *f)
{
    weights_close(f->weights);
    free(f->tensor);
}

bool target_file_put(void *self, size_t i, struct part *to, struct error *err)
{
    struct target_file *f = self;
    const struct safetensor *t = &f->tensor[i];
    const int64_t rows = t->dims == 2 ? t->dim[0] : 1, width = t->dim[t->dims - 1];
    struct backend *b = f->target->backend;
    float *x = xmalloc((size_t)(ROWS * width) * sizeof(*x));
    bool ok;
    if (i == OUTER_NORM) { // the norm is written as the model uses it: some families store it less one
        const float *norm = rows_read(b, model_norm(f->target->model), &x, err);
        ok = norm != NULL;
        if (ok)
            part_write(to, norm, t->bytes);
    } else {
        const bool tied = i == OUTER_HEAD && model_config(f->target->model)->tied;
        char *name =
            i == OUTER_HEAD && !tied ? xstrdup(t->name) : xformat("model.%s", tied ? f->tensor[0].name : t->name);
        struct tensor w;
        ok = weights_get(f->weights, name, rows, width, &w, err);
        for (int64_t first = 0; ok && first < rows; first += ROWS) {
            const int64_t n = rows - first < ROWS ? rows - first : ROWS;
            ok = float_rows(b, w, first, n, x, err);
            if (ok)
                part_write(to, x, (size_t)(n * width) * sizeof(*x));
        }
        free(name);
    }
    free(x);
    return ok;
}
