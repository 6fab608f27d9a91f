// intervals.c - clustered intervals of functions of sums, with the prompt as the unit of replication.
//
// A statistic is linearised: the error of a function of sums is the sum of the prompts' influences. An influence is the
// derivatives by the sums times the prompt's share of them (Cochran, Sampling Techniques, 3rd ed., section 6.4;
// Woodruff 1971), on the log scale for ratios. With few prompts the errors of a skewed statistic and of its width
// depend on each other, and Student's quantiles are too small on one side. The bootstrap-t takes the quantiles of
// (value - truth) / width from resamples of the prompts instead (Efron and Tibshirani 1993, section 12.5). Rates are on
// the logit scale with Student's quantiles, and on their own scale with the bootstrap's, which need no symmetry,
// clipped to [0, 1]. The rows of a slice share a clock, which adds the products of the influences of different prompts
// in it: interval_of_units. The coverage of all of these is tested in tests/results/test_coverage.c and
// test_slice_coverage.c.
#include "results/statistics/intervals.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "results/statistics/distributions.h"

enum {
    SUMS = 8,
    RESAMPLES = 1999,
    OUTER = (RESAMPLES + 1) / 40
}; // OUTER: the 2.5 % of resamples on each side, counted from 1

enum scale { IDENTITY, LOG, LOGIT };

struct sample {
    enum statistic of;
    enum scale scale;
    int sums; // number of sums of the statistic; c and d are 1 if it has none
    size_t n;
    double (*x)[SUMS]; // (n)
    double *count;     // (n) how often each prompt is in the sample, n in total
};

struct estimate { // a value on the scale, with its error
    double value, error;
};

static double value_of(enum statistic of, const double *s)
{
    const double left = s[0] / s[1], right = s[2] / s[3];
    switch (of) {
    case STATISTIC_CHANGE:
        return left / right / (s[4] / s[5] / (s[6] / s[7]));
    case STATISTIC_RATIO_OF_RATIOS:
        return left / right;
    case STATISTIC_DIFFERENCE:
        return left - right;
    default:
        return left;
    }
}

static enum scale scale_of(enum statistic of)
{
    return of == STATISTIC_DIFFERENCE ? IDENTITY : of == STATISTIC_RATE ? LOGIT : LOG;
}

static double to_scale(enum scale scale, double x)
{
    return scale == IDENTITY ? x : scale == LOG ? log(x) : log(x / (1 - x));
}

static double from_scale(enum scale scale, double x)
{
    return scale == IDENTITY ? x : scale == LOG ? exp(x) : 1 / (1 + exp(-x));
}

// Returns whether the statistic is a product of sums and their inverses. Then all sums must be positive.
static bool is_product(enum statistic of)
{
    return of == STATISTIC_RATIO_OF_RATIOS || of == STATISTIC_CHANGE;
}

// slope (SUMS): the derivatives by the sums s of the statistic on its scale, where the statistic has the value v.
static void derive(const struct sample *q, const double *s, double v, double *slope)
{
    static const int sign[SUMS] = { 1, -1, -1, 1, -1, 1, 1, -1 };
    if (is_product(q->of)) { // derivatives of its log
        for (int k = 0; k < q->sums; k++)
            slope[k] = sign[k] / s[k];
        return;
    }
    const double outer = q->scale == IDENTITY ? 1 : q->scale == LOG ? 1 / v : 1 / (v * (1 - v));
    const bool two = q->of == STATISTIC_DIFFERENCE;
    slope[0] = outer / s[1];
    slope[1] = -outer * s[0] / (s[1] * s[1]);
    slope[2] = two ? -1 / s[3] : 0;
    slope[3] = two ? s[2] / (s[3] * s[3]) : 0;
}

static struct estimate estimate_of(const struct sample *q)
{
    double s[SUMS] = { 0 }, slope[SUMS], squares = 0;
    for (size_t i = 0; i < q->n; i++)
        for (int k = 0; k < q->sums; k++)
            s[k] += q->count[i] * q->x[i][k];
    const double v = value_of(q->of, s);
    derive(q, s, v, slope);
    for (size_t i = 0; i < q->n; i++) {
        double u = 0;
        for (int k = 0; k < q->sums; k++)
            u += slope[k] * q->x[i][k];
        squares += q->count[i] * u * u;
    }
    return (struct estimate){ to_scale(q->scale, v), sqrt((double)q->n / ((double)q->n - 1) * squares) };
}

