#include "tests/device/device_pair.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "tests/support/check.h"
#include "tests/device/emulated.h"
#include "tests/support/small_model.h"

enum { WIDE = 128, SHORT = 64, TAPS = 2 };

int32_t device_pair_any(int below)
{
    static uint64_t state = 3;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((state >> 33) % (uint64_t)below);
}

// ---- life

// If bits depend on the number of rows, both sides pad.
void device_pair_devices_open(const struct gpu_here *g, struct backend *b[2])
{
    b[0] = gpu_open(g);
    b[1] = gpu_open(g);
    b[1]->graph_launch = NULL;
    b[1]->graph_end = NULL;
    b[1]->bucket = g->varies ? b[1]->bucket : NULL;
}

void device_pair_devices_close(struct backend *b[2])
{
    gpu_close(b[0]);
    gpu_close(b[1]);
    assert_int_equal(emulated_graphs(), 0);
}

char *device_pair_model(enum type type, int layers, int head_dim)
{
    const struct small_model t = { .vocab = PAIR_VOCAB,
                                   .width = 64,
                                   .hidden = 96,
                                   .layers = layers,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = head_dim,
                                   .sharp = true,
                                   .type = type,
                                   .seed = 11 };
    char *path = xformat("%s/%s-%d-%d.gguf", test_directory(), type_facts[type].name, layers, head_dim);
    small_write_gguf(path, &t);
    return path;
}

static struct tensor weight(struct backend *b, enum activations a, int64_t width, int salt)
{
    struct error err;
    uint16_t *x = xmalloc((size_t)(WIDE * width) * sizeof(*x));
    for (int i = 0; i < WIDE * width; i++)
        x[i] = (uint16_t)(0x3D00 | ((unsigned)(i * 40503 + salt) >> 5 & 0x80FF));
    const struct tensor w = b->prepare(b, tensor_of(x, BF16, WIDE, width), a, &err);
    assert_ok(w.data != NULL, err);
    free(x);
    return w;
}

void device_pair_new_cache(struct device_pair_side *s, enum type cache)
{
    struct error err;
    struct kv_shape shape = model_kv_shape(s->m, PAIR_SLOTS, PAIR_LENGTH, PAIR_ROWS);
    shape.type = cache;
    s->c = kv_create(s->b, &shape, &err);
    assert_non_null(s->c);
    int32_t token[PAIR_ROWS] = { 0 }, parent[PAIR_ROWS];
    for (int i = 0; i < PAIR_ROWS; i++)
        parent[i] = i - 1;
    // The layout's workspace reaches its size now, and not between passes.
    kv_admit(s->c, &(struct pass){ .n = PAIR_ROWS, .token = token, .slot = token, .parent = parent }, PAIR_ROWS);
    kv_truncate(s->c, 0, 0);
}

static void open_side(struct device_pair_side *s, struct backend *b, const char *path, enum activations a,
                      enum type cache)
{
    struct error err;
    s->b = b;
    s->taps = (struct taps){ TAPS, { 0, 1 } };
    s->m = model_open(path, b, a, PAIR_ROWS, &err);
    assert_ok(s->m != NULL, err);
    const int width = model_shape(s->m)->width;
    device_pair_new_cache(s, cache);
    s->logits = rows_on(b, PAIR_ROWS + 1, PAIR_VOCAB);
    s->gated = rows_on(b, PAIR_ROWS, WIDE);
    s->gate = weight(b, a, width, 1);
    s->up = weight(b, a, width, 2);
    const struct tensor x = rows_on(b, SHORT, width);
    for (int i = 0; i < 2; i++) // workspaces reach their size now, and not between passes
        b->gated(b, tensor_rows(s->gated, 0, SHORT), x, s->gate, s->up, GATE_SILU);
    b->release(b, x.data);
}

struct device_pair device_pair_open(const struct gpu_here *g, struct backend *b[2], const char *path,
                                    enum activations a, enum type cache)
{
    struct device_pair c = { .g = g };
    for (int i = 0; i < 2; i++) {
        open_side(&c.side[i], b[i], path, a, cache);
        c.numbers = (size_t)(PAIR_VOCAB + (1 + TAPS) * model_shape(c.side[i].m)->width + WIDE);
        c.side[i].got = xmalloc(PAIR_ROWS * c.numbers * sizeof(float));
    }
    return c;
}

void device_pair_close(struct device_pair *c)
{
    for (int i = 0; i < 2; i++) {
        struct device_pair_side *s = &c->side[i];
        kv_destroy(s->c);
        s->b->release(s->b, s->logits.data);
        s->b->release(s->b, s->gated.data);
        s->b->unprepare(s->b, s->gate);
        s->b->unprepare(s->b, s->up);
        model_close(s->m);
        free(s->got);
    }
}

// ---- caches

struct rows rows_of(int first, int second)
{
    struct rows r = { .n = first + second };
    for (int i = 0; i < r.n; i++) {
        const int at = i < first ? i : i - first;
        r.token[i] = device_pair_any(PAIR_VOCAB);
        r.slot[i] = i >= first;
        r.parent[i] = at == 0 ? -1 : device_pair_any(4) == 0 ? device_pair_any(at) : at - 1;
    }
    return r;
}

struct pass pass_of(const struct rows *r)
{
    return (struct pass){ .n = r->n, .token = r->token, .slot = r->slot, .parent = r->parent };
}

