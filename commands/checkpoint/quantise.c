#include "commands/checkpoint/quantise_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "formats/gguf.h"
#include "commands/checkpoint/source.h"

enum { AT_ONCE = 1 << 16 }; // numbers that are floats at a time

// ---- one tensor

// Row i of what is written, in the source: llama.cpp's converter puts the two numbers that rope turns together side by
// side, G[h d + 2 i + s] = HF[h d + s d / 2 + i].
static int64_t source_row(const struct conversion *c, int64_t rows, int64_t i)
{
    if (c->heads == 0)
        return i;
    int64_t d = rows / c->heads, at = i % d;
    return i - at + at % 2 * (d / 2) + at / 2;
}

static bool convert(struct backend *b, const struct conversion *c, struct part *to, int64_t *bad)
{
    bool turned = c->heads != 0 && c->from.rows == 1; // a bias: each number is a row of its own
    struct tensor from = c->from;
    if (turned)
        from = tensor_of(from.data, from.type, from.width, 1);
    int64_t most = from.width < AT_ONCE ? AT_ONCE / from.width : 1;
    size_t row_bytes = type_row_bytes(c->to, from.width);
    float *x = xmalloc((size_t)(most * from.width) * sizeof(*x));
    uint8_t *bytes = xmalloc((size_t)most * row_bytes);
    int32_t *row = xmalloc((size_t)most * sizeof(*row));
    *bad = -1;
    for (int64_t first = 0; first < from.rows && *bad < 0 && !part_failed(to); first += most) {
        int64_t n = from.rows - first < most ? from.rows - first : most;
        for (int64_t i = 0; i < n; i++)
            row[i] = (int32_t)source_row(c, from.rows, first + i);
        b->take(b, tensor_of(x, F32, n, from.width), from, row);
        for (int64_t i = 0; i < n && *bad < 0; i++)
            if (!quantise_row(c->to, x + i * from.width, from.width, bytes + (size_t)i * row_bytes))
                *bad = turned ? 0 : row[i];
        part_write(to, bytes, (size_t)n * row_bytes);
    }
    free(x);
    free(bytes);
    free(row);
    return *bad < 0;
}

static bool put(void *of, size_t i, struct part *to, struct error *err)
{
    const struct quantising *q = of;
    int64_t bad;
    if (convert(q->backend, &q->job[i], to, &bad))
        return true;
    return fail(err, "%s: tensor %s: row %" PRId64 " holds a number that is not finite, or too large for %s",
                q->config->path, q->rewrite.tensor[i].name, bad, type_facts[q->job[i].to].name);
}

// ---- all of them

