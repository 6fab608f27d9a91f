// power.c - sample sizes, by normal approximations throughout.
#include "exact/power.h"

#include <math.h>

#include "exact/evidence.h"
#include "statistics/statistics.h"

// The mean of the sum must exceed the two-sided limit by its own allowed deviation: (z_a + z_b) sqrt(n v) = n d, with
// v = 1 / 4 the variance of the indicator of a set of half the mass.
static double score_tokens(double d, struct power w)
{
    double z = quantile_normal(w.alpha / w.tests / 2) + quantile_normal(1 - w.power);
    return z * z / (4 * d * d);
}

// At its maximum the distance is d with a standard deviation of 1 / (2 sqrt n). The limit is the first term of
// Kolmogorov's tail.
static double ks_tokens(double d, struct power w)
{
    double limit = sqrt(log(2 * w.tests / w.alpha) / 2), x = limit + quantile_normal(1 - w.power) / 2;
    return x * x / (d * d);
}

// A bet of lambda on a set of probability 1/2 under p and 1/2 + d in the text. Its log-value is a random walk with this
// mean and variance per token, and must reach the number of bets over alpha, since all others may be lost by then.
static double bet_tokens(double lambda, double d, struct power w)
{
    double mean = lambda * (0.5 + d) - log1p(expm1(lambda) / 2), variance = lambda * lambda * (0.25 - d * d);
    if (!(mean > 0))
        return INFINITY;
    double goal = log(EVIDENCE_BETS / w.alpha), z = quantile_normal(1 - w.power) * sqrt(variance);
    double root = (z + sqrt(z * z + 4 * mean * goal)) / (2 * mean); // mean n - z sqrt(n) = goal
    return root * root;
}

static double e_tokens(double d, struct power w)
{
    double min = INFINITY;
    for (int i = 0; i < STAKES; i++)
        min = fmin(min, bet_tokens(evidence_stakes[i], d, w));
    return min;
}

double power_tokens(enum power_test test, double d, struct power w)
{
    if (!(d > 0))
        return INFINITY;
    d = fmin(d, 0.5); // a set of half the mass can gain no more
    return test == POWER_SCORE ? score_tokens(d, w) : test == POWER_KS ? ks_tokens(d, w) : e_tokens(d, w);
}

double power_detectable(enum power_test test, double tokens, struct power w)
{
    if (power_tokens(test, 0.5, w) > tokens)
        return INFINITY;
    double low = 0, high = 0.5; // detectable at high, not at low
    for (int i = 0; i < 200 && high - low > 1e-12 * high; i++) {
        double middle = low + (high - low) / 2;
        if (power_tokens(test, middle, w) > tokens)
            low = middle;
        else
            high = middle;
    }
    return high;
}
