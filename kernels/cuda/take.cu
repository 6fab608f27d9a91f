// take.cu - rows of a table as floats: rows as they are in a checkpoint or a pass, or rows of a packed weight, read from its tiles. Row
// numbers are kernel arguments, or on the device.
#include "kernels/cuda/round.h"
#include "kernels/cuda/unpack.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };

struct rows_to_take {
    float *out; // (count, width)
    int64_t width;
    struct row_numbers numbers;
};

static __global__ void take_kernel(const __grid_constant__ struct rows_to_take t, const uint8_t *x, enum type type,
                                   int64_t row_bytes)
{
    kernel_prologue();
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (k < t.width)
        t.out[blockIdx.y * t.width + k] = value_at(type, x + t.numbers.row[blockIdx.y] * row_bytes, k);
}

template <int SCALING> __device__ static float scaled(const struct packed *p, int64_t r, int64_t k, float q)
{
    const int64_t tile = r / TILE, unit = k / form_unit(p->form);
    const uint32_t *scale = p->scales + ((tile * p->units + unit) * 8 + r % 8) * scale_words(SCALING);
    const uint32_t *super = p->supers + ((tile * (p->units / 4) + unit / 4) * 8 + r % 8) * super_words(SCALING);
    const struct affine line =
        affine_of<SCALING>(scale, super, (int)(k / GROUP % 2), (int)(r % TILE / 8), (int)(k % GROUP / 16));
    return q * line.scale + line.offset;
}

__device__ static float packed_value(const struct packed *p, int64_t r, int64_t k)
{
    const struct placed at = placed(p, r, k);
    const uint32_t bits = ((const uint32_t *)(p->quants + at.load))[at.word] >> at.shift;
    if (p->form == FORM_BF16)
        return bf16_to_float((uint16_t)bits);
    if (p->form == FORM_F16)
        return half_to_float((uint16_t)bits);
    const int code = (int)(bits & 15);
    const float q = p->form == FORM_INT8   ? (float)(int8_t)bits
                    : p->form == FORM_IQ4  ? (float)iq4_number(code)
                    : p->form == FORM_E4M3 ? e4m3_number((uint8_t)bits)
                    : p->form == FORM_E2M1 ? 0.5f * (float)e2m1_number(code)
                                           : (float)(code - p->zero);
    switch (p->scaling) {
    case SCALING_HALF:
        return scaled<SCALING_HALF>(p, r, k, q);
    case SCALING_MIN:
        return scaled<SCALING_MIN>(p, r, k, q);
    case SCALING_SUPER:
        return scaled<SCALING_SUPER>(p, r, k, q);
    case SCALING_SUB_BLOCK:
        return scaled<SCALING_SUB_BLOCK>(p, r, k, q);
    case SCALING_POWER:
        return scaled<SCALING_POWER>(p, r, k, q);
    case SCALING_FLOAT:
        return scaled<SCALING_FLOAT>(p, r, k, q);
    default:
        return q;
    }
}

static __global__ void take_packed_kernel(const __grid_constant__ struct rows_to_take t,
                                          const __grid_constant__ struct packed p)
{
    kernel_prologue();
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (k < t.width)
        t.out[blockIdx.y * t.width + k] = packed_value(&p, t.numbers.row[blockIdx.y], k);
}

void cuda_take(struct backend *b, struct tensor out, struct tensor x, const int32_t *row)
{
    struct cuda *c = (struct cuda *)b;
    const struct packed *p = (const struct packed *)x.packed;
    assert(out.width == x.width && out.type == F32);
    struct rows_to_take t;
    without_planes(c, out);
    t.width = out.width;
    for (int64_t i = 0; i < out.rows; i++)
        assert(row[i] >= 0 && row[i] < x.rows);
    for (int64_t first = 0; first < out.rows; first += ROW_NUMBERS) {
        t.out = (float *)out.data + first * out.width;
        t.numbers = row_numbers_of(row + first, out.rows - first);
        const dim3 grid((unsigned)blocks_for(out.width, THREADS), (unsigned)t.numbers.n);
        if (p == NULL || p->form == FORM_RAW)
            QUEUE(c, take_kernel, grid, THREADS, 0, t, (const uint8_t *)x.data, x.type,
                  (int64_t)type_row_bytes(x.type, x.width));
        else
            QUEUE(c, take_packed_kernel, grid, THREADS, 0, t, *p);
    }
    cuda_launched(c, "take");
}

// Row numbers on the device, in as many chunks as fit into kernel arguments. A block finds its row among them.
enum { MAX_CHUNKS = 64 };
struct chunks {
    int n;
    struct device_rows of[MAX_CHUNKS];
};

static __global__ void gather_on_device_kernel(const __grid_constant__ struct chunks s, float *out, int64_t width,
                                               const uint8_t *x, enum type type, int64_t row_bytes,
                                               const __grid_constant__ struct packed p)
{
    kernel_prologue();
    const int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int i = (int)blockIdx.y, at = 0;
    while (i >= s.of[at].n)
        i -= s.of[at++].n;
    const int64_t row = s.of[at].base + s.of[at].token[i];
    if (k < width)
        out[(s.of[at].first + i) * width + k] =
            x != NULL ? value_at(type, x + row * row_bytes, k) : packed_value(&p, row, k);
}

void cuda_gather_on_device(struct backend *b, struct tensor out, struct tensor x, const struct device_rows *r, int n)
{
    struct cuda *c = (struct cuda *)b;
    const struct packed *p = (const struct packed *)x.packed;
    const struct packed none = {};
    const bool plain = p == NULL || p->form == FORM_RAW;
    assert(out.width == x.width && out.type == F32);
    without_planes(c, out);
    for (int from = 0; from < n; from += MAX_CHUNKS) {
        struct chunks s;
        int rows = 0;
        for (s.n = 0; s.n < MAX_CHUNKS && from + s.n < n; s.n++) {
            s.of[s.n] = r[from + s.n];
            rows += s.of[s.n].n;
            assert(s.of[s.n].first + s.of[s.n].n <= out.rows);
        }
        const dim3 grid((unsigned)blocks_for(out.width, THREADS), (unsigned)rows);
        if (rows > 0)
            QUEUE(c, gather_on_device_kernel, grid, THREADS, 0, s, (float *)out.data, out.width,
                  plain ? (const uint8_t *)x.data : NULL, x.type, (int64_t)type_row_bytes(x.type, x.width),
                  plain ? none : *p);
    }
    cuda_launched(c, "take");
}

} // namespace DEVICE_SPACE
