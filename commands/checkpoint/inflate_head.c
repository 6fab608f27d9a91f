#include "commands/checkpoint/inflate_head.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/checkpoint/head_folder.h"
#include "core/error.h"
#include "core/json.h"
#include "core/memory.h"
#include "formats/file.h"
#include "formats/safetensors.h"
#include "kernels/backend.h"
#include "models/config.h"
#include "models/heads/head.h"
#include "models/weights.h"

enum side { SAME, STREAM, QUERIES, KEYS, HIDDEN }; // what the rows of a matrix write to, or its columns read

struct shape { // of a head's layers
    int64_t width, hidden, heads, kv_heads, head_dim;
};

struct enlarged { // a tensor of the head
    char *name, *own;
    struct tensor from;
    enum side rows, columns;
    bool vector, norm;
    int64_t *ids; // owned; NULL: numbers
};

struct enlarging {
    struct shape small, large;
    struct backend *backend;
    size_t n;
    struct enlarged *tensor;      // (n)
    struct safetensor *described; // (n)
};

// ---- what a tensor is

static bool ends(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

static void sides(struct enlarged *t)
{
    static const struct {
        const char *end;
        enum side rows, columns;
    } known[] = {
        { "self_attn.q_proj.weight", QUERIES, STREAM },
        { "self_attn.q_proj.bias", QUERIES, SAME },
        { "self_attn.k_proj.weight", KEYS, STREAM },
        { "self_attn.k_proj.bias", KEYS, SAME },
        { "self_attn.v_proj.weight", KEYS, STREAM },
        { "self_attn.v_proj.bias", KEYS, SAME },
        { "self_attn.o_proj.weight", STREAM, QUERIES },
        { "mlp.gate_proj.weight", HIDDEN, STREAM },
        { "mlp.up_proj.weight", HIDDEN, STREAM },
        { "mlp.down_proj.weight", STREAM, HIDDEN },
        { "lm_head.weight", SAME, STREAM },
        { "embed_tokens.weight", SAME, STREAM },
    };
    t->norm = t->vector && (ends(t->own, "norm.weight") || strstr(t->own, "fc_norm.") == t->own);
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (ends(t->own, known[i].end)) {
            t->rows = known[i].rows;
            t->columns = known[i].columns;
            return;
        }
    // fc and Medusa's blocks write to a stream and read streams; Medusa's LM heads write logits
    const bool square = !t->vector && t->from.rows == t->from.width;
    t->rows = t->vector || square || strcmp(t->own, "fc.weight") == 0 ? STREAM : SAME;
    t->columns = t->vector ? SAME : STREAM;
}

// ---- sizes

static int64_t heads_per_group(const struct shape *s)
{
    return s->heads / s->kv_heads;
}

// The number of rows, or of columns, of a side that has n of them.
static int64_t enlarged_size(const struct enlarging *e, enum side side, int64_t n)
{
    const struct shape *s = &e->small, *l = &e->large;
    switch (side) {
    case STREAM:
        return n / s->width * l->width; // streams lie side by side
    case QUERIES:
        return l->heads * l->head_dim;
    case KEYS:
        return l->kv_heads * l->head_dim;
    case HIDDEN:
        return l->hidden;
    default:
        return n;
    }
}

// Whether a side of n rows or columns is of the head's own size.
static bool fits(const struct enlarging *e, enum side side, int64_t n)
{
    const struct shape *s = &e->small;
    switch (side) {
    case STREAM:
        return n % s->width == 0;
    case QUERIES:
        return n == s->heads * s->head_dim;
    case KEYS:
        return n == s->kv_heads * s->head_dim;
    case HIDDEN:
        return n == s->hidden;
    default:
        return true;
    }
}

// The original of row i, or -1: zeros. Added heads and hidden units are copies, which o and down multiply by zero.
static int64_t source_row(const struct enlarging *e, enum side side, int64_t i)
{
    const struct shape *s = &e->small, *l = &e->large;
    const int64_t d = s->head_dim, group = heads_per_group(s), larger = heads_per_group(l), head = i / d;
    switch (side) {
    case STREAM:
        return i % l->width < s->width ? i / l->width * s->width + i % l->width : -1;
    case QUERIES:
        return (head / larger % s->kv_heads * group + head % larger % group) * d + i % d;
    case KEYS:
        return head % s->kv_heads * d + i % d;
    case HIDDEN:
        return i % s->hidden;
    default:
        return i;
    }
}

// The original of column i, or -1: zeros.
static int64_t source_column(const struct enlarging *e, enum side side, int64_t i)
{
    const struct shape *s = &e->small, *l = &e->large;
    const int64_t d = s->head_dim, group = heads_per_group(s), larger = heads_per_group(l), head = i / d;
    if (side == QUERIES)
        return head / larger < s->kv_heads && head % larger < group
                   ? (head / larger * group + head % larger) * d + i % d
                   : -1;
    if (side == HIDDEN)
        return i < s->hidden ? i : -1;
    return source_row(e, side, i);
}

// ---- writing

static void put_numbers(const struct enlarging *e, const struct enlarged *t, int64_t rows, int64_t width,
                        struct part *to)
{
    const size_t size = type_row_bytes(t->from.type, 1);
    const uint8_t *data = t->from.data;
    uint8_t *row = xmalloc((size_t)width * size);
    for (int64_t r = 0; r < rows && !part_failed(to); r++) {
        const int64_t from = source_row(e, t->rows, r);
        memset(row, 0, (size_t)width * size);
        for (int64_t i = 0; i < width && from >= 0; i++) {
            const int64_t column = source_column(e, t->columns, i);
            if (column >= 0)
                memcpy(row + (size_t)i * size, data + (size_t)(from * t->from.width + column) * size, size);
        }
        part_write(to, row, (size_t)width * size);
    }
    free(row);
}

// Gains as floats, since scaled ones need not be exact in the head's type.
static void put_norm(const struct enlarging *e, const struct enlarged *t, int64_t n, struct part *to)
{
    float *gain = xcalloc((size_t)t->from.width, sizeof(*gain)), *x = xcalloc((size_t)n, sizeof(*x));
    e->backend->take(e->backend, tensor_of(gain, F32, 1, t->from.width), t->from, &(const int32_t){ 0 });
    const double factor = sqrt((double)e->small.width / (double)e->large.width);
    for (int64_t i = 0; i < n; i++) {
        const int64_t from = source_row(e, STREAM, i);
        x[i] = from >= 0 ? (float)(gain[from] * factor) : 0;
    }
    part_write(to, x, (size_t)n * sizeof(*x));
    free(gain);
    free(x);
}

static bool put(void *context, size_t i, struct part *to, struct error *err)
{
    (void)err;
    const struct enlarging *e = context;
    const struct enlarged *t = &e->tensor[i];
    const struct safetensor *s = &e->described[i];
    if (t->norm)
        put_norm(e, t, s->dim[0], to);
    else if (t->vector) { // a bias: a row for each number
        struct enlarged column = *t;
        column.from = tensor_of(t->from.data, t->from.type, t->from.width, 1);
        column.columns = SAME;
        put_numbers(e, &column, s->dim[0], 1, to);
    } else
        put_numbers(e, t, s->dim[0], s->dim[1], to);
    return true;
}

// ---- planning

static bool add_ids(struct enlarged *t, struct safetensor *s, struct weights *w, int64_t n, struct error *err)
{
    t->ids = xcalloc((size_t)n, sizeof(*t->ids));
    *s = (struct safetensor){ .name = t->name, .dtype = "I64", .dims = 1, .dim = { n }, .data = t->ids };
    s->bytes = (size_t)n * sizeof(*t->ids);
    return weights_integers(w, t->own, n, INT32_MIN, INT32_MAX, t->ids, err);
}

static bool add(struct enlarging *e, const struct head *h, const char *name, int64_t rows, int64_t width, bool ids,
                struct error *err)
{
    struct enlarged *t = &e->tensor[e->n];
    struct safetensor *s = &e->described[e->n++];
    t->own = xstrdup(name);
    t->name = h->kind == HEAD_EAGLE3 && !h->speculators && strncmp(name, "layers.0.", 9) == 0
                  ? xformat("midlayer.%s", name + 9)
                  : xstrdup(name);
    if (ids)
        return add_ids(t, s, h->weights, width, err);
    if (!weights_get(h->weights, name, rows, width, &t->from, err))
        return false;
    if (type_facts[t->from.type].block != 1)
        return fail(err, "%s: tensor %s: expected f32, f16 or bf16, found %s", h->path, name,
                    type_facts[t->from.type].name);
    t->vector = rows == 1;
    sides(t);
    if (!fits(e, t->rows, t->vector ? width : rows) || (!t->vector && !fits(e, t->columns, width)))
        return fail(err, "%s: tensor %s has %lld rows of %lld numbers, which do not fit the sizes in %s", h->path, name,
                    (long long)rows, (long long)width, h->config_path);
    const enum type as = t->norm ? F32 : t->from.type;
    s->name = t->name;
    s->dtype = as == F32 ? "F32" : as == F16 ? "F16" : "BF16";
    s->dims = t->vector ? 1 : 2;
    s->dim[0] = enlarged_size(e, t->rows, t->vector ? width : rows);
    s->dim[1] = t->vector ? 1 : enlarged_size(e, t->columns, width);
    s->bytes = (size_t)(s->dim[0] * s->dim[1]) * type_row_bytes(as, 1);
    return true;
}

static bool is_ids(const char *type)
{
    return strcmp(type, "I64") == 0 || strcmp(type, "I32") == 0 || strcmp(type, "BOOL") == 0 || strcmp(type, "U8") == 0;
}

static bool plan(struct enlarging *e, const struct head *h, struct error *err)
{
    const char *name, *type;
    int64_t rows, width;
    size_t bytes, n = 0;
    while (weights_list(h->weights, n, &name, &type, &rows, &width, &bytes))
        n++;
    e->tensor = xcalloc(n, sizeof(*e->tensor));
    e->described = xcalloc(n, sizeof(*e->described));
    for (size_t i = 0; i < n; i++) {
        weights_list(h->weights, i, &name, &type, &rows, &width, &bytes);
        // t2d says what d2t does, in a form with a number for each of the target's tokens
        if (strcmp(name, "t2d") != 0 && !add(e, h, name, rows, width, is_ids(type), err))
            return false;
    }
    return true;
}

static void free_plan(struct enlarging *e)
{
    for (size_t i = 0; i < e->n; i++) {
        free(e->tensor[i].name);
        free(e->tensor[i].own);
        free(e->tensor[i].ids);
    }
    free(e->tensor);
    free(e->described);
}

// ---- the configuration

static bool number(const struct head *h, const struct json *of, const char *key, int64_t other, int64_t *to,
                   struct error *err)
{
    const struct json *v = json_get(of, key);
    *to = json_is_int(v) ? json_int(v) : other;
    return *to > 0 || fail(err, "%s: %s: expected a positive integer", h->config_path, key);
}

// Layers 2, L / 2 and L - 3, the default, are others in a target with more layers.
static bool reads_streams_of_its_width(const struct head *h, const struct shape *s, struct error *err)
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const struct json *inner = json_get(json_get(h->config, "eagle_config"), key),
                      *ids = json_is_null(inner) ? json_get(h->config, key) : inner;
    int64_t rows, width;
    if (!json_is_array(ids))
        return fail(err, "%s: there is no %s, and without it the layers depend on the target's number of layers",
                    h->config_path, key);
    if (!weights_shape(h->weights, "fc.weight", &rows, &width) || width != (int64_t)json_count(ids) * s->width)
        return fail(err, "%s: fc.weight: expected rows of %zu times the head's width %lld, found %lld", h->path,
                    json_count(ids), (long long)s->width, (long long)width);
    return true;
}

