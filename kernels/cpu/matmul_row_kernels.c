// matmul_row_kernels.c - the treatment of rows before and after a product: rounding to floats, bfloat16 or int8 with
// one scale per group, and writing sums with bias, residual or gate. It is compiled once for each width of registers.
#include "kernels/cpu/matmul_kernels.h"

#include "kernels/cpu/vectors.h"
#include "kernels/cpu/prefetch.h"

// ---- before the product

INLINE float to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    if ((u & 0x7FFFFFFF) > 0x7F800000)
        return bits_to_float(u | 0x400000); // a NaN remains a NaN
    return bits_to_float((u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000);
}

INLINE uint32_t high_half(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u >> 16;
}

INLINE int32_t sum_of_16(const int8_t *bytes)
{
#if defined(__x86_64__)
    // The range becomes 0 .. 255.
    __m128i shifted = _mm_xor_si128(_mm_loadu_si128((const __m128i *)bytes), _mm_set1_epi8(-128));
    __m128i halves = _mm_sad_epu8(shifted, _mm_setzero_si128());
    return _mm_cvtsi128_si32(_mm_add_epi64(halves, _mm_unpackhi_epi64(halves, halves))) - 16 * 128;
#elif defined(NEON)
    return vaddlvq_s8(vld1q_s8(bytes));
#else
    int32_t sum = 0;
    for (int k = 0; k < 16; k++)
        sum += bytes[k];
    return sum;
#endif
}

// Quantizes 32 numbers to int8 with one scale: the largest magnitude becomes 127. matmul_kernels.h has the layout.
INLINE void round_group(uint32_t *to, const float *x, int rows)
{
    vf max = { 0 };
    for (int i = 0; i < GROUP; i += W)
        max = vmax(vabs(load(x + i)), max);
    float amax = reduce_max(max), scale = amax / 127.0f, inverse = amax > 0 ? 127.0f / amax : 0;
    int8_t bytes[GROUP];
    round_to_bytes(bytes, x, splat(inverse));
    const int32_t low = sum_of_16(bytes), high = sum_of_16(bytes + 16);
    for (int t = 0; t < 8; t++)
        memcpy(&to[t * rows], bytes + 4 * t, 4);
    float scaled_sum = scale * (float)(low + high);
    to[8 * rows] = (uint32_t)(-128 * (low + high));
    memcpy(&to[9 * rows], &scale, 4);
    memcpy(&to[10 * rows], &scaled_sum, 4);
    to[11 * rows] = (uint32_t)(-128 * low);
    to[12 * rows] = (uint32_t)(-128 * high);
}

#if defined(__AVX512BW__)
// Quantizes up to sixteen rows at a time. Values that exist once per row have one row per lane: sixteen registers are
// reduced to the maximum of each, and the bytes are transposed in registers.
static void round_16_rows(uint32_t *to, const float *x, int64_t k, int rows)
{
    const __m512i ones = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
    const __mmask16 row_mask = (__mmask16)(0xFFFF >> (16 - rows));
    const float *row[16];
    __m512 max[16];
    __m512i word[16], byte[8], low = zero, high = zero;
    float inverse[16];
    UNROLL
    for (int r = 0; r < 16; r++) { // missing rows repeat the last one
        row[r] = x + (r < rows ? r : rows - 1) * k;
        max[r] = (__m512)vmax(vabs(load(row[r] + 16)), vmax(vabs(load(row[r])), (vf){ 0 }));
    }
    UNROLL
    for (int r = 0; r < 8; r++)
        max[r] = _mm512_max_ps(_mm512_unpacklo_ps(max[2 * r], max[2 * r + 1]),
                               _mm512_unpackhi_ps(max[2 * r], max[2 * r + 1]));
    UNROLL
    for (int r = 0; r < 4; r++) {
        __m512d a = (__m512d)max[2 * r], b = (__m512d)max[2 * r + 1];
        max[r] = _mm512_max_ps((__m512)_mm512_unpacklo_pd(a, b), (__m512)_mm512_unpackhi_pd(a, b));
    }
    for (int half = 2; half > 0; half /= 2)
        for (int r = 0; r < half; r++)
            max[r] = _mm512_max_ps(_mm512_shuffle_f32x4(max[2 * r], max[2 * r + 1], 0x88),
                                   _mm512_shuffle_f32x4(max[2 * r], max[2 * r + 1], 0xDD));
    const vf scale = (vf)max[0] / splat(127.0f);
    const __mmask16 nonzero = _mm512_cmp_ps_mask(max[0], (__m512)zero, _CMP_GT_OQ);
    _mm512_storeu_ps(inverse, _mm512_maskz_div_ps(nonzero, _mm512_set1_ps(127.0f), max[0]));
    // byte[r] has rows 2 r and 2 r + 1; quarter q has quads q and q + 4 of the first row, then of the second
    UNROLL
    for (int r = 0; r < 8; r++) {
        __m512i pair[2];
        for (int i = 0; i < 2; i++) {
            const vf by = splat(inverse[2 * r + i]);
            const float *at = row[2 * r + i];
            pair[i] = _mm512_packs_epi32(_mm512_cvtps_epi32((__m512)(load(at) * by)),
                                         _mm512_cvtps_epi32((__m512)(load(at + 16) * by)));
        }
        byte[r] = _mm512_packs_epi16(pair[0], pair[1]);
    }
    UNROLL
    for (int h = 0; h < 2; h++) { // quads 4 h .. 4 h + 3
        __m512 four[4], side[4];  // four has quads of four rows; side has quads of eight
        UNROLL
        for (int r = 0; r < 4; r++)
            four[r] = h == 0 ? _mm512_shuffle_ps((__m512)byte[2 * r], (__m512)byte[2 * r + 1], 0x88)
                             : _mm512_shuffle_ps((__m512)byte[2 * r], (__m512)byte[2 * r + 1], 0xDD);
        UNROLL
        for (int r = 0; r < 2; r++) {
            side[2 * r] = _mm512_shuffle_f32x4(four[2 * r], four[2 * r + 1], 0x88);
            side[2 * r + 1] = _mm512_shuffle_f32x4(four[2 * r], four[2 * r + 1], 0xDD);
        }
        UNROLL
        for (int q = 0; q < 4; q++)
            word[4 * h + q] = (__m512i)(q < 2 ? _mm512_shuffle_f32x4(side[q], side[q + 2], 0x88)
                                              : _mm512_shuffle_f32x4(side[q - 2], side[q], 0xDD));
    }
    UNROLL
    for (int q = 0; q < 4; q++) { // sums of pairs
        low = _mm512_add_epi16(low, _mm512_maddubs_epi16(ones, word[q]));
        high = _mm512_add_epi16(high, _mm512_maddubs_epi16(ones, word[4 + q]));
    }
    low = _mm512_madd_epi16(low, _mm512_set1_epi16(1));
    high = _mm512_madd_epi16(high, _mm512_set1_epi16(1));
    const __m512i sum = _mm512_add_epi32(low, high);
    word[8] = _mm512_sub_epi32(zero, _mm512_slli_epi32(sum, 7));
    word[9] = (__m512i)scale;
    word[10] = (__m512i)(scale * (vf)_mm512_cvtepi32_ps(sum));
    word[11] = _mm512_sub_epi32(zero, _mm512_slli_epi32(low, 7));
    word[12] = _mm512_sub_epi32(zero, _mm512_slli_epi32(high, 7));
    UNROLL
    for (int w = 0; w < INT8_WORDS; w++)
        _mm512_mask_storeu_epi32(to + w * rows, row_mask, word[w]);
}
#endif

