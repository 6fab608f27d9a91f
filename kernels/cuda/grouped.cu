// grouped.cu - products of groups of rows that have weights of their own: experts.
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

struct tensor cuda_grouped(struct backend *b, struct tensor out, struct tensor x, const int32_t *row,
                           const struct row_group *g, int count, enum gate_function f)
{
    struct cuda *c = (struct cuda *)b;
    assert(out.type == F32 && x.type == F32 && (row != NULL || x.rows == out.rows));
    out = without_planes(c, out);
    if (row != NULL) {
        void *space = cuda_reserve(c, &c->grouped, (size_t)(out.rows * x.width) * sizeof(float), "rows of groups");
        if (space == NULL)
            return out;
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
    return out;
}

} // namespace DEVICE_SPACE
