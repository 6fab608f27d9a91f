#include "commands/features/shards.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/features/states.h"
#include "commands/features/texts.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "engine/engine.h"
#include "formats/file.h"
#include "formats/safetensors.h"
#include "kernels/backend.h"
#include "kernels/float_rows.h"
#include "models/architectures.h"
#include "models/config.h"
#include "models/model.h"
#include "models/weights.h"

enum { ROWS = 1024, ENDS = 3 }; // rows of a chunk; tensors of the target outside its layers

bool shard_writer_open(struct shard_writer *w, const char *folder, struct json *settings, struct error *err)
{
    *w = (struct shard_writer){ .folder = folder, .settings = settings };
    if (folder == NULL) {
        w->stream = part_onto(stdout, "stdout");
        return true;
    }
    char *inside = xformat("%s/", folder);
    const bool ok = file_make_folders(inside);
    free(inside);
    return ok || fail(err, "%s: the folder cannot be created", folder);
}

void shard_writer_abandon(struct shard_writer *w)
{
    part_abandon(w->stream);
    json_free(w->settings);
    *w = (struct shard_writer){ 0 };
}

bool shard_writer_close(struct shard_writer *w, struct error *err)
{
    bool ok = true;
    if (w->stream != NULL) {
        part_zeros(w->stream, sizeof(uint64_t));
        ok = part_end(w->stream, err);
        w->stream = NULL;
    }
    shard_writer_abandon(w);
    return ok;
}

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

static char *path_of(const struct shard_writer *w, const char *name)
{
    return xformat("%s/%s.safetensors", w->folder, name);
}

// ---- continuing

struct earlier { // a file that an earlier run wrote
    struct mapping file;
    struct tensor_list tensors;
    struct json *metadata;
};

// All settings must be equal, but for the path of the model, which is known by its hash.
static bool open_earlier(struct earlier *e, const char *path, const struct json *wanted, struct error *err)
{
    *e = (struct earlier){ 0 };
    if (!file_map(path, &e->file, err) || !safetensors_read(path, &e->file, 0, &e->tensors, err))
        return false;
    e->metadata = safetensors_metadata(&e->file);
    for (void *at = json_first(wanted); at != NULL; at = json_next(wanted, at)) {
        const char *key = json_key(at), *want = json_text(json_value(at));
        const struct json *have = json_get(e->metadata, key);
        if (strcmp(key, "model") != 0 && (have == NULL || strcmp(json_text(have), want) != 0))
            return fail(err, "%s: made with %s \"%s\", not \"%s\"; use another folder, or remove this one", path, key,
                        json_text(have), want);
    }
    return true;
}

static void close_earlier(struct earlier *e)
{
    json_free(e->metadata);
    tensor_list_free(&e->tensors);
    file_unmap(&e->file);
}

static bool read_conversations(const char *path, const struct tensor_list *tensors, int64_t *n, struct error *err)
{
    for (size_t i = 0; i < tensors->n; i++) {
        const struct safetensor *t = &tensors->at[i];
        if (strcmp(t->name, "offsets") == 0 && strcmp(t->dtype, "I64") == 0 && t->dims == 1 && t->dim[0] > 1) {
            *n = t->dim[0] - 1;
            return true;
        }
    }
    return fail(err, "%s: expected a tensor offsets of 64-bit integers, found none", path);
}

static void shard_name(const struct shard_writer *w, char to[32])
{
    snprintf(to, 32, "features-%05d", w->number);
}

bool shard_kept(struct shard_writer *w, int64_t first, int64_t *n, struct error *err)
{
    char name[32];
    bool ok = true;
    *n = 0;
    if (w->folder == NULL)
        return true;
    shard_name(w, name);
    char *path = path_of(w, name);
    if (file_exists(path)) {
        struct earlier e;
        ok = open_earlier(&e, path, w->settings, err) && read_conversations(path, &e.tensors, n, err);
        const char *begins = json_text(json_get(e.metadata, "first"));
        if (ok && strtoll(begins, NULL, 10) != first)
            ok = fail(err, "%s: expected a shard that begins with conversation %lld, found %s; remove it", path,
                      (long long)first, begins);
        w->number += ok;
        close_earlier(&e);
    }
    free(path);
    return ok;
}

// ---- writing

// To the stream, or to a file of the folder. metadata: taken over.
static bool write_tensors(struct shard_writer *w, const char *name, const struct safetensor *t, size_t n,
                          struct json *metadata, part_put *put, void *context, struct error *err)
{
    if (w->stream != NULL)
        return safetensors_stream(w->stream, t, n, metadata, put, context, err) &&
               ((!part_failed(w->stream) && fflush(stdout) == 0) || fail(err, "stdout: cannot be written"));
    char *path = path_of(w, name);
    const bool ok = safetensors_write(path, t, n, metadata, put, context, err);
    free(path);
    return ok;
}

