// bench_table.c - results of a bench as text: a table for each placement and context.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "commands/bench/bench.h"
#include "commands/bench/bench_parts.h"
#include "commands/bench/bench_peer.h"
#include "commands/command_line.h"
#include "experiments/environment.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/config.h"
#include "models/model.h"

enum { MAX_COLUMNS = 6 }; // of the table by operation

// Three significant digits.
static char *digits(double x, char to[32])
{
    if (isnan(x))
        snprintf(to, 32, "-");
    else
        snprintf(to, 32, "%.*f", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x);
    return to;
}

static const struct measurement *one_row(const struct bench *b, int context)
{
    return bench_find(b, BENCH_PASS, 1, 1, context);
}

static double median_of(const struct bench *b, const struct measurement *m, enum placement p)
{
    return m != NULL ? bench_ns(b, m, p).median : NAN;
}

// ---- the head

static void print_compute(const struct bench *b, FILE *to)
{
    char a[32];
    if (b->n_peaks == 0)
        return;
    fprintf(to, "compute     ");
    for (int i = 0; i < b->n_peaks; i++)
        fprintf(to, "%s%s %s (%s)", i > 0 ? (i % 3 == 0 ? ",\n            " : ", ") : "",
                digits(b->peak[i].per_second / 1e9, a), b->peak[i].kind, b->peak[i].isa);
    fprintf(to, " G operations/s\n");
}

static void print_rounds(const struct bench *b, FILE *to)
{
    int counted = 0, foreign = 0, unstable = 0;
    for (int i = 0; i < b->n_rounds; i++) {
        counted += b->round[i].counts;
        foreign += b->round[i].foreign > MAX_FOREIGN_LOAD;
        unstable += b->round[i].placement == PLACED_UNSTABLE;
    }
    fprintf(to, "rounds      %d, of which %d count; in %d other processes used more than %.0f %% of a processor",
            b->n_rounds, counted, foreign, 100 * MAX_FOREIGN_LOAD);
    if (b->plan.probe)
        fprintf(to, ",\n            in %d the probes before and after the round disagree", unstable);
    fprintf(to, "\n");
    if (b->none_counts)
        fprintf(to, "            NONE counts: the machine was disturbed in all rounds; all are shown\n");
}

static void print_head(const struct bench *b, FILE *to)
{
    const struct target *t = &b->target;
    const char *inflated = model_config(t->model)->inflated;
    fprintf(to, "model       %s\n", t->path);
    if (inflated != NULL)
        fprintf(to, "            marked as inflated from %s; its speed is not that of a real model\n", inflated);
    const struct model_config *config = model_config(t->model);
    fprintf(to, "weights     %s, a pass %s %.1f MB; activations %s, cache %s\n", model_type(t->model),
            bench_of_mixture(b) ? "with all experts reads" : "reads", (double)model_bytes(t->model) / 1e6,
            activations_names[model_activations(t->model)], type_facts[t->cache].name);
    if (bench_of_mixture(b))
        fprintf(to, "experts     %d of %d for a row, in %d layers; the rows are %s%s\n", config->experts_used,
                config->experts, config_mixed_layers(config), b->plan.text != NULL ? "the text " : "random tokens",
                b->plan.text != NULL ? b->plan.text : "");
    if (b->draft.model != NULL)
        fprintf(to, "draft       %s (%s, activations %s)\n", b->draft.path, model_type(b->draft.model),
                activations_names[model_activations(b->draft.model)]);
    fprintf(to, "device      %s\n", devices_name(t->devices, t->backend));
    fprintf(to, "machine     %s\n", b->machine);
    fprintf(to, "revision    %s\n", program_version());
    for (int i = 0; i < b->n_peers; i++)
        fprintf(to, "peer        %s\n", peer_name(b->peer[i]));
    print_compute(b, to);
    print_rounds(b, to);
}