// Estimates with every prompt once.
static struct estimate estimate_of_all(struct sample *q, enum scale scale)
{
    q->scale = scale;
    for (size_t i = 0; i < q->n; i++)
        q->count[i] = 1;
    return estimate_of(q);
}

// The clock's part of the error of a statistic on its scale, in addition to the prompts' part. error NAN: not known.
struct clock_part {
    double error, freedom;
};

static const struct clock_part no_clock = { 0, 1 };

static void by_student(struct interval *to, const struct sample *q, enum scale scale, struct estimate e)
{
    const double half = quantile_t(0.975, (double)q->n - 1) * e.error;
    to->low = from_scale(scale, e.value - half);
    to->high = from_scale(scale, e.value + half);
}

// Returns false if a quantile is infinite: so few prompts differ that resamples without them are common.
static bool by_bootstrap(struct interval *to, struct sample *q)
{
    const bool rate = q->of == STATISTIC_RATE;
    const struct estimate e = estimate_of_all(q, rate ? IDENTITY : q->scale);
    double t[RESAMPLES];
    struct uniform_source *u = uniform_source_create(1);
    for (int r = 0; r < RESAMPLES; r++) {
        memset(q->count, 0, q->n * sizeof(*q->count));
        for (size_t i = 0; i < q->n; i++)
            q->count[uniform_below(u, q->n)]++;
        const struct estimate again = estimate_of(q);
        t[r] = (again.value - e.value) / again.error;
        t[r] = isnan(t[r]) ? 0 : t[r]; // all are copies of a prompt that has the value
    }
    uniform_source_destroy(u);
    const double low = e.value - select_smallest(t, RESAMPLES, RESAMPLES - OUTER) * e.error,
                 high = e.value - select_smallest(t, RESAMPLES, OUTER - 1) * e.error;
    if (!isfinite(low) || !isfinite(high))
        return false;
    to->low = rate ? fmax(0, low) : from_scale(q->scale, low);
    to->high = rate ? fmin(1, high) : from_scale(q->scale, high);
    return true;
}

// Returns the least n for which Student's half-width is 2 % of the value. error: the relative error of one prompt.
static double prompts_for(double error)
{
    double n = fmax(2, floor(pow(quantile_normal(0.025) * error / 0.02, 2)));
    while (n < 1e9 && quantile_t(0.975, n - 1) * error > 0.02 * sqrt(n))
        n++;
    return n;
}

// A rate of 0 or 1 in all prompts leaves their variance unknown. This is Clopper and Pearson's interval for n prompts
// that are alike, which holds whatever the rates of the others are.
static struct interval alike(double rate, const double *b, size_t n)
{
    size_t with = 0;
    for (size_t i = 0; i < n; i++)
        with += b[i] > 0;
    if (with < 2)
        return (struct interval){ rate, NAN, NAN, NAN };
    const double others = 1 - pow(0.025, 1 / (double)with);
    return (struct interval){ rate, rate > 0 ? 1 - others : 0, rate > 0 ? 1 : others, NAN };
}

// The distances of the limits from the value, in units of the prompts' own quantile, are independent of the clock's
// error. The quantile of both together has Satterthwaite's degrees of freedom.
static void widen(struct interval *to, const struct sample *q, enum scale scale, struct estimate e, struct clock_part c)
{
    const double of_prompts = e.error * e.error, of_clock = c.error * c.error, both = of_prompts + of_clock,
                 own = quantile_t(0.975, (double)q->n - 1),
                 freedom =
                     both * both / (of_prompts * of_prompts / ((double)q->n - 1) + of_clock * of_clock / c.freedom),
                 t = quantile_t(0.975, freedom);
    to->low = from_scale(scale, e.value - t * hypot((e.value - to_scale(scale, to->low)) / own, c.error));
    to->high = from_scale(scale, e.value + t * hypot((to_scale(scale, to->high) - e.value) / own, c.error));
}

