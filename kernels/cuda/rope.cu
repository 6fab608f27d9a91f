// rope.cu - RoPE angles for the rows of a pass, and writes to the KV cache: rotated keys and unchanged values, rounded to the
// cache's type.
//
// One thread per number of a row. A warp has 32 consecutive numbers, which is a block of Q8_0, and never mixes q, k and v.
#include "kernels/cuda/round.h"

namespace DEVICE_SPACE
{

enum { THREADS = 256 };

// Angles as in HF transformers: position * frequency is rounded to float, then its cosine and sine are taken.
static __global__ void angles_kernel(float *out, const int32_t *position, const float *frequency, int n, int half)
{
    kernel_prologue();
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t i = at / half;
    const int d = (int)(at % half);
    if (i >= n)
        return;
    const float angle = (float)position[i] * frequency[d];
    out[i * 2 * half + d] = cosf(angle);
    out[i * 2 * half + half + d] = sinf(angle);
}

void cuda_angles(struct backend *b, struct tensor out, const struct layout *s, struct tensor inverse_frequency)
{
    struct cuda *c = (struct cuda *)b;
    const int half = (int)inverse_frequency.width;
    assert(out.rows == s->n && out.width == 2 * half && out.type == F32 && inverse_frequency.type == F32);
    const struct layout *d = cuda_see(c, s);
    QUEUE(c, angles_kernel, blocks_for((int64_t)s->n * half, THREADS), THREADS, 0, (float *)out.data, d->position,
          (const float *)inverse_frequency.data, s->n, half);
    cuda_launched(c, "angles");
}

struct kv_write {     // keys or values: rows of a pass, and of the cache
    const float *x;   // (n, width)
    uint8_t *cache;   // (slots * length, width) of `type`
    size_t row_bytes; // of a row of the cache
    enum type type;
};

struct store_call {
    float *q;             // (n, q_width)
    const float *angles;  // (n, head_dim)
    const int32_t *place; // (n)
    int head_dim, q_width, width;
    struct kv_write keys, values;
};

// RoPE as "rotate half": number `at` of a rotated row of heads.
static __device__ float rotated(const float *x, const float *angles, int at, int head_dim)
{
    const int half = head_dim / 2, d = at % head_dim;
    if (d < half)
        return x[at] * angles[d] - x[at + half] * angles[d + half];
    return x[at] * angles[d - half] + x[at - half] * angles[d];
}

// Writes number `at` of a row to the cache; x is 0 beyond the end of the row.
static __device__ void write_kv(const struct kv_write &to, int64_t row, int at, int width, float x)
{
    uint8_t *cache = to.cache + row * to.row_bytes;
    if (to.type == Q8_0) { // a warp has one block, and the width is a multiple of a block
        const float scale = warp_max(fabsf(x)) / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
        uint8_t *block = cache + at / 32 * 34;
        if (at >= width)
            return;
        if (at % 32 == 0)
            *(uint16_t *)block = float_to_half(scale);
        ((int8_t *)block)[2 + at % 32] = (int8_t)rintf(x * inverse); // round to nearest even
        return;
    }
    if (at >= width)
        return;
    if (to.type == BF16)
        ((uint16_t *)cache)[at] = float_to_bf16(x);
    else
        ((float *)cache)[at] = x;
}

// A row's pairs of q, its keys and its values, each padded to whole warps. Padding rows are not written to the cache.
static __global__ void store_kernel(const struct store_call s)
{
    kernel_prologue();
    const int64_t i = blockIdx.x, place = s.place[i];
    const float *angles = s.angles + i * s.head_dim;
    const int half = s.head_dim / 2, pairs = s.q_width / 2;
    const int for_q = (pairs + WARP - 1) / WARP * WARP, for_k = (s.width + WARP - 1) / WARP * WARP;
    int at = (int)(blockIdx.y * THREADS + threadIdx.x);
    if (at < for_q) {
        if (at >= pairs)
            return;
        float *a = s.q + i * s.q_width + at / half * s.head_dim + at % half, *b = a + half;
        const float x = *a, y = *b, cosine = angles[at % half], sine = angles[half + at % half];
        *a = x * cosine - y * sine;
        *b = y * cosine + x * sine;
        return;
    }
    at -= for_q;
    if (place < 0)
        return;
    if (at < for_k) {
        const float *k = s.keys.x + i * s.width;
        write_kv(s.keys, place, at, s.width, at < s.width ? rotated(k, angles, at, s.head_dim) : 0);
        return;
    }
    at -= for_k;
    if (at < for_k)
        write_kv(s.values, place, at, s.width, at < s.width ? s.values.x[i * s.width + at] : 0);
}

void cuda_store(struct backend *b, struct tensor q, struct tensor k, struct tensor v, struct tensor angles,
                struct tensor keys, struct tensor values, const struct layout *s)
{
    struct cuda *c = (struct cuda *)b;
    assert(keys.width == k.width && values.width == v.width && k.width == v.width);
    assert(q.rows == s->n && k.rows == s->n && v.rows == s->n && angles.rows == s->n);
    assert(q.width % angles.width == 0 && k.width % angles.width == 0 && angles.width % 2 == 0);
    assert((keys.type != Q8_0 && values.type != Q8_0) || k.width % 32 == 0);
    const struct layout *d = cuda_see(c, s);
    without_planes(c, q);
    struct store_call call = {};
    call.q = (float *)q.data;
    call.angles = (const float *)angles.data;
    call.place = d->place;
    call.head_dim = (int)angles.width;
    call.q_width = (int)q.width;
    call.width = (int)k.width;
    call.keys = { (const float *)k.data, (uint8_t *)keys.data, type_row_bytes(keys.type, k.width), keys.type };
    call.values = { (const float *)v.data, (uint8_t *)values.data, type_row_bytes(values.type, v.width), values.type };
    const int64_t threads = (q.width / 2 + WARP - 1) / WARP * WARP + 2 * ((k.width + WARP - 1) / WARP * WARP);
    QUEUE(c, store_kernel, dim3((unsigned)s->n, (unsigned)blocks_for(threads, THREADS)), THREADS, 0, call);
    cuda_launched(c, "store");
}

} // namespace DEVICE_SPACE
