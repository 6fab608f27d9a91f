// report_table.c - a comparison as tables that fit a terminal. Cells are numbered, so a long name is printed once. Numbers
// stand under their units; the notes at the end define them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/query.h"
#include "results/report_parts.h"
#include "results/tally.h"

enum { TABLE = 78 }; // columns of the widest table

// ---- words and figures ----

// Bytes of the first `characters` characters of UTF-8 text.
static size_t bytes_of(const char *s, size_t n, int characters)
{
    size_t i = 0;
    for (; i < n; i++)
        if (((unsigned char)s[i] & 0xC0) != 0x80 && characters-- == 0)
            break;
    return i;
}

static int characters_of(const char *s, size_t n)
{
    int c = 0;
    for (size_t i = 0; i < n; i++)
        c += ((unsigned char)s[i] & 0xC0) != 0x80;
    return c;
}

// A label and wrapped words from column `indent` to `width`, at least 8 columns; a word longer than a line is cut.
void report_paragraph(struct text *out, int indent, int width, const char *label, const char *words)
{
    width = width < indent + 8 ? indent + 8 : width;
    text_printf(out, "%-*s", indent, label);
    int at = indent;
    for (const char *w = words + strspn(words, " "); *w != '\0';) {
        size_t n = strcspn(w, " ");
        int wide = characters_of(w, n), space = at > indent;
        if (space != 0 && at + space + wide > width) {
            text_printf(out, "\n%*s", indent, "");
            at = indent;
            continue;
        }
        if (at + space + wide > width) {
            n = bytes_of(w, n, width - at);
            wide = width - at;
        }
        text_puts(out, space != 0 ? " " : "");
        text_add(out, w, n);
        at += space + wide;
        w += n + strspn(w + n, " ");
    }
    text_puts(out, "\n");
}

// A number with at least three digits in at most seven characters; NAN: "-".
static const char *figure(char *to, size_t capacity, double x)
{
    if (isnan(x))
        snprintf(to, capacity, "-");
    else if (x >= 9999999.5)
        snprintf(to, capacity, "%.2g", x);
    else
        snprintf(to, capacity, "%.*f", x < 9.995 ? 2 : x < 999.95 ? 1 : 0, x);
    return to;
}

void report_put_figure(struct text *out, int width, double x)
{
    char s[32];
    text_printf(out, "%*s", width, figure(s, sizeof(s), x));
}

static void put_percent(struct text *out, int width, double share)
{
    char s[32] = "-";
    if (share > 0 && share < 0.005)
        snprintf(s, sizeof(s), "<1");
    else if (fabs(share) > 9.99)
        snprintf(s, sizeof(s), "?"); // the clocks are inconsistent
    else if (!isnan(share))
        snprintf(s, sizeof(s), "%.0f", fabs(share) < 0.005 ? 0 : 100 * share);
    text_printf(out, "%*s", width, s);
}

// A rate in three characters: .62; positive but below half of the last digit: +0.
static void put_rate(struct text *out, int width, double rate)
{
    char s[32] = "-";
    if (rate >= 0.995)
        snprintf(s, sizeof(s), rate < 1 ? ">.99" : "1.0");
    else if (rate > 0 && rate < 0.005)
        snprintf(s, sizeof(s), "+0");
    else if (!isnan(rate)) {
        snprintf(s, sizeof(s), "%.2f", rate);
        memmove(s, s + 1, strlen(s));
    }
    text_printf(out, "%*s", width, s);
}

void report_put_number(struct text *out, const struct comparison *c, int i)
{
    text_printf(out, "%3d%s", i + 1, c->run[i].lossless ? " " : "*");
}

// A sentence about a run.
static void put_line(struct text *out, const struct comparison *c, int i, int width, const char *words)
{
    char label[16];
    snprintf(label, sizeof(label), "%3d%s", i + 1, c->run[i].lossless ? "" : "*");
    report_paragraph(out, 5, width, label, words);
}

// ---- what was run ----

// The values of one field over all cells; if they differ, each with the numbers of its cells.
static void put_values(struct text *out, const struct comparison *c, int width, const char *label, size_t field)
{
#define FIELD(i) (*(char *const *)((const char *)&c->run[i] + field))
    struct text words = { 0 };
    for (int i = 0; i < c->n; i++) {
        bool seen = false, all_equal = true;
        for (int k = 0; k < c->n; k++) {
            bool same = strcmp(FIELD(i), FIELD(k)) == 0;
            seen |= same && k < i;
            all_equal &= same;
        }
        if (seen)
            continue;
        text_printf(&words, "%s%s", words.n > 0 ? "; " : "", FIELD(i));
        for (int k = i, n = 0; k < c->n && !all_equal; k++)
            if (strcmp(FIELD(i), FIELD(k)) == 0)
                text_printf(&words, "%s%d", n++ == 0 ? " in run " : ", ", k + 1);
    }
    report_paragraph(out, 11, width, label, words.s);
    free(words.s);
#undef FIELD
}

