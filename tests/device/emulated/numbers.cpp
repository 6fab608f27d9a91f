// numbers.cpp - conversions, and the matrix instruction.
#include "gpu.h"

inline namespace emulated_gpu
{

static inline float from_bf16(uint32_t u)
{
    return __uint_as_float(u << 16);
}

void warp_mma(struct warp *w)
{
    typedef float row __attribute__((vector_size(32)));
    float a[16][16];
    union {
        float x[16][8];
        row v[16];
    } b;
    union {
        float x[16][8];
        row v[16];
    } d;
    for (int lane = 0; lane < WARP; lane++) {
        const struct mma *m = (const struct mma *)(uintptr_t)w->x[lane];
        const int r = lane / 4, c = lane % 4 * 2;
        for (int i = 0; i < 4; i++) { // rows r and r + 8, columns c and c + 8
            a[r + i % 2 * 8][c + i / 2 * 8] = from_bf16(m->a[i] & 0xFFFF);
            a[r + i % 2 * 8][c + i / 2 * 8 + 1] = from_bf16(m->a[i] >> 16);
            d.x[r + i / 2 * 8][c + i % 2] = m->d[i];
        }
        for (int i = 0; i < 2; i++) {
            b.x[c + i * 8][r] = from_bf16(m->b[i] & 0xFFFF);
            b.x[c + i * 8 + 1][r] = from_bf16(m->b[i] >> 16);
        }
    }
    for (int i = 0; i < 16; i++) {
        row sum = d.v[i];
        for (int k = 0; k < 16; k++)
            sum += a[i][k] * b.v[k]; // the product is exact, so fusing does not matter
        d.v[i] = sum;
    }
    for (int lane = 0; lane < WARP; lane++) {
        const struct mma *m = (const struct mma *)(uintptr_t)w->x[lane];
        for (int i = 0; i < 4; i++)
            m->d[i] = d.x[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
}

float emulated_half_to_float(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 0x1F, fraction = h & 0x3FF;
    if (exponent == 0x1F)
        return __uint_as_float(sign | 0x7F800000 | fraction << 13);
    if (exponent)
        return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = (float)fraction * 0x1p-24f;
    return sign ? -small : small;
}

uint16_t emulated_float_to_half(float x)
{
    const uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000, size = u & 0x7FFFFFFF;
    if (size > 0x7F800000)
        return 0x7FFF;
    if (size >= 0x477FF000) // 65520, half a step above the largest
        return (uint16_t)(sign | 0x7C00);
    if (size < 0x38800000) // below 2^-14: steps of 2^-24, to which a sum with 1/2 rounds
        return (uint16_t)(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3F000000));
    return (uint16_t)(sign | ((size + 0xFFF + (size >> 13 & 1) - 0x38000000) >> 13));
}

} // namespace emulated_gpu
