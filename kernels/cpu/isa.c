// isa.c - the choice of instruction set. Loops are compiled only for the instructions that they use: one form for each
// width of registers, and more for the products of bytes and of bfloat16 (CMakeLists.txt has the compiler's flags).
#include "kernels/cpu/isa.h"

#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
#include <cpuid.h>
#define X86 1
#elif defined(__aarch64__) && !defined(PLAIN_LOOPS_ALONE)
#include <sys/auxv.h>
#define ARM 1
#endif

struct isa {
    struct cpu_kernels kernels;
    bool (*supported)(void); // this processor supports it
};

// In a build with the sanitizers, loops other than the products of VNNI and BF16 are not sanitized, so that tests of
// whole models take minutes, not hours. Tests of the loops use the sanitized ones.
#ifdef SANITIZED
#define UNSANITIZED(isa) isa##_unsanitized
#else
#define UNSANITIZED(isa) isa
#endif
#define WIDTH(isa) WIDTH_(isa)
#define WIDTH_(isa) .rows = &row_kernels_##isa, .attention = &attention_kernels_##isa, .matmul_rows = &matmul_rows_##isa
#define MATMUL(floats, int8) MATMUL_(floats, int8)
#define MATMUL_(floats, int8) \
    [ROUND_NONE] = &matmul_float_##floats, [ROUND_BF16] = &matmul_float_##floats, [ROUND_INT8] = &matmul_int8_##int8
#define DECLARE_WIDTH(isa) DECLARE_WIDTH_(isa)
#define DECLARE_WIDTH_(isa) \
    extern const struct row_kernels row_kernels_##isa; \
    extern const struct attention_kernels attention_kernels_##isa; \
    extern const struct matmul_row_kernels matmul_rows_##isa; \
    extern const struct matmul_kernels matmul_float_##isa, matmul_int8_##isa;

DECLARE_WIDTH(plain)

static bool always(void)
{
    return true;
}

#if defined(X86)
DECLARE_WIDTH(avx2)
DECLARE_WIDTH(avx512)
#ifdef SANITIZED
DECLARE_WIDTH(UNSANITIZED(avx2))
DECLARE_WIDTH(UNSANITIZED(avx512))
#endif
extern const struct matmul_kernels matmul_int8_avx2_vnni, matmul_int8_avx512_vnni, matmul_bf16_avx512_bf16;

static bool has_avx2(void) // x86-64-v3
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

static bool has_avx2_vnni(void) // CPUID leaf 7, subleaf 1, EAX bit 4; __builtin_cpu_supports of GCC 12 does not have it
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) != 0;
}

static bool has_avx512(void) // x86-64-v4
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd");
}

static bool has_avx512_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static bool has_avx512_bf16(void)
{
    return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16");
}
#elif defined(ARM)
DECLARE_WIDTH(neon)
extern const struct matmul_kernels matmul_int8_neon_dotprod;

static bool has_neon_dotprod(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
#endif

static const struct isa all[] = {
// fastest first
#if defined(X86)
    { { "avx512_bf16",
        WIDTH(UNSANITIZED(avx512)),
        { MATMUL(UNSANITIZED(avx512), avx512_vnni), [ROUND_PAIRS] = &matmul_bf16_avx512_bf16 } },
      has_avx512_bf16 },
    { { "avx512_vnni", WIDTH(UNSANITIZED(avx512)), { MATMUL(UNSANITIZED(avx512), avx512_vnni) } }, has_avx512_vnni },
    { { "avx512", WIDTH(avx512), { MATMUL(avx512, avx512) } }, has_avx512 },
    { { "avx2_vnni", WIDTH(UNSANITIZED(avx2)), { MATMUL(UNSANITIZED(avx2), avx2_vnni) } }, has_avx2_vnni },
    { { "avx2", WIDTH(avx2), { MATMUL(avx2, avx2) } }, has_avx2 },
#elif defined(ARM)
    { { "neon_dotprod", WIDTH(neon), { MATMUL(neon, neon_dotprod) } }, has_neon_dotprod },
    { { "neon", WIDTH(neon), { MATMUL(neon, neon) } }, always },
#endif
    { { "plain", WIDTH(plain), { MATMUL(plain, plain) } }, always },
};

// Intel processors up to Emerald Rapids multiply pairs of bfloat16 at half the speed of floats (measured:
// docs/performance.md), so AVX512-BF16 is the default on AMD only.
static bool is_default(const struct isa *i)
{
#if defined(X86)
    return i->kernels.matmul[ROUND_PAIRS] == NULL || __builtin_cpu_is("amd");
#else
    return i != NULL;
#endif
}

const struct cpu_kernels *cpu_kernels_choose(const char *isa)
{
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].supported() && (isa == NULL ? is_default(&all[i]) : strcmp(isa, all[i].kernels.name) == 0))
            return &all[i].kernels;
    return NULL;
}
