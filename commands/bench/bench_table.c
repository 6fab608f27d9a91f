// bench_table.c - what was measured, for people: a table for each placement and context.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "commands/bench/bench.h"
#include "commands/bench/bench_parts.h"
#include "commands/bench/bench_peer.h"
#include "commands/command_line.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/model.h"

enum { SHOWN = 6 }; // columns of the table by operation

// Three digits that count.
static char *digits(double x, char to[32])
{
    if (isnan(x))
        snprintf(to, 32, "-");
    else
        snprintf(to, 32, "%.*f", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x);
    return to;
}

static const struct item *one_row(const struct bench *b, int context)
{
    return bench_item(b, A_PASS, 1, context);
}

static double median_of(const struct bench *b, const struct item *i, enum placement p)
{
    return i != NULL ? bench_ours(b, i, p).median : NAN;
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
    int counted = 0, foreign = 0, unsettled = 0;
    for (int i = 0; i < b->n_rounds; i++) {
        counted += b->round[i].counts;
        foreign += b->round[i].foreign > FOREIGN_MOST;
        unsettled += b->round[i].placement == UNSETTLED;
    }
    fprintf(to, "rounds      %d, of which %d count; in %d others used more than %.0f %% of a processor", b->n_rounds,
            counted, foreign, 100 * FOREIGN_MOST);
    if (b->plan.probe)
        fprintf(to, ",\n            in %d the probes before and after disagree", unsettled);
    fprintf(to, "\n");
    if (b->none_counts)
        fprintf(to, "            NONE counts: all are shown, and their numbers are of a disturbed machine\n");
}

