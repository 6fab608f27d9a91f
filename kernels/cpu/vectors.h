// vectors.h - GCC vector types of the width of one register, and the functions on them that the inner loops share.
// Every file that is compiled once for each instruction set includes it (CMakeLists.txt sets ISA and the machine
// flags).
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(NEON)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
enum { W = 16 };
#elif defined(__AVX2__)
enum { W = 8 };
#else
enum { W = 4 };
#endif
enum { LANES = 16, V = LANES / W }; // sixteen floats occupy V registers

typedef float vf __attribute__((vector_size(W * sizeof(float))));
typedef int32_t vi __attribute__((vector_size(W * sizeof(int32_t))));
typedef uint32_t vu __attribute__((vector_size(W * sizeof(uint32_t))));
typedef float vf_any __attribute__((vector_size(W * sizeof(float)), aligned(4), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(W * sizeof(uint32_t)), aligned(1), may_alias));

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define QUOTE_(a) #a
#define QUOTE(a) QUOTE_(a)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

// Cases of a switch over a number of rows, which is a constant in each case.
#define UP_TO_2(CASE) CASE(1) CASE(2)
#define UP_TO_4(CASE) UP_TO_2(CASE) CASE(3) CASE(4)
#define UP_TO_6(CASE) UP_TO_4(CASE) CASE(5) CASE(6)
#define UP_TO_12(CASE) UP_TO_6(CASE) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#define UP_TO_16(CASE) UP_TO_12(CASE) CASE(13) CASE(14) CASE(15) CASE(16)

// vf, vi, vu: W floats, signed and unsigned 32-bit integers
INLINE vf load(const float *p)
{
    return *(const vf_any *)p;
}

INLINE void store(float *p, vf v)
{
    *(vf_any *)p = v;
}

INLINE vu load_bits(const void *p)
{
    return *(const vu_any *)p;
}

// Returns v, hidden from the compiler's optimizations.
INLINE vu hidden(vu v)
{
#if defined(__x86_64__)
    __asm__("" : "+x"(v));
#elif defined(NEON)
    __asm__("" : "+w"(v));
#endif
    return v;
}

// Returns table[b] for each byte b of v. Bytes are below 16.
INLINE vu look_up(const uint8_t table[16], vu v)
{
#if defined(__AVX512F__)
    return (vu)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), (__m512i)v);
#elif defined(__AVX2__)
    return (vu)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table)), (__m256i)v);
#elif defined(NEON)
    return (vu)vqtbl1q_u8(vld1q_u8(table), (uint8x16_t)v);
#else
    uint8_t b[sizeof(v)];
    memcpy(b, &v, sizeof(b));
    for (size_t i = 0; i < sizeof(b); i++)
        b[i] = table[b[i]];
    memcpy(&v, b, sizeof(b));
    return v;
#endif
}

INLINE vf splat(float x)
{
    return x - (vf){ 0 };
}

// Returns a * b + c, rounded once if the machine has FMA, twice in plain C.
INLINE vf mad(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(NEON)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

INLINE float bits_to_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

// Scaling by 2^112 converts the exponent of a half to that of a float and normalises subnormals. Infinities and NaNs
// keep all exponent bits.
INLINE float half_to_float(uint16_t h)
{
#if defined(__F16C__)
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
#else
    float vabs = bits_to_float((uint32_t)(h & 0x7FFF) << 13) * 0x1p112f;
    uint32_t bits;
    memcpy(&bits, &vabs, sizeof(bits));
    bits |= (h & 0x7C00) == 0x7C00 ? 0x7F800000u : 0;
    return bits_to_float(bits | (uint32_t)(h & 0x8000) << 16);
#endif
}

INLINE float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof(h));
    return half_to_float(h);
}

// Converts W halves to floats.
INLINE vf halves(const uint8_t *p)
{
#if defined(__AVX512F__)
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__AVX2__) && defined(__F16C__)
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#elif defined(NEON)
    return (vf)vcvt_f32_f16((float16x4_t)vld1_u8(p));
