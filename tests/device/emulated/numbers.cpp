// numbers.cpp - conversions, and the matrix instruction.
#include "runtime.h"

inline namespace emulated_gpu
{

// Of a float; zero and subnormal numbers have the smallest.
static inline int exponent_of(float x)
{
    const int e = (int)(__float_as_uint(x) >> 23 & 0xFF);
    return (e > 0 ? e : 1) - 127;
}

// Adds `terms` products at a time to the sum. The products, which are exact, and the sum are aligned to the largest exponent, truncated
// to `bits` bits behind the point of a number of that exponent, and added exactly; the result is truncated to a float. Device 0
// adds as Hopper does, device 1 as Ampere (and Ada). Xie et al., MMA-Sim, arXiv 2511.10909, compared this with the hardware
// bit by bit; Khattak and Mikaitis, arXiv 2512.07004, have the same method.
static const struct {
    int terms, bits;
} arithmetic[DEVICES] = { { 16, 25 }, { 8, 24 } };
enum { PART = 8 }; // products whose sum fits into 32 bits

static void multiply(float d[16][8], const float a[16][16], const float b[16][8])
{
    const int terms = arithmetic[current_device()].terms, bits = arithmetic[current_device()].bits;
    int16_t a_exponent[16][16], b_exponent[16][8];
    double b_wide[16][8];
    for (int k = 0; k < 16; k++) {
        for (int i = 0; i < 16; i++)
            a_exponent[i][k] = (int16_t)exponent_of(a[i][k]);
        for (int j = 0; j < 8; j++) {
            b_exponent[k][j] = (int16_t)exponent_of(b[k][j]);
            b_wide[k][j] = (double)b[k][j];
        }
    }
    for (int at = 0; at < 16 * 16; at += terms) {
        const int i = at / 16, from = at % 16;
        int16_t largest[8];
        double scale[8], sum[8], plain[8];
        for (int j = 0; j < 8; j++)
            largest[j] = (int16_t)exponent_of(d[i][j]);
        for (int k = from; k < from + terms; k++)
            for (int j = 0; j < 8; j++) {
                const int16_t e = (int16_t)(a_exponent[i][k] + b_exponent[k][j]);
                largest[j] = e > largest[j] ? e : largest[j];
            }
        for (int j = 0; j < 8; j++) {
            const uint64_t power_of_two = (uint64_t)(1023 + bits - largest[j]) << 52;
            memcpy(&scale[j], &power_of_two, sizeof(scale[j]));
            plain[j] = (double)d[i][j] * scale[j];
            sum[j] = (double)(int32_t)plain[j];
        }
        for (int part = from; part < from + terms; part += PART) {
            uint32_t part_sum[8] = {};
            for (int k = part; k < part + PART; k++)
                for (int j = 0; j < 8; j++) {
                    const double product = (double)a[i][k] * scale[j] * b_wide[k][j];
                    part_sum[j] += (uint32_t)(int32_t)product;
                    plain[j] += product;
                }
            for (int j = 0; j < 8; j++)
                sum[j] += (double)(int32_t)part_sum[j];
        }
        for (int j = 0; j < 8; j++) {
            const double result = sum[j] / scale[j];
            uint64_t u;
            memcpy(&u, &result, sizeof(u));
            u &= ~(uint64_t)0 << 29; // of 52 bits, 23 stay
            double truncated;
            memcpy(&truncated, &u, sizeof(u));
            d[i][j] = isfinite(plain[j]) ? (float)truncated
                      : isnan(plain[j])  ? __uint_as_float(0x7FFFFFFF)
                                         : (float)plain[j];
        }
    }
}

void warp_mma(struct warp *w)
{
    float a[16][16], b[16][8], d[16][8];
    for (int lane = 0; lane < WARP; lane++) {
        const struct mma *m = (const struct mma *)(uintptr_t)w->x[lane];
        const int r = lane / 4, c = lane % 4 * 2;
        for (int i = 0; i < 4; i++) { // rows r and r + 8, columns c and c + 8
            a[r + i % 2 * 8][c + i / 2 * 8] = __uint_as_float(m->a[i] << 16);
            a[r + i % 2 * 8][c + i / 2 * 8 + 1] = __uint_as_float(m->a[i] & 0xFFFF0000);
            d[r + i / 2 * 8][c + i % 2] = m->d[i];
        }
        for (int i = 0; i < 2; i++) {
            b[c + i * 8][r] = __uint_as_float(m->b[i] << 16);
            b[c + i * 8 + 1][r] = __uint_as_float(m->b[i] & 0xFFFF0000);
        }
    }
    multiply(d, a, b);
    for (int lane = 0; lane < WARP; lane++) {
        const struct mma *m = (const struct mma *)(uintptr_t)w->x[lane];
        for (int i = 0; i < 4; i++)
            m->d[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
}

void warp_combine(struct warp *w)
{
    void *numbers[WARP];
    for (int lane = 0; lane < WARP; lane++)
        numbers[lane] = ((const struct tree *)(uintptr_t)w->x[lane])->number;
    ((const struct tree *)(uintptr_t)w->x[0])->combine(numbers);
}

void warp_load_matrices(struct warp *w)
{
    const struct matrices *of[WARP];
    for (int lane = 0; lane < WARP; lane++)
        of[lane] = (const struct matrices *)(uintptr_t)w->x[lane];
    for (int lane = 0; lane < WARP; lane++)
        for (int i = 0; i < 4; i++) {
            const int g = lane / 4, t = lane % 4;
            const uint16_t *row = of[8 * i + g]->row, *low = of[8 * i + 2 * t]->row, *high = of[8 * i + 2 * t + 1]->row;
            if ((uintptr_t)row % 16 != 0)
                die("ldmatrix of a row that does not begin at a multiple of 16 bytes");
            of[lane]->to[i] =
                of[lane]->transposed ? low[g] | (uint32_t)high[g] << 16 : row[2 * t] | (uint32_t)row[2 * t + 1] << 16;
        }
}

float half_to_float(uint16_t h)
{
    const float size = __uint_as_float((h & 0x7FFFu) << 13) * 0x1p112f; // infinity and NaN: at least 2^16
    return __uint_as_float(__float_as_uint(size) | (size >= 0x1p16f ? 0x7F800000 : 0) | (h & 0x8000u) << 16);
}

uint16_t float_to_half(float x)
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