static void estimate(struct interval *to, struct sample *q, struct clock_part c)
{
    const enum scale scale = scale_of(q->of);
    const struct estimate e = estimate_of_all(q, scale);
    if (isnan(c.error))
        return;
    if (q->of != STATISTIC_DIFFERENCE)
        to->prompts =
            prompts_for(sqrt((double)q->n) * hypot(e.error, c.error) * (q->of == STATISTIC_RATE ? 1 - to->value : 1));
    const bool few = q->n >= BOOTSTRAP_FROM && q->n <= BOOTSTRAP_UP_TO && e.error > 0;
    if (!few || !by_bootstrap(to, q))
        by_student(to, q, scale, e);
    if (c.error > 0)
        widen(to, q, scale, e, c);
}

static bool is_defined(enum statistic of, const double *s, int sums)
{
    for (int k = 0; k < sums; k++)
        if (!(s[k] > 0 || (k % 2 == 0 && !is_product(of))))
            return false;
    return true;
}

static struct interval interval_of_sums(enum statistic of, const double *const *from, size_t n, struct clock_part clock)
{
    const int sums = of == STATISTIC_CHANGE ? SUMS : 4;
    struct sample q = {
        .of = of, .sums = sums, .n = n, .x = xcalloc(n + 1, sizeof(*q.x)), .count = xcalloc(n + 1, sizeof(*q.count))
    };
    struct interval to = no_interval;
    double s[SUMS] = { 0 };
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < sums; k++)
            s[k] += q.x[i][k] = from[k] != NULL ? from[k][i] : 1;
    if (is_defined(of, s, sums))
        to.value = value_of(of, s);
    if (of == STATISTIC_RATE && (to.value <= 0 || to.value >= 1))
        to = alike(to.value, from[1], n);
    else if (n > 1 && (of == STATISTIC_DIFFERENCE ? !isnan(to.value) : to.value > 0))
        estimate(&to, &q, clock);
    free(q.count);
    free(q.x);
    return to;
}

struct interval interval_of(enum statistic of, const double *const *x, size_t n)
{
    return interval_of_sums(of, x, n, no_clock);
}

// ---- units

struct unit {
    int64_t prompt, slice;
    double x[SUMS], share[SUMS]; // share: share of a sum, or of the column of work where there is one
};

