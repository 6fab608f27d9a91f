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
           expert_scratch_create(&t->experts, b, s, rows) &&
           make(&t->angles[0], b, rows, 2 * s->inverse_frequency[0].width) &&
           (s->inverse_frequency[1].data == NULL || make(&t->angles[1], b, rows, 2 * s->inverse_frequency[1].width));
}

void scratch_destroy(struct scratch *t, struct backend *b)
{
    struct tensor *all[] = { &t->h, &t->q, &t->o, &t->k, &t->v, &t->gate, &t->angles[0], &t->angles[1] };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        b->release(b, all[i]->data);
    expert_scratch_destroy(&t->experts, b);
    memset(t, 0, sizeof(*t));
}

void scratch_fit(struct scratch *t, int n)
{
    t->h.rows = t->q.rows = t->o.rows = t->k.rows = t->v.rows = t->gate.rows = n;
    t->angles[0].rows = t->angles[1].rows = n;
}

void block_angles(struct backend *b, const struct model_shape *s, const struct layout *layout, struct scratch *t)
{
    const int ropes = s->long_from > 0 || s->inverse_frequency[1].data == NULL ? 1 : ROPES;
    for (int r = 0; r < ropes; r++) {
        b->angles(b, t->angles[r], layout, s->inverse_frequency[s->long_from > 0 ? layout->context > s->long_from : r]);
        if (s->angle_factor[r] != 0)
            b->rescale(b, t->angles[r], s->angle_factor[r], 0);
    }
}

// Normalizes heads, which are rows here: (n * heads, head_dim).
static void norm_heads(struct backend *b, struct tensor x, struct tensor w, float eps)
{
    if (w.data == NULL)
        return;
    const struct tensor heads = tensor_of(x.data, F32, x.rows * x.width / w.width, w.width);
    b->rmsnorm(b, heads, heads, w, eps);
}

// Adds the output of attention or of the feed-forward network to the residual stream, normed and scaled first if the
// layer requires it.
static void add_to_stream(struct backend *b, struct tensor x, struct tensor made, struct tensor norm, float scale,
                          float eps)
{
    if (norm.data != NULL)
        b->rmsnorm(b, made, made, norm, eps);
    if (scale != 0)
        b->rescale(b, made, scale, 0);
    b->add(b, x, made);
}

// Adds input w^T + bias to x, like add_to_stream. space: (n, width) workspace.
static void add_product(struct backend *b, struct tensor x, struct tensor input, struct product p, struct tensor norm,
                        float scale, struct tensor space, float eps)
{
    const bool direct = norm.data == NULL && scale == 0;
    p.out = direct ? x : space;
    p.add = direct;
    b->matmul(b, input, &p, 1);
    if (!direct)
        add_to_stream(b, x, space, norm, scale, eps);
}

void block_forward(struct backend *b, const struct block *w, const struct model_shape *s, int layer, struct kv_cache *c,
                   const struct layout *layout, struct scratch *t, struct tensor x, struct tensor input)
{
    struct tensor keys = kv_keys(c, layer), values = kv_values(c, layer);
    const struct tensor angles = w->rope >= 0 ? t->angles[w->rope] : (struct tensor){ 0 };
    struct attention a = w->attention;
    a.short_cache = kv_is_short(c, layer);
    const struct product qkv[] = {
        { .out = t->q, .w = w->q, .bias = w->q_bias }, // (n, heads * head_dim)
        { .out = t->k, .w = w->k, .bias = w->k_bias }, // (n, kv_heads * head_dim)
        { .out = t->v, .w = w->v, .bias = w->v_bias },
    };
    const struct product o = { .w = w->o, .bias = w->o_bias }, down = { .w = w->down };
    b->matmul(b, input, qkv, 3);
    norm_heads(b, t->q, w->q_norm, s->norm_eps);
    norm_heads(b, t->k, w->k_norm, s->norm_eps);
    const struct tensor attended = b->attend(b, t->o, t->q, t->k, t->v, angles, keys, values, layout, a);
    add_product(b, x, attended, o, w->out_norm, w->residual_scale, t->h, s->norm_eps);
    const struct tensor normed = w->ffn_norm.data != NULL ? b->rmsnorm(b, t->h, x, w->ffn_norm, s->norm_eps) : x;
    if (w->experts.count > 0) {
        const struct tensor made = experts_forward(b, &w->experts, &t->experts, normed, w->f);
        add_to_stream(b, x, made, w->ffn_out_norm, w->residual_scale, s->norm_eps);
        return;
    }
    const struct tensor gated = b->gated(b, t->gate, normed, w->gate, w->up, w->f); // (n, hidden)
    add_product(b, x, gated, down, w->ffn_out_norm, w->residual_scale, t->h, s->norm_eps);
}
