// peaks.c - peak rates of multiply-add on registers only: the bound for compute when memory costs nothing.
//
// Each loop has enough independent sums to hide the latency of the instruction. Instruction sets are chosen at run time; on
// other processors only the plain loop is compiled.
#include <stdint.h>

#include "core/clock.h"
#include "kernels/cpu/probe.h"
#include "kernels/cpu/threads.h"

#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(PLAIN_LOOPS_ALONE)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

enum { ROUNDS = 1 << 18, REPEATS = 20 };

struct loop {
    const char *kind, *isa;
    float (*run)(void); // returns the result, so that it is not optimised away
    double operations;  // of one run
    float *sink;        // (jobs)
};

// Each round updates all SUMS accumulators. The loop over them has a constant bound, so compilers unroll it into registers.
#define SUMS 12
#define LOOP(name, target_isa, vector, start, step, fold) \
    __attribute__((target(target_isa))) static float name(void) \
    { \
        vector a[SUMS]; \
        for (int k = 0; k < SUMS; k++) \
            a[k] = start; \
        for (int i = 0; i < ROUNDS; i++) \
            _Pragma("GCC unroll 12") for (int k = 0; k < SUMS; k++) step(a[k]); \
        for (int k = 1; k < SUMS; k++) \
            fold(a[0], a[k]); \
        float first; \
        __builtin_memcpy(&first, &a[0], sizeof(first)); \
        return first; \
    }

typedef float four __attribute__((vector_size(16)));

static float plain(void)
{
    four a[SUMS], x = { 0.999f, 0.999f, 0.999f, 0.999f };
    for (int k = 0; k < SUMS; k++)
        a[k] = x * (float)k;
    __asm__ volatile("" : "+m"(x));
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < SUMS; k++)
            a[k] = a[k] * x + x;
    for (int k = 1; k < SUMS; k++)
        a[0] += a[k];
    return a[0][0];
}

#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
#define FMA512(a) (a) = _mm512_fmadd_ps((a), _mm512_set1_ps(0.999f), _mm512_set1_ps(0.5f))
#define DOT_BF16(a) \
    (a) = _mm512_dpbf16_ps((a), (__m512bh)_mm512_set1_epi32(0x3f003f00), (__m512bh)_mm512_set1_epi32(0x3e803e80))
#define DOT_INT8(a) (a) = _mm512_dpbusd_epi32((a), _mm512_set1_epi8(3), _mm512_set1_epi8(-2))
#define ADD512(a, b) (a) = _mm512_add_ps((a), (b))
#define ADD512I(a, b) (a) = _mm512_add_epi32((a), (b))
#define FMA256(a) (a) = _mm256_fmadd_ps((a), _mm256_set1_ps(0.999f), _mm256_set1_ps(0.5f))
#define DOT256(a) (a) = _mm256_dpbusd_avx_epi32((a), _mm256_set1_epi8(3), _mm256_set1_epi8(-2))
#define ADD256(a, b) (a) = _mm256_add_ps((a), (b))
#define ADD256I(a, b) (a) = _mm256_add_epi32((a), (b))

LOOP(f32_avx512, "avx512f", __m512, _mm512_set1_ps((float)k), FMA512, ADD512)
LOOP(bf16_avx512, "avx512f,avx512bf16", __m512, _mm512_set1_ps((float)k), DOT_BF16, ADD512)
LOOP(int8_avx512, "avx512f,avx512vnni", __m512i, _mm512_set1_epi32(k), DOT_INT8, ADD512I)
LOOP(f32_avx2, "avx2,fma", __m256, _mm256_set1_ps((float)k), FMA256, ADD256)
LOOP(int8_avx2vnni, "avx2,avxvnni", __m256i, _mm256_set1_epi32(k), DOT256, ADD256I)

