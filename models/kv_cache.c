#include "models/kv_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/model.h"

struct slot {
    int prefix, pending;
    int base;            // the position of the first row in short layers
    int coming;          // rows of the pass that is being admitted
    int32_t *depth;      // (pending) depth of each pending row below the prefix; 0: it follows the prefix
    uint64_t *ancestors; // (pending, words)
};

struct kv_cache {
    struct backend *backend;
    struct kv_shape shape;
    int words;        // 64-bit words of a row's ancestors, a bit for each pending row
    int short_length; // rows of a slot in short layers; 0: no layer is short
    struct tensor *keys,
        *values;         // (layers) each (slots * length, width); in short layers (slots * short_length, width)
    struct tensor *some; // (2 layers) keys and values whose rows are moved
    // Rows that kv_keep has kept and that are not yet in place, in the layers that keep all rows and in short ones.
    struct row_run *run[2]; // (slots)
    int32_t *moved[2];      // (slots * pending)
    int runs, n_moved;
    struct slot *slot;    // (slots)
    struct layout layout; // points to the arrays below, sized for slots * pending rows and padding
    int32_t *slot_of, *prefix_of, *place, *position, *token, *parent, *shifted, *short_prefix, *short_place;
    uint64_t *ancestors;
};

const char *const kv_names[] = { "default", "f32", "bf16", "q8_0" };

enum type kv_type_resolve(enum kv_type wanted)
{
    return wanted == KV_DEFAULT ? F32 : type_chosen(KV_CHOICES, wanted);
}

bool kv_fits(const struct kv_shape *s, struct error *err)
{
    const struct type_facts *f = &type_facts[s->type];
    return s->head_dim % f->block == 0 ||
           fail(err, "cache: %s has blocks of %d numbers, and the heads here have %d (expected f32 or bf16)", f->name,
                f->block, s->head_dim);
}

// Returns the rows of a slot in short layers: the window, a unit since it begins at a multiple, the pending rows, and
// two more units, so that rows are moved rarely. 0: no layer is short.
static int short_length(const struct kv_shape *s)
{
    const int64_t rows = (int64_t)s->window + s->pending + 3 * SHORT_UNIT;
    bool any = false;
    for (int l = 0; l < s->layers; l++)
        any = any || layer_set_has(&s->windowed, l);
    return any && s->window > 0 && rows < s->length ? (int)rows : 0;
}

static int length_of(const struct kv_shape *s, int layer)
{
    const int rows = short_length(s);
    return rows > 0 && layer_set_has(&s->windowed, layer) ? rows : s->length;
}

size_t kv_bytes(const struct kv_shape *s)
{
    size_t rows = 0;
    for (int l = 0; l < s->layers; l++)
        rows += (size_t)length_of(s, l);
    return 2 * rows * (size_t)s->slots * type_row_bytes(s->type, s->width);
}

bool kv_is_short(const struct kv_cache *c, int layer)
{
    return c->short_length > 0 && layer_set_has(&c->shape.windowed, layer);
}

struct kv_cache *kv_create(struct backend *b, const struct kv_shape *shape, struct error *err)
{
    if (!kv_fits(shape, err))
        return NULL;
    if ((int64_t)shape->slots * shape->length > INT32_MAX) {
        fail(
            err,
            "a cache of %d slots of %d tokens has more rows than can be numbered; fewer slots or a smaller context would fit",
            shape->slots, shape->length);
        return NULL;
    }
    char *what = xformat("a cache of %d slots of %d tokens", shape->slots, shape->length);
    const bool fits = memory_check(b, kv_bytes(shape), what, err);
    free(what);
    if (!fits)
        return NULL;
    struct kv_cache *c = xcalloc(1, sizeof(*c));
    c->backend = b;
    c->shape = *shape;
    c->words = (shape->pending + 63) / 64;
    c->short_length = short_length(shape);
    c->keys = xcalloc((size_t)shape->layers, sizeof(*c->keys));
    c->values = xcalloc((size_t)shape->layers, sizeof(*c->values));
    c->some = xcalloc(2 * (size_t)shape->layers, sizeof(*c->some));
    c->slot = xcalloc((size_t)shape->slots, sizeof(*c->slot));
    for (int l = 0; l < shape->layers; l++) {
        const int64_t rows = (int64_t)shape->slots * length_of(shape, l);
        const size_t bytes = (size_t)rows * type_row_bytes(shape->type, shape->width);
        c->keys[l] = tensor_of(b->alloc(b, bytes), shape->type, rows, shape->width);
        c->values[l] = tensor_of(b->alloc(b, bytes), shape->type, rows, shape->width);
        if (c->keys[l].data == NULL || c->values[l].data == NULL) {
            fail(
                err,
                "%s: not enough memory for a cache of %zu MB (%d slots of %d tokens); fewer slots or a smaller context would fit",
                b->name, kv_bytes(shape) >> 20, shape->slots, shape->length);
            kv_destroy(c);
            return NULL;
        }
    }
    for (int s = 0; s < shape->slots; s++) {
        c->slot[s].depth = xcalloc((size_t)shape->pending, sizeof(int32_t));
        c->slot[s].ancestors = xcalloc((size_t)shape->pending * (size_t)c->words, sizeof(uint64_t));
    }
    size_t max_rows = (size_t)rows_queued(b, shape->slots * shape->pending);
    c->slot_of = xcalloc(max_rows, sizeof(int32_t));
    c->prefix_of = xcalloc(max_rows, sizeof(int32_t));
    c->place = xcalloc(max_rows, sizeof(int32_t));
    c->position = xcalloc(max_rows, sizeof(int32_t));
    c->token = xcalloc(max_rows, sizeof(int32_t));
    c->parent = xcalloc(max_rows, sizeof(int32_t));
    for (int k = 0; k < 2; k++) {
        c->run[k] = xcalloc((size_t)shape->slots, sizeof(*c->run[k]));
        c->moved[k] = xcalloc((size_t)shape->slots * (size_t)shape->pending, sizeof(int32_t));
    }
    c->shifted = xcalloc((size_t)c->short_length + 1, sizeof(int32_t));
    c->short_prefix = xcalloc(max_rows, sizeof(int32_t));
    c->short_place = xcalloc(max_rows, sizeof(int32_t));
    c->ancestors = xcalloc(max_rows * (size_t)c->words, sizeof(uint64_t));
    return c;
}

