// matmul.cu - the choice of kernels for products of one input: how the input is rounded, which kernel computes each
// product, and which products share a launch.
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

// Products with f32 weights, and all with f32 activations, are those of matmul_plain.cu. floats: x rounded, for f32
// weights with bf16 activations.
static void run_plain(struct cuda *c, struct tensor x, const float *floats, const struct product *q)
{
    const struct packed *p = packed_of(q->w);
    matmul_plain_run(c, (float *)q->out.data, p->activations == ACTIVATIONS_BF16 ? floats : (const float *)x.data,
                     (int)x.rows, p->raw, p->type, p->rows, p->k, (const float *)q->bias.data, q->add);
}

static struct part part_of(const struct product *q)
{
    return { *packed_of(q->w), (float *)q->out.data, (const float *)q->bias.data, q->add };
}

// Whether a product takes a launch of matmul_large.cu. Without bulk copies, matmul_small.cu reads four bytes of x per
// byte of bf16 weights at 64 rows, matmul_large.cu one; but it needs two blocks per multiprocessor. The choice does not
// change the result.
static bool is_large(const struct cuda *c, const struct work &k, bool gated)
{
    return k.x.n > MAX_SMALL_ROWS ||
           (!c->bulk && k.x.n > 16 && matmul_large_blocks(k, gated) >= 2 * (int64_t)c->processors);
}

static void run_work(struct cuda *c, const struct work &k, bool gated)
{
    if (is_large(c, k, gated))
        matmul_large_run(c, k, gated);
    else if (c->bulk)
        matmul_ring_run(c, k, gated);
    else
        matmul_small_run(c, k, gated);
}

// Weights with the same packing share a launch, unless the product is large: then each launch has enough work.
static void run(struct cuda *c, const struct rounded &x, const struct product *p, int count)
{
    bool done[MAX_PRODUCTS] = {};
    for (int i = 0; i < count; i++) {
        struct work k = { x, 1, { part_of(&p[i]) } };
        if (done[i] || k.part[0].w.form == FORM_RAW)
            continue;
        for (int j = i + 1; j < count && !is_large(c, k, false); j++) {
            const struct work other = { x, 1, { part_of(&p[j]) } };
            if (!done[j] && same_packing(&k.part[0].w, &other.part[0].w) && !is_large(c, other, false)) {
                k.part[k.count++] = other.part[0];
                done[j] = true;
            }
        }
        run_work(c, k, false);
    }
}

void cuda_matmul(struct backend *b, struct tensor x, const struct product *p, int count)
{
    struct cuda *c = (struct cuda *)b;
    struct rounded rounded = {};
    const float *floats = NULL;
    assert(count <= MAX_PRODUCTS && x.type == F32);
    for (int i = 0; i < count && x.rows > 0; i++) {
        const struct packed *w = packed_of(p[i].w);
        assert(p[i].out.rows == x.rows && p[i].out.width == w->rows && w->k == x.width && p[i].out.type == F32);
        if (w->form != FORM_RAW && rounded.data == NULL && round_input(c, x, &rounded) < 0)
            return;
        if (w->form == FORM_RAW && w->activations == ACTIVATIONS_BF16 && floats == NULL &&
            (floats = round_floats(c, x)) == NULL)
            return;
    }
    for (int i = 0; i < count && x.rows > 0; i++) {
        without_rounded(c, p[i].out);
        if (packed_of(p[i].w)->form == FORM_RAW)
            run_plain(c, x, floats, &p[i]);
    }
    if (rounded.data != NULL)
        run(c, rounded, p, count);
}

// For weights that can share a launch.
static struct tensor run_gated(struct cuda *c, struct tensor out, struct tensor x, const struct product p[2],
                               enum gate_function f)
{
    struct work k = { {}, 2, { part_of(&p[0]), part_of(&p[1]) }, f };
    out = without_rounded(c, out);
    const int read = x.rows > 0 ? round_input(c, x, &k.x) : -1;
    if (read < 0)
        return out;
    const bool rounds = !is_large(c, k, true) && out.width == round_width(out.width) &&
                        rounding_for(c, read, out.rows, out.width, &k.rounded);
    run_work(c, k, true);
    return rounds ? with_rounded(c, out) : out;
}

