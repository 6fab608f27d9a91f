#include "commands/checkpoint/quantize_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/quantize.h"
#include "kernels/backend.h"
#include "formats/gguf.h"
#include "commands/checkpoint/source.h"

enum { CHUNK = 1 << 16 }; // numbers converted to float at a time

// ---- one tensor

// The source row of output row i: llama.cpp's converter places the two numbers that rope rotates together side by side,
// G[h d + 2 i + s] = HF[h d + s d / 2 + i].
static int64_t source_row(const struct conversion *c, int64_t rows, int64_t i)
{
    if (c->heads == 0)
        return i;
    int64_t d = rows / c->heads, at = i % d;
    return i - at + at % 2 * (d / 2) + at / 2;
}

// x (n, from.width) = these rows as floats.
static void take_rows(struct backend *b, const struct conversion *c, float *x, struct tensor from, const int32_t *row,
                      int64_t n)
{
    const struct tensor out = tensor_of(x, F32, n, from.width);
    if (c->fp8.numbers == NULL) {
        b->take(b, out, from, row);
        return;
    }
    uint8_t *blocks = xmalloc(type_row_bytes(F8_E4M3, from.width));
    for (int64_t i = 0; i < n; i++) {
        fp8_rows(&c->fp8, row[i], 1, blocks);
        b->take(b, tensor_rows(out, i, 1), tensor_of(blocks, F8_E4M3, 1, from.width), &(const int32_t){ 0 });
    }
    free(blocks);
}

static bool convert(struct backend *b, const struct conversion *c, struct part *to, int64_t *bad)
{
    bool transposed = c->heads != 0 && c->from.rows == 1; // a bias: each number is a row
    struct tensor from = c->from;
    if (transposed)
        from = tensor_of(from.data, from.type, from.width, 1);
    int64_t chunk_rows = from.width < CHUNK ? CHUNK / from.width : 1;
    size_t row_bytes = type_row_bytes(c->to, from.width);
    float *x = xmalloc((size_t)(chunk_rows * from.width) * sizeof(*x));
    uint8_t *bytes = xmalloc((size_t)chunk_rows * row_bytes);
    int32_t *row = xmalloc((size_t)chunk_rows * sizeof(*row));
    *bad = -1;
    for (int64_t first = 0; first < from.rows && *bad < 0 && !part_failed(to); first += chunk_rows) {
        int64_t n = from.rows - first < chunk_rows ? from.rows - first : chunk_rows;
        for (int64_t i = 0; i < n; i++)
            row[i] = (int32_t)source_row(c, from.rows, first + i);
        take_rows(b, c, x, from, row, n);
        for (int64_t i = 0; i < n * from.width && c->more != 0; i++)
            x[i] += c->more;
        for (int64_t i = 0; i < n && *bad < 0; i++)
            if (!quantize_floats(c->to, x + i * from.width, from.width, bytes + (size_t)i * row_bytes))
                *bad = transposed ? 0 : row[i];
        part_write(to, bytes, (size_t)n * row_bytes);
    }
    free(x);
    free(bytes);
    free(row);
    return *bad < 0;
}

static bool put(void *context, size_t i, struct part *to, struct error *err)
{
    const struct quantizing *q = context;
    struct conversion job = q->job[i];
    int64_t bad;
    bool ok = true;
    if (job.experts == NULL)
        ok = convert(q->backend, &job, to, &bad);
    for (int e = 0; ok && job.experts != NULL && e < q->config->experts; e++) {
        job.from = job.experts[e].tensor;
        job.fp8 = job.experts[e].fp8;
        ok = convert(q->backend, &job, to, &bad);
    }
    if (ok)
        return true;
    return fail(err, "%s: tensor %s: row %" PRId64 " holds a number that is not finite, or too large for %s",
                q->config->path, q->rewrite.tensor[i].name, bad, type_facts[q->job[i].to].name);
}

// ---- all tensors

enum type quantized_type(struct quantizing *q, struct tensor matrix, const char *name)
{
    struct quantize_summary *d = q->done;
    if (matrix.width % type_facts[q->type].block != 0) {
        char *names = d->unchanged == 0  ? xstrdup(name)
                      : d->unchanged < 3 ? xformat("%s, %s", d->unchanged_names, name)
                                         : NULL;
        if (names != NULL) {
            free(d->unchanged_names);
            d->unchanged_names = names;
        }
        d->unchanged++;
        return matrix.type;
    }
    d->changed += matrix.type != q->type;
    d->same += matrix.type == q->type;
    return q->type;
}

static const char *dtype_of(enum type type)
{
    return type == BF16 ? "BF16" : type == F16 ? "F16" : "F32";
}

