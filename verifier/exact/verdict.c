#include "verifier/exact/verdict.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "results/statistics/distributions.h"
#include "results/statistics/statistics.h"

// ---- sample sizes, all by normal approximations

// The mean of the sum must exceed the two-sided limit by its own allowed deviation: (z_a + z_b) sqrt(n v) = n d. v = 1
// / 4 is the variance of the indicator of a set of half the mass.
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

// A bet of lambda is placed on a set of probability 1/2 under p and 1/2 + d in the text. Its log-value is a random walk
// with this mean and variance per token. It must reach the number of bets over alpha, since all others may be lost by
// then.
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

// ---- the verdict

const char *const answer_names[] = { "no bias found", "bias found", "no verdict" };

bool verdict_is_certain(double log_e, double level)
{
    return log_e >= log(4 / level);
}

// ---- the size of a bias

// The number of tokens in a lower part of the order, less its expectation under their own distributions, is a
// martingale whose steps have a range of 1, so a variance of 1/4 at most as far as its tails go. The mixture of
// exponential martingales over a normal distribution of variance 1 / prior bounds it at all times (Howard, Ramdas,
// McAuliffe, Sekhon 2021, Annals of Statistics 49, equation 14).
static double deviation(double tokens, double doubt)
{
    const double prior = 25, v = tokens / 4 + prior; // narrowest at some hundred tokens
    return sqrt(v * (log(v / prior) - 2 * log(doubt)));
}

struct bias_size bias_size_of(const struct evidence *text, double doubt)
{
    enum { EDGES = COARSE - 1, STEP = CELLS / COARSE };
    const double tokens = evidence_tokens(text); // impossible ones are the last of the order: q / p is infinite
    double below = 0;
    struct bias_size size = { 0, 0 };
    if (tokens == 0)
        return size;
    for (int edge = 1; edge <= EDGES; edge++) {
        for (int i = (edge - 1) * STEP; i < edge * STEP; i++)
            below += text->cells[ORDER_GUIDED][i];
        size.observed = fmax(size.observed, fabs(below / tokens - (double)edge / COARSE));
    }
    size.least = fmax(size.observed - deviation(tokens, doubt / EDGES) / tokens, 0);
    return size;
}

// ---- tests beyond those of evidence.h

static bool independence(const struct observed *seen, struct exact_test *to)
{
    const double *cell = &seen->rejected[0][0];
    const int cells = SQUARE * SQUARE;
    double n = 0, chi;
    for (int i = 0; i < cells; i++)
        n += cell[i];
    if (n < MIN_EXPECTED * cells)
        return false;
    const double log10_p = tail_even(cell, cells, &chi);
    *to = (struct exact_test){ "independence", "rejected token, replacement", "all", chi, log10_p, n };
    return true;
}

// Without a variance, as at temperature 0, the number is certain, and any other number is an infinite z. NAN: nothing
// to test.
static double z_of(const struct observed *seen)
{
    const double beyond = seen->accepted - seen->expected;
    if (seen->variance > 0)
        return beyond / sqrt(seen->variance);
    return fabs(beyond) > 1e-9 * fmax(1, seen->accepted) ? copysign(INFINITY, beyond) : NAN; // the sums are rounded
}

static bool acceptance(const struct observed *seen, struct exact_test *to)
{
    double z = z_of(seen);
    if (isnan(z))
        return false;
    const double width = fmax(seen->max_depth, 1); // maximum deviation of a step
    // tail_sum is used because a single rejection is many standard deviations where rejections are rare
    double log10_p = tail_sum(seen->accepted - seen->expected, seen->variance, width);
    *to = (struct exact_test){ "acceptance", "accepted - E[accepted | draft]", "all", z, log10_p, seen->steps };
    return true;
}

// ---- families

