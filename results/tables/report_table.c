// report_table.c - a comparison as tables that fit a terminal. Cells are numbered, so a long name is printed once. Numbers
// stand under their units; the notes at the end define them.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/prose.h"
#include "core/utf8.h"
#include "results/query.h"
#include "results/report_parts.h"
#include "results/tally.h"
#include "results/tables/tables.h"

enum { TABLE = 78 }; // columns of the widest table

// ---- what was run ----

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
        report_put_line(out, c, i, width, t.s);
        free(t.s);
    }
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

// The cells that were disturbed, with the share of their time.
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

static void put_with_interval(struct text *out, const struct interval *x, bool enough)
{
    char value[FIGURE], low[FIGURE], high[FIGURE], s[2 * FIGURE + 8] = "";
    if (enough && !isnan(x->low))
        snprintf(s, sizeof(s), " [%s, %s]", report_short_figure(low, x->low), report_short_figure(high, x->high));
    text_printf(out, "%5s%-13s", report_short_figure(value, x->value), s);
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
            put_with_interval(out, speedup, prompts >= MIN_INTERVAL_PROMPTS);
        else
            report_put_figure(out, 7, speedup->value);
    }
    end_line(out);
}

// As many runs side by side as fit the width.
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

// Prompts that entered no speedup, since all their slices were disturbed.
static void put_lacking(struct text *out, const struct comparison *c, int width)
{
    for (int i = 0; i < c->n; i++) {
        struct text t = { 0 };
        for (int k = 0; k < c->n_categories && !c->run[i].baseline; k++)
            if (c->run[i].by_category[k].speedup_prompts < c->category_prompts[k])
                text_printf(&t, "%s %s %lld of %lld",
                            t.n > 0 ? "," : "prompts that entered the speedup:", c->category[k],
                            (long long)c->run[i].by_category[k].speedup_prompts, (long long)c->category_prompts[k]);
        if (t.n > 0)
            report_put_line(out, c, i, width, t.s);
        free(t.s);
    }
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
        report_put_line(out, c, i, width, t.s);
        free(t.s);
    }
}

bool report_comparison(struct store *s, const struct comparisons *all, int which, int width, struct text *out,
                       struct error *err)
{
    const struct comparison *c = &all->comparison[which];
    bool speculative = c->n > 0 && !c->run[c->n - 1].baseline;
    char *title = report_title(all, which);
    prose_paragraph(out, 0, width, "", title);
    free(title);
    for (int i = 0; i < width && i < TABLE; i++)
        text_puts(out, "=");
    text_puts(out, "\n");
    put_facts(out, c, width);
    put_legend(out, c, width);
    put_speed(out, c);
    put_disturbed(out, c, width);
    put_by_prompt(out, c);
    if (speculative) {
        report_put_acceptance(out, c);
        put_categories(out, c);
        put_lacking(out, c, width);
        put_texts(out, c, width);
        report_put_expected(out, c, width);
        return report_put_by_source(s, out, c, width, err) && report_put_by_rule(s, out, c, width, err);
    }
    return true;
}
