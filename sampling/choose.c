// choose.c - selects the compiled loops for this processor.
#include <stddef.h>

#include "sampling/loops.h"

extern const struct loops loops_plain, loops_avx2, loops_avx512;

const struct loops *const all_loops[] = {
#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
    &loops_avx512, &loops_avx2,
#endif
    &loops_plain, NULL
};

bool loops_supported(const struct loops *l)
{
#if defined(__x86_64__) && !defined(PLAIN_LOOPS_ALONE)
    if (l == &loops_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    if (l == &loops_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#endif
    return l == &loops_plain;
}

const struct loops *loops(void)
{
    int i = 0;
    while (!loops_supported(all_loops[i]))
        i++;
    return all_loops[i];
}
