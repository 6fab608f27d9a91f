// report_acceptance.c - what was accepted: by position in the draft, against its expectation, by source and under other rules.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/query.h"
#include "results/tally.h"
#include "results/tables/tables.h"

enum part { VALUE, LOW, HIGH };

static double part_of(const struct interval *x, enum part part)
{
    return part == VALUE ? x->value : part == LOW ? x->low : x->high;
}

static void put_rates(struct text *out, const struct interval *rate, enum part part, int64_t depth)
{
    for (int i = 0; i < POSITIONS && i < depth; i++)
        report_put_rate(out, i == 0 ? 6 : 5, part_of(&rate[i], part));
    text_puts(out, "\n");
}

// The rates of a line whose head is written, and their intervals.
static void put_positions(struct text *out, const struct interval *rate, int64_t depth)
{
    put_rates(out, rate, VALUE, depth);
    bool known = false;
    for (int i = 0; i < POSITIONS && i < depth; i++)
        known |= !isnan(rate[i].low);
    for (enum part part = LOW; part <= HIGH && known; part++) {
        text_printf(out, "%37s", part == LOW ? "95 % from" : "to");
        put_rates(out, rate, part, depth);
    }
}

void report_put_acceptance(struct text *out, const struct comparison *c)
{
    text_puts(out, "\nAcceptance        tokens            accepted by position in the draft\n"
                   "run   drafts   drafted  accepted    %     1    2    3    4    5    6    7    8\n");
    for (int i = 0; i < c->n; i++) {
        const struct tally *r = &c->run[i];
        if (r->baseline)
            continue;
        report_put_number(out, c, i);
        text_printf(out, "%8lld%10lld%10lld", (long long)r->drafts, (long long)r->drafted, (long long)r->accepted);
        report_put_percent(out, 5, r->acceptance_rate.value);
        put_positions(out, r->rate, r->max_depth);
        if (r->drafts == 0)
            continue;
        text_printf(out, "%37s", "given all before it:");
        put_positions(out, r->conditional, r->max_depth);
        int ranks = 0;
        for (int k = 0; k < POSITIONS; k++)
            if (!isnan(r->by_rank[k]))
                ranks = k + 1;
        if (r->trees > 0 && ranks > 0) {
            text_printf(out, "%37s", "trees: at depth 1, by rank:");
            for (int k = 0; k < ranks; k++)
                report_put_rate(out, k == 0 ? 6 : 5, r->by_rank[k]);
            text_puts(out, "\n");
        }
    }
}

void report_put_expected(struct text *out, const struct comparison *c, int width)
{
    bool any = false;
    for (int i = 0; i < c->n; i++) {
        const struct tally *r = &c->run[i];
        if (isnan(r->expected))
            continue;
        text_puts(out, any ? "" : "\nAccepted draft tokens and E[accepted | draft] under the rule\n");
        any = true;
        char *words = isnan(r->z)
                          ? xformat("%.0f accepted, %.1f expected", r->accepted_uncut, r->expected)
                          : xformat("%.0f accepted, %.1f expected, z = %.1f", r->accepted_uncut, r->expected, r->z);
        report_put_line(out, c, i, width, words);
        free(words);
        // with few events z is not normal: one rejection of probability 1/500 is 22 standard deviations
        enum { MIN_VARIANCE = 25 };
        const double deviation = (r->accepted_uncut - r->expected) / r->z;
        if (fabs(r->z) > 5 && deviation * deviation >= MIN_VARIANCE)
            report_put_line(
                out, c, i, width,
                "WARNING: more than 5 standard deviations: the rule does not follow its formula, or draft tokens "
                "were not sampled from the q that was reported; see `speclab exact`");
    }
}

// Acceptance of the same drafts under other rules, where that was recorded.
bool report_put_by_rule(struct store *s, struct text *out, const struct comparison *c, int width, struct error *err)
{
    bool any = false;
    for (int i = 0; i < c->n; i++) {
        struct text t = { 0 };
        double bound = NAN, own = NAN;
        struct query *q =
            query_open(s, "SELECT rule, accepted, first, lossless FROM by_rule WHERE run = ? ORDER BY accepted DESC");
        query_put(q, SQL(c->run[i].run));
        while (query_next(q)) {
            const char *rule = query_text(q, 0);
            if (strcmp(rule, "(bound)") == 0)
                bound = query_real(q, 2);
            else
                text_printf(&t, "%s%s%s %.3f", t.n > 0 ? ", " : "", rule, query_int(q, 3) ? "" : "*", query_real(q, 1));
            if (strncmp(rule, c->run[i].rule, strlen(rule)) == 0)
                own = query_real(q, 2);
        }
        if (!isnan(own) && !isnan(bound))
            text_printf(&t, "; at least one accepted: %.3f, bound %.3f", own, bound);
        if (t.n > 0) {
            text_puts(out, any ? "" : "\nAccepted tokens per draft under each rule, for the same drafts (* lossy)\n");
            report_put_line(out, c, i, width, t.s);
            any = true;
        }
        free(t.s);
        if (!query_close(q, err))
            return false;
    }
    return true;
}

// Who drafted, where the drafter is one of drafters.
bool report_put_by_source(struct store *s, struct text *out, const struct comparison *c, int width, struct error *err)
{
    bool any = false;
    for (int i = 0; i < c->n; i++) {
        struct text t = { 0 };
        struct query *q = query_open(
            s,
            "SELECT source, drafted, accepted, coalesce(share, 0) FROM by_source WHERE run = ? ORDER BY accepted DESC, source");
        query_put(q, SQL(c->run[i].run));
        while (query_next(q))
            text_printf(&t, "%s%s %.0f %% (%lld/%lld)", t.n > 0 ? ", " : "", query_text(q, 0), 100 * query_real(q, 3),
                        (long long)query_int(q, 2), (long long)query_int(q, 1));
        if (t.n > 0) {
            text_puts(out,
                      any ? "" : "\nWho proposed the accepted draft tokens: share (accepted/drafted); a+b: both did\n");
            report_put_line(out, c, i, width, t.s);
            any = true;
        }
        free(t.s);
        if (!query_close(q, err))
            return false;
    }
    return true;
}
