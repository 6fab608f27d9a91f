// weights.c - one list of tensors under Hugging Face's names, for all formats.
#include "models/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "models/architectures.h"
#include "models/config.h"
#include "models/finite.h"
#include "models/fused_experts.h"
#include "models/fp8.h"
#include "formats/gguf.h"
#include "formats/shards.h"

static bool find_gguf(struct weights *w, const struct model_config *c, struct error *err)
{
    w->gguf = gguf_open(c->path, err);
    if (w->gguf == NULL)
        return false;
    w->n = gguf_tensors(w->gguf);
    w->weight = xcalloc(w->n, sizeof(*w->weight));
    for (size_t i = 0; i < w->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(w->gguf, i);
        struct weight *to = &w->weight[i];
        to->stored = xstrndup(t->name.s, t->name.n);
        to->name = weights_name(c->architecture, to->stored);
        to->file = gguf_path(w->gguf);
        to->known = t->known;
        to->ggml = t->ggml_type;
        to->type_name = t->known ? type_facts[t->tensor.type].name : gguf_type_name(t->ggml_type);
        to->tensor = tensor_of(NULL, F32, (int64_t)(t->dim[1] * t->dim[2] * t->dim[3]), (int64_t)t->dim[0]);
        if (t->known)
            to->tensor = t->tensor;
        to->in_file = to->tensor.data;
        to->bytes = t->bytes;
        if (c->architecture->gguf_rope != GGUF_ROPE_NORM)
            continue;
        if (ends_with(to->name, ".self_attn.q_proj.weight") || ends_with(to->name, ".self_attn.q_proj.bias"))
            to->heads = c->heads;
        if (ends_with(to->name, ".self_attn.k_proj.weight") || ends_with(to->name, ".self_attn.k_proj.bias"))
            to->heads = c->kv_heads;
    }
    return true;
}

// The type that safetensors' dtype "BF16" names; false: not a type of core/tensor.h.
static bool weights_type(const char *dtype, enum type *to)
{
    static const struct {
        const char *dtype;
        enum type type;
    } types[] = { { "F32", F32 }, { "F16", F16 }, { "BF16", BF16 } };
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (strcmp(dtype, types[i].dtype) == 0) {
            *to = types[i].type;
            return true;
        }
    return false;
}

static void add_tensor(struct weights *w, const struct safetensor *t, const char *stored, const char *file, char *name)
{
    struct weight *to = &w->weight[w->n++];
    enum type type = F32;
    to->name = name;
    to->stored = xstrdup(stored);
    to->file = file;
    to->known = weights_type(t->dtype, &type);
    to->fp8 = w->fp8.used && strcmp(t->dtype, "F8_E4M3") == 0 && strncmp(name, "model.layers.", 13) == 0;
    if (to->fp8)
        to->known = true, type = F8_E4M3;
    to->ggml = -1;
    to->type_name = to->known ? type_facts[type].name : t->dtype;
    to->in_file = t->data;
    to->bytes = t->bytes;
    int64_t rows = 1;
    for (int d = 0; d + 1 < t->dims; d++)
        if (__builtin_mul_overflow(rows, t->dim[d], &rows))
            rows = 0; // only possible for a tensor without elements
    to->tensor = tensor_of((void *)(uintptr_t)t->data, type, rows, t->dims > 0 ? t->dim[t->dims - 1] : 1);
}

// rename: as weights_open_files'; NULL: names are unchanged.
static bool find_shards(struct weights *w, weights_renamed *rename, struct error *err)
{
    w->shards = shards_open(w->path, err);
    if (w->shards == NULL)
        return false;
    size_t most = 0;
    for (size_t i = 0; i < shards_count(w->shards); i++)
        most += fused_experts_parts(w->architecture, shards_at(w->shards, i));
    w->weight = xcalloc(most, sizeof(*w->weight));
    for (size_t i = 0; i < shards_count(w->shards); i++) {
        const struct safetensor *t = shards_at(w->shards, i);
        const size_t parts = fused_experts_parts(w->architecture, t);
        for (size_t k = 0; k < parts; k++) {
            const struct safetensor part = fused_experts_part(w->architecture, t, k);
            char *own = (char *)(uintptr_t)part.name, *name = rename != NULL ? rename(own) : xstrdup(own);
            if (name != NULL)
                add_tensor(w, &part, t->name, shards_file(w->shards, t->file), name);
            free(own);
        }
    }
    w->of_images = most - w->n;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct weight *)a)->name, ((const struct weight *)b)->name);
}