static bool plan(struct quantizing *q, const struct source_checkpoint *o, struct error *err)
{
    struct rewrite *r = &q->rewrite;
    r->tensor = xcalloc(o->n, sizeof(*r->tensor));
    q->job = xcalloc(o->n, sizeof(*q->job));
    for (size_t i = 0; i < o->n; i++) {
        const struct source_tensor *t = &o->tensor[i];
        if (t->is_scale)
            continue;
        if (!role_is_quantized(t->role) && t->fp8.numbers != NULL)
            return fail(err, "%s: tensor %s: it is of F8_E4M3 and not converted", o->config->path, t->name);
        struct conversion *job = &q->job[r->n];
        struct new_tensor *f = &r->tensor[r->n++];
        *f = rewrite_copy_tensor(o, i, xstrdup(t->name));
        if (!role_is_quantized(t->role))
            continue;
        if (!t->readable)
            return fail(err, "%s: tensor %s: its type, %s, cannot be read", o->config->path, t->name, t->type);
        enum type type = quantized_type(q, t->tensor, t->name);
        if (type == t->tensor.type)
            continue;
        *job = (struct conversion){ .from = t->tensor, .fp8 = t->fp8, .to = type };
        f->data = NULL;
        f->bytes = (size_t)t->tensor.rows * type_row_bytes(type, t->tensor.width);
        f->ggml = o->gguf != NULL ? type_facts[type].ggml : -1;
        f->dtype = o->gguf != NULL ? NULL : dtype_of(type);
    }
    return true;
}

// ---- settings

size_t settings_of_type(enum type type, const char *mark, struct setting to[3])
{
    // llama.cpp's enum llama_ftype, and ggml's version of the formats.
    to[0] = (struct setting){ "general.file_type", GGUF_U32, type == Q8_0 ? 7 : type == Q4_0 ? 2 : 32, 0, NULL };
    to[1] = (struct setting){ CONFIG_QUANTIZED_GGUF, GGUF_STRING, 0, 0, mark };
    to[2] = (struct setting){ "general.quantization_version", GGUF_U32, 2, 0, NULL };
    return type_is_quantized(type) ? 3 : 2;
}

static void write_metadata(void *context, struct gguf_writer *w)
{
    const struct quantizing *q = context;
    struct setting s[3];
    rewrite_settings(w, q->rewrite.from->gguf, s, settings_of_type(q->type, q->mark, s));
}

static void change_config(void *context, struct json *config)
{
    const struct quantizing *q = context;
    json_set(config, json_get(config, "dtype") != NULL ? "dtype" : "torch_dtype", json_new_text("bfloat16"));
    json_set(config, CONFIG_QUANTIZED_HF, json_new_text(q->mark));
    json_drop(config, "quantization_config");
}

// "smollm2.gguf (q4_1)": the model's name, and the most common type of its matrices by numbers.
static char *mark_of(const struct source_checkpoint *o)
{
    int64_t numbers[TYPES] = { 0 };
    int major = 0;
    for (size_t i = 0; i < o->n; i++)
        if (role_is_matrix(o->tensor[i].role) && o->tensor[i].readable)
            numbers[o->tensor[i].tensor.type] += o->tensor[i].tensor.rows * o->tensor[i].tensor.width;
    for (int t = 1; t < TYPES; t++)
        if (numbers[t] > numbers[major])
            major = t;
    const char *before = o->config->quantized; // quantized twice: the mark names both
    return xformat("%.200s (%s)%s%.400s", path_base_name(o->config->path), type_facts[major].name,
                   before != NULL ? ", made from " : "", before != NULL ? before : "");
}

// ---- the model

bool quantize_check_output(const struct model_config *c, enum type type, const char *to, struct error *err)
{
    if (c->gguf && !ends_with(to, ".gguf"))
        return fail(err, "%s: the model is a GGUF file: expected an output name that ends with .gguf", to);
    if (!c->gguf && !ends_with(to, ".gguf") && type != BF16)
        return fail(err, "%s: safetensors cannot store %s: expected bf16, or an output name that ends with .gguf", to,
                    type_facts[type].name);
    return ends_with(to, ".gguf") || source_is_whole(c, err);
}

static bool quantize(struct quantizing *q, const struct source_checkpoint *o, const char *to, struct error *err)
{
    bool converted = o->gguf == NULL && ends_with(to, ".gguf");
    struct rewrite *r = &q->rewrite;
    r->from = o;
    r->gguf = o->gguf != NULL || converted;
    r->metadata = converted ? convert_metadata : write_metadata;
    r->config = change_config;
    r->put = put;
    r->context = q;
    if (!(converted ? convert_plan(q, o, err) : plan(q, o, err)))
        return false;
    for (size_t i = 0; i < o->n; i++)
        q->done->before += o->tensor[i].bytes;
    for (size_t i = 0; i < r->n; i++)
        q->done->after += r->tensor[i].bytes;
    q->done->left_out = o->left_out;
    return rewrite_write(r, to, err) && (!converted || convert_agrees(q, to, err));
}

bool quantize_model(const char *from, enum type type, const char *to, struct backend *b,
                    const struct progress_observer *observer, struct quantize_summary *done, struct error *err)
{
    struct model_config c;
    struct source_checkpoint o;
    *done = (struct quantize_summary){ 0 };
    if (!config_read(from, &c, err))
        return false;
    bool ok =
        quantize_check_output(&c, type, to, err) && rewrite_check_output(from, to, err) && source_open(&o, &c, err);
    if (ok) {
        struct quantizing q = { .config = &c, .type = type, .backend = b, .done = done, .mark = mark_of(&o) };
        q.rewrite.observer = observer;
        ok = quantize(&q, &o, to, err);
        convert_free(&q);
        rewrite_free(&q.rewrite);
        free(q.job);
        free(q.mark);
        source_close(&o);
    }
    config_free(&c);
    return ok;
}
