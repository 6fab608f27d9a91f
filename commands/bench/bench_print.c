// bench_print.c - writes results of a bench as text: a table for each placement and context.
#include <math.h>
#include <stdarg.h>

#include "core/memory.h"
#include "commands/bench/bench.h"
#include "experiments/machine.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/config.h"
#include "models/model.h"

const char *const bench_kind_names[] = { "pass", "draft_step", "prompt" };

struct figures bench_figures(const struct bench *b, const struct measurement *m, enum placement p)
{
    const struct measurement *one = m->kind != BENCH_PROMPT ? bench_find(b, BENCH_PASS, 1, 1, m->context) : NULL;
    const struct model_config *config = model_config(b->target->model);
    struct figures f = { bench_ns(b, m, p), NAN, NAN, NAN, NAN, NAN };
    f.c = one != NULL ? f.ns.median / bench_ns(b, one, p).median : NAN;
    if (bench_of_mixture(b)) {
        f.experts = (double)m->experts / config_mixed_layers(config);
        f.expected = config_experts_expected(config, m->slots * m->n);
    }
    if (m->kind == BENCH_PASS) {
        f.flops = 1e9 * bench_flops(b, m->slots, m->n, m->context) / f.ns.median;
        f.bytes = 1e9 * bench_bytes(b, m->slots, m->n, m->context) / f.ns.median;
    }
    return f;
}

// Writes three significant digits.
static const char *digits(double x, char to[32])
{
    if (isnan(x))
        return "-";
    snprintf(to, 32, "%.*f", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x);
    return to;
}

// Prints numbers with three digits. Each `@` of the format is one number, whose width is the digit after it (0: no
// padding).
static void put(FILE *to, const char *format, ...)
{
    va_list args;
    char a[32];
    va_start(args, format);
    for (; *format != '\0'; format++)
        if (*format == '@')
            fprintf(to, "%*s", *++format - '0', digits(va_arg(args, double), a));
        else
            fputc(*format, to);
    va_end(args);
}