struct tensor cuda_gated(struct backend *b, struct tensor out, struct tensor x, struct tensor gate, struct tensor up,
                         enum gate_function f)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.rows == x.rows && gate.rows == out.width && up.rows == out.width && gate.width == x.width);
    assert(up.width == x.width && out.type == F32 && x.type == F32);
    struct product p[2] = {};
    p[0].out = out;
    p[0].w = gate;
    p[1].w = up;
    if (packed_of(gate)->form != FORM_RAW && same_packing(packed_of(gate), packed_of(up)))
        return run_gated(c, out, x, p, f);
    float *buffer = (float *)cuda_reserve(c, &c->gate, tensor_bytes(out), "gates");
    if (buffer == NULL)
        return out;
    p[1].out = tensor_of(buffer, F32, out.rows, out.width);
    b->matmul(b, x, p, 2);
    cuda_glu(b, out, out, p[1].out, f);
    out.rounded = 0;
    return out;
}

// ---- groups of rows

// Whether launches can have several groups: all weights have one packing and one shape.
static bool can_group(const struct row_group *g, int count)
{
    const struct packed *first = packed_of(g->w);
    bool same = first->form != FORM_RAW;
    for (int i = 0; i < count && same; i++) {
        same = same_packing(first, packed_of(g[i].w)) && packed_of(g[i].w)->rows == first->rows;
        if (g[i].up.data != NULL)
            same = same && same_packing(first, packed_of(g[i].up)) && packed_of(g[i].up)->rows == first->rows;
    }
    return same;
}

static void run_groups(struct cuda *c, struct tensor out, struct tensor x, const int32_t *row,
                       const struct row_group *g, int count, enum gate_function f)
{
    struct grouped_matmul k = {};
    k.w = *packed_of(g->w);
    k.out = (float *)out.data;
    k.f = f;
    if (!round_groups(c, x, row, g, count, &k.x))
        return;
    int tile = 0, done = 0;
    for (int i = 0; i < count; i++) {
        if (g[i].rows > 0) {
            auto &to = k.group[k.count++];
            to.first_tile = tile;
            to.first_row = done;
            to.rows = g[i].rows;
            for (int v = 0; v < (g->up.data != NULL ? 2 : 1); v++) {
                const struct packed *w = packed_of(v == 0 ? g[i].w : g[i].up);
                to.quants[v] = w->quants;
                to.scales[v] = w->scales;
                to.supers[v] = w->supers;
            }
            tile += blocks_for(g[i].rows, 8);
            done += g[i].rows;
        }
        if (k.count == GROUPS_PER_LAUNCH || (i + 1 == count && k.count > 0)) {
            matmul_grouped_run(c, k, g->up.data != NULL);
            k.count = 0;
        }
    }
}

// A launch for each group.
static void run_each_group(struct cuda *c, struct tensor out, struct tensor x, const int32_t *row,
                           const struct row_group *g, int count, enum gate_function f)
{
    struct backend *b = &c->backend;
    if (row != NULL) {
        void *space = cuda_reserve(c, &c->grouped, (size_t)(out.rows * x.width) * sizeof(float), "rows of groups");
        if (space == NULL)
            return;
        const struct tensor all = tensor_of(space, F32, out.rows, x.width);
        cuda_take(b, all, x, row);
        x = all;
    }
    int64_t first = 0;
    for (int i = 0; i < count; first += g[i++].rows) {
        const struct tensor to = tensor_rows(out, first, g[i].rows), from = tensor_rows(x, first, g[i].rows);
        if (g[i].rows > 0 && g[i].up.data != NULL)
            cuda_gated(b, to, from, g[i].w, g[i].up, f);
        else if (g[i].rows > 0)
            multiply(b, to, from, g[i].w);
    }
}

// The rounded rows of x, if it has any, are not those of groups: they are rounded again, as they are gathered.
struct tensor cuda_grouped(struct backend *b, struct tensor out, struct tensor x, const int32_t *row,
                           const struct row_group *g, int count, enum gate_function f)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.type == F32 && x.type == F32 && (row != NULL || x.rows == out.rows));
    out = without_rounded(c, out);
    if (out.rows > 0 && c->cublas == NULL && can_group(g, count))
        run_groups(c, out, x, row, g, count, f);
    else if (out.rows > 0)
        run_each_group(c, out, x, row, g, count, f);
    return out;
}

} // namespace DEVICE_SPACE