static void put_facts(struct text *out, const struct comparison *c, int width)
{
    struct text t = { 0 };
    text_printf(&t, "%s (weights %s, activations %s", c->target, c->model_type, c->activations);
    if (strcmp(c->cache, "f32") != 0)
        text_printf(&t, ", cache %s", c->cache);
    if (c->n > 0 && c->run[0].inflated)
        text_puts(&t, ", marked as inflated");
    text_puts(&t, ")");
    report_paragraph(out, 11, width, "target", t.s);
    report_paragraph(out, 11, width, "sampling", c->sampling);
    if (c->limits[0] != '\0')
        report_paragraph(out, 11, width, "limits", c->limits);

    t.n = 0;
    text_printf(&t, "%lld of %s", (long long)c->n_prompts, c->prompts);
    if (c->turns > 1)
        text_printf(&t, ", up to %lld turns", (long long)c->turns);
    for (int i = 0; i < c->n_categories; i++)
        text_printf(&t, "%s%s %lld", i == 0 ? ": " : ", ", c->category[i], (long long)c->category_prompts[i]);
    report_paragraph(out, 11, width, "prompts", t.s);

    t.n = 0;
    text_printf(&t, "batch %lld, seed %llu, %lld repeat%s", (long long)c->batch, (unsigned long long)c->seed,
                (long long)c->repeats, c->repeats == 1 ? "" : "s");
    report_paragraph(out, 11, width, "decoding", t.s);
    put_values(out, c, width, "device", offsetof(struct tally, device));
    put_values(out, c, width, "machine", offsetof(struct tally, machine));
    put_values(out, c, width, "revision", offsetof(struct tally, revision));
    free(t.s);
}

static void put_legend(struct text *out, const struct comparison *c, int width)
{
    text_puts(out, "\nrun  drafter; rule\n");
    for (int i = 0; i < c->n; i++) {
        const struct tally *r = &c->run[i];
        struct text t = { 0 };
        text_printf(&t, "%s; %s", r->drafter, r->rule);
        if (!r->lossless)
            text_puts(&t, " - LOSSY");
        if (r->inflated)
            text_puts(&t, " - INFLATED TARGET");
        if (!r->finished)
            text_printf(&t, " - UNFINISHED, %lld text%s so far", (long long)r->sequences, r->sequences == 1 ? "" : "s");
        put_line(out, c, i, width, t.s);
        free(t.s);
    }
}

// ---- tables ----

void report_put_interval(struct text *out, int width, const struct interval *x)
{
    char s[48] = "", low[16], high[16];
    if (!isnan(x->low))
        snprintf(s, sizeof(s), "[%s, %s]", figure(low, sizeof(low), x->low), figure(high, sizeof(high), x->high));
    else if (!isnan(x->value))
        snprintf(s, sizeof(s), "one prompt");
    text_printf(out, "%*s", width, s);
}

static void put_speed(struct text *out, const struct comparison *c)
{
    const bool steady = c->batch > 1;
    text_printf(out,
                "\nSpeed     tokens/s     speedup over none          tokens   %% of time spent in\n"
                "run    %s   total %s  95 %% interval %s  /step  prop. ver. adv. other\n",
                steady ? "steady" : "decode", steady ? "steady" : "  sums", steady ? "  all" : "geom.");
    for (int i = 0; i < c->n; i++) {
        const struct tally *r = &c->run[i];
        report_put_number(out, c, i);
        report_put_figure(out, 9, tally_speed(c, r)->value);
        report_put_figure(out, 8, r->end_to_end);
        if (r->baseline) {
            text_printf(out, "%7s%15s%6s", "1", "", "");
        } else {
            report_put_figure(out, 7, tally_speedup(c, r)->value);
            report_put_interval(out, 15, tally_speedup(c, r));
            report_put_figure(out, 6, steady ? r->speedup.value : r->geometric);
        }
        report_put_figure(out, 7, r->tokens_per_step.value);
        put_percent(out, 7, r->propose);
        put_percent(out, 5, r->verify);
        put_percent(out, 5, r->advance);
        put_percent(out, 6, r->other);
        text_puts(out, "\n");
    }
}