#else
    vf v;
    for (int i = 0; i < W; i++)
        v[i] = half_at(p + 2 * i);
    return v;
#endif
}

// Converts W eight-bit floats. Their exponent has four bits and is that of a float less 120.
INLINE vf e4m3_floats(vu b) // other bits of b may be set
{
    return (vf)((b & 0x7F) << 20 | (b & 0x80) << 24) * splat(0x1p120f);
}

// Converts W bytes to floats. Without the intrinsics gcc 12 converts them one by one.
INLINE vf unsigned_bytes(const uint8_t *p)
{
#if defined(__AVX512F__)
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined(__AVX2__)
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#elif defined(NEON)
    uint32_t four;
    memcpy(&four, p, sizeof(four));
    return (vf)vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(four)))));
#else
    typedef uint8_t vb __attribute__((vector_size(W)));
    vb b;
    memcpy(&b, p, sizeof(b));
    return __builtin_convertvector(__builtin_convertvector(b, vi), vf);
#endif
}

INLINE vf signed_bytes(const uint8_t *p)
{
#if defined(__AVX512F__)
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined(__AVX2__)
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#elif defined(NEON)
    uint32_t four;
    memcpy(&four, p, sizeof(four));
    return (vf)vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
#else
    typedef int8_t vb __attribute__((vector_size(W)));
    vb b;
    memcpy(&b, p, sizeof(b));
    return __builtin_convertvector(__builtin_convertvector(b, vi), vf);
#endif
}

// bytes (32) = x * by, to the nearest integer, halves to the even one.
INLINE void round_to_bytes(int8_t *bytes, const float *x, vf by)
{
#if defined(__AVX2__) && !defined(__AVX512F__)
    __m256i pair[2];
    UNROLL
    for (int i = 0; i < 2; i++)
        pair[i] = _mm256_packs_epi32(_mm256_cvtps_epi32((__m256)(load(x + 16 * i) * by)),
                                     _mm256_cvtps_epi32((__m256)(load(x + 16 * i + W) * by)));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); // packs works within halves of a register
    _mm256_storeu_si256((__m256i *)bytes, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(pair[0], pair[1]), order));
#elif defined(NEON)
    int16x4_t n[8];
    UNROLL
    for (int i = 0; i < 8; i++)
        n[i] = vmovn_s32(vcvtnq_s32_f32((float32x4_t)(load(x + i * W) * by)));
    UNROLL
    for (int i = 0; i < 8; i += 2)
        vst1_s8(bytes + i * W, vmovn_s16(vcombine_s16(n[i], n[i + 1])));
#else
    const vf magic = splat(0x1.8p23f);
    UNROLL
    for (int i = 0; i < 32; i += W) {
        typedef int8_t vb __attribute__((vector_size(W)));
        vb b = __builtin_convertvector(__builtin_convertvector(load(x + i) * by + magic - magic, vi), vb);
        memcpy(bytes + i, &b, sizeof(b));
    }
#endif
}

INLINE float reduce_add(vf v)
{
#if defined(__AVX512F__)
    v += __builtin_shuffle(v, (vi){ 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7 });
    v += __builtin_shuffle(v, (vi){ 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11 });
    v += __builtin_shuffle(v, (vi){ 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13 });
#elif defined(__AVX2__)
    v += __builtin_shuffle(v, (vi){ 4, 5, 6, 7, 0, 1, 2, 3 });
    v += __builtin_shuffle(v, (vi){ 2, 3, 0, 1, 6, 7, 4, 5 });
#else
    v += (vf){ v[2], v[3], v[0], v[1] };
#endif
    return v[0] + v[1];
}