static int ascending(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int by_prompt(const void *a, const void *b)
{
    const struct unit *x = a, *y = b;
    return x->prompt != y->prompt ? ascending(x->prompt, y->prompt) : ascending(x->slice, y->slice);
}

static int by_slice(const void *a, const void *b)
{
    const struct unit *x = a, *y = b;
    return x->slice != y->slice ? ascending(x->slice, y->slice) : ascending(x->prompt, y->prompt);
}

struct slice {
    double share[SUMS]; // sums of the units' shares, by column
    double in_common;   // products of its prompts' influences: the square of the sum less the squares
    double weight;      // in_common if every influence were the prompt's share
};

// Every prompt of a slice has a share of the effect of the slice's clock. If all prompts had equal shares in every
// slice, none would differ from the others, and the variance over prompts would contain nothing of the clock. If few
// prompts meet in a slice, it contains all but 1 / prompts of the squares that are left out here.
static size_t read_slice(struct slice *to, const struct unit *u, size_t n, int sums, const double *slope,
                         size_t prompts)
{
    double all = 0, own = 0, shares = 0, own_shares = 0;
    size_t rows = 0, met = 0;
    *to = (struct slice){ 0 };
    while (rows < n && u[rows].slice == u->slice) {
        double influence = 0, share = 0; // sums of one prompt
        for (const int64_t prompt = u[rows].prompt; rows < n && u[rows].slice == u->slice && u[rows].prompt == prompt;
             rows++)
            for (int k = 0; k < sums; k++) {
                influence += slope[k] * u[rows].share[k];
                share += u[rows].share[k];
                to->share[k] += u[rows].share[k];
            }
        met++;
        all += influence;
        own += influence * influence;
        shares += share;
        own_shares += share * share;
    }
    to->weight = met > 1 ? shares * shares - own_shares : 0;
    if (to->weight > 0)
        to->in_common = (all * all - own) * (1 + shares * shares / (to->weight * (double)prompts));
    return rows;
}

// Returns the sum of what prompts have in common in each slice, over its expectation if the slices' clocks are
// independent and vary alike: an influence is the deviation from their mean, weighted by shares. slope (sums):
// derivatives of the statistic by the columns' shares.
static struct clock_part clock_of(struct unit *u, size_t n, int sums, const double *slope, size_t prompts)
{
    struct slice *s = xcalloc(n + 1, sizeof(*s));
    double squares[SUMS] = { 0 }, variance = 0, second = 0, fourth = 0, sets = 0;
    size_t slices = 0;
    qsort(u, n, sizeof(*u), by_slice);
    for (size_t i = 0; i < n; slices++) {
        i += read_slice(&s[slices], u + i, n - i, sums, slope, prompts);
        for (int k = 0; k < sums; k++)
            squares[k] += s[slices].share[k] * s[slices].share[k];
    }
    for (size_t i = 0; i < slices; i++) {
        int k = 0; // the column of which the slice has the largest share
        for (int j = 1; j < sums; j++)
            k = s[i].share[j] > s[i].share[k] ? j : k;
        const double share = s[i].share[k];
        if (s[i].weight <= 0)
            continue;
        variance += share < 1 - 1e-9 ? s[i].in_common / (1 - 2 * share + squares[k]) : NAN;
        second += s[i].weight;
        fourth += s[i].weight * s[i].weight;
        sets += share;
    }
    free(s);
    if (second == 0)
        return no_clock;
    return (struct clock_part){ isnan(variance) ? NAN : sqrt(fmax(0, variance)),
                                fmax(1, second * second / fourth - sets) };
}

static struct clock_part clock_of_units(enum statistic of, struct unit *u, size_t n, int sums, size_t prompts)
{
    const struct sample q = { .of = of, .scale = scale_of(of), .sums = sums };
    double s[SUMS] = { 0 }, work[SUMS] = { 0 }, slope[SUMS];
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < SUMS; k++) {
            s[k] += u[i].x[k];
            work[k] += u[i].share[k];
        }
    const double value = is_defined(of, s, sums) ? value_of(of, s) : NAN;
    if (!(of == STATISTIC_DIFFERENCE ? !isnan(value) : value > 0))
        return no_clock;
    derive(&q, s, value, slope);
    for (int k = 0; k < sums; k++)
        slope[k] *= s[k];
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < sums; k++)
            u[i].share[k] = work[k] > 0 ? u[i].share[k] / work[k] : 0;
    return clock_of(u, n, sums, slope, prompts);
}

struct interval interval_of_units(enum statistic of, const double *const *x, const double *const *work,
                                  const int64_t *prompt, const int64_t *slice, size_t n)
{
    const int sums = of == STATISTIC_CHANGE ? SUMS : x[2] != NULL ? 4 : 2;
    struct unit *u = xcalloc(n + 1, sizeof(*u));
    for (size_t i = 0; i < n; i++) {
        u[i].prompt = prompt[i];
        u[i].slice = slice[i];
        for (int k = 0; k < SUMS; k++)
            u[i].x[k] = u[i].share[k] = k < sums ? x[k][i] : 1;
        for (int k = 0; k < sums && work != NULL; k += 2)
            u[i].share[k] = work[k / 2] != NULL ? work[k / 2][i] : x[k][i];
    }
    double *column[SUMS] = { 0 };
    size_t prompts = 0;
    for (int k = 0; k < sums; k++)
        column[k] = xcalloc(n + 1, sizeof(*column[k]));
    qsort(u, n, sizeof(*u), by_prompt);
    for (size_t i = 0; i < n; i++) {
        prompts += i == 0 || u[i].prompt != u[i - 1].prompt;
        for (int k = 0; k < sums; k++)
            column[k][prompts - 1] += u[i].x[k];
    }
    const struct clock_part clock = clock_of_units(of, u, n, sums, prompts);
    const struct interval to = interval_of_sums(of, (const double *const *)column, prompts, clock);
    for (int k = 0; k < sums; k++)
        free(column[k]);
    free(u);
    return to;
}