enum part { VALUE, LOW, HIGH };

static double part_of(const struct interval *x, enum part part)
{
    return part == VALUE ? x->value : part == LOW ? x->low : x->high;
}

static void put_rates(struct text *out, const struct interval *rate, enum part part, int64_t depth)
{
    for (int i = 0; i < POSITIONS && i < depth; i++)
        put_rate(out, i == 0 ? 6 : 5, part_of(&rate[i], part));
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

// "48.0 [39.2, 57.0]": at most five characters a number.
void report_put_value(struct text *out, int width, struct interval x, double factor)
{
    char s[80] = "-", part[3][24];
    for (enum part k = VALUE; k <= HIGH; k++) {
        const double y = factor * part_of(&x, k), size = fabs(y);
        snprintf(part[k], sizeof(part[k]), "%.*f", size < 9.995 ? 2 : size < 99.95 ? 1 : 0, size < 0.005 ? 0 : y);
        if (size >= 99999.5)
            snprintf(part[k], sizeof(part[k]), "%.0e", y);
    }
    if (!isnan(x.low))
        snprintf(s, sizeof(s), "%s [%s, %s]", part[VALUE], part[LOW], part[HIGH]);
    else if (!isnan(x.value))
        snprintf(s, sizeof(s), "%s", part[VALUE]);
    text_printf(out, "%*s", width, s);
}

static void put_by_prompt(struct text *out, const struct comparison *c)
{
    text_puts(out, "\nBy prompt     acceptance, %         tokens/step             TTFT, ms   prompts\n"
                   "run           95 % interval       95 % interval       95 % interval   for 2 %\n");
    for (int i = 0; i < c->n; i++) {
        const struct tally *r = &c->run[i];
        report_put_number(out, c, i);
        report_put_value(out, 23, r->acceptance_rate, 100);
        report_put_value(out, 20, r->tokens_per_step, 1);
        report_put_value(out, 21, r->ttft, 1e-6);
        const double prompts = r->baseline ? tally_speed(c, r)->prompts : tally_speedup(c, r)->prompts;
        if (prompts < 1e7)
            text_printf(out, "%10.0f", prompts);
        else
            report_put_figure(out, 10, prompts);
        if (!isnan(r->expected_rate.value)) {
            text_printf(out, "\n%4s", "");
            report_put_value(out, 23, r->expected_rate, 100);
            text_puts(out, "  by E[accepted | draft]");
        }
        text_puts(out, "\n");
    }
}

static void put_acceptance(struct text *out, const struct comparison *c)
{
    text_puts(out, "\nAcceptance        tokens            accepted by position in the draft\n"
                   "run   drafts   drafted  accepted    %     1    2    3    4    5    6    7    8\n");
    for (int i = 0; i < c->n; i++) {
        const struct tally *r = &c->run[i];
        if (r->baseline)
            continue;
        report_put_number(out, c, i);
        text_printf(out, "%8lld%10lld%10lld", (long long)r->drafts, (long long)r->drafted, (long long)r->accepted);
        put_percent(out, 5, r->acceptance_rate.value);
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
                put_rate(out, k == 0 ? 6 : 5, r->by_rank[k]);
            text_puts(out, "\n");
        }
    }
}

// With fewer prompts an interval is too wide to be of use.
enum { MIN_INTERVAL_PROMPTS = 3 };

// A speedup in at most four characters.
static const char *short_figure(char *to, size_t capacity, double x)
{
    if (isnan(x))
        snprintf(to, capacity, "-");
    else if (x >= 9999.5)
        snprintf(to, capacity, ">1e4");
    else
        snprintf(to, capacity, "%.*f", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x);
    return to;
}

static void put_with_interval(struct text *out, const struct interval *x, bool enough)
{
    char value[32], low[32], high[32], s[80] = "";
    if (enough && !isnan(x->low))
        snprintf(s, sizeof(s), " [%s, %s]", short_figure(low, sizeof(low), x->low),
                 short_figure(high, sizeof(high), x->high));
    text_printf(out, "%5s%-13s", short_figure(value, sizeof(value), x->value), s);
}

static void end_line(struct text *out)
{
    while (out->n > 0 && out->s[out->n - 1] == ' ')
        out->s[--out->n] = '\0';
    text_puts(out, "\n");
}