void kv_destroy(struct kv_cache *c)
{
    if (c == NULL)
        return;
    for (int l = 0; l < c->shape.layers; l++) {
        c->backend->release(c->backend, c->keys[l].data);
        c->backend->release(c->backend, c->values[l].data);
    }
    for (int s = 0; s < c->shape.slots; s++) {
        free(c->slot[s].depth);
        free(c->slot[s].ancestors);
    }
    free(c->keys);
    free(c->values);
    free(c->some);
    free(c->slot);
    free(c->slot_of);
    free(c->prefix_of);
    free(c->place);
    free(c->position);
    free(c->token);
    free(c->parent);
    for (int k = 0; k < 2; k++) {
        free(c->run[k]);
        free(c->moved[k]);
    }
    free(c->shifted);
    free(c->short_prefix);
    free(c->short_place);
    free(c->ancestors);
    free(c);
}

// Sets an upper bound of the ancestors of a row whose parent is known on the device only: all pending rows up to the
// row itself.
static void admit_device_rows(const struct device_rows *r, struct kv_cache *c, const struct pass *p)
{
    for (int i = r->first; i < r->first + r->n; i++) {
        const int row = c->place[i] - p->slot[i] * c->shape.length - c->prefix_of[i];
        uint64_t *own = c->ancestors + (size_t)i * (size_t)c->words;
        for (int w = 0; w < c->words; w++)
            own[w] = row >= 64 * w + 63 ? ~0ull : row >= 64 * w ? (2ull << row % 64) - 1 : 0;
        c->position[i] = c->prefix_of[i] + row;
    }
}

// Moves rows in the short layers, or in the others.
static void move_rows(struct kv_cache *c, bool is_short, const struct row_run *run, int runs)
{
    int count = 0;
    for (int l = 0; l < c->shape.layers; l++)
        if (kv_is_short(c, l) == is_short) {
            c->some[count++] = c->keys[l];
            c->some[count++] = c->values[l];
        }
    if (count > 0 && runs > 0)
        c->backend->move(c->backend, c->some, count, run, runs);
}

static void move_kept(struct kv_cache *c)
{
    move_rows(c, false, c->run[false], c->runs);
    if (c->short_length > 0)
        move_rows(c, true, c->run[true], c->runs);
    c->runs = c->n_moved = 0;
}

// Returns the cache row of the slot's row 0, as if all its rows were kept.
static int first_row(const struct kv_cache *c, int slot, bool is_short)
{
    return is_short ? slot * c->short_length - c->slot[slot].base : slot * c->shape.length;
}

// Makes space in short layers for the rows that come. The next row is at position `prefix` or later, so it sees none
// before prefix - window + 1.
static void make_space(struct kv_cache *c, int slot)
{
    struct slot *s = &c->slot[slot];
    const int end = s->prefix + s->pending, seen = s->prefix - c->shape.window + 1;
    if (end + s->coming - s->base <= c->short_length)
        return;
    const int base = seen > 0 ? seen / SHORT_UNIT * SHORT_UNIT : 0, n = end - base;
    assert(base >= s->base && n + s->coming <= c->short_length);
    for (int i = 0; i < n; i++)
        c->shifted[i] = first_row(c, slot, true) + base + i;
    if (base > s->base)
        move_rows(c, true, &(struct row_run){ slot * c->short_length, n, c->shifted }, n > 0);
    s->base = base;
}

static void make_spaces(struct kv_cache *c, const struct pass *p)
{
    for (int i = 0; i < p->n; i++)
        c->slot[p->slot[i]].coming++;
    for (int i = 0; i < p->n; i++)
        if (c->slot[p->slot[i]].coming > 0) {
            make_space(c, p->slot[i]);
            c->slot[p->slot[i]].coming = 0;
        }
}