INLINE void round_groups(uint32_t *to, const float *x, int64_t k, int rows)
{
#if defined(__AVX512BW__)
    if (rows > 4) {
        round_16_rows(to, x, k, rows);
        return;
    }
#endif
    for (int r = 0; r < rows; r++)
        round_group(to + r, x + r * k, rows);
}

// Rounds numbers from .. to of the rows of a chunk and stores them in its layout, group by group.
static void round_rows(uint32_t *chunk, int rows, const float *x, int64_t k, int64_t from, int64_t to,
                       enum rounding rounding)
{
    switch (rounding) {
    case ROUND_INT8:
        for (int64_t i = from; i < to; i += GROUP)
            round_groups(chunk + i / GROUP * INT8_WORDS * rows, x + i, k, rows);
        break;
    case ROUND_PAIRS:
        for (int64_t i = from; i < to; i += 2)
            for (int r = 0; r < rows; r++) {
                const float *at = x + r * k + i;
                chunk[i / 2 * rows + r] = high_half(to_bf16(at[0])) | high_half(i + 1 < k ? to_bf16(at[1]) : 0) << 16;
            }
        break;
    default:
        for (int64_t i = from; i < to; i++)
            for (int r = 0; r < rows; r++) {
                float f = rounding == ROUND_BF16 ? to_bf16(x[r * k + i]) : x[r * k + i];
                memcpy(&chunk[i * rows + r], &f, sizeof(f));
            }
    }
}

// ---- after the product

// Prefetches the row OUTPUT_PREFETCH later, while row i of n is being written at `to`. A branch instead costs 7 %.
INLINE void prefetch_output(const float *to, int64_t i, int64_t n, int64_t m)
{
    __builtin_prefetch(to + (i + OUTPUT_PREFETCH < n ? OUTPUT_PREFETCH : 0) * m, 1, 3);
}

INLINE void copy_lanes(float *to, const float *from, int width)
{
    if (width == PANEL)
        memcpy(to, from, PANEL * sizeof(float)); // the size is constant
    else
        memcpy(to, from, (size_t)width * sizeof(float));
}

static void write_output(float *out, int64_t m, int64_t first, int width, const float *sums, int64_t n,
                         const float *bias, bool add)
{
    float offset[PANEL] = { 0 };
    if (bias != NULL)
        memcpy(offset, bias + first, (size_t)width * sizeof(float));
    for (int64_t i = 0; i < n; i++, sums += PANEL) {
        float *to = out + i * m + first, part[PANEL];
        prefetch_output(to, i, n, m);
        for (int l = 0; l < PANEL; l++)
            part[l] = sums[l] + offset[l];
        if (add) {
            float before[PANEL] = { 0 };
            copy_lanes(before, to, width);
            for (int l = 0; l < PANEL; l++)
                part[l] += before[l];
        }
        copy_lanes(to, part, width);
    }
}

static void write_gated(float *out, int64_t m, int64_t first, int width, const float *gate, const float *up, int64_t n,
                        enum gate_function f)
{
    for (int64_t i = 0; i < n; i++, gate += PANEL, up += PANEL) {
        float *to = out + i * m + first, part[PANEL];
        prefetch_output(to, i, n, m);
        for (int l = 0; l < PANEL; l += W)
            store(part + l, (f == GATE_GELU ? gelu(load(gate + l)) : silu(load(gate + l))) * load(up + l));
        copy_lanes(to, part, width);
    }
}

const struct matmul_row_kernels PASTE(matmul_rows_, ISA) = { round_rows, write_output, write_gated };
