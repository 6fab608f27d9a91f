// weights.c - one list of tensors under Hugging Face's names, for all formats.
#include "models/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/error.h"
#include "core/files/mapped.h"
#include "core/memory.h"
#include "models/architectures.h"
#include "models/config.h"
#include "models/finite.h"
#include "models/fused_experts.h"
#include "models/layer_tensors.h"
#include "models/formats/gguf.h"
#include "models/formats/shards.h"

static bool find_gguf(struct weights *w, const struct model_config *c, struct error *err)
{
    w->gguf = gguf_open(c->path, err);
    if (w->gguf == NULL)
        return false;
    w->made = mapped_is_filled(c->path);
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

static void add_tensor(struct weights *w, const struct safetensor *t, const char *stored, const char *file, char *name)
{
    struct weight *to = &w->weight[w->n++];
    enum type type = F32;
    to->name = name;
    to->stored = xstrdup(stored);
    to->file = file;
    to->fp8 = w->fp8.used && strncmp(name, "model.layers.", 13) == 0;
    for (enum type k = 0; k < TYPES; k++)
        if ((!type_has_blocks(k) || (k == F8_E4M3 && to->fp8)) && strcmp(type_facts[k].file_name, t->dtype) == 0) {
            type = k;
            to->known = true;
        }
    to->fp8 = type == F8_E4M3;
    to->ggml = -1;
    to->type_name = to->known ? type_facts[type].name : t->dtype;
    to->in_file = t->data;
    to->bytes = t->bytes;
    int64_t rows = 1;
    for (int d = 0; d + 1 < t->dims; d++)
        if (__builtin_mul_overflow(rows, t->dim[d], &rows))
            rows = 0; // this is possible only for a tensor without elements
    to->tensor = tensor_of((void *)(uintptr_t)t->data, type, rows, t->dims > 0 ? t->dim[t->dims - 1] : 1);
}

// rename: as in weights_open_files; NULL: names are unchanged.
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

// Moves rows (or a bias's numbers) from llama.cpp's order to Hugging Face's: row 2i + s of a head of size d goes to s
// d/2 + i. Blocks run along rows, so quantized rows are moved as bytes.
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

// ---- FP8: NAME.weight (rows, width) of F8_E4M3 and NAME.weight_scale_inv or NAME.weight_scale, one scale for a block,
// a row or the whole matrix. A number is its float times its scale.

struct fp8_matrix {
    const uint8_t *numbers; // (rows, width) in the file
    int64_t rows, width;
    struct tensor scale;               // (rows of blocks, blocks of a row)
    int64_t block_rows, block_columns; // size of the block that a scale applies to
};

static const char *const suffixes[] = { "_scale_inv", "_scale" };

static struct weight *find_scale(const struct weights *w, const char *matrix)
{
    struct weight *found = NULL;
    for (size_t i = 0; i < 2 && found == NULL; i++) {
        char *name = xformat("%s%s", matrix, suffixes[i]);
        found = weights_find(w, name);
        free(name);
    }
    return found;
}

static int64_t blocks(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

// Finds the matrix t and its scales, which count as requested. Returns false and sets err if they do not fit.
static bool find_fp8(const struct weights *w, const struct weight *t, struct fp8_matrix *to, struct error *err)
{
    const int block = type_facts[F8_E4M3].block;
    const int64_t rows = t->tensor.rows, width = t->tensor.width;
    struct weight *s = find_scale(w, t->name);
    if (width % block != 0)
        return fail(err, "%s: tensor %s: expected rows of a multiple of %d numbers in F8_E4M3, found %" PRId64, t->file,
                    t->stored, block, width);
    if (s == NULL)
        return fail(err, "%s: tensor %s: expected its scales, %s%s, found none", t->file, t->stored, t->stored,
                    suffixes[0]);
    if (!s->known || (s->tensor.type != F32 && s->tensor.type != BF16))
        return fail(err, "%s: tensor %s: expected F32 or BF16, found %s", s->file, s->stored, s->type_name);
    *to = (struct fp8_matrix){ t->in_file, rows, width, s->tensor, w->fp8.rows, w->fp8.columns };
    to->scale.data = (void *)(uintptr_t)s->in_file;
    if (w->fp8.rows == 0) { // a scale for each row, or one
        to->block_rows = s->tensor.rows * s->tensor.width == rows ? 1 : rows;
        to->block_columns = width;
        if (s->tensor.rows == 1) // (rows) or one number
            to->scale = tensor_of(to->scale.data, s->tensor.type, s->tensor.width, 1);
    }
    const int64_t down = blocks(rows, to->block_rows), across = blocks(width, to->block_columns);
    if (to->scale.rows != down || to->scale.width != across)
        return fail(err,
                    "%s: tensor %s: expected %" PRId64 " rows of %" PRId64 " scales, found %" PRId64 " of %" PRId64,
                    s->file, s->stored, down, across, s->tensor.rows, s->tensor.width);
    s->requested = true;
    return true;
}

// Returns number i of scales of F32 or BF16, which may be misaligned.
static float scale_at(const struct tensor *t, int64_t i)
{
    const uint8_t *at = (const uint8_t *)t->data + (size_t)i * (size_t)type_facts[t->type].bytes;
    uint32_t bits = 0;
    float x;
    if (t->type == F32)
        memcpy(&bits, at, 4);
    else
        bits = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

// Converts the matrix to blocks of F8_E4M3.
static void put_blocks(struct weight *t, const struct fp8_matrix *m)
{
    const int block = type_facts[F8_E4M3].block;
    uint8_t *to = t->copy = xrealloc(t->copy, tensor_bytes(t->tensor));
    t->tensor.data = to;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t k = 0; k < m->width; k += block, to += type_facts[F8_E4M3].bytes) {
            const float scale = scale_at(&m->scale, r / m->block_rows * m->scale.width + k / m->block_columns);
            memcpy(to, &scale, sizeof(scale));
            memcpy(to + sizeof(scale), m->numbers + r * m->width + k, (size_t)block);
        }
}

// ---- tensors by name

// Reports a type of GGUF that is not supported.
static void fail_type(const struct weight *t, struct error *err)
{
    struct text names = { 0 };
    for (const struct type_facts *f = type_facts; f < type_facts + TYPES; f++)
        if (f->ggml >= 0)
            text_printf(&names, "%s%s", names.n > 0 ? ", " : "", f->name);
    fail(err, "%s: tensor %s: its type, %s (%d), is not one of %s", t->file, t->stored, t->type_name, t->ggml, names.s);
    free(names.s);
}

// Reports a missing tensor by its name in the file's format.
static bool fail_missing(const struct weights *w, const char *name, struct error *err)
{
    char *own = w->gguf != NULL ? weights_gguf_name(w->architecture, name) : xstrdup(name);
    fail(err, "%s: there is no tensor %s", w->path, own);
    free(own);
    return false;
}

// *fp8: set for a matrix of FP8.
static struct weight *find_fitting(struct weights *w, const char *name, int64_t rows, int64_t width,
                                   struct fp8_matrix *fp8, struct error *err)
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
        fail_type(t, err);
    else if (!t->known)
        fail(err, "%s: tensor %s: expected F32, F16 or BF16, found %s", t->file, t->stored, t->type_name);
    else if (!t->fp8 || find_fp8(w, t, fp8, err))
        return t;
    return NULL;
}

bool weights_get_unchecked(struct weights *w, const char *name, int64_t rows, int64_t width, struct tensor *to,
                           struct error *err)
{
    struct fp8_matrix ignored;
    struct weight *t = find_fitting(w, name, rows, width, &ignored, err);
    if (t != NULL)
        *to = t->tensor;
    return t != NULL;
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
    struct fp8_matrix fp8;
    struct weight *t = find_fitting(w, name, rows, width, &fp8, err);
    if (t == NULL)
        return false;
    if (!t->checked) {
        if (t->fp8)
            put_blocks(t, &fp8);
        const int64_t bad = w->made ? -1 : first_row_not_finite(&t->tensor);
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

// Returns a number of 1, 4 or 8 bytes. One of 1 byte is not negative.
static int64_t integer_at(const uint8_t *at, size_t size)
{
    int64_t x = 0;
    memcpy(&x, at, size);
    return size == sizeof(int32_t) ? (int32_t)x : x;
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
        to[i] = integer_at((const uint8_t *)t->in_file + (size_t)i * size, size);
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
