// report_table.c - a report as tables that fit a terminal: all cells, the fastest of each comparison first, then each
// comparison. Cells are numbered, so a long name is printed once. Numbers are below their units, and the notes at the
// end define them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/prose.h"
#include "core/utf8.h"
#include "results/query.h"
#include "results/tables/tables.h"
#include "results/tally.h"

enum { CELL = 59, TABLE = 78 }; // column of a cell's name in the summary; columns of the widest table

// ---- all cells

// Writes "1.25 [1.1, 1.4]", in figures of at most four characters. rest: width of what follows the value; negative: it
// is on the left.
static void put_short(struct text *out, int width, int rest, const struct interval *x, bool limits)
{
    char value[FIGURE], low[FIGURE], high[FIGURE], s[2 * FIGURE + 8] = "";
    if (limits && !isnan(x->low))
        snprintf(s, sizeof(s), " [%s, %s]", report_short_figure(low, x->low), report_short_figure(high, x->high));
    text_printf(out, "%*s%*s", width, report_short_figure(value, x->value), rest, s);
}

static void put_cell(struct text *out, const struct comparison *c, int i, int width, const char *name)
{
    const struct tally *t = &c->run[i];
    struct text numbers = { 0 };
    char *equal = report_equal(c, t), length[FIGURE];
    text_printf(&numbers, "%4lld%s", (long long)t->run, t->lossless ? " " : "*");
    report_put_figure(&numbers, 8, t->tokens_per_s.value);
    if (t->baseline)
        text_printf(&numbers, "%6s%13s", "1", "");
    else
        put_short(&numbers, 6, 13, &t->speedup, true);
    text_printf(&numbers, "%6s", report_short_figure(length, t->tokens_per_step.value));
    report_put_percent(&numbers, 4, t->acceptance_rate.value);
    text_printf(&numbers, "%10s%5lld  ", equal, (long long)t->speed_prompts);
    prose_paragraph(out, CELL, width, numbers.s, name);
    free(equal);
    free(numbers.s);
}

static void put_comparison(struct text *out, const struct comparisons *all, int which, int top, int width)
{
    const struct comparison *c = &all->comparison[which];
    struct cell_names names;
    struct text head = { 0 };
    int *order = report_order(c), lossy;
    const int shown = report_shown(c, order, top, &lossy);
    char *title = report_title(all, which), *target = report_target(c);
    char *left_out = report_left_out(c, order, shown, lossy);
    cell_names_make(c, &names);
    text_printf(&head, "%s: %s, %s, batch %lld", title, target, c->sampling, (long long)c->batch);
    text_printf(&head, names.common[0] != '\0' ? "; all: %s" : "", names.common);
    text_puts(out, "\n");
    prose_paragraph(out, 0, width, "", head.s);
    for (int k = 0; k < shown; k++)
        put_cell(out, c, order[k], width, names.name[order[k]]);
    if (left_out[0] != '\0')
        prose_paragraph(out, 6, width, "", left_out);
    cell_names_free(&names);
    free(left_out);
    free(target);
    free(title);
    free(head.s);
    free(order);
}

void report_summary(const struct comparisons *all, int top, int width, struct text *out)
{
    char *disturbed = report_disturbed(all);
    if (disturbed[0] != '\0') {
        prose_paragraph(out, 0, width, "", disturbed);
        text_puts(out, "\n");
    }
    free(disturbed);
    text_puts(out, "Summary         speedup over none  tokens   %     texts\n"
                   " run tokens/s  sums  95 % interval  /step acc.    equal   n  drafter; rule\n");
    for (int i = 0; i < all->n; i++)
        put_comparison(out, all, i, top, width);
}

// ---- the settings of the runs ----

static void put_values(struct text *out, const struct comparison *c, int width, const char *label, size_t field)
{
    char *words = report_values(c, field, true);
    prose_paragraph(out, 11, width, label, words);
    free(words);
}

static void put_sentence(struct text *out, int width, const char *label, char *words)
{
    prose_paragraph(out, 11, width, label, words);
    free(words);
}

static void put_facts(struct text *out, const struct comparison *c, int width)
{
    put_sentence(out, width, "target", report_target(c));
    prose_paragraph(out, 11, width, "sampling", c->sampling);
    if (c->limits[0] != '\0')
        prose_paragraph(out, 11, width, "limits", c->limits);
    put_sentence(out, width, "prompts", report_prompts(c));
    put_sentence(out, width, "decoding", report_decoding(c));
    put_values(out, c, width, "device", offsetof(struct tally, device));
    put_values(out, c, width, "machine", offsetof(struct tally, machine));
    put_values(out, c, width, "revision", offsetof(struct tally, revision));
}