// Returns the sum of sixteen partial sums. In every instruction set the order of additions is that of one register of
// sixteen.
INLINE float reduce_sums(const vf partial[V])
{
    vf s[V];
    memcpy(s, partial, sizeof(s));
    for (int n = V / 2; n > 0; n /= 2)
        for (int v = 0; v < n; v++)
            s[v] += s[v + n];
    return reduce_add(s[0]);
}

// a > b ? a : b
INLINE vf vmax(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    vi m = a > b;
    return (vf)(((vi)a & m) | ((vi)b & ~m));
#endif
}

INLINE float reduce_max(vf v)
{
#if defined(__AVX512F__)
    v = vmax(v, __builtin_shuffle(v, (vi){ 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7 }));
    v = vmax(v, __builtin_shuffle(v, (vi){ 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11 }));
    v = vmax(v, __builtin_shuffle(v, (vi){ 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13 }));
#elif defined(__AVX2__)
    v = vmax(v, __builtin_shuffle(v, (vi){ 4, 5, 6, 7, 0, 1, 2, 3 }));
    v = vmax(v, __builtin_shuffle(v, (vi){ 2, 3, 0, 1, 6, 7, 4, 5 }));
#else
    v = vmax(v, (vf){ v[2], v[3], v[0], v[1] });
#endif
    return v[0] > v[1] ? v[0] : v[1];
}

INLINE vf vabs(vf v)
{
    return (vf)((vi)v & 0x7FFFFFFF);
}

// exp(x) = 2^n * e^r with |r| <= ln 2 / 2; e^r is a minimax polynomial of degree 6 (relative error 2e-9 before
// rounding, below 1.5 ulp after). Arguments are at most 88, and -87 if they are less: the result is a normal float.
// exp(0) is 1.
INLINE vf exp_lanes(vf x)
{
    const vf magic = splat(0x1.8p23f);
    x = vmax(x, splat(-87.0f));
    vf n = mad(x, splat(0x1.715476p0f), magic) - magic;
    vf r = mad(n, splat(-0x1.62e4p-1f), x);
    r = mad(n, splat(-0x1.7f7d1cp-20f), r);
    vf p = splat(0x1.6ab96ep-10f);
    p = mad(p, r, splat(0x1.126d1ep-7f));
    p = mad(p, r, splat(0x1.55589ap-5f));
    p = mad(p, r, splat(0x1.55540ap-3f));
    p = mad(p, r, splat(0x1.fffffap-2f));
    p = mad(p, r, splat(1.0f));
    p = mad(p, r, splat(1.0f));
#if defined(__AVX512F__)
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    return p * (vf)((__builtin_convertvector(n, vi) + 127) << 23);
#endif
}

INLINE vf silu(vf g)
{
    return g / (splat(1.0f) + exp_lanes(-vmax(g, splat(-88.0f))));
}

// x / 2 (1 + tanh(u)) is x / (1 + e^(-2 u)), with u = sqrt(2 / pi) (x + 0.044715 x^3).
INLINE vf gelu(vf x)
{
    const vf twice = x * mad(x * x, splat(0.07135481627f), splat(1.595769122f));
    return x / (splat(1.0f) + exp_lanes(-vmax(twice, splat(-88.0f))));
}

// tanh(x) = 1 - 2 / (e^(2 |x|) + 1) with the sign of x; below 1/4 the Taylor series, which keeps the relative error.
INLINE vf tanh_lanes(vf x)
{
    const vf size = vabs(x), square = x * x, bounded = -vmax(-size, splat(-44.0f));
    const vf of_size = splat(1.0f) - splat(2.0f) / (exp_lanes(bounded + bounded) + splat(1.0f));
    const vi sign = (vi)x & (vi)splat(-0.0f), small = size < splat(0.25f);
    vf series = splat(62.0f / 2835);
    series = mad(series, square, splat(-17.0f / 315));
    series = mad(series, square, splat(2.0f / 15));
    series = mad(series, square, splat(-1.0f / 3));
    return (vf)(((vi)mad(series * square, x, x) & small) | (((vi)of_size | sign) & ~small));
}
