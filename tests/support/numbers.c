#include "tests/support/numbers.h"

#include <math.h>

#include "tests/support/check.h"

double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) / 9007199254740992.0;
}

int below(int n)
{
    static uint64_t state = 7;
    return (int)(uniform(&state) * n);
}

void near(double a, double b, double within)
{
    if (!(a == b || fabs(a - b) <= within))
        fail_msg("%.17g is not %.17g", a, b);
}

double worse(double a, double b)
{
    return isnan(a) || b <= a ? a : b;
}

double row_sum(const float *w, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += (double)w[i];
    return s;
}

int row_argmax(const float *w, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (w[i] > w[best])
            best = i;
    return best;
}