// ---- sentences about runs

struct lines {
    struct text *out;
    const struct comparison *c;
    int width;
    struct store *s;
    struct error *err;
};
typedef bool words_of_run(const struct lines *l, const struct tally *r, struct text *to);

// Writes a line for each run that has words, and the title before the first. Returns false, and sets l->err, if some
// words could not be read.
static bool put_lines(const struct lines *l, const char *title, words_of_run *words)
{
    bool ok = true;
    for (int i = 0; i < l->c->n && ok; i++) {
        struct text t = { 0 };
        ok = words(l, &l->c->run[i], &t);
        if (ok && t.n > 0) {
            text_puts(l->out, title);
            title = "";
            report_put_line(l->out, l->c, i, l->width, t.s);
        }
        free(t.s);
    }
    return ok;
}

static bool legend(const struct lines *l, const struct tally *r, struct text *to)
{
    (void)l;
    text_printf(to, "%s; %s%s%s", r->drafter, r->rule, r->lossless ? "" : " - LOSSY",
                r->inflated ? " - INFLATED TARGET" : "");
    if (!r->finished)
        text_printf(to, " - UNFINISHED, %lld text%s so far", (long long)r->sequences, r->sequences == 1 ? "" : "s");
    return true;
}

// Names prompts that entered no speedup because all their slices were disturbed.
static bool lacking(const struct lines *l, const struct tally *r, struct text *to)
{
    for (int k = 0; k < l->c->n_categories && !r->baseline; k++)
        if (r->by_category[k].speedup_prompts < l->c->category_prompts[k])
            text_printf(to, "%s %s %lld of %lld",
                        to->n > 0 ? "," : "prompts that entered the speedup:", l->c->category[k],
                        (long long)r->by_category[k].speedup_prompts, (long long)l->c->category_prompts[k]);
    return true;
}

static bool texts(const struct lines *l, const struct tally *r, struct text *to)
{
    if (r->baseline)
        return true;
    if (!texts_comparable(l->c, r))
        text_puts(to, "not comparable (sampled)");
    else if (r->compared == 0)
        text_puts(to, "nothing to compare with");
    else if (r->first_prompt == NULL)
        text_printf(to, "all %lld equal none's", (long long)r->equal);
    else
        text_printf(to, "differs: %lld of %lld, first at token %lld (prompt %s, turn %lld)",
                    (long long)(r->compared - r->equal), (long long)r->compared, (long long)r->first_position + 1,
                    r->first_prompt, (long long)r->first_turn + 1);
    if (r->unpaired > 0)
        text_printf(to, "; %lld of %lld have no pair with none and are not in the speedup", (long long)r->unpaired,
                    (long long)r->sequences);
    return true;
}

// Reports the acceptance of the same drafts under other rules, if it was recorded.
static bool by_rule(const struct lines *l, const struct tally *r, struct text *to)
{
    double bound = NAN, own = NAN;
    struct query *q = query_with(
        l->s, "SELECT rule, accepted, first, lossless FROM by_rule WHERE run = ? ORDER BY accepted DESC", SQL(r->run));
    while (query_next(q)) {
        const char *rule = query_text(q, 0);
        if (strcmp(rule, "(bound)") == 0)
            bound = query_real(q, 2);
        else
            text_printf(to, "%s%s%s %.3f", to->n > 0 ? ", " : "", rule, query_int(q, 3) ? "" : "*", query_real(q, 1));
        if (strncmp(rule, r->rule, strlen(rule)) == 0)
            own = query_real(q, 2);
    }
    if (!isnan(own) && !isnan(bound))
        text_printf(to, "; at least one accepted: %.3f, bound %.3f", own, bound);
    return query_close(q, l->err);
}

// Reports which parts drafted, if the drafter combines several.
static bool by_source(const struct lines *l, const struct tally *r, struct text *to)
{
    struct query *q = query_with(l->s,
                                 "SELECT source, drafted, accepted, coalesce(share, 0) FROM by_source WHERE run = ?"
                                 " ORDER BY accepted DESC, source",
                                 SQL(r->run));
    while (query_next(q))
        text_printf(to, "%s%s %.0f %% (%lld/%lld)", to->n > 0 ? ", " : "", query_text(q, 0), 100 * query_real(q, 3),
                    (long long)query_int(q, 2), (long long)query_int(q, 1));
    return query_close(q, l->err);
}

