// choose.c - selects the compiled loops for this processor.
#include <stddef.h>

#include "sampling/loops.h"

#define LOOPS(isa) \
    extern const struct logit_loops logit_loops_##isa; \
    extern const struct probability_loops probability_loops_##isa; \
    extern const struct race_loops race_loops_##isa; \
    static const struct loops isa = { #isa, &logit_loops_##isa, &probability_loops_##isa, &race_loops_##isa };

LOOPS(plain)
#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
LOOPS(avx2)
LOOPS(avx512)
#endif

const struct loops *const all_loops[] = {
#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
    &avx512, &avx2,
#endif
    &plain, NULL
};

bool loops_supported(const struct loops *l)
{
#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
    if (l == &avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    if (l == &avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#endif
    return l == &plain;
}

const struct loops *loops(void)
{
    int i = 0;
    while (!loops_supported(all_loops[i]))
        i++;
    return all_loops[i];
}