// Of a Medusa head only the width is needed, which is that of its first block.
static bool read_shapes(struct enlarging *e, const struct head *h, const struct model_config *t, struct error *err)
{
    const struct json *c = h->speculators ? json_get(h->config, "transformer_layer_config") : h->config;
    struct shape *s = &e->small;
    int64_t rows;
    e->large = (struct shape){ t->width, t->hidden, t->heads, t->kv_heads, t->head_dim };
    if (h->kind == HEAD_MEDUSA) {
        const bool own = weights_shape(h->weights, "0.0.linear.weight", &rows, &s->width);
        *s = (struct shape){ s->width, t->hidden, t->heads, t->kv_heads, t->head_dim };
        return own || weights_shape(h->weights, "blocks.0.layers.0.weight", &rows, &s->width);
    }
    if (!number(h, c, "hidden_size", 0, &s->width, err) || !number(h, c, "intermediate_size", 0, &s->hidden, err) ||
        !number(h, c, "num_attention_heads", 0, &s->heads, err) ||
        !number(h, c, "num_key_value_heads", s->heads, &s->kv_heads, err) ||
        !number(h, c, "head_dim", s->width / s->heads, &s->head_dim, err))
        return false;
    if (s->heads % s->kv_heads != 0)
        return fail(err, "%s: num_attention_heads: expected a multiple of num_key_value_heads (%lld), found %lld",
                    h->config_path, (long long)s->kv_heads, (long long)s->heads);
    if (h->kind == HEAD_EAGLE3 && !reads_streams_of_its_width(h, s, err))
        return false;
    if (s->head_dim != e->large.head_dim)
        return fail(err, "%s: the head has attention heads of %lld numbers, and the target of %lld", h->path,
                    (long long)s->head_dim, (long long)e->large.head_dim);
    if (s->hidden > e->large.hidden || s->heads > e->large.heads || s->kv_heads > e->large.kv_heads ||
        heads_per_group(s) > heads_per_group(&e->large))
        return fail(
            err,
            "%s: hidden %lld, %lld heads on %lld cannot become smaller: the target has hidden %lld, %lld heads on %lld",
            h->path, (long long)s->hidden, (long long)s->heads, (long long)s->kv_heads, (long long)e->large.hidden,
            (long long)e->large.heads, (long long)e->large.kv_heads);
    return true;
}