// ---- tables ----

static void put_speed(struct text *out, const struct comparison *c)
{
    text_puts(out, "\nSpeed     tokens/s     speedup over none          tokens   % of time spent in\n"
                   "run    decode   total    sums  95 % interval geom.  /step  prop. ver. adv. other\n");
    for (int i = 0; i < c->n; i++) {
        const struct tally *r = &c->run[i];
        report_put_number(out, c, i);
        report_put_figure(out, 9, r->tokens_per_s.value);
        report_put_figure(out, 8, r->end_to_end);
        if (r->baseline) {
            text_printf(out, "%7s%15s%6s", "1", "", "");
        } else {
            report_put_figure(out, 7, r->speedup.value);
            report_put_interval(out, 15, &r->speedup);
            report_put_figure(out, 6, r->geometric);
        }
        report_put_figure(out, 7, r->tokens_per_step.value);
        report_put_percent(out, 7, r->propose);
        report_put_percent(out, 5, r->verify);
        report_put_percent(out, 5, r->advance);
        report_put_percent(out, 6, r->other);
        text_puts(out, "\n");
    }
}

// Lists the cells that were disturbed, with the share of their time.
static void put_disturbed(struct text *out, const struct comparison *c, int width)
{
    struct text t = { 0 };
    for (int i = 0; i < c->n; i++)
        if (c->run[i].disturbed > 0 || c->run[i].all_disturbed)
            text_printf(&t, "%s run %lld %.*f %%%s",
                        t.n > 0 ? "," : "left out of the speeds:", (long long)c->run[i].run,
                        c->run[i].disturbed < 0.095 ? 1 : 0, 100 * c->run[i].disturbed,
                        c->run[i].all_disturbed ? " (counted)" : "");
    if (t.n > 0)
        prose_paragraph(out, 11, width, "disturbed", t.s);
    free(t.s);
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
        const double prompts = r->baseline ? r->tokens_per_s.prompts : r->speedup.prompts;
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

static void end_line(struct text *out)
{
    while (out->n > 0 && out->s[out->n - 1] == ' ')
        out->s[--out->n] = '\0';
    text_puts(out, "\n");
}

static void put_category(struct text *out, const struct comparison *c, int category, int first, int last,
                         bool intervals)
{
    const char *name = c->category[category];
    const int64_t prompts = c->category_prompts[category];
    size_t n = utf8_first(name, strlen(name), 18);
    text_add(out, name, n);
    text_printf(out, "%*s%6lld%s", 18 - (int)utf8_count(name, n), "", (long long)prompts, intervals ? "" : "   ");
    for (int i = first; i < last; i++) {
        const struct interval *speedup = &c->run[i].by_category[category].speedup;
        if (intervals)
            put_short(out, 5, -13, speedup, prompts >= MIN_INTERVAL_PROMPTS);
        else
            report_put_figure(out, 7, speedup->value);
    }
    end_line(out);
}

// Puts as many runs next to each other as fit the width.
static void put_categories(struct text *out, const struct comparison *c)
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
            text_printf(out, intervals ? "%5lld%-13s" : "%6lld%-1s", (long long)c->run[i].run,
                        c->run[i].lossless ? "" : "*");
        end_line(out);
        for (int k = 0; k < c->n_categories; k++)
            put_category(out, c, k, first, last, intervals);
    }
}

enum part { VALUE, LOW, HIGH }; // part of an interval

static void put_rates(struct text *out, const struct interval *rate, enum part part, int64_t depth)
{
    for (int i = 0; i < POSITIONS && i < depth; i++)
        report_put_rate(out, i == 0 ? 6 : 5, (const double[]){ rate[i].value, rate[i].low, rate[i].high }[part]);
    text_puts(out, "\n");
}

// Writes the rates of a line whose head is already written, and their intervals.
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
        report_put_line(out, c, i, width, words);
        free(words);
        // z is not normal with few events: one rejection of probability 1/500 is 22 standard deviations
        enum { MIN_VARIANCE = 25 };
        const double deviation = (r->accepted_uncut - r->expected) / r->z;
        if (fabs(r->z) > 5 && deviation * deviation >= MIN_VARIANCE)
            report_put_line(
                out, c, i, width,
                "WARNING: more than 5 standard deviations: the rule does not follow its formula, or draft tokens "
                "were not sampled from the q that was reported; see `speclab exact`");
    }
}