// Without byte dot products, as for weights of 4 bits: pairs of products are summed in sixteen bits eight times, then widened.
__attribute__((target("avx2"))) static float int8_avx2(void)
{
    enum { SHORT_SUMS = SUMS / 2, STEPS = 8 };
    __m256i a[SHORT_SUMS], s[SHORT_SUMS], w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(-2);
    for (int k = 0; k < SHORT_SUMS; k++)
        a[k] = s[k] = _mm256_setzero_si256();
    for (int i = 0; i < ROUNDS * SUMS / SHORT_SUMS / STEPS; i++) {
        _Pragma("GCC unroll 8") for (int step = 0; step < STEPS; step++)
            _Pragma("GCC unroll 6") for (int k = 0; k < SHORT_SUMS; k++)
        {
            __asm__ volatile("" : "+x"(w)); // the product is not hoisted
            const __m256i pairs = _mm256_maddubs_epi16(w, x);
            s[k] = step == 0 ? pairs : _mm256_add_epi16(s[k], pairs);
        }
        _Pragma("GCC unroll 6") for (int k = 0; k < SHORT_SUMS; k++) a[k] =
            _mm256_add_epi32(a[k], _mm256_madd_epi16(s[k], _mm256_set1_epi16(1)));
    }
    for (int k = 1; k < SHORT_SUMS; k++)
        a[0] = _mm256_add_epi32(a[0], a[k]);
    return (float)_mm256_cvtsi256_si32(a[0]);
}
#elif defined(__aarch64__) && !defined(PLAIN_LOOPS_ALONE)
#define FMA_NEON(a) (a) = vfmaq_f32((a), (a), vdupq_n_f32(-0x1p-12f))
#define ADD_NEON(a, b) (a) = vaddq_f32((a), (b))
#define DOT_NEON(a) (a) = vdotq_s32((a), vdupq_n_s8(3), vdupq_n_s8(-2))
#define ADD_NEONI(a, b) (a) = vaddq_s32((a), (b))

LOOP(f32_neon, "arch=armv8-a", float32x4_t, vdupq_n_f32((float)k), FMA_NEON, ADD_NEON)
LOOP(int8_neon_dotprod, "arch=armv8.2-a+dotprod", int32x4_t, vdupq_n_s32(k), DOT_NEON, ADD_NEONI)
#endif

static void job(void *self, int number, int thread)
{
    (void)thread;
    struct loop *l = self;
    l->sink[number] = l->run();
}

static double rate(struct threads *t, struct loop *l)
{
    enum { JOBS = 256 };
    float sink[JOBS];
    int jobs = 4 * threads_count(t) < JOBS ? 4 * threads_count(t) : JOBS;
    double best = 0;
    l->sink = sink;
    for (int i = 0; i < REPEATS; i++) {
        double from = clock_seconds();
        threads_run(t, jobs, job, l);
        double per_second = jobs * l->operations / (clock_seconds() - from);
        best = per_second > best ? per_second : best;
    }
    return best;
}

// Multiplications and additions of one run. elements: of a vector.
#define OPERATIONS(elements) (2.0 * ROUNDS * SUMS * (elements))

static int loops(struct loop to[MAX_PEAKS])
{
    int n = 0;
#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) {
        to[n++] = (struct loop){ "f32", "avx512", f32_avx512, OPERATIONS(16), NULL };
        if (__builtin_cpu_supports("avx512bf16"))
            to[n++] = (struct loop){ "bf16", "avx512", bf16_avx512, OPERATIONS(32), NULL };
        if (__builtin_cpu_supports("avx512vnni"))
            to[n++] = (struct loop){ "int8", "avx512", int8_avx512, OPERATIONS(64), NULL };
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        to[n++] = (struct loop){ "f32", "avx2", f32_avx2, OPERATIONS(8), NULL };
        to[n++] = (struct loop){ "int8", "avx2", int8_avx2, OPERATIONS(32), NULL };
        if (__builtin_cpu_supports("avxvnni"))
            to[n++] = (struct loop){ "int8", "avx2 vnni", int8_avx2vnni, OPERATIONS(32), NULL };
    }
#elif defined(__aarch64__) && !defined(PLAIN_LOOPS_ALONE)
    to[n++] = (struct loop){ "f32", "neon", f32_neon, OPERATIONS(4), NULL };
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0)
        to[n++] = (struct loop){ "int8", "neon dotprod", int8_neon_dotprod, OPERATIONS(16), NULL };
#endif
    to[n++] = (struct loop){ "f32", "plain", plain, OPERATIONS(4), NULL };
    return n;
}

int probe_peaks(int threads, struct peak to[MAX_PEAKS])
{
    struct loop l[MAX_PEAKS];
    struct threads *t = threads_create(threads > 0 ? threads : threads_available());
    int n = loops(l);
    for (int i = 0; i < n; i++)
        to[i] = (struct peak){ l[i].kind, l[i].isa, rate(t, &l[i]) };
    threads_destroy(t);
    return n;
}
