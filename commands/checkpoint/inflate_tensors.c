// inflate_tensors.c - maps the numbers of an enlarged tensor to those of the original.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "commands/checkpoint/inflate_parts.h"
#include "commands/checkpoint/source.h"
#include "models/weights.h"

struct enlarged_tensor {
    struct tensor from;
    enum role role;
    bool silent; // all zeros: belongs to an added layer and writes to the residual stream
};

enum { ZEROS = -1 };

// ---- rows

// The original head that head i is or copies; key-value head j's original heads are the first of its group.
static int64_t source_head(const struct inflating *f, int64_t i)
{
    const struct model_config *s = f->small, *l = f->large;
    int group = s->heads / s->kv_heads, larger = l->heads / l->kv_heads;
    return i / larger % s->kv_heads * group + i % larger % group;
}

// The original row of row i of the enlarged tensor, or ZEROS. A bias has a row for each number.
static int64_t source_row(const struct inflating *f, const struct enlarged_tensor *g, int64_t i)
{
    const struct model_config *s = f->small;
    int64_t d = s->head_dim;
    switch (g->role) {
    case ROLE_Q:
    case ROLE_Q_BIAS:
        return source_head(f, i / d) * d + i % d;
    case ROLE_K:
    case ROLE_V:
    case ROLE_K_BIAS:
    case ROLE_V_BIAS:
        return i / d % s->kv_heads * d + i % d;
    case ROLE_GATE:
    case ROLE_UP:
        return i % s->hidden;
    case ROLE_O:
    case ROLE_DOWN:
    case ROLE_O_BIAS:
        return i < s->width && !g->silent ? i : ZEROS;
    default: // the embedding and the head: one row per token
        return i;
    }
}

// ---- columns

struct chunk { // of a row: numbers from .. from + n of the original are copied to `to`; the rest is zeros
    int64_t to, from, n;
};

// (n) The chunks of a row: one per group of heads for o, which reads heads; otherwise one at the beginning. free() it.
static struct chunk *chunks(const struct inflating *f, const struct enlarged_tensor *g, int *n)
{
    const struct model_config *s = f->small, *l = f->large;
    int64_t before = s->heads / s->kv_heads * s->head_dim, after = l->heads / l->kv_heads * s->head_dim;
    bool split = g->role == ROLE_O && before != after;
    *n = split ? s->kv_heads : 1;
    struct chunk *p = xcalloc((size_t)*n, sizeof(*p));
    for (int i = 0; i < *n; i++)
        p[i] = split ? (struct chunk){ i * after, i * before, before } : (struct chunk){ 0, 0, g->from.width };
    return p;
}

// Checks that no chunk splits a quantized block.
static bool check_blocks(const struct inflating *f, const struct source_tensor *t, const struct enlarged_tensor *g,
                         int64_t width, struct error *err)
{
    int block = type_facts[g->from.type].block, n;
    struct chunk *p = chunks(f, g, &n);
    bool split = false;
    for (int i = 0; i < n; i++)
        split |= p[i].to % block != 0 || p[i].from % block != 0 || p[i].n % block != 0;
    free(p);
    const char *path = f->small->path;
    if (split)
        return fail(err,
                    "%s: tensor %s: %s has blocks of %d numbers, and a group of %d heads of %d is not a multiple of "
                    "the block size: no head can be added",
                    path, t->name, t->type, block, f->small->heads / f->small->kv_heads, f->small->head_dim);
    if (width % block != 0)
        return fail(err,
                    "%s: tensor %s: its rows would have %" PRId64 " numbers, which is not a multiple of the block size "
                    "%d of %s (%" PRId64 " is)",
                    path, t->name, width, block, t->type, (width + block - 1) / block * block);
    return true;
}

// ---- writing

static void put_row(const uint8_t *row, enum type type, const struct chunk *p, int n, int64_t width, struct part *to)
{
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        part_zeros(to, type_row_bytes(type, p[i].to - at));
        part_write(to, row + type_row_bytes(type, p[i].from), type_row_bytes(type, p[i].n));
        at = p[i].to + p[i].n;
    }
    part_zeros(to, type_row_bytes(type, width - at));
}

// Writes gains as floats, since the scaled values need not be exact in the model's type.
static void put_norm(const struct inflating *f, const struct enlarged_tensor *g, struct part *to)
{
    int64_t w = g->from.width;
    float *x = xcalloc((size_t)f->large->width, sizeof(*x));
    f->backend->take(f->backend, tensor_of(x, F32, 1, w), g->from, &(const int32_t){ 0 });
    double factor = sqrt((double)w / f->large->width);
    for (int64_t i = 0; i < w; i++)
        x[i] = (float)(x[i] * factor);
    part_write(to, x, (size_t)f->large->width * sizeof(*x));
    free(x);
}