static bool put_category(struct store *s, struct text *out, const struct comparison *c, int category, int first,
                         int last, bool intervals, struct error *err)
{
    const char *name = c->category[category];
    const int64_t prompts = c->category_prompts[category];
    size_t n = bytes_of(name, strlen(name), 18);
    text_add(out, name, n);
    text_printf(out, "%*s%6lld%s", 18 - characters_of(name, n), "", (long long)prompts, intervals ? "" : "   ");
    for (int i = first; i < last; i++) {
        struct interval speedup;
        if (!speedup_read(s, c->run[i].run, name, c->batch > 1, &speedup, err))
            return false;
        if (intervals)
            put_with_interval(out, &speedup, prompts >= MIN_INTERVAL_PROMPTS);
        else
            report_put_figure(out, 7, speedup.value);
    }
    end_line(out);
    return true;
}

// As many runs side by side as fit the width.
static bool put_categories(struct store *s, struct text *out, const struct comparison *c, struct error *err)
{
    bool intervals = false;
    for (int k = 0; k < c->n_categories; k++)
        intervals |= c->category_prompts[k] >= MIN_INTERVAL_PROMPTS;
    const int at_once = intervals ? 3 : 7;
    int first = 0;
    while (first < c->n && c->run[first].baseline)
        first++;
    for (; first < c->n && c->n_categories > 1; first += at_once) {
        int last = first + at_once < c->n ? first + at_once : c->n;
        text_puts(out, intervals ? "\nSpeedup over none, by category, with 95 % intervals by prompt\n"
                                   "run              prompts"
                                 : "\nSpeedup over none, by category\n                 prompts run");
        for (int i = first; i < last; i++)
            text_printf(out, intervals ? "%5d%-13s" : "%6d%-1s", i + 1, c->run[i].lossless ? "" : "*");
        end_line(out);
        for (int k = 0; k < c->n_categories; k++)
            if (!put_category(s, out, c, k, first, last, intervals, err))
                return false;
    }
    return true;
}

static void put_texts(struct text *out, const struct comparison *c, int width)
{
    text_puts(out, "\nTexts compared with those of none\n");
    for (int i = 0; i < c->n; i++) {
        const struct tally *r = &c->run[i];
        struct text t = { 0 };
        if (r->baseline)
            continue;
        if (!texts_comparable(c, r))
            text_puts(&t, "not comparable (sampled)");
        else if (r->compared == 0)
            text_puts(&t, "nothing to compare with");
        else if (r->first_prompt == NULL)
            text_printf(&t, "all %lld equal none's", (long long)r->equal);
        else
            text_printf(&t, "differs: %lld of %lld, first at token %lld (prompt %s, turn %lld)",
                        (long long)(r->compared - r->equal), (long long)r->compared, (long long)r->first_position + 1,
                        r->first_prompt, (long long)r->first_turn + 1);
        if (r->unpaired > 0)
            text_printf(&t, "; %lld of %lld have no pair with none and are not in the speedup", (long long)r->unpaired,
                        (long long)r->sequences);
        put_line(out, c, i, width, t.s);
        free(t.s);
    }
}

static void put_expected(struct text *out, const struct comparison *c, int width)
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
        put_line(out, c, i, width, words);
        free(words);
        // with few events z is not normal: one rejection of probability 1/500 is 22 standard deviations
        enum { MIN_VARIANCE = 25 };
        const double deviation = (r->accepted_uncut - r->expected) / r->z;
        if (fabs(r->z) > 5 && deviation * deviation >= MIN_VARIANCE)
            put_line(out, c, i, width,
                     "WARNING: more than 5 standard deviations: the rule does not follow its formula, or draft tokens "
                     "were not sampled from the q that was reported; see `speclab exact`");
    }
}

// Acceptance of the same drafts under other rules, where that was recorded.
static bool put_by_rule(struct store *s, struct text *out, const struct comparison *c, int width, struct error *err)
{
    bool any = false;
    for (int i = 0; i < c->n; i++) {
        struct text t = { 0 };
        double bound = NAN, own = NAN;
        struct query *q =
            query_open(s, "SELECT rule, accepted, first, lossless FROM by_rule WHERE run = ? ORDER BY accepted DESC");
        query_put_int(q, c->run[i].run);
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
            put_line(out, c, i, width, t.s);
            any = true;
        }
        free(t.s);
        if (!query_close(q, err))
            return false;
    }
    return true;
}

