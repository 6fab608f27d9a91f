// matmul.cu - products of one input: what has to be rounded how, and which kernel takes it from there.
#include "kernels/cuda/packed.h"

namespace DEVICE_SPACE
{

static void want(struct wanted *w, const struct packed *p)
{
    if (p->form == FORM_RAW)
        w->floats = w->floats || !wants_three(p);
    else
        *(wants_three(p) ? &w->three : &w->one) = true;
}

static void run(struct cuda *c, const struct skinny *s, bool gated)
{
    s->x.n > WIDE_FROM ? wide_run(c, s, gated) : skinny_run(c, s, gated);
}

static void one_product(struct cuda *c, struct tensor x, const struct inputs *in, const struct product *q)
{
    const struct packed *p = packed_of(q->w);
    float *out = (float *)q->out.data;
    const float *bias = (const float *)q->bias.data;
    assert(q->out.rows == x.rows && q->out.width == p->rows && p->k == x.width);
    assert(q->out.type == F32 && x.type == F32);
    if (p->form == FORM_RAW) {
        plain_run(c, out, wants_three(p) ? (const float *)x.data : in->floats, (int)x.rows, p->raw, p->type, p->rows,
                  p->k, bias, q->add);
        return;
    }
    const struct skinny s = { { *p, {} }, wants_three(p) ? in->three : in->one, out, bias, q->add };
    run(c, &s, false);
}

void cuda_matmul(struct backend *b, struct tensor x, const struct product *p, int count)
{
    struct cuda *c = (struct cuda *)b;
    struct wanted wanted = {};
    struct inputs in = {};
    assert(count <= MAX_PRODUCTS);
    for (int i = 0; i < count; i++)
        want(&wanted, packed_of(p[i].w));
    if (x.rows == 0 || !round_input(c, x, wanted, 0, &in))
        return;
    for (int i = 0; i < count; i++)
        one_product(c, x, &in, &p[i]);
}

void cuda_gated(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up)
{
    struct cuda *c = (struct cuda *)b;
    const struct packed *g = packed_of(gate), *u = packed_of(up);
    struct wanted wanted = {};
    struct inputs in = {};
    assert(out.rows == x.rows && gate.rows == out.width && up.rows == out.width && gate.width == x.width);
    assert(up.width == x.width && out.type == F32 && x.type == F32);
    const bool alike = g->type == u->type && g->activations == u->activations && g->form != FORM_RAW;
    want(&wanted, g);
    want(&wanted, u);
    if (x.rows == 0 || !round_input(c, x, wanted, alike ? 0 : tensor_bytes(out), &in))
        return;
    if (alike) {
        const struct skinny s = { { *g, *u }, wants_three(g) ? in.three : in.one, (float *)out.data, NULL, false };
        run(c, &s, true);
        return;
    }
    struct product p[2] = {}; // weights of two kinds
    p[0].out = out;
    p[0].w = gate;
    p[1].out = tensor_of(in.extra, F32, out.rows, out.width);
    p[1].w = up;
    one_product(c, x, &in, &p[0]);
    one_product(c, x, &in, &p[1]);
    cuda_swiglu(b, out, out, p[1].out);
}

} // namespace DEVICE_SPACE