static void print_placement(const struct bench *b, enum placement p, FILE *to)
{
    struct spread memory = bench_memory(b, p);
    double *one = xcalloc((size_t)b->n_rounds + 1, sizeof(double)),
           *trip = xcalloc((size_t)b->n_rounds + 1, sizeof(double));
    char a[4][32];
    fprintf(to, "\nPlacement %s: %d rounds", placement_names[p], b->counted[p]);
    for (int i = 0; i < b->n_rounds; i++) {
        bool included = b->round[i].placement == p && (b->round[i].counts || b->none_counts);
        one[i] = included ? b->round[i].after.one / 1e9 : NAN;
        trip[i] = included ? b->round[i].after.round_trip : NAN;
    }
    if (memory.n > 0) {
        fprintf(to, "; memory read at %s GB/s by %d thread%s (%s to %s),\n%s by one; cache line round trip %.0f ns\n",
                digits(memory.median / 1e9, a[0]), b->plan.threads, b->plan.threads == 1 ? "" : "s",
                digits(memory.least / 1e9, a[1]), digits(memory.most / 1e9, a[2]),
                digits(spread_of(one, b->n_rounds).median, a[3]), spread_of(trip, b->n_rounds).median);
    } else {
        fprintf(to, "\n");
    }
    free(one);
    free(trip);
}

// ---- passes

static bool several_slots(const struct bench *b)
{
    return b->plan.slots[b->plan.n_slots - 1] > 1;
}

// A column that tables have only if passes of several slots were measured.
static void put_slots(const struct bench *b, int slots, FILE *to)
{
    if (several_slots(b) && slots > 0)
        fprintf(to, "%5d ", slots);
    else if (several_slots(b))
        fprintf(to, "%5s ", "slots");
}

static void print_pass(const struct bench *b, const struct measurement *i, enum placement p, FILE *to)
{
    struct spread s = bench_ns(b, i, p);
    double seconds = s.median / 1e9, memory = bench_memory(b, p).median, peak = bench_peak(b);
    double flops = bench_flops(b, i->slots, i->n, i->context) / seconds,
           bytes = bench_bytes(b, i->slots, i->n, i->context) / seconds;
    char a[7][32];
    put_slots(b, i->slots, to);
    fprintf(to, "%5d %8s %8s %8s %7s %8s", i->n, digits(s.median / 1e6, a[0]), digits(s.low / 1e6, a[1]),
            digits(s.high / 1e6, a[2]), digits(s.median / median_of(b, one_row(b, i->context), p), a[3]),
            digits(flops / 1e9, a[4]));
    if (peak > 0)
        fprintf(to, " %7.0f", 100 * flops / peak);
    fprintf(to, " %8s", digits(bytes / 1e9, a[5]));
    if (!isnan(memory))
        fprintf(to, " %7.0f", 100 * bytes / memory);
    fprintf(to, "\n");
}

static void print_passes(const struct bench *b, int context, enum placement p, FILE *to)
{
    fprintf(to, "\nPasses of n rows%s after %d cached tokens, with the logits of every row (median and quartiles)\n",
            several_slots(b) ? " in each slot" : "", context);
    put_slots(b, 0, to);
    fprintf(to, "%5s %8s %8s %8s %7s %8s%s %8s%s\n", "n", "ms", "25 %", "75 %", "c(n)", "GFLOP/s",
            bench_peak(b) > 0 ? "  % peak" : "", "GB/s", b->plan.probe ? "  % read" : "");
    for (int i = 0; i < b->n_measurements; i++)
        if (b->measurement[i].kind == BENCH_PASS && b->measurement[i].context == context)
            print_pass(b, &b->measurement[i], p, to);
}

// What the passes of a mixture read, and what they would if rows chose their experts independently, none being preferred.
static void print_experts(const struct bench *b, int context, enum placement p, FILE *to)
{
    char a[6][32];
    fprintf(
        to,
        "\nExperts of a layer that a pass reads after %d cached tokens: counted (the mean of the layers), and expected of rows\n"
        "that choose independently and uniformly; what is read with those counted, weights and cache\n",
        context);
    put_slots(b, 0, to);
    fprintf(to, "%5s %8s %8s %10s %11s %8s\n", "n", "counted", "expected", "MB", "MB / n = 1", "c(n)");
    for (int i = 0; i < b->n_measurements; i++) {
        const struct measurement *m = &b->measurement[i], *one = one_row(b, context);
        if (m->kind != BENCH_PASS || m->context != context)
            continue;
        const double bytes = bench_bytes(b, m->slots, m->n, context), ns = median_of(b, m, p);
        put_slots(b, m->slots, to);
        fprintf(to, "%5d %8s %8s %10.1f %11s %8s\n", m->n, digits(bench_experts(b, m), a[0]),
                digits(bench_experts_expected(b, m), a[1]), bytes / 1e6,
                digits(one != NULL ? bytes / bench_bytes(b, 1, 1, context) : NAN, a[2]),
                digits(ns / median_of(b, one, p), a[3]));
    }
}