// Sorts the tensors and checks that names are unique. ok: finding them succeeded.
static struct weights *finish_open(struct weights *w, bool ok, struct error *err)
{
    if (ok && w->n != 0)
        qsort(w->weight, w->n, sizeof(*w->weight), by_name);
    for (size_t i = 1; i < w->n && ok; i++)
        if (by_name(&w->weight[i - 1], &w->weight[i]) == 0)
            ok = fail(err, "%s: tensors %s and %s are both %s", w->path, w->weight[i - 1].stored, w->weight[i].stored,
                      w->weight[i].name);
    if (!ok) {
        weights_close(w);
        return NULL;
    }
    return w;
}

struct weights *weights_open(const struct model_config *c, struct error *err)
{
    struct weights *w = xcalloc(1, sizeof(*w));
    w->path = xstrdup(c->path);
    w->head_dim = c->head_dim;
    w->architecture = c->architecture;
    w->fp8 = c->fp8;
    weights_renamed *const rename = c->wrapper != NULL ? weights_text_name : NULL;
    const bool ok = c->gguf ? find_gguf(w, c, err) : find_shards(w, rename, err);
    return finish_open(w, ok, err);
}

struct weights *weights_open_files(const char *path, weights_renamed *rename, struct error *err)
{
    struct weights *w = xcalloc(1, sizeof(*w));
    w->path = xstrdup(path);
    return finish_open(w, find_shards(w, rename, err), err);
}

void weights_close(struct weights *w)
{
    if (w == NULL)
        return;
    for (size_t i = 0; i < w->n; i++) {
        free(w->weight[i].name);
        free(w->weight[i].stored);
        free(w->weight[i].copy);
    }
    free(w->weight);
    gguf_close(w->gguf);
    shards_close(w->shards);
    free(w->path);
    free(w);
}

struct weight *weights_find(const struct weights *w, const char *name)
{
    struct weight wanted = { .name = (char *)(uintptr_t)name };
    return w->n == 0 ? NULL : bsearch(&wanted, w->weight, w->n, sizeof(wanted), by_name);
}

bool weights_has(const struct weights *w, const char *name)
{
    return weights_find(w, name) != NULL;
}

// Moves rows (or a bias's numbers) from llama.cpp's order to Hugging Face's: row 2i + s of a head of size d goes to
// s d/2 + i. Blocks lie along rows, so quantized rows are moved as bytes.
static bool unpermute(struct weight *t, int head_dim, struct error *err)
{
    bool bias = t->tensor.rows == 1;
    const struct type_facts *f = &type_facts[t->tensor.type];
    if (bias && f->block != 1)
        return fail(err, "%s: tensor %s: expected a bias of f32, f16 or bf16, found %s", t->file, t->stored, f->name);
    int64_t rows = bias ? t->tensor.width : t->tensor.rows;
    size_t size = bias ? (size_t)f->bytes : type_row_bytes(t->tensor.type, t->tensor.width);
    if (rows != (int64_t)t->heads * head_dim)
        return fail(err, "%s: tensor %s: expected %d heads of %d, found %" PRId64 " rows", t->file, t->stored, t->heads,
                    head_dim, rows);
    uint8_t *to = xmalloc((size_t)rows * size);
    const uint8_t *from = t->tensor.data;
    int64_t half = head_dim / 2;
    for (int64_t head = 0; head < t->heads; head++)
        for (int64_t i = 0; i < half; i++)
            for (int64_t s = 0; s < 2; s++) {
                int64_t first = head * head_dim;
                memcpy(to + (size_t)(first + s * half + i) * size, from + (size_t)(first + 2 * i + s) * size, size);
            }
    t->copy = to;
    t->tensor.data = to;
    return true;
}

// safetensors does not guarantee alignment: a misaligned tensor is copied.
static void align(struct weight *t)
{
    size_t alignment = t->tensor.type == F32 ? 4 : 2;
    if ((uintptr_t)t->tensor.data % alignment == 0)
        return;
    t->copy = xmalloc(t->bytes);
    memcpy(t->copy, t->tensor.data, t->bytes);
    t->tensor.data = t->copy;
}

// Reports a missing tensor by its name in the file's format.
static bool fail_missing(const struct weights *w, const char *name, struct error *err)
{
    char *own = w->gguf != NULL ? weights_gguf_name(w->architecture, name) : xstrdup(name);
    fail(err, "%s: there is no tensor %s", w->path, own);
    free(own);
    return false;
}

