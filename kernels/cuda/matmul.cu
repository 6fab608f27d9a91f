// matmul.cu - products of one input: what has to be rounded how, which kernel takes it from there, and what can go in one
// launch.
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

static void want(struct wanted *w, const struct packed *p)
{
    if (p->form == FORM_RAW)
        w->floats = w->floats || !wants_three(p);
    else
        *(wants_three(p) ? &w->three : &w->one) = true;
}

static void from_rows(struct cuda *c, struct tensor x, const struct inputs *in, const struct product *q)
{
    const struct packed *p = packed_of(q->w);
    plain_run(c, (float *)q->out.data, wants_three(p) ? (const float *)x.data : in->floats, (int)x.rows, p->raw,
              p->type, p->rows, p->k, (const float *)q->bias.data, q->add);
}

static struct part part_of(const struct product *q)
{
    return { *packed_of(q->w), (float *)q->out.data, (const float *)q->bias.data, q->add };
}

static void long_pass(struct cuda *c, const struct rounded &x, const struct product *p)
{
    const struct wide s = { { *packed_of(p->w), {} }, x, (float *)p->out.data, (const float *)p->bias.data, p->add };
    wide_run(c, &s, false);
}

// Weights that are alike share a launch, unless the pass is long: then there is enough to do in each.
static void run(struct cuda *c, struct tensor x, const struct inputs *in, const struct product *p, int count)
{
    bool done[MAX_PRODUCTS] = {};
    for (int i = 0; i < count; i++) {
        const struct packed *w = packed_of(p[i].w);
        assert(p[i].out.rows == x.rows && p[i].out.width == w->rows && w->k == x.width);
        assert(p[i].out.type == F32 && x.type == F32);
        if (w->form == FORM_RAW)
            from_rows(c, x, in, &p[i]);
        else if (x.rows > WIDE_FROM)
            long_pass(c, wants_three(w) ? in->three : in->one, &p[i]);
        else if (!done[i]) {
            struct skinny s = {};
            s.x = wants_three(w) ? in->three : in->one;
            for (int j = i; j < count; j++)
                if (!done[j] && packed_alike(w, packed_of(p[j].w))) {
                    s.part[s.count++] = part_of(&p[j]);
                    done[j] = true;
                }
            skinny_run(c, &s);
        }
    }
}

void cuda_matmul(struct backend *b, struct tensor x, const struct product *p, int count)
{
    struct cuda *c = (struct cuda *)b;
    struct wanted wanted = {};
    struct inputs in = {};
    assert(count <= MAX_PRODUCTS);
    for (int i = 0; i < count; i++)
        want(&wanted, packed_of(p[i].w));
    if (x.rows == 0 || !round_input(c, x, wanted, &in))
        return;
    const struct made made = c->made; // x's planes, which are still there afterwards
    run(c, x, &in, p, count);
    c->made = made;
}

// Of weights that can go in one launch.
static void gated_alike(struct cuda *c, struct tensor out, struct tensor x, const struct product p[2])
{
    const struct packed *g = packed_of(p[0].w), *u = packed_of(p[1].w);
    struct wanted wanted = {};
    struct inputs in = {};
    want(&wanted, g);
    if (x.rows == 0 || !round_input(c, x, wanted, &in))
        return;
    const struct rounded &input = wants_three(g) ? in.three : in.one;
    if (x.rows > WIDE_FROM) {
        const struct wide s = { { *g, *u }, input, (float *)out.data, NULL, false };
        wide_run(c, &s, true);
        return;
    }
    const struct skinny s = { input, 2, { part_of(&p[0]), part_of(&p[1]) } };
    struct rounding left = {};
    const bool planes = out.width == round_width(out.width) && rounding_for(c, out.rows, out.width, &left);
    skinny_gated(c, &s, &left);
    if (planes)
        rounding_is(c, out);
}

void cuda_gated(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.rows == x.rows && gate.rows == out.width && up.rows == out.width && gate.width == x.width);
    assert(up.width == x.width && out.type == F32 && x.type == F32);
    struct product p[2] = {};
    p[0].out = out;
    p[0].w = gate;
    p[1].w = up;
    if (packed_of(gate)->form != FORM_RAW && packed_alike(packed_of(gate), packed_of(up))) {
        gated_alike(c, out, x, p);
        return;
    }
    float *capacity = (float *)cuda_reserve(c, &c->gate, tensor_bytes(out), "gates");
    if (capacity == NULL)
        return;
    p[1].out = tensor_of(capacity, F32, out.rows, out.width);
    b->matmul(b, x, p, 2);
    cuda_swiglu(b, out, out, p[1].out);
}

} // namespace DEVICE_SPACE