static void print_compared(const struct bench *b, int peer, int context, enum placement p, FILE *to)
{
    const struct measurement *one = one_row(b, context);
    const char *name = peer_name(b->peer[peer]);
    double own_one = median_of(b, one, p), peer_one = one != NULL ? bench_peer_ns(b, one, peer, p).median : NAN;
    char a[7][32];
    fprintf(to, "\nBeside %.*s (the peer), after %d cached tokens, with the logits of every row\n",
            (int)strcspn(name, " "), name, context);
    put_slots(b, 0, to);
    fprintf(to, "%5s %8s %8s %14s %8s %8s %10s %9s\n", "n", "ms", "peer ms", "peer / speclab", "25 %", "75 %", "c(n)",
            "peer c(n)");
    for (int k = 0; k < b->n_measurements; k++) {
        const struct measurement *m = &b->measurement[k];
        if (m->kind != BENCH_PASS || m->context != context)
            continue;
        struct spread own = bench_ns(b, m, p), other = bench_peer_ns(b, m, peer, p), ratio = bench_ratio(b, m, peer, p);
        put_slots(b, m->slots, to);
        fprintf(to, "%5d %8s %8s %14s %8s %8s %10s %9s\n", m->n, digits(own.median / 1e6, a[0]),
                digits(other.median / 1e6, a[1]), digits(ratio.median, a[2]), digits(ratio.low, a[3]),
                digits(ratio.high, a[4]), digits(own.median / own_one, a[5]), digits(other.median / peer_one, a[6]));
    }
}

static void print_others(const struct bench *b, enum placement p, FILE *to)
{
    char a[6][32];
    for (int k = 0; k < b->n_measurements; k++) {
        const struct measurement *i = &b->measurement[k];
        struct spread s = bench_ns(b, i, p);
        if (i->kind == BENCH_DRAFT_STEP)
            fprintf(to, "\nDraft step after %d cached tokens: %s ms (%s to %s), %s of a pass of one row", i->context,
                    digits(s.median / 1e6, a[0]), digits(s.low / 1e6, a[1]), digits(s.high / 1e6, a[2]),
                    digits(s.median / median_of(b, one_row(b, i->context), p), a[3]));
        if (i->kind != BENCH_PROMPT)
            continue;
        fprintf(to, "\nPrompt of %d tokens: %s ms (%s to %s), %s tokens/s, %s GFLOP/s", i->n,
                digits(s.median / 1e6, a[0]), digits(s.low / 1e6, a[1]), digits(s.high / 1e6, a[2]),
                digits(1e9 * i->n / s.median, a[3]), digits(bench_prompt_flops(b) / s.median, a[4]));
        for (int e = 0; e < b->n_peers; e++) {
            struct spread ratio = bench_ratio(b, i, e, p);
            fprintf(to, "\n    %.*s: %s ms, %s times speclab's (%s to %s)", (int)strcspn(peer_name(b->peer[e]), " "),
                    peer_name(b->peer[e]), digits(bench_peer_ns(b, i, e, p).median / 1e6, a[0]),
                    digits(ratio.median, a[1]), digits(ratio.low, a[2]), digits(ratio.high, a[3]));
        }
    }
}

static void print_cost(const struct bench *b, enum placement p, FILE *to)
{
    const struct cost *c = &b->cost[p];
    if (c->form == COST_NONE)
        return;
    fprintf(to, "\nCost model: %s. Hinge: us = %.4g + %.4g n + %.4g max(0, n - %.4g) + %.4g c + %.4g n c",
            cost_form_names[c->form], c->a / 1e3, c->b / 1e3, c->s / 1e3, c->n0, c->d / 1e3, c->e / 1e3);
    if (bench_of_mixture(b))
        fprintf(to, "\n    + %.4g x, x: the experts that the pass reads, in all layers", c->u / 1e3);
    fprintf(to, ",\n    error at most %.1f %%, rms %.1f %%; table: at most %.1f %%, rms %.1f %% between its points\n",
            100 * c->hinge_max_error, 100 * c->hinge_rms, 100 * c->table_max_error, 100 * c->table_rms);
    if (!isnan(c->step_a))
        fprintf(to, "    Draft step: us = %.4g + %.4g c, error at most %.1f %%\n", c->step_a / 1e3, c->step_d / 1e3,
                100 * c->step_max_error);
}