static void change_config(const struct enlarging *e, const struct head *h, const struct model_config *t)
{
    struct json *c = h->speculators ? json_get(h->config, "transformer_layer_config") : h->config;
    const struct json *eps = json_get(c, "rms_norm_eps");
    json_set(c, "hidden_size", json_new_int(e->large.width));
    if (h->kind != HEAD_MEDUSA) {
        json_set(c, "intermediate_size", json_new_int(e->large.hidden));
        json_set(c, "num_attention_heads", json_new_int(e->large.heads));
        json_set(c, "num_key_value_heads", json_new_int(e->large.kv_heads));
        json_set(c, "head_dim", json_new_int(e->large.head_dim));
        json_set(c, "rms_norm_eps",
                 json_new_number((json_is_null(eps) ? 1e-6 : json_number(eps)) * (double)e->small.width /
                                 (double)e->large.width));
    }
    json_set(h->config, CONFIG_INFLATED_HF, json_new_text(t->inflated));
}

bool inflate_head(const char *from, const struct model_config *target, const char *to, struct backend *b,
                  struct error *err)
{
    struct head h;
    struct enlarging e = { .backend = b };
    if (target->inflated == NULL)
        return fail(err, "%s: not an inflated model (speclab inflate MODEL makes one)", target->path);
    if (file_exists(to))
        return fail(err, "%s: exists already", to);
    if (!head_open(&h, from, HEAD_MEDUSA, NULL, err))
        return false;
    bool ok = h.config != NULL || fail(err, "%s: there is no config.json beside it", from);
    ok = ok && read_shapes(&e, &h, target, err);
    if (ok && e.small.width >= e.large.width)
        ok = fail(err, "%s: a head of width %lld: the target's %lld is not larger", from, (long long)e.small.width,
                  (long long)e.large.width);
    ok = ok && plan(&e, &h, err);
    if (ok) {
        change_config(&e, &h, target);
        char *json = json_write(h.config), *config = xformat("%s\n", json);
        ok = head_folder_write(to, e.described, e.n, put, &e, config, err);
        free(json);
        free(config);
    }
    free_plan(&e);
    head_close(&h);
    return ok;
}
