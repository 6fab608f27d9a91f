// vectors.h - GCC vector types of the width of one register, and the functions on them that the loops over rows share.
// Every file that is compiled once for each instruction set includes it (CMakeLists.txt sets ISA and the machine
// flags).
#pragma once
#include "sampling/loops.h"

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// W: doubles per register
#if defined(__AVX512F__)
enum { W = 8 };
#elif defined(__AVX2__)
enum { W = 4 };
#else
enum { W = 2 };
#endif
enum {
    STEP = LOOP_STEP,
    PARTS = STEP / W,
    FLOATS = STEP / (2 * W)
}; // registers for the doubles of a step, for its floats

typedef double vd __attribute__((vector_size(8 * W)));
typedef uint64_t vu __attribute__((vector_size(8 * W)));
typedef float vf __attribute__((vector_size(8 * W)));
typedef uint32_t vw __attribute__((vector_size(8 * W)));
typedef int32_t vi __attribute__((vector_size(8 * W)));
typedef float half __attribute__((vector_size(4 * W))); // W floats, one for each double of a register

typedef double vd_any __attribute__((vector_size(8 * W), aligned(8), may_alias));
typedef float vf_any __attribute__((vector_size(8 * W), aligned(4), may_alias));
typedef float half_any __attribute__((vector_size(4 * W), aligned(4), may_alias));

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define INLINE static inline __attribute__((always_inline))

INLINE vd load(const double *p)
{
    return *(const vd_any *)p;
}

INLINE void save(double *p, vd v)
{
    *(vd_any *)p = v;
}

INLINE vf load_floats(const float *p)
{
    return *(const vf_any *)p;
}

INLINE void save_floats(float *p, vf v)
{
    *(vf_any *)p = v;
}

INLINE vd widen(const float *p)
{
#if defined(__AVX512F__)
    return (vd)_mm512_cvtps_pd(_mm256_loadu_ps(p)); // GCC 12 would convert the two halves separately
#else
    return __builtin_convertvector((half) * (const half_any *)p, vd);
#endif
}

INLINE void narrow(float *p, vd v)
{
    *(half_any *)p = __builtin_convertvector(v, half);
}

INLINE vd all(double x)
{
    return x - (vd){ 0 };
}

INLINE vf all_floats(float x)
{
    return x - (vf){ 0 };
}

INLINE vd masked(vu where, vd v)
{
    return (vd)((vu)v & where);
}

INLINE vd choose(vu where, vd yes, vd no)
{
    return (vd)(((vu)yes & where) | ((vu)no & ~where));
}

INLINE vf choose_floats(vw where, vf yes, vf no)
{
    return (vf)(((vw)yes & where) | ((vw)no & ~where));
}

INLINE vd larger(vd a, vd b)
{
#if defined(__AVX512F__)
    return (vd)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
    return (vd)_mm256_max_pd((__m256d)a, (__m256d)b);
#else
    return choose((vu)(a > b), a, b);
#endif
}

// a * b + c, rounded once. Without a hardware instruction the library function is slow.
INLINE vd fused(vd a, vd b, vd c)
{
#if defined(__AVX512F__)
    return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__)
    return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return (vd){ fma(a[0], b[0], c[0]), fma(a[1], b[1], c[1]) };
#endif
}

// Computes grid_round() of each element.
INLINE vd on_grid(vd v)
{
    return v + all(1) - all(1);
}

// Computes grid_round_down() of each element.
INLINE vd below_on_grid(vd v)
{
    const vd near = on_grid(v);
    return near - masked((vu)(near > v), all(0x1p-52));
}

INLINE bool any(vu where)
{
#if defined(__AVX512F__)
    return _mm512_test_epi64_mask((__m512i)where, (__m512i)where) != 0;
#elif defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)where, (__m256i)where);
#else
    return (where[0] | where[1]) != 0;
#endif
}

// Returns the sum of a row: element i of each step was added to element i.
INLINE double fold(const vd part[PARTS])
{
    double s[STEP];
    memcpy(s, part, sizeof(s));
    for (int n = STEP / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            s[i] += s[i + n];
    return s[0];
}