// The tests in rows from..n form a family, which shares one level.
static void adjust_family(struct verdict *v, int from)
{
    const int n = v->n - from;
    double *p = xcalloc((size_t)n + 1, sizeof(*p)), *adjusted = xcalloc((size_t)n + 1, sizeof(*adjusted));
    for (int i = 0; i < n; i++)
        p[i] = v->row[from + i].test.log10_p;
    holm(adjusted, p, n);
    for (int i = 0; i < n; i++) {
        struct stream_test *r = &v->row[from + i];
        struct stream_verdict *s = &v->of[r->stream];
        r->log10_adjusted = adjusted[i];
        if (!isnan(adjusted[i]) && (s->worst == NULL || adjusted[i] < s->worst->log10_adjusted))
            s->worst = r;
    }
    free(p);
    free(adjusted);
}

static void add_tests(struct verdict *v, const struct observed *seen, int stream)
{
    struct exact_test test[EVIDENCE_TESTS];
    int n = evidence_tests(&seen->of[stream], test, EVIDENCE_TESTS);
    for (int i = 0; i < n; i++)
        v->row[v->n++] = (struct stream_test){ stream, test[i], NAN };
    v->of[stream].tokens = evidence_tokens(&seen->of[stream]);
    v->of[stream].log_e = evidence_log_e(&seen->of[stream]);
}

static void add_one(struct verdict *v, int stream, bool (*make)(const struct observed *, struct exact_test *),
                    const struct observed *seen)
{
    struct exact_test test;
    if (make(seen, &test))
        v->row[v->n++] = (struct stream_test){ stream, test, NAN };
}

static bool alarmed(const struct verdict *v, int stream, double log_e)
{
    const struct stream_verdict *s = &v->of[stream];
    return verdict_is_certain(log_e, v->level) || (s->worst != NULL && s->worst->log10_adjusted < log10(v->level / 2));
}

// The logarithm of p falls with the number of tokens, so a control that has a tenth of the evidence needs ten times the
// tokens. Evidence that chance gives as easily tells nothing.
static double tokens_needed(const struct verdict *v)
{
    double most = v->tokens;
    for (int stream = STREAM_NEGATIVE_CONTROLS; stream < STREAMS; stream++) {
        const struct stream_verdict *s = &v->of[stream];
        const double found = s->worst != NULL ? s->worst->log10_adjusted : 0;
        if (!s->alarm)
            most = found < -1 ? fmax(most, v->tokens * log10(v->level / 2) / found) : NAN;
        if (isnan(most))
            break;
    }
    return most;
}

void verdict_of(struct verdict *v, const struct observed *seen, double max_log_e, double level)
{
    *v = (struct verdict){ .level = level, .z_accepted = z_of(seen) };
    add_tests(v, seen, STREAM_TEXT);
    add_tests(v, seen, STREAM_DRAFTER);
    add_one(v, STREAM_TEXT, acceptance, seen);
    add_one(v, STREAM_DRAFTER, independence, seen);
    const int tests = v->n;
    adjust_family(v, 0);
    for (int stream = 0; stream < STREAMS; stream++)
        if (stream != STREAM_TEXT && stream != STREAM_DRAFTER) {
            const int from = v->n;
            add_tests(v, seen, stream);
            adjust_family(v, from);
        }
    bool wrong_alarm = false; // a control with an alarm, or a negative control without one
    for (int stream = 0; stream < STREAMS; stream++) {
        v->of[stream].alarm =
            alarmed(v, stream, stream == STREAM_TEXT ? fmax(max_log_e, v->of[stream].log_e) : v->of[stream].log_e);
        wrong_alarm = wrong_alarm || v->of[stream].alarm != (stream >= STREAM_NEGATIVE_CONTROLS);
    }
    v->tokens = v->of[STREAM_TEXT].tokens;
    v->needed = tokens_needed(v);
    const struct power w = { level / 2, 0.999, tests };
    v->detectable_ks = power_detectable(POWER_KS, v->tokens, w);
    v->detectable_e = power_detectable(POWER_E, v->tokens, w);
    v->answer = v->of[STREAM_TEXT].alarm || v->of[STREAM_DRAFTER].alarm ? BIAS_FOUND
                : wrong_alarm                                           ? NO_VERDICT
                                                                        : NO_BIAS_FOUND;
}