static struct weight *find_fitting(struct weights *w, const char *name, int64_t rows, int64_t width, struct error *err)
{
    struct weight *t = weights_find(w, name);
    if (t == NULL) {
        fail_missing(w, name, err);
        return NULL;
    }
    t->requested = true;
    if (t->tensor.rows != rows || t->tensor.width != width)
        fail(err, "%s: tensor %s: expected %" PRId64 " rows of %" PRId64 ", found %" PRId64 " of %" PRId64, t->file,
             t->stored, rows, width, t->tensor.rows, t->tensor.width);
    else if (!t->known && t->ggml >= 0)
        fail(err,
             "%s: tensor %s: its type, %s (%d), is not one of f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, "
             "q4_k, q5_k, q6_k, iq4_nl, iq4_xs, mxfp4",
             t->file, t->stored, t->type_name, t->ggml);
    else if (!t->known)
        fail(err, "%s: tensor %s: expected F32, F16 or BF16, found %s", t->file, t->stored, t->type_name);
    else if (!t->fp8 || fp8_find(w, t, &(struct fp8_matrix){ 0 }, err))
        return t;
    return NULL;
}

bool weights_get_unchecked(struct weights *w, const char *name, int64_t rows, int64_t width, struct tensor *to,
                           struct error *err)
{
    struct weight *t = find_fitting(w, name, rows, width, err);
    if (t != NULL)
        *to = t->tensor;
    return t != NULL;
}

static void put_blocks(struct weight *t, const struct fp8_matrix *from)
{
    t->copy = xrealloc(t->copy, tensor_bytes(t->tensor));
    fp8_rows(from, 0, from->rows, t->copy);
    t->tensor.data = t->copy;
}

void weights_drop(struct weights *w, const char *name)
{
    struct weight *t = weights_find(w, name);
    if (t == NULL || !t->fp8)
        return;
    free(t->copy);
    t->copy = NULL;
    t->tensor.data = (void *)(uintptr_t)t->in_file;
    t->checked = false;
}

bool weights_get(struct weights *w, const char *name, int64_t rows, int64_t width, struct tensor *to, struct error *err)
{
    struct weight *t = find_fitting(w, name, rows, width, err);
    if (t == NULL)
        return false;
    if (!t->checked) {
        struct fp8_matrix fp8;
        if (t->fp8 && !fp8_find(w, t, &fp8, err))
            return false;
        if (t->fp8)
            put_blocks(t, &fp8);
        int64_t bad = tensor_not_finite(&t->tensor);
        if (bad >= 0)
            return fail(err, "%s: tensor %s: row %" PRId64 " holds a number that is not finite", t->file, t->stored,
                        bad);
        if (t->heads != 0 && !unpermute(t, w->head_dim, err))
            return false;
        align(t);
        t->checked = true;
    }
    *to = t->tensor;
    return true;
}

static int64_t integer_at(const struct weight *t, size_t size, int64_t i)
{
    const uint8_t *at = (const uint8_t *)t->in_file + (size_t)i * size;
    int64_t i64;
    int32_t i32;
    if (size == sizeof(i64)) {
        memcpy(&i64, at, sizeof(i64));
        return i64;
    }
    if (size == sizeof(i32)) {
        memcpy(&i32, at, sizeof(i32));
        return i32;
    }
    return *at;
}

bool weights_integers(struct weights *w, const char *name, int64_t n, int64_t min, int64_t max, int64_t *to,
                      struct error *err)
{
    static const struct {
        const char *type;
        size_t size;
    } types[] = { { "I64", 8 }, { "I32", 4 }, { "U8", 1 }, { "BOOL", 1 } };
    struct weight *t = weights_find(w, name);
    size_t size = 0;
    if (t == NULL)
        return fail_missing(w, name, err);
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (strcmp(types[i].type, t->type_name) == 0)
            size = types[i].size;
    t->requested = true;
    if (size == 0)
        return fail(err, "%s: tensor %s: expected I64, I32, U8 or BOOL, found %s", t->file, t->stored, t->type_name);
    if (t->tensor.rows * t->tensor.width != n)
        return fail(err, "%s: tensor %s: expected %" PRId64 " numbers, found %" PRId64, t->file, t->stored, n,
                    t->tensor.rows * t->tensor.width);
    for (int64_t i = 0; i < n; i++) {
        to[i] = integer_at(t, size, i);
        if (to[i] < min || to[i] > max)
            return fail(err, "%s: tensor %s: number %" PRId64 ": expected %" PRId64 " to %" PRId64 ", found %" PRId64,
                        t->file, t->stored, i, min, max, to[i]);
    }
    return true;
}

size_t weights_bytes(const struct weights *w)
{
    size_t bytes = 0;
    for (size_t i = 0; i < w->n; i++)
        bytes += w->weight[i].bytes;
    return bytes;
}