static bool is_norm(enum role r)
{
    return r == ROLE_NORM || r == ROLE_FFN_NORM || r == ROLE_LAST_NORM;
}

bool inflate_write_tensor(void *context, size_t i, struct part *to, struct error *err)
{
    (void)err;
    const struct inflating *f = context;
    const struct enlarged_tensor *g = &f->job[i];
    int64_t rows, width;
    int n;
    role_shape(g->role, f->large, &rows, &width);
    if (is_norm(g->role)) {
        put_norm(f, g, to);
        return true;
    }
    struct enlarged_tensor as_rows = *g;
    if (!role_is_matrix(g->role)) { // a bias
        rows = width;
        width = 1;
        as_rows.from = tensor_of(g->from.data, g->from.type, g->from.width, 1);
    }
    struct chunk *p = chunks(f, &as_rows, &n);
    const struct tensor *t = &as_rows.from;
    for (int64_t r = 0; r < rows && !part_failed(to); r++) {
        int64_t from = source_row(f, g, r);
        if (from == ZEROS)
            part_zeros(to, type_row_bytes(t->type, width));
        else
            put_row((const uint8_t *)t->data + (size_t)from * type_row_bytes(t->type, t->width), t->type, p, n, width,
                    to);
    }
    free(p);
    return true;
}

// ---- planning

// Whether the enlarged tensor differs from the original.
static bool changes(const struct inflating *f, const struct source_tensor *t, const struct enlarged_tensor *g)
{
    int64_t rows, width;
    role_shape(t->role, f->large, &rows, &width);
    return g->silent || rows != t->tensor.rows || width != t->tensor.width;
}

static bool add(struct inflating *f, const struct source_checkpoint *o, size_t i, char *name, bool added,
                struct error *err)
{
    const struct source_tensor *t = &o->tensor[i];
    struct rewrite *r = &f->rewrite;
    struct new_tensor *to = &r->tensor[r->n];
    struct enlarged_tensor *g = &f->job[r->n++];
    *to = rewrite_copy_tensor(o, i, name);
    *g = (struct enlarged_tensor){ .from = t->tensor, .role = t->role };
    g->silent = added && (t->role == ROLE_O || t->role == ROLE_DOWN || t->role == ROLE_O_BIAS);
    if (t->role == ROLE_ROPE || !changes(f, t, g))
        return true;
    int64_t rows, width;
    role_shape(t->role, f->large, &rows, &width);
    bool norm = is_norm(t->role), matrix = role_is_matrix(t->role);
    if (!norm && !matrix && type_facts[t->tensor.type].block != 1)
        return fail(err, "%s: tensor %s: expected a bias of f32, f16 or bf16, found %s", f->small->path, t->name,
                    t->type);
    if (matrix && !check_blocks(f, t, g, width, err))
        return false;
    if (norm && o->gguf == NULL)
        to->dtype = "F32";
    else if (norm)
        to->ggml = type_facts[F32].ggml;
    to->dims = matrix ? 2 : 1;
    to->dim[0] = matrix ? rows : width;
    to->dim[1] = width;
    to->bytes = (size_t)rows * type_row_bytes(norm ? F32 : t->tensor.type, width);
    to->data = NULL;
    return true;
}

bool inflate_plan(struct inflating *f, const struct source_checkpoint *o, struct error *err)
{
    const char *before = o->gguf != NULL ? "blk." : "model.layers.";
    int layers = f->small->layers, copies = (f->large->layers + layers - 1) / layers;
    f->rewrite.tensor = xcalloc(o->n * (size_t)copies, sizeof(*f->rewrite.tensor));
    f->job = xcalloc(o->n * (size_t)copies, sizeof(*f->job));
    for (size_t i = 0; i < o->n; i++) {
        const struct source_tensor *t = &o->tensor[i];
        if (t->role == ROLE_OTHER)
            return fail(err, "%s: tensor %s: its purpose is unknown, so it cannot be enlarged", f->small->path,
                        t->name);
        if (!add(f, o, i, xstrdup(t->name), false, err))
            return false;
    }
    for (int layer = layers; layer < f->large->layers; layer++)
        for (size_t i = 0; i < o->n; i++) {
            int number;
            const char *rest = weights_layer(o->tensor[i].name, before, &number);
            if (rest != NULL && number == layer % layers &&
                !add(f, o, i, xformat("%s%d%s", before, layer, rest), true, err))
                return false;
        }
    return true;
}
