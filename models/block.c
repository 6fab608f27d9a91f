#include "models/block.h"

#include <string.h>

#include "kernels/backend.h"
#include "models/kv_cache.h"
#include "models/model.h"

static bool make(struct tensor *t, struct backend *b, int64_t rows, int64_t width)
{
    *t = tensor_of(b->alloc(b, (size_t)(rows * width) * sizeof(float)), F32, rows, width);
    return t->data != NULL;
}

bool scratch_create(struct scratch *t, struct backend *b, const struct model_shape *s, int rows)
{
    int64_t heads = (int64_t)s->heads * s->head_dim, kv = (int64_t)s->kv_heads * s->head_dim;
    memset(t, 0, sizeof(*t));
    return make(&t->h, b, rows, s->width) && make(&t->q, b, rows, heads) && make(&t->o, b, rows, heads) &&
           make(&t->k, b, rows, kv) && make(&t->v, b, rows, kv) && make(&t->gate, b, rows, s->hidden) &&
           make(&t->up, b, rows, s->hidden);
}

void scratch_destroy(struct scratch *t, struct backend *b)
{
    struct tensor *all[] = { &t->h, &t->q, &t->o, &t->k, &t->v, &t->gate, &t->up };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        b->release(b, all[i]->data);
    memset(t, 0, sizeof(*t));
}

void scratch_fit(struct scratch *t, int n)
{
    t->h.rows = t->q.rows = t->o.rows = t->k.rows = t->v.rows = t->gate.rows = t->up.rows = n;
}

static void project(struct backend *b, struct tensor out, struct tensor x, struct tensor w, struct tensor bias)
{
    b->matmul(b, out, x, w);
    if (bias.data != NULL)
        b->add(b, out, bias);
}

void block_forward(struct backend *b, const struct block *w, const struct model_shape *s, int layer, struct kv_cache *c,
                   const struct layout *see, struct scratch *t, struct tensor x, struct tensor input)
{
    project(b, t->q, input, w->q, w->q_bias); // (n, heads * head_dim)
    project(b, t->k, input, w->k, w->k_bias); // (n, kv_heads * head_dim)
    project(b, t->v, input, w->v, w->v_bias);
    b->rope(b, t->q, see, s->inverse_frequency);
    b->rope(b, t->k, see, s->inverse_frequency);
    b->store(b, kv_keys(c, layer), t->k, see);
    b->store(b, kv_values(c, layer), t->v, see);
    b->attend(b, t->o, t->q, kv_keys(c, layer), kv_values(c, layer), see, s->head_dim);
    project(b, t->h, t->o, w->o, w->o_bias);
    b->add(b, x, t->h);
    b->rmsnorm(b, t->h, x, w->ffn_norm, s->norm_eps);
    b->matmul(b, t->gate, t->h, w->gate); // (n, hidden)
    b->matmul(b, t->up, t->h, w->up);
    b->swiglu(b, t->gate, t->gate, t->up);
    b->matmul(b, t->h, t->gate, w->down);
    b->add(b, x, t->h);
}