static void print_head(const struct bench *b, FILE *to)
{
    const struct target *t = &b->target;
    const char *inflated = model_config(t->model)->inflated;
    fprintf(to, "model       %s\n", t->path);
    if (inflated != NULL)
        fprintf(to, "            marked as inflated: does the work of %s; its speed is of no real model\n", inflated);
    fprintf(to, "weights     %s, %.1f MB of them read by a pass; activations %s, cache %s\n", model_type(t->model),
            (double)model_bytes(t->model) / 1e6, activations_names[model_activations(t->model)],
            type_facts[t->cache].name);
    if (b->draft.model != NULL)
        fprintf(to, "draft       %s (%s, activations %s)\n", b->draft.path, model_type(b->draft.model),
                activations_names[model_activations(b->draft.model)]);
    fprintf(to, "device      %s\n", devices_name(t->devices, t->backend));
    fprintf(to, "machine     %s\n", b->machine);
    fprintf(to, "revision    %s\n", program_version());
    for (int i = 0; i < b->n_peers; i++)
        fprintf(to, "beside      %s\n", peer_name(b->peer[i]));
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
        bool here = b->round[i].placement == p && (b->round[i].counts || b->none_counts);
        one[i] = here ? b->round[i].after.one / 1e9 : NAN;
        trip[i] = here ? b->round[i].after.round_trip : NAN;
    }
    if (memory.n > 0) {
        fprintf(to,
                "; memory read at %s GB/s by %d thread%s (%s to %s),\n%s by one; round trip of a cache line %.0f ns\n",
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

static void print_pass(const struct bench *b, const struct item *i, enum placement p, FILE *to)
{
    struct spread s = bench_ours(b, i, p);
    double seconds = s.median / 1e9, memory = bench_memory(b, p).median, peak = bench_peak(b);
    double flops = bench_flops(b, i->n, i->context) / seconds, bytes = bench_bytes(b, i->n, i->context) / seconds;
    char a[7][32];
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
    fprintf(to, "\nA pass of n rows behind %d cached tokens, logits of every row\n", context);
    fprintf(to, "%5s %8s %8s %8s %7s %8s%s %8s%s\n", "n", "ms", "from", "to", "c(n)", "GFLOP/s",
            bench_peak(b) > 0 ? "  % peak" : "", "GB/s", b->plan.probe ? "  % read" : "");
    for (int i = 0; i < b->n_items; i++)
        if (b->item[i].what == A_PASS && b->item[i].context == context)
            print_pass(b, &b->item[i], p, to);
}

static void print_compared(const struct bench *b, int peer, int context, enum placement p, FILE *to)
{
    const struct item *one = one_row(b, context);
    const char *name = peer_name(b->peer[peer]);
    double ours = median_of(b, one, p), theirs = one != NULL ? bench_theirs(b, one, peer, p).median : NAN;
    char a[7][32];
    fprintf(to, "\nBeside %.*s, behind %d cached tokens, logits of every row\n", (int)strcspn(name, " "), name,
            context);
    fprintf(to, "%5s %8s %8s %14s %8s %8s %10s %8s\n", "n", "ours ms", "theirs", "theirs / ours", "from", "to",
            "c(n) ours", "theirs");
    for (int k = 0; k < b->n_items; k++) {
        const struct item *i = &b->item[k];
        if (i->what != A_PASS || i->context != context)
            continue;
        struct spread us = bench_ours(b, i, p), them = bench_theirs(b, i, peer, p), ratio = bench_ratio(b, i, peer, p);
        fprintf(to, "%5d %8s %8s %14s %8s %8s %10s %8s\n", i->n, digits(us.median / 1e6, a[0]),
                digits(them.median / 1e6, a[1]), digits(ratio.median, a[2]), digits(ratio.low, a[3]),
                digits(ratio.high, a[4]), digits(us.median / ours, a[5]), digits(them.median / theirs, a[6]));
    }
}

static void print_others(const struct bench *b, enum placement p, FILE *to)
{
    char a[6][32];
    for (int k = 0; k < b->n_items; k++) {
        const struct item *i = &b->item[k];
        struct spread s = bench_ours(b, i, p);
        if (i->what == A_STEP)
            fprintf(to, "\nA draft step behind %d tokens: %s ms (%s to %s), %s of a pass of one row", i->context,
                    digits(s.median / 1e6, a[0]), digits(s.low / 1e6, a[1]), digits(s.high / 1e6, a[2]),
                    digits(s.median / median_of(b, one_row(b, i->context), p), a[3]));
        if (i->what != A_PROMPT)
            continue;
        fprintf(to, "\nA prompt of %d tokens: %s ms (%s to %s), %s tokens/s, %s GFLOP/s", i->n,
                digits(s.median / 1e6, a[0]), digits(s.low / 1e6, a[1]), digits(s.high / 1e6, a[2]),
                digits(1e9 * i->n / s.median, a[3]), digits(bench_prompt_flops(b) / s.median, a[4]));
        for (int e = 0; e < b->n_peers; e++) {
            struct spread ratio = bench_ratio(b, i, e, p);
            fprintf(to, "\n    %.*s: %s ms, %s times ours (%s to %s)", (int)strcspn(peer_name(b->peer[e]), " "),
                    peer_name(b->peer[e]), digits(bench_theirs(b, i, e, p).median / 1e6, a[0]),
                    digits(ratio.median, a[1]), digits(ratio.low, a[2]), digits(ratio.high, a[3]));
        }
    }
}

static void print_cost(const struct bench *b, enum placement p, FILE *to)
{
    const struct cost *c = &b->cost[p];
    if (c->form == COST_NONE)
        return;
    fprintf(to,
            "\nCost model: %s. Hinge: us = %.4g + %.4g n + %.4g max(0, n - %.4g) + %.4g c + %.4g n c,\n"
            "    off by %.1f %% at most, %.1f %% on average (rms); table: %.1f %% and %.1f %% between its points\n",
            cost_form_names[c->form], c->a / 1e3, c->b / 1e3, c->s / 1e3, c->n0, c->d / 1e3, c->e / 1e3,
            100 * c->hinge_most, 100 * c->hinge_rms, 100 * c->table_most, 100 * c->table_rms);
    if (!isnan(c->step_a))
        fprintf(to, "    Draft step: us = %.4g + %.4g c, off by %.1f %% at most\n", c->step_a / 1e3, c->step_d / 1e3,
                100 * c->step_most);
}

// ---- by operation

static const struct operation *operation_of(const struct bench *b, const char *name, int n, int context)
{
    for (int i = 0; i < b->n_operations; i++)
        if (b->operation[i].n == n && b->operation[i].context == context && strcmp(b->operation[i].name, name) == 0)
            return &b->operation[i];
    return NULL;
}

// The first and the last, and of those between them the nearest to doublings.
static int shown_rows(const struct bench_plan *p, int rows[SHOWN])
{
    int n = 0;
    double step = pow((double)p->rows[p->n_rows - 1] / p->rows[0], 1.0 / (SHOWN - 1)), at = p->rows[0];
    for (int i = 0; i < p->n_rows && n < SHOWN; i++)
        if (p->rows[i] >= at * 0.999 || i == p->n_rows - 1) {
            rows[n++] = p->rows[i];
            while (at <= p->rows[i])
                at *= step > 1.01 ? step : 2;
        }
    return n;
}

static double pass_sum(const struct bench *b, int n, int context)
{
    double sum = 0;
    for (int i = 0; i < b->n_operations; i++)
        if (b->operation[i].n == n && b->operation[i].context == context)
            sum += b->operation[i].ns;
    return sum;
}

static void print_operations(const struct bench *b, int context, FILE *to)
{
    int rows[SHOWN], n = shown_rows(&b->plan, rows);
    char a[32];
    fprintf(to, "\nTime by operation behind %d cached tokens, ms and %%, in passes of their own\n%-13s", context, "");
    for (int i = 0; i < n; i++)
        fprintf(to, "%*sn = %-3d", i == 0 ? 3 : 4, "", rows[i]);
    fprintf(to, "\n");
    for (int k = 0; k < b->n_operations; k++) {
        const struct operation *first = &b->operation[k];
        if (first->n != rows[0] || first->context != context)
            continue;
        fprintf(to, "%-13s", first->name);
        for (int i = 0; i < n; i++) {
            const struct operation *o = operation_of(b, first->name, rows[i], context);
            if (o != NULL)
                fprintf(to, "%7s %2.0f ", digits(o->ns / 1e6, a), 100 * o->ns / pass_sum(b, rows[i], context));
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
            for (int e = 0; e < b->n_peers; e++)
                print_compared(b, e, b->plan.context[c], (enum placement)p, to);
        }
        print_others(b, (enum placement)p, to);
        print_cost(b, (enum placement)p, to);
    }
    for (int p = PLACED_S; p <= PLACED_D && b->plan.probe; p++)
        if (b->counted[p] == 0)
            fprintf(to, "\nPlacement %s: unseen", placement_names[p]);
    fprintf(to, "\n");
    for (int c = 0; c < b->plan.n_contexts; c++)
        print_operations(b, b->plan.context[c], to);
    char a[3][32];
    for (int i = 0; i < OVERHEADS; i++) {
        const struct overhead *o = &b->overhead[i];
        if (o->outside.n > 0)
            fprintf(to, "%sA step of plain decoding (%s), outside its pass: %s us (%s to %s), %.2g %% of it\n",
                    i == 0 ? "\n" : "", o->how, digits(o->outside.median / 1e3, a[0]),
                    digits(o->outside.low / 1e3, a[1]), digits(o->outside.high / 1e3, a[2]),
                    100 * o->outside.median / o->all.median);
    }
}
