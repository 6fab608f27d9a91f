#include "commands/features/target_file.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "formats/file.h"
#include "kernels/backend.h"
#include "kernels/float_rows.h"
#include "models/architectures.h"
#include "models/config.h"
#include "models/model.h"
#include "models/weights.h"

enum { ROWS = 1024, ENDS = TARGET_FILE_ENDS }; // ROWS: of a chunk

static void set(struct json *j, const char *key, char *text) // takes the text over
{
    json_set(j, key, json_new_text(text));
    free(text);
}

static char *ids_text(const int *id, int n)
{
    struct text list = { 0 };
    text_puts(&list, "");
    for (int i = 0; i < n; i++)
        text_printf(&list, "%s%d", i > 0 ? "," : "", id[i]);
    return list.s;
}

// Under the names of Hugging Face's config.json.
struct json *target_file_metadata(const struct target *t, const char *model)
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
    char hash[HASH_TEXT];
    hash_write(model_identity(t->model), hash);
    struct json *j = json_new_object();
    json_set(j, "format", json_new_text("speclab-target-1"));
    json_set(j, "model", json_new_text(model));
    json_set(j, "model_hash", json_new_text(hash));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        set(j, sizes[i].key, xformat("%d", sizes[i].value));
    set(j, "used_vocab_size", xformat("%d", t->used_vocab));
    set(j, "rms_norm_eps", xformat("%.9g", (double)c->norm_eps));
    set(j, "rope_theta", xformat("%.17g", c->rope.theta));
    if (c->rope.scaling == ROPE_LINEAR)
        set(j, "rope_scaling", xformat("{\"rope_type\": \"linear\", \"factor\": %.17g}", c->rope.factor));
    if (c->rope.scaling == ROPE_LLAMA3)
        set(j, "rope_scaling",
            xformat("{\"rope_type\": \"llama3\", \"factor\": %.17g, \"low_freq_factor\": %.17g, \"high_freq_factor\": "
                    "%.17g, \"original_max_position_embeddings\": %d}",
                    c->rope.factor, c->rope.low, c->rope.high, c->rope.original));
    json_set(j, "tie_word_embeddings", json_new_text(c->tied ? "true" : "false"));
    if (c->bos >= 0)
        set(j, "bos_token_id", xformat("%d", c->bos));
    set(j, "eos_token_id", ids_text(c->end, c->n_end));
    return j;
}

// Layers are read from the checkpoint: the model has them packed.
static bool list_layers(struct target_file *f, struct error *err)
{
    const char *name, *type;
    int64_t rows, width;
    size_t bytes;
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
    f->weights = weights_open(c, err);
    if (f->weights == NULL)
        return false;
    for (size_t i = 0; weights_list(f->weights, i, &name, &type, &rows, &width, &bytes); i++) {
        if (weights_layer(name, "model.layers.", &layer) == NULL)
            continue;
        f->tensor = xrealloc(f->tensor, (f->n + 1) * sizeof(*f->tensor));
        struct safetensor *t = &f->tensor[f->n++];
        *t = (struct safetensor){ .name = name + strlen("model."),
                                  .dtype = "F32",
                                  .dims = rows > 1 ? 2 : 1,
                                  .dim = { rows > 1 ? rows : width, width },
                                  .bytes = (size_t)(rows * width) * sizeof(float) };
    }
    return true;
}

bool target_file_begin(struct target_file *f, const struct target *t, bool layers, struct error *err)
{
    const struct model_shape *s = model_shape(t->model);
    const size_t bytes = (size_t)s->vocab * (size_t)s->width * sizeof(float);
    const struct safetensor table = { .dtype = "F32", .dims = 2, .dim = { s->vocab, s->width }, .bytes = bytes };
    *f = (struct target_file){ .target = t, .tensor = xcalloc(ENDS, sizeof(*f->tensor)), .n = ENDS };
    f->tensor[0] = f->tensor[1] = table;
    f->tensor[0].name = "embed_tokens.weight";
    f->tensor[1].name = "lm_head.weight";
    f->tensor[2] = (struct safetensor){
        .name = "norm.weight", .dtype = "F32", .dims = 1, .dim = { s->width }, .bytes = (size_t)s->width * sizeof(float)
    };
    struct tensor rows = rows_on(t->backend, ROWS, s->width);
    f->rows = rows.data;
    f->copy = xmalloc(tensor_bytes(rows));
    bool ok =
        f->rows != NULL || fail(err, "%s: not enough memory for %d rows of the embedding", t->backend->name, ROWS);
    ok = ok && (!layers || list_layers(f, err));
    if (!ok)
        target_file_end(f);
    return ok;
}

void target_file_end(struct target_file *f)
{
    f->target->backend->release(f->target->backend, f->rows);
    weights_close(f->weights);
    free(f->tensor);
    free(f->copy);
}

static bool put_rows(struct target_file *f, struct tensor rows, struct part *to, struct error *err)
{
    struct backend *b = f->target->backend;
    if (!b->sync(b, err))
        return false;
    b->download(b, f->copy, rows.data, tensor_bytes(rows));
    if (!b->sync(b, err))
        return false;
    part_write(to, f->copy, tensor_bytes(rows));
    return true;
}

static bool put_layer(struct target_file *f, const struct safetensor *t, struct part *to, struct error *err)
{
    const int64_t rows = t->dims == 2 ? t->dim[0] : 1, width = t->dim[t->dims - 1];
    char *name = xformat("model.%s", t->name);
    struct tensor w;
    bool ok = weights_get(f->weights, name, rows, width, &w, err);
    float *x = xmalloc((size_t)(ROWS * width) * sizeof(*x));
    for (int64_t first = 0; ok && first < rows; first += ROWS) {
        const int64_t n = rows - first < ROWS ? rows - first : ROWS;
        ok = float_rows(f->target->backend, w, first, n, x, err);
        if (ok)
            part_write(to, x, (size_t)(n * width) * sizeof(*x));
    }
    free(x);
    free(name);
    return ok;
}

bool target_file_put(void *self, size_t i, struct part *to, struct error *err)
{
    struct target_file *f = self;
    const struct model *m = f->target->model;
    const struct model_shape *s = model_shape(m);
    if (i >= ENDS)
        return put_layer(f, &f->tensor[i], to, err);
    if (i == 2)
        return put_rows(f, model_norm(m), to, err);
    for (int first = 0; first < s->vocab; first += ROWS) {
        int32_t id[ROWS];
        const int n = s->vocab - first < ROWS ? s->vocab - first : ROWS;
        const struct tensor rows = tensor_of(f->rows, F32, n, s->width);
        for (int k = 0; k < n; k++)
            id[k] = first + k;
        if (i == 0)
            model_embed(m, rows, &(struct pass){ .n = n, .token = id });
        else
            model_head_rows(m, rows, id);
        if (!put_rows(f, rows, to, err))
            return false;
    }
    return true;
}
