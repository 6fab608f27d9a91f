// rope.cu - RoPE angles for the rows of a pass, and writes to the KV cache where attention does not write it itself:
// rotated keys and unchanged values, rounded to the cache's type.
//
// One thread per number of a row. A warp has 32 consecutive numbers, which is a block of Q8_0, and never mixes k and v.
#include "kernels/cuda/attention.h"

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

// Writes number `at` of a row to the cache; x is 0 beyond the end of the row.
static __device__ void write_kv(uint8_t *cache, enum type type, int at, int width, float x)
{
    if (type == Q8_0) { // a warp has one block, and the width is a multiple of a block
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
    if (type == BF16)
        ((uint16_t *)cache)[at] = float_to_bf16(x);
    else
        ((float *)cache)[at] = x;
}

// A row's keys and its values, each padded to whole warps. Padding rows are not written.
static __global__ void store_kernel(const struct attend_call c, enum type type, int width)
{
    kernel_prologue();
    const int64_t i = blockIdx.x, place = c.place[i], row = place * (int64_t)c.row_bytes;
    const int padded = (width + WARP - 1) / WARP * WARP;
    int at = (int)(blockIdx.y * THREADS + threadIdx.x);
    if (place < 0)
        return;
    if (at < padded) {
        write_kv(c.keys + row, type, at, width, at < width ? rotated(c, c.k + i * width, i, at) : 0);
        return;
    }
    at -= padded;
    if (at < padded)
        write_kv(c.values + row, type, at, width, at < width ? c.v[i * width + at] : 0);
}

void attention_store(struct cuda *c, const struct attend_call &call, enum type type)
{
    const int width = call.kv_heads * call.head_dim, threads = 2 * ((width + WARP - 1) / WARP * WARP);
    QUEUE(c, store_kernel, dim3((unsigned)call.n, (unsigned)blocks_for(threads, THREADS)), THREADS, 0, call, type,
          width);
    cuda_launched(c, "store");
}

} // namespace DEVICE_SPACE