static struct safetensor matrix(const char *name, const char *dtype, int64_t rows, int64_t width, const void *data,
                                size_t element)
{
    return (struct safetensor){ .name = name,
                                .dtype = dtype,
                                .dims = 2,
                                .dim = { rows, width },
                                .data = data,
                                .bytes = (size_t)(rows * width) * element };
}

static struct safetensor vector(const char *name, const char *dtype, int64_t n, const void *data, size_t element)
{
    struct safetensor t = matrix(name, dtype, n, 1, data, element);
    t.dims = 1;
    return t;
}

bool shard_write(struct shard_writer *w, const struct texts *t, const struct text_states *s,
                 const struct states_setup *setup, struct error *err)
{
    const int64_t n = t->offset[t->n];
    const size_t element = setup->type == BF16 ? sizeof(uint16_t) : sizeof(float);
    const int64_t width = (int64_t)(states_row_bytes(setup) / element);
    struct safetensor tensors[] = {
        vector("offsets", "I64", t->n + 1, t->offset, sizeof(*t->offset)), // in the order of their alignment
        matrix("top_ids", "I32", n, setup->top_k, s->top_id, sizeof(*s->top_id)),
        matrix("top_p", "F32", n, setup->top_k, s->top_p, sizeof(*s->top_p)),
        vector("input_ids", "I32", n, t->id, sizeof(*t->id)),
        matrix("states", setup->type == BF16 ? "BF16" : "F32", n, width, s->state, element),
        vector("loss_mask", "U8", n, t->mask, sizeof(*t->mask)),
    };
    size_t n_tensors = sizeof(tensors) / sizeof(*tensors);
    if (width == 0) { // no states
        tensors[n_tensors - 2] = tensors[n_tensors - 1];
        n_tensors--;
    }
    struct json *metadata = json_clone(w->settings);
    metadata_set(metadata, "first", "%lld", (long long)t->first);
    char name[32];
    shard_name(w, name);
    const bool ok = write_tensors(w, name, tensors, n_tensors, metadata, NULL, NULL, err);
    w->number += ok;
    return ok;
}

// ---- the target: what a head shares with it, or, for a copy of it, all (docs/training.md), as floats

struct target_file {
    const struct target *target; // borrowed
    struct weights *weights;     // its layers'; NULL: they are left out
    struct safetensor *tensor;   // (n) embedding, LM head, norm, layers
    size_t n;
    void *rows;  // a chunk on the device
    float *copy; // what it has, on the host
};

// Under the names of Hugging Face's config.json.
static struct json *target_metadata(const struct target *t, const char *model)
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
        name += strlen("model.");
        *t = rows > 1 ? matrix(name, "F32", rows, width, NULL, sizeof(float))
                      : vector(name, "F32", width, NULL, sizeof(float));
    }
    return true;
}

static void end_target(struct target_file *f)
{
    f->target->backend->release(f->target->backend, f->rows);
    weights_close(f->weights);
    free(f->tensor);
    free(f->copy);
}

static bool begin_target(struct target_file *f, const struct target *t, bool layers, struct error *err)
{
    const struct model_shape *s = model_shape(t->model);
    *f = (struct target_file){ .target = t, .tensor = xcalloc(ENDS, sizeof(*f->tensor)), .n = ENDS };
    f->tensor[0] = matrix("embed_tokens.weight", "F32", s->vocab, s->width, NULL, sizeof(float));
    f->tensor[1] = matrix("lm_head.weight", "F32", s->vocab, s->width, NULL, sizeof(float));
    f->tensor[2] = vector("norm.weight", "F32", s->width, NULL, sizeof(float));
    struct tensor rows = rows_on(t->backend, ROWS, s->width);
    f->rows = rows.data;
    f->copy = xmalloc(tensor_bytes(rows));
    bool ok =
        f->rows != NULL || fail(err, "%s: not enough memory for %d rows of the embedding", t->backend->name, ROWS);
    ok = ok && (!layers || list_layers(f, err));
    if (!ok)
        end_target(f);
    return ok;
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

static bool put_target(void *self, size_t i, struct part *to, struct error *err)
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

bool shard_write_target(struct shard_writer *w, const struct target *t, const char *model, bool layers,
                        struct error *err)
{
    static const char name[] = "target";
    char *path = w->folder != NULL ? path_of(w, name) : NULL;
    struct json *metadata = target_metadata(t, model);
    struct target_file f;
    bool ok;
    if (path != NULL && file_exists(path)) {
        struct earlier e;
        ok = open_earlier(&e, path, metadata, err) &&
             (layers == (e.tensors.n > ENDS) ||
              fail(err, "%s: %s; use another folder, or remove this one", path,
                   layers ? "there are no layers, which --kind small needs" : "made with --kind small"));
        close_earlier(&e);
        json_free(metadata);
    } else if ((ok = begin_target(&f, t, layers, err))) {
        ok = write_tensors(w, name, f.tensor, f.n, metadata, put_target, &f, err);
        end_target(&f);
    } else
        json_free(metadata);
    free(path);
    return ok;
}
