#include "exact/verdict.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "exact/power.h"
#include "statistics/statistics.h"

const char *const answer_names[] = { "no bias found", "bias found", "no verdict" };

bool verdict_is_certain(double log_e, double level)
{
    return log_e >= log(4 / level);
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

// Without a variance, as at temperature 0, the number is certain: any other one is an infinite z. NAN: nothing to test.
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
    // tail_sum, since where rejections are rare a single one is many standard deviations
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
    const struct power w = { level / 2, 0.999, tests };
    v->detectable_ks = power_detectable(POWER_KS, v->tokens, w);
    v->detectable_e = power_detectable(POWER_E, v->tokens, w);
    v->answer = v->of[STREAM_TEXT].alarm || v->of[STREAM_DRAFTER].alarm ? BIAS_FOUND
                : wrong_alarm                                           ? NO_VERDICT
                                                                        : NO_BIAS_FOUND;
}
