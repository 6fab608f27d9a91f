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
           make(&t->angles[0], b, rows, s->head_dim) &&
           (s->inverse_frequency[1].data == NULL || make(&t->angles[1], b, rows, s->head_dim));
}

void scratch_destroy(struct scratch *t, struct backend *b)
{
    struct tensor *all[] = { &t->h, &t->q, &t->o, &t->k, &t->v, &t->gate, &t->angles[0], &t->angles[1] };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        b->release(b, all[i]->data);
    memset(t, 0, sizeof(*t));
}

void scratch_fit(struct scratch *t, int n)
{
    t->h.rows = t->q.rows = t->o.rows = t->k.rows = t->v.rows = t->gate.rows = n;
    t->angles[0].rows = t->angles[1].rows = n;
}

void block_angles(struct backend *b, const struct model_shape *s, const struct layout *layout, struct scratch *t)
{
    for (int r = 0; r < ROPES && s->inverse_frequency[r].data != NULL; r++)
        b->angles(b, t->angles[r], layout, s->inverse_frequency[r]);
}

// Heads as rows: (n * heads, head_dim).
static void norm_heads(struct backend *b, struct tensor x, struct tensor w, float eps)
{
    if (w.data == NULL)
        return;
    const struct tensor heads = tensor_of(x.data, F32, x.rows * x.width / w.width, w.width);
    b->rmsnorm(b, heads, heads, w, eps);
}

// Adds input w^T + bias to x, normed and scaled first if the layer says so. add: (n, width) for that.
static void add_product(struct backend *b, struct tensor x, struct tensor input, struct product p, struct tensor norm,
                        float scale, struct tensor add, float eps)
{
    p.out = norm.data == NULL && scale == 0 ? x : add;
    p.add = norm.data == NULL && scale == 0;
    b->matmul(b, input, &p, 1);
    if (p.add)
        return;
    if (norm.data != NULL)
        b->rmsnorm(b, add, add, norm, eps);
    if (scale != 0)
        b->rescale(b, add, scale, 0);
    b->add(b, x, add);
}

void block_forward(struct backend *b, const struct block *w, const struct model_shape *s, int layer, struct kv_cache *c,
                   const struct layout *layout, struct scratch *t, struct tensor x, struct tensor input)
{
    struct tensor keys = kv_keys(c, layer), values = kv_values(c, layer);
    const struct tensor angles = w->rope >= 0 ? t->angles[w->rope] : (struct tensor){ 0 };
    const struct product qkv[] = {
        { .out = t->q, .w = w->q, .bias = w->q_bias }, // (n, heads * head_dim)
        { .out = t->k, .w = w->k, .bias = w->k_bias }, // (n, kv_heads * head_dim)
        { .out = t->v, .w = w->v, .bias = w->v_bias },
    };
    const struct product o = { .w = w->o, .bias = w->o_bias }, down = { .w = w->down };
    b->matmul(b, input, qkv, 3);
    norm_heads(b, t->q, w->q_norm, s->norm_eps);
    norm_heads(b, t->k, w->k_norm, s->norm_eps);
    const struct tensor attended = b->attend(b, t->o, t->q, t->k, t->v, angles, keys, values, layout, w->attention);
    add_product(b, x, attended, o, w->out_norm, w->residual_scale, t->h, s->norm_eps);
    const struct tensor normed = w->ffn_norm.data != NULL ? b->rmsnorm(b, t->h, x, w->ffn_norm, s->norm_eps) : x;
    const struct tensor gated = b->gated(b, t->gate, normed, w->gate, w->up, w->f); // (n, hidden)
    add_product(b, x, gated, down, w->ffn_out_norm, w->residual_scale, t->h, s->norm_eps);
}