enum type quantised_type(struct quantising *q, struct tensor matrix, const char *name)
{
    struct quantised *d = q->done;
    if (matrix.width % type_facts[q->type].block != 0) {
        char *odd = d->odds == 0 ? xstrdup(name) : d->odds < 3 ? xformat("%s, %s", d->odd, name) : NULL;
        if (odd != NULL) {
            free(d->odd);
            d->odd = odd;
        }
        d->odds++;
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

static bool plan(struct quantising *q, const struct origin *o, struct error *err)
{
    struct rewrite *r = &q->rewrite;
    r->n = o->n;
    r->tensor = xcalloc(o->n, sizeof(*r->tensor));
    q->job = xcalloc(o->n, sizeof(*q->job));
    for (size_t i = 0; i < o->n; i++) {
        const struct stored *t = &o->tensor[i];
        struct fresh *f = &r->tensor[i];
        *f = rewrite_same(o, i, xstrdup(t->name));
        if (!role_is_matrix(t->role))
            continue;
        if (!t->readable)
            return fail(err, "%s: tensor %s: its type, %s, is not one that can be read", o->config->path, t->name,
                        t->type);
        enum type type = quantised_type(q, t->tensor, t->name);
        if (type == t->tensor.type)
            continue;
        q->job[i] = (struct conversion){ .from = t->tensor, .to = type };
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
    to[1] = (struct setting){ CONFIG_QUANTISED_GGUF, GGUF_STRING, 0, 0, mark };
    to[2] = (struct setting){ "general.quantization_version", GGUF_U32, 2, 0, NULL };
    return type_is_quantised(type) ? 3 : 2;
}

static void write_metadata(void *of, struct gguf_writer *w)
{
    const struct quantising *q = of;
    struct setting s[3];
    rewrite_settings(w, q->rewrite.from->gguf, s, settings_of_type(q->type, q->mark, s));
}

static void change_config(void *of, struct json *config)
{
    const struct quantising *q = of;
    json_set(config, json_get(config, "dtype") != NULL ? "dtype" : "torch_dtype", json_new_text("bfloat16"));
    json_set(config, CONFIG_QUANTISED_HF, json_new_text(q->mark));
}

// "smollm2.gguf (q4_1)": the model's name, and the type that most numbers of its matrices have.
static char *mark_of(const struct origin *o)
{
    int64_t numbers[TYPES] = { 0 };
    int most = 0;
    for (size_t i = 0; i < o->n; i++)
        if (role_is_matrix(o->tensor[i].role) && o->tensor[i].readable)
            numbers[o->tensor[i].tensor.type] += o->tensor[i].tensor.rows * o->tensor[i].tensor.width;
    for (int t = 1; t < TYPES; t++)
        if (numbers[t] > numbers[most])
            most = t;
    const char *before = o->config->quantised; // one that was quantised twice says both
    return xformat("%.200s (%s)%s%.400s", rewrite_base(o->config->path), type_facts[most].name,
                   before != NULL ? ", made from " : "", before != NULL ? before : "");
}

// ---- the model

bool quantise_fits(const struct model_config *c, enum type type, const char *to, struct error *err)
{
    if (c->gguf && !rewrite_names_gguf(to))
        return fail(err, "%s: a GGUF file becomes a GGUF file: expected a name that ends with .gguf", to);
    if (!c->gguf && !rewrite_names_gguf(to) && type != BF16)
        return fail(err, "%s: a directory's safetensors hold no %s: expected bf16, or a file that ends with .gguf", to,
                    type_facts[type].name);
    return true;
}

static bool quantise(struct quantising *q, const struct origin *o, const char *to, struct error *err)
{
    bool converted = o->gguf == NULL && rewrite_names_gguf(to);
    struct rewrite *r = &q->rewrite;
    r->from = o;
    r->gguf = o->gguf != NULL || converted;
    r->metadata = converted ? convert_metadata : write_metadata;
    r->config = change_config;
    r->put = put;
    r->of = q;
    if (!(converted ? convert_plan(q, o, err) : plan(q, o, err)))
        return false;
    for (size_t i = 0; i < o->n; i++)
        q->done->before += o->tensor[i].bytes;
    for (size_t i = 0; i < r->n; i++)
        q->done->after += r->tensor[i].bytes;
    return rewrite_write(r, to, err) && (!converted || convert_agrees(q, to, err));
}

bool quantise_model(const char *from, enum type type, const char *to, struct backend *b,
                    const struct step_observer *observer, struct quantised *done, struct error *err)
{
    struct model_config c;
    struct origin o;
    *done = (struct quantised){ 0 };
    if (!config_read(from, &c, err))
        return false;
    bool ok = quantise_fits(&c, type, to, err) && rewrite_is_free(from, to, err) && origin_open(&o, &c, err);
    if (ok) {
        struct quantising q = { .config = &c, .type = type, .backend = b, .done = done, .mark = mark_of(&o) };
        q.rewrite.observer = observer;
        ok = quantise(&q, &o, to, err);
        convert_forget(&q);
        rewrite_free(&q.rewrite);
        free(q.job);
        free(q.mark);
        origin_close(&o);
    }
    config_free(&c);
    return ok;
}