bool report_comparison(struct store *s, const struct comparisons *all, int which, int width, struct text *out,
                       struct error *err)
{
    const struct comparison *c = &all->comparison[which];
    const struct lines l = { out, c, width, s, err };
    char *title = report_title(all, which);
    prose_paragraph(out, 0, width, "", title);
    free(title);
    for (int i = 0; i < width && i < TABLE; i++)
        text_puts(out, "=");
    text_puts(out, "\n");
    put_facts(out, c, width);
    put_lines(&l, "\nrun  drafter; rule\n", legend);
    put_speed(out, c);
    put_disturbed(out, c, width);
    put_by_prompt(out, c);
    if (c->n == 0 || c->run[c->n - 1].baseline) // nothing is speculative
        return true;
    put_acceptance(out, c);
    put_categories(out, c);
    put_lines(&l, "", lacking);
    put_lines(&l, "\nTexts compared with those of none\n", texts);
    put_expected(out, c, width);
    return put_lines(&l, "\nWho proposed the accepted draft tokens: share (accepted/drafted); a+b: both did\n",
                     by_source) &&
           put_lines(&l, "\nAccepted tokens per draft under each rule, for the same drafts (* lossy)\n", by_rule);
}

// ---- definitions of the numbers, once at the end

enum { ALWAYS = 1, BATCHED = 2, SPECULATIVE = 4, DEEP = 8, EXPECTED = 16, LOSSY = 32, INFLATED = 64 };

// clang-format off
static const struct {
    unsigned of; // kinds of reports that need the note
    const char *label, *words;
} notes[] = {
    { ALWAYS, "summary", "of each comparison none, then lossless cells, the fastest first, then lossy ones. Options and rules that all cells share "
      "are after \"all\". acc.: accepted draft tokens, %; equal: texts equal to none's; sampled: other samples of the same distribution; n: prompts "
      "that entered the speedup, of none: tokens/s." },
    { ALWAYS, "tokens/s", "decode: new tokens / time in steps; total: prefill included." },
    { BATCHED, "", "With a batch above 1, of the whole batch. For one text see sequence_tokens_per_s in the view speed." },
    { ALWAYS, "disturbed", "share of a cell's time in slices in which other processes used more than 8 % of a processor; speeds and speedups leave "
      "them out, a speedup those of none as well; counted: in every round there was one, so all count. Texts, acceptance and times to first token "
      "have all." },
    { ALWAYS, "/step", "mean accepted length: new tokens / steps, over all steps, the target's own token included." },
    { ALWAYS, "% of time", "in steps: prop. = propose, ver. = verify, adv. = advance, other = none of these." },
    { ALWAYS, "95 %", "intervals with prompts as the sample, of speeds also with slices of time (docs/results.md). TTFT: mean time to first token. "
      "for 2 %: prompts of this kind that would make the interval of the speedup (of none: of tokens/s) +- 2 %." },
    { SPECULATIVE, "speedup", "decode tokens/s over none's, for texts that are paired with none's. sums: ratio of ratios of sums; geom.: geometric "
      "mean over prompts." },
    { SPECULATIVE, "drafts", "steps with at least one draft token. accepted: without the target's own token; %: of drafted." },
    { SPECULATIVE, "position i", "drafts with at least i tokens accepted / drafts; given all before it: / drafts with i - 1 accepted and a node at "
      "depth i." },
    { DEEP, "", "Drafts deeper than 8: see the view acceptance." },
    { EXPECTED, "z", "(accepted - expected) / standard deviation: N(0, 1) if the rule follows its formula." },
    { LOSSY, "* LOSSY", "the rule changes the output distribution: its speedup is not for the same task." },
    { INFLATED, "INFLATED", "the target was made slower on purpose: these speedups hold for no real model." },
};
// clang-format on

void report_notes(const struct comparisons *all, int width, struct text *out)
{
    unsigned has = ALWAYS;
    for (int k = 0; k < all->n; k++)
        for (int i = 0; i < all->comparison[k].n; i++) {
            const struct tally *r = &all->comparison[k].run[i];
            has |= (r->lossless ? 0u : LOSSY) | (r->inflated ? INFLATED : 0u) | (r->baseline ? 0u : SPECULATIVE) |
                   (r->max_depth > POSITIONS ? DEEP : 0u) | (isnan(r->z) ? 0u : EXPECTED) |
                   (all->comparison[k].batch > 1 ? BATCHED : 0u);
        }
    text_puts(out, "\n");
    for (size_t i = 0; i < sizeof(notes) / sizeof(*notes); i++)
        if (has & notes[i].of)
            prose_paragraph(out, 11, width, notes[i].label, notes[i].words);
}