static void print_head(const struct bench *b, FILE *to)
{
    const struct speclab_target *t = b->target;
    const struct model_config *config = model_config(t->model);
    int counted = 0, foreign = 0, unstable = 0;
    fprintf(to, "model       %s\n", t->path);
    if (config->inflated != NULL)
        fprintf(to, "            marked as inflated from %s; its speed is not that of a real model\n",
                config->inflated);
    fprintf(to, "weights     %s, a pass %s %.1f MB; activations %s, cache %s\n", model_type(t->model),
            bench_of_mixture(b) ? "with all experts reads" : "reads", (double)model_bytes(t->model) / 1e6,
            activations_names[model_activations(t->model)], type_facts[t->cache].name);
    if (bench_of_mixture(b))
        fprintf(to, "experts     %d of %d for a row, in %d layers; the rows are %s%s\n", config->experts_used,
                config->experts, config_mixed_layers(config), b->plan.text != NULL ? "the text " : "random tokens",
                b->plan.text != NULL ? b->plan.text : "");
    if (b->draft != NULL)
        fprintf(to, "draft       %s (%s, activations %s)\n", b->draft->path, model_type(b->draft->model),
                activations_names[model_activations(b->draft->model)]);
    fprintf(to, "device      %s\nmachine     %s\nrevision    %s\n", devices_name(t->devices, t->backend), b->machine,
            program_version());
    for (int i = 0; i < b->n_peaks; i++) {
        put(to, i == 0 ? "compute     @0" : i % 3 == 0 ? ",\n            @0" : ", @0", b->peak[i].per_second / 1e9);
        fprintf(to, " %s (%s)%s", b->peak[i].kind, b->peak[i].isa, i + 1 == b->n_peaks ? " G operations/s\n" : "");
    }
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

static void print_placement(const struct bench *b, enum placement p, FILE *to)
{
    const struct spread memory = bench_memory(b, p);
    fprintf(to, "\nPlacement %s: %d rounds", placement_names[p], b->counted[p]);
    if (memory.n > 0)
        put(to, "; memory read at @0 GB/s (@0 to @0)", memory.median / 1e9, memory.least / 1e9, memory.most / 1e9);
    fprintf(to, "\n");
}

// The columns of experts are for a mixture: how many of a layer a pass reads, as counted, and as expected if rows
// choose independently and uniformly.
static void print_passes(const struct bench *b, int context, enum placement p, FILE *to)
{
    const bool slots = b->plan.slots[b->plan.n_slots - 1] > 1, mixture = bench_of_mixture(b);
    const double peak = bench_peak(b), memory = bench_memory(b, p).median;
    fprintf(to, "\nPasses of n rows%s after %d cached tokens, with the logits of every row (median and quartiles)\n",
            slots ? " in each slot" : "", context);
    fprintf(to, "%s%5s %8s %8s %8s %7s %8s%s %8s%s%s\n", slots ? "slots " : "", "n", "ms", "25 %", "75 %", "c(n)",
            "GFLOP/s", peak > 0 ? "  % peak" : "", "GB/s", b->plan.probe ? "  % read" : "",
            mixture ? "  experts expected" : "");
    for (int i = 0; i < b->n_measurements; i++) {
        const struct measurement *m = &b->measurement[i];
        if (m->kind != BENCH_PASS || m->context != context)
            continue;
        const struct figures f = bench_figures(b, m, p);
        if (slots)
            fprintf(to, "%5d ", m->slots);
        fprintf(to, "%5d", m->n);
        put(to, " @8 @8 @8 @7 @8", f.ns.median / 1e6, f.ns.low / 1e6, f.ns.high / 1e6, f.c, f.flops / 1e9);
        if (peak > 0)
            fprintf(to, " %7.0f", 100 * f.flops / peak);
        put(to, " @8", f.bytes / 1e9);
        if (!isnan(memory))
            fprintf(to, " %7.0f", 100 * f.bytes / memory);
        if (mixture)
            put(to, " @8 @8", f.experts, f.expected);
        fprintf(to, "\n");
    }
}

static void print_others(const struct bench *b, enum placement p, FILE *to)
{
    for (int k = 0; k < b->n_measurements; k++) {
        const struct measurement *m = &b->measurement[k];
        const struct figures f = bench_figures(b, m, p);
        const double ms = f.ns.median / 1e6, low = f.ns.low / 1e6, high = f.ns.high / 1e6;
        if (m->kind == BENCH_DRAFT_STEP) {
            fprintf(to, "\nDraft step after %d cached tokens: ", m->context);
            put(to, "@0 ms (@0 to @0), @0 of a pass of one row", ms, low, high, f.c);
        } else if (m->kind == BENCH_PROMPT) {
            fprintf(to, "\nPrompt of %d tokens: ", m->n);
            put(to, "@0 ms (@0 to @0), @0 tokens/s, @0 GFLOP/s", ms, low, high, 1e3 * m->n / ms,
                bench_prompt_flops(b) / f.ns.median);
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

void bench_table(const struct bench *b, FILE *to)
{
    print_head(b, to);
    for (int p = 0; p < PLACEMENTS; p++) {
        if (b->counted[p] == 0)
            continue;
        print_placement(b, (enum placement)p, to);
        for (int c = 0; c < b->plan.n_contexts; c++)
            print_passes(b, b->plan.context[c], (enum placement)p, to);
        print_others(b, (enum placement)p, to);
        print_cost(b, (enum placement)p, to);
    }
    fprintf(to, "\n");
    for (int i = 0; i < OVERHEADS && b->overhead[i].outside.n > 0; i++) {
        const struct spread *o = &b->overhead[i].outside;
        fprintf(to, "Step of plain decoding (%s), outside its pass: ", b->overhead[i].mode);
        put(to, "@0 us (@0 to @0)", o->median / 1e3, o->low / 1e3, o->high / 1e3);
        fprintf(to, ", %.2g %% of the step\n", 100 * o->median / b->overhead[i].all.median);
    }
}