const struct layout *kv_admit(struct kv_cache *c, const struct pass *p, int rows)
{
    const size_t words = (size_t)c->words;
    assert(rows >= p->n);
    move_kept(c);
    if (c->short_length > 0)
        make_spaces(c, p);
    for (int i = 0; i < p->n; i++) {
        struct slot *s = &c->slot[p->slot[i]];
        int row = s->pending++, parent = p->parent[i];
        assert(row < c->shape.pending && s->prefix + row < c->shape.length && parent < row);
        uint64_t *own = s->ancestors + (size_t)row * words;
        if (parent >= 0)
            memcpy(own, s->ancestors + (size_t)parent * words, words * sizeof(*own));
        else
            memset(own, 0, words * sizeof(*own));
        own[row / 64] |= 1ull << row % 64;
        s->depth[row] = parent >= 0 ? s->depth[parent] + 1 : 0;

        c->slot_of[i] = p->slot[i];
        c->prefix_of[i] = s->prefix;
        c->place[i] = p->slot[i] * c->shape.length + s->prefix + row;
        c->position[i] = s->prefix + s->depth[row];
        c->token[i] = p->token[i];
        c->parent[i] = parent;
        c->short_prefix[i] = s->prefix - s->base;
        c->short_place[i] = p->slot[i] * c->short_length + c->short_prefix[i] + row;
        memcpy(c->ancestors + (size_t)i * words, own, words * sizeof(*own));
    }
    for (int i = 0; i < p->n_device_rows; i++)
        admit_device_rows(&p->device_rows[i], c, p);
    for (int i = p->n; i < rows; i++) {
        c->slot_of[i] = c->place[i] = c->short_place[i] = -1;
        c->prefix_of[i] = c->position[i] = c->token[i] = c->parent[i] = c->short_prefix[i] = 0;
        memset(c->ancestors + (size_t)i * words, 0, words * sizeof(*c->ancestors));
    }
    c->layout = (struct layout){ .n = rows,
                                 .words = c->words,
                                 .length = c->shape.length,
                                 .context = c->shape.context > 0 ? c->shape.context : c->shape.length,
                                 .slot = c->slot_of,
                                 .prefix = c->prefix_of,
                                 .place = c->place,
                                 .position = c->position,
                                 .ancestors = c->ancestors,
                                 .device_rows = p->device_rows,
                                 .n_device_rows = p->n_device_rows,
                                 .short_length = c->short_length,
                                 .short_prefix = c->short_prefix,
                                 .short_place = c->short_place,
                                 .token = c->token,
                                 .parent = c->parent };
    if (c->backend->upload_layout != NULL)
        c->layout.uploaded = c->backend->upload_layout(c->backend, &c->layout);
    return &c->layout;
}

struct tensor kv_keys(struct kv_cache *c, int layer)
{
    move_kept(c);
    return c->keys[layer];
}

struct tensor kv_values(struct kv_cache *c, int layer)
{
    move_kept(c);
    return c->values[layer];
}

int kv_length(const struct kv_cache *c, int slot)
{
    return c->slot[slot].prefix;
}

int kv_pending(const struct kv_cache *c, int slot)
{
    return c->slot[slot].pending;
}

void kv_keep(struct kv_cache *c, int slot, const int32_t *row, int n)
{
    struct slot *s = &c->slot[slot];
    int first = 0; // rows before it are in place: all rows of a chain are
    while (first < n && row[first] == first)
        first++;
    for (int k = 0; k < 2 && first < n; k++) {
        const int base = first_row(c, slot, k) + s->prefix;
        c->run[k][c->runs] = (struct row_run){ base + first, n - first, c->moved[k] + c->n_moved };
        for (int i = first; i < n; i++) {
            assert(row[i] >= i && row[i] < s->pending && (i == 0 || row[i] > row[i - 1]));
            c->moved[k][c->n_moved + i - first] = base + row[i];
        }
    }
    c->runs += first < n;
    c->n_moved += n - first;
    s->prefix += n;
    s->pending = 0;
}

bool kv_append_zeros(struct kv_cache *c, int slot, int n)
{
    struct slot *s = &c->slot[slot];
    if (c->short_length > 0)
        return false;
    assert(s->pending == 0 && s->prefix + n <= c->shape.length);
    const size_t bytes = (size_t)n * type_row_bytes(c->shape.type, c->shape.width);
    void *zeros = xcalloc(1, bytes);
    for (int l = 0; l < c->shape.layers && n > 0; l++) {
        const int64_t first = (int64_t)slot * c->shape.length + s->prefix;
        c->backend->upload(c->backend, tensor_rows(c->keys[l], first, n).data, zeros, bytes);
        c->backend->upload(c->backend, tensor_rows(c->values[l], first, n).data, zeros, bytes);
    }
    free(zeros);
    s->prefix += n;
    return true;
}

int kv_truncate(struct kv_cache *c, int slot, int length)
{
    struct slot *s = &c->slot[slot];
    assert(length >= 0 && length <= s->prefix);
    if (length == 0 || (s->base > 0 && s->base > length - c->shape.window + 1))
        length = s->base = 0;
    s->prefix = length;
    s->pending = 0;
    return length;
}