void device_pair_keep(struct device_pair *c, int slot, const int32_t *row, int n)
{
    kv_keep(c->side[0].c, slot, row, n);
    kv_keep(c->side[1].c, slot, row, n);
}

void device_pair_cut(struct device_pair *c, int slot, int length)
{
    kv_truncate(c->side[0].c, slot, length);
    kv_truncate(c->side[1].c, slot, length);
}

void device_pair_keep_path(struct device_pair *c, const struct rows *r, int slot, int first, int n)
{
    int32_t row[PAIR_ROWS];
    int depth = 0;
    for (int at = n - 1; at >= 0; at = r->parent[first + at])
        row[PAIR_ROWS - ++depth] = at;
    device_pair_keep(c, slot, row + PAIR_ROWS - depth, depth);
}

uint8_t *device_pair_numbers(struct tensor t)
{
    const size_t step = (size_t)type_facts[t.type].bytes, top = t.type == F32 ? 3 : 1;
    uint8_t *bytes = xmalloc(tensor_bytes(t));
    for (size_t i = 0; i < tensor_bytes(t); i++) // moderate exponents of numbers and of scales
        bytes[i] = (uint8_t)(i % step == top ? device_pair_any(2) << 7 | (t.type == Q8_0 ? 0x20 : 0x3D)
                                             : device_pair_any(256));
    return bytes;
}

void device_pair_fill(struct device_pair *c, int length)
{
    const struct tensor t = kv_keys(c->side[0].c, 0);
    uint8_t *bytes = device_pair_numbers(t);
    int32_t row[PAIR_ROWS];
    for (int s = 0; s < 2; s++)
        for (int l = 0; l < model_shape(c->side[s].m)->layers; l++) {
            struct backend *b = c->side[s].b;
            b->upload(b, kv_keys(c->side[s].c, l).data, bytes, tensor_bytes(t));
            b->upload(b, kv_values(c->side[s].c, l).data, bytes, tensor_bytes(t));
        }
    free(bytes);
    for (int i = 0; i < PAIR_ROWS; i++)
        row[i] = i;
    device_pair_cut(c, 0, 0);
    for (int left = length; left > 0; left -= PAIR_ROWS) {
        const struct rows r = rows_of(left < PAIR_ROWS ? left : PAIR_ROWS, 0);
        const struct pass p = pass_of(&r);
        kv_admit(c->side[0].c, &p, p.n);
        kv_admit(c->side[1].c, &p, p.n);
        device_pair_keep(c, 0, row, p.n);
    }
}

// ---- passes

void device_pair_run(struct device_pair_side *s, const struct rows *r)
{
    struct error err;
    struct states states;
    const struct pass p = pass_of(r);
    const struct tensor behind = tensor_rows(s->logits, r->n, 1); // the row after them
    float untouched[PAIR_VOCAB] = { 5, 6, 7 }, still[PAIR_VOCAB];
    s->b->upload(s->b, behind.data, untouched, sizeof(untouched));
    const int64_t before = emulated_launches();
    assert_ok(model_forward(s->m, s->c, &p, &s->taps, &states, &err), err);
    s->launches = emulated_launches() - before;
    const struct tensor all[] = { tensor_rows(s->logits, 0, r->n), states.last, states.tapped,
                                  tensor_rows(s->gated, 0, r->n) };
    model_logits(s->m, all[0], states.last);
    s->of_logits = emulated_launches() - before - s->launches;
    s->b->gated(s->b, all[3], states.last, s->gate, s->up, GATE_SILU);
    float *to = s->got;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(all[i].rows, r->n);
        s->b->download(s->b, to, all[i].data, tensor_bytes(all[i]));
        to += all[i].rows * all[i].width;
    }
    s->b->download(s->b, still, behind.data, sizeof(still));
    assert_memory_equal(still, untouched, sizeof(still));
    assert_ok(s->b->sync(s->b, &err), err);
}

void device_pair_both(struct device_pair *c, const struct rows *r, enum kind expected)
{
    static const char *const expectation[] = { "many launches and no graph", "few launches and a graph",
                                               "few launches and no graph" };
    struct device_pair_side *a = &c->side[0], *b = &c->side[1];
    const int64_t before = emulated_graphs();
    device_pair_run(a, r);
    const int64_t more = emulated_graphs() - before;
    device_pair_run(b, r);
    if (memcmp(a->got, b->got, (size_t)r->n * c->numbers * sizeof(float)) != 0)
        fail_msg("%s: a pass of %d rows has other bits than without graphs and padding", c->g->name, r->n);
    const bool many = a->launches > 3; // rows of the last pass that move, the layout, the graph
    if (c->g->emulated && (many != (expected == FIRST) || (more > 0) != (expected == CAPTURED)))
        fail_msg("%s: a pass of %d rows was %d launches, and there are %d graphs more; expected %s more", c->g->name,
                 r->n, (int)a->launches, (int)more, expectation[expected]);
    if (c->g->emulated && !c->g->varies)
        assert_int_equal(a->of_logits, 1); // the last norm has written their rounded form
}

void device_pair_behind(struct device_pair *c, int length, int n, enum kind expected)
{
    const struct rows r = rows_of(n, 0);
    device_pair_cut(c, 0, length);
    device_pair_both(c, &r, expected);
    device_pair_cut(c, 0, length);
}