// ---- by operation

static const struct operation *operation_of(const struct bench *b, const char *name, int slots, int n, int context)
{
    for (int i = 0; i < b->n_operations; i++) {
        const struct operation *o = &b->operation[i];
        if (o->slots == slots && o->n == n && o->context == context && strcmp(o->name, name) == 0)
            return o;
    }
    return NULL;
}

// Numbers of rows to print: the first and the last, and between them those nearest to equal ratios.
static int shown_rows(const struct bench_plan *p, int rows[MAX_COLUMNS])
{
    int n = 0;
    double step = pow((double)p->rows[p->n_rows - 1] / p->rows[0], 1.0 / (MAX_COLUMNS - 1)), at = p->rows[0];
    for (int i = 0; i < p->n_rows && n < MAX_COLUMNS; i++)
        if (p->rows[i] >= at * 0.999 || i == p->n_rows - 1) {
            rows[n++] = p->rows[i];
            while (at <= p->rows[i])
                at *= step > 1.01 ? step : 2;
        }
    return n;
}

static double pass_sum(const struct bench *b, int slots, int n, int context)
{
    double sum = 0;
    for (int i = 0; i < b->n_operations; i++)
        if (b->operation[i].slots == slots && b->operation[i].n == n && b->operation[i].context == context)
            sum += b->operation[i].ns;
    return sum;
}

static void print_operations(const struct bench *b, int slots, int context, FILE *to)
{
    int rows[MAX_COLUMNS], n = shown_rows(&b->plan, rows);
    char a[32];
    fprintf(to, "\nTime by operation");
    if (several_slots(b))
        fprintf(to, " of %d slot%s", slots, slots == 1 ? "" : "s");
    fprintf(to, " after %d cached tokens, ms and %%, measured in separate passes\n%-13s", context, "");
    for (int i = 0; i < n; i++)
        fprintf(to, "%*sn = %-3d", i == 0 ? 3 : 4, "", rows[i]);
    fprintf(to, "\n");
    for (int k = 0; k < b->n_operations; k++) {
        const struct operation *first = &b->operation[k];
        if (first->slots != slots || first->n != rows[0] || first->context != context)
            continue;
        fprintf(to, "%-13s", first->name);
        for (int i = 0; i < n; i++) {
            const struct operation *o = operation_of(b, first->name, slots, rows[i], context);
            if (o != NULL)
                fprintf(to, "%7s %2.0f ", digits(o->ns / 1e6, a), 100 * o->ns / pass_sum(b, slots, rows[i], context));
        }
        fprintf(to, "\n");
    }
}

void bench_table(const struct bench *b, FILE *to)
{
    print_head(b, to);
    for (int p = 0; p < PLACEMENTS; p++) {
        if (b->counted[p] == 0)
            continue;
        print_placement(b, (enum placement)p, to);
        for (int c = 0; c < b->plan.n_contexts; c++) {
            print_passes(b, b->plan.context[c], (enum placement)p, to);
            if (bench_of_mixture(b))
                print_experts(b, b->plan.context[c], (enum placement)p, to);
            for (int e = 0; e < b->n_peers; e++)
                print_compared(b, e, b->plan.context[c], (enum placement)p, to);
        }
        print_others(b, (enum placement)p, to);
        print_cost(b, (enum placement)p, to);
    }
    for (int p = PLACED_S; p <= PLACED_D && b->plan.probe; p++)
        if (b->counted[p] == 0)
            fprintf(to, "\nPlacement %s: not observed", placement_names[p]);
    fprintf(to, "\n");
    for (int c = 0; c < b->plan.n_contexts; c++)
        for (int k = 0; k < b->plan.n_slots; k++)
            print_operations(b, b->plan.slots[k], b->plan.context[c], to);
    char a[3][32];
    for (int i = 0; i < OVERHEADS; i++) {
        const struct overhead *o = &b->overhead[i];
        if (o->outside.n > 0)
            fprintf(to, "%sStep of plain decoding (%s), outside its pass: %s us (%s to %s), %.2g %% of the step\n",
                    i == 0 ? "\n" : "", o->mode, digits(o->outside.median / 1e3, a[0]),
                    digits(o->outside.low / 1e3, a[1]), digits(o->outside.high / 1e3, a[2]),
                    100 * o->outside.median / o->all.median);
    }
}
