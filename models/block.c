#include "models/block.h"

#include <string.h>

#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/model.h"

static bool make(struct tensor *t, struct backend *b, int64_t rows, int64_t width)
{
    *t = rows_on(b, rows, width);
    return t->data != NULL;
}

bool scratch_create(struct scratch *t, struct backend *b, const struct model_shape *s, int rows)
{
    int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    memset(t, 0, sizeof(*t));
    return make(&t->h, b, rows, s->width) && make(&t->q, b, rows, heads) && make(&t->o, b, rows, heads) &&
           make(&t->k, b, rows, kv) && make(&t->v, b, rows, kv) && make(&t->gate, b, rows, s->hidden) &&
           make(&t->angles, b, rows, s->head_dim);
}

void scratch_destroy(struct scratch *t, struct backend *b)
{
    struct tensor *all[] = { &t->h, &t->q, &t->o, &t->k, &t->v, &t->gate, &t->angles };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        b->release(b, all[i]->data);
    memset(t, 0, sizeof(*t));
}

void scratch_fit(struct scratch *t, int n)
{
    t->h.rows = t->q.rows = t->o.rows = t->k.rows = t->v.rows = t->gate.rows = t->angles.rows = n;
}

void block_angles(struct backend *b, const struct model_shape *s, const struct layout *layout, struct scratch *t)
{
    b->angles(b, t->angles, layout, s->inverse_frequency);
}

void block_forward(struct backend *b, const struct block *w, const struct model_shape *s, int layer, struct kv_cache *c,
                   const struct layout *layout, struct scratch *t, struct tensor x, struct tensor input)
{
    struct tensor keys = kv_keys(c, layer), values = kv_values(c, layer);
    const struct product qkv[] = {
        { .out = t->q, .w = w->q, .bias = w->q_bias }, // (n, heads * head_dim)
        { .out = t->k, .w = w->k, .bias = w->k_bias }, // (n, kv_heads * head_dim)
        { .out = t->v, .w = w->v, .bias = w->v_bias },
    };
    const struct product o = { .out = x, .w = w->o, .bias = w->o_bias, .add = true };
    const struct product down = { .out = x, .w = w->down, .add = true };
    const struct attention a = { .head_dim = s->head_dim };
    b->matmul(b, input, qkv, 3);
    const struct tensor attended = b->attend(b, t->o, t->q, t->k, t->v, t->angles, keys, values, layout, a);
    b->matmul(b, attended, &o, 1);
    const struct tensor normed = b->rmsnorm(b, t->h, x, w->ffn_norm, s->norm_eps);
    const struct tensor gated = b->gated(b, t->gate, normed, w->gate, w->up, GATE_SILU); // (n, hidden)
    b->matmul(b, gated, &down, 1);
}