// Who drafted, where the drafter is one of drafters.
static bool put_by_source(struct store *s, struct text *out, const struct comparison *c, int width, struct error *err)
{
    bool any = false;
    for (int i = 0; i < c->n; i++) {
        struct text t = { 0 };
        struct query *q = query_open(
            s,
            "SELECT source, drafted, accepted, coalesce(share, 0) FROM by_source WHERE run = ? ORDER BY accepted DESC, source");
        query_put_int(q, c->run[i].run);
        while (query_next(q))
            text_printf(&t, "%s%s %.0f %% (%lld/%lld)", t.n > 0 ? ", " : "", query_text(q, 0), 100 * query_real(q, 3),
                        (long long)query_int(q, 2), (long long)query_int(q, 1));
        if (t.n > 0) {
            text_puts(out,
                      any ? "" : "\nWho proposed the accepted draft tokens: share (accepted/drafted); a+b: both did\n");
            put_line(out, c, i, width, t.s);
            any = true;
        }
        free(t.s);
        if (!query_close(q, err))
            return false;
    }
    return true;
}

// ---- notes ----

void report_notes(const struct comparisons *all, int width, struct text *out)
{
    bool lossy = false, deep = false, expected = false, speculative = false, inflated = false, batched = false;
    for (int k = 0; k < all->n; k++)
        for (int i = 0; i < all->comparison[k].n; i++) {
            const struct tally *r = &all->comparison[k].run[i];
            lossy |= !r->lossless;
            inflated |= r->inflated;
            deep |= r->max_depth > POSITIONS;
            expected |= !isnan(r->z);
            speculative |= !r->baseline;
            batched |= all->comparison[k].batch > 1;
        }
    text_puts(out, "\n");
    report_paragraph(out, 11, width, "tokens/s", "decode: new tokens / time in steps; total: prefill included.");
    if (batched)
        report_paragraph(
            out, 11, width, "",
            "With a batch above 1, of the whole batch, and speed and speedup in steady state: of steps with a text in every slot; total, all "
            "and % of time are of all steps. For one text see sequence_tokens_per_s in the view speed.");
    report_paragraph(out, 11, width, "/step",
                     "mean accepted length: new tokens / steps, over all steps, the target's own token included.");
    report_paragraph(out, 11, width, "% of time",
                     "in steps: prop. = propose, ver. = verify, adv. = advance, other = none of these.");
    report_paragraph(
        out, 11, width, "95 %",
        "intervals with prompts as the sample: bootstrap-t from 10 to 49 prompts, else Student's t (docs/results.md). TTFT: mean time to "
        "first token. for 2 %: prompts of this kind that would make the interval of the speedup (of none: of tokens/s) +- 2 %.");
    if (speculative) {
        report_paragraph(out, 11, width, "speedup",
                         "decode tokens/s over none's, for texts that are paired with none's. sums: ratio of "
                         "ratios of sums; geom.: geometric mean over prompts.");
        report_paragraph(
            out, 11, width, "drafts",
            "steps with at least one draft token. accepted: without the target's own token; %: of drafted.");
        report_paragraph(out, 11, width, "position i",
                         "drafts with at least i tokens accepted / drafts; given all before it: / drafts with i - 1 "
                         "accepted and a node at depth i.");
    }
    if (deep)
        report_paragraph(out, 11, width, "", "Drafts deeper than 8: see the view acceptance.");
    if (expected)
        report_paragraph(out, 11, width, "z",
                         "(accepted - expected) / standard deviation: N(0, 1) if the rule follows its formula.");
    if (lossy)
        report_paragraph(out, 11, width, "* LOSSY",
                         "the rule changes the output distribution: its speedup is not for the same task.");
    if (inflated)
        report_paragraph(out, 11, width, "INFLATED",
                         "the target was made slower on purpose: these speedups hold for no real model.");
}

bool report_comparison(struct store *s, const struct comparison *c, int which, int of, int width, struct text *out,
                       struct error *err)
{
    bool speculative = c->n > 0 && !c->run[c->n - 1].baseline;
    char *title = of > 1 ? xformat("%s (%d of %d)", c->experiment, which + 1, of) : xstrdup(c->experiment);
    report_paragraph(out, 0, width, "", title);
    free(title);
    for (int i = 0; i < width && i < TABLE; i++)
        text_puts(out, "=");
    text_puts(out, "\n");
    put_facts(out, c, width);
    put_legend(out, c, width);
    put_speed(out, c);
    put_by_prompt(out, c);
    if (speculative) {
        put_acceptance(out, c);
        if (!put_categories(s, out, c, err))
            return false;
        put_texts(out, c, width);
        put_expected(out, c, width);
        return put_by_source(s, out, c, width, err) && put_by_rule(s, out, c, width, err);
    }
    return true;
}
