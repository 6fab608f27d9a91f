#include "commands/bench/bench.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"
#include "kernels/backend.h"
#include "kernels/devices.h"
#include "models/config.h"
#include "models/model.h"

// ---- turns with other engines: python/speclab/words/bench.py listens at the other end of a socket

// A line announces what comes next; the other engines take their turn, and a line answers. The first lines open an
// engine (python/speclab/peer_llama.py documents them), the last of them is "open". Then follow "round", "pass N C S",
// "prompt" and "draft" (which no other engine takes), and "end" of the round.
//
// After its work an engine's threads may spin for some milliseconds before they sleep (libgomp's for about 15).
enum { PAUSE_NS = 25 * 1000 * 1000 };

__attribute__((format(printf, 4, 5))) static bool turns_next(struct bench *b, double *used, struct error *err,
                                                             const char *format, ...)
{
    char line[64] = "";
    va_list args;
    *used = 0;
    if (b->turns == NULL)
        return true;
    va_start(args, format);
    bool ok = vdprintf(b->plan.turns, format, args) > 0 && dprintf(b->plan.turns, "\n") > 0;
    va_end(args);
    ok = ok && fgets(line, sizeof(line), b->turns) != NULL;
    *used = strtod(line, NULL);
    nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    return ok || fail(err, "--turns %d: expected an answer, found the end", b->plan.turns);
}

static void put_list(int to, const char *name, const int *value, int n)
{
    dprintf(to, "%s", name);
    for (int i = 0; i < n; i++)
        dprintf(to, " %d", value[i]);
    dprintf(to, "\n");
}

bool turns_open(struct bench *b, struct error *err)
{
    const struct bench_plan *p = &b->plan;
    const struct model_config *c = model_config(b->target->model);
    double used;
    if (p->turns == 0)
        return true;
    if (!c->gguf)
        return fail(err, "%s is a Hugging Face directory; a comparison with other engines requires a GGUF file",
                    b->target->path);
    b->turns = fdopen(p->turns, "r");
    if (b->turns == NULL)
        return fail(err, "--turns %d: expected an open socket", p->turns);
    dprintf(p->turns, "model %s\nthreads %d\nrows %d\nprompt_tokens %d\n", c->path, p->threads, p->rows[p->n_rows - 1],
            p->prompt);
    put_list(p->turns, "contexts", p->context, p->n_contexts);
    if (p->slots[p->n_slots - 1] > 1)
        put_list(p->turns, "slots", p->slots, p->n_slots);
    return turns_next(b, &used, err, "open");
}

// ---- measurements

static void add_measurement(struct bench *b, enum bench_kind kind, int slots, int n, int context_index)
{
    b->measurement = xrealloc(b->measurement, (size_t)(b->n_measurements + 1) * sizeof(*b->measurement));
    struct measurement *m = &b->measurement[b->n_measurements++];
    *m = (struct measurement){ .kind = kind, .slots = slots, .n = n, .context_index = context_index };
    m->context = kind == BENCH_PROMPT ? 0 : b->plan.context[context_index];
    m->ns = xcalloc((size_t)b->capacity, sizeof(double));
}

static void add_measurements(struct bench *b)
{
    const struct bench_plan *p = &b->plan;
    b->capacity = 2 * p->repeats; // disturbed rounds are repeated, within limits
    b->round = xcalloc((size_t)b->capacity, sizeof(*b->round));
    for (int c = 0; c < p->n_contexts; c++) {
        for (int k = 0; k < p->n_slots; k++)
            for (int i = 0; i < p->n_rows; i++)
                add_measurement(b, BENCH_PASS, p->slots[k], p->rows[i], c);
        if (b->draft != NULL)
            add_measurement(b, BENCH_DRAFT_STEP, 1, 1, c);
    }
    if (p->prompt > 0)
        add_measurement(b, BENCH_PROMPT, 1, p->prompt, 0);
}

static bool announce(struct bench *b, const struct measurement *m, struct error *err)
{
    double used;
    return m->kind == BENCH_PASS     ? turns_next(b, &used, err, "pass %d %d %d", m->n, m->context, m->slots)
           : m->kind == BENCH_PROMPT ? turns_next(b, &used, err, "prompt %d", m->n)
                                     : turns_next(b, &used, err, "draft");
}

// Runs an untimed warm-up first: caches hold what a preceding pass leaves, and threads are awake. A prompt is long
// enough to need none, and a device that queues has its own (bench_model_run).
static bool measure(struct bench *b, struct measurement *m, double *to, struct error *err)
{
    struct bench_model *model = m->kind == BENCH_DRAFT_STEP ? &b->draft_model : &b->model;
    int64_t ns = 0;
    bool ok = announce(b, m, err);
    for (int warm_up = m->kind != BENCH_PROMPT && !model->backend->queues; warm_up >= 0 && ok; warm_up--)
        ok = bench_model_run(model, m->kind, m->slots, m->n, m->context_index, &ns, err);
    *to = (double)ns;
    m->experts = model->experts;
    return ok;
}

// ---- rounds

// A shuffle that depends on the round alone (Fisher-Yates; a congruential generator is sufficient).
static void shuffle(int *order, int n, int round)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(round + 1);
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int k = (int)((x >> 33) % (uint64_t)(i + 1)), swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
}

static bool measure_round(struct bench *b, int round, struct error *err)
{
    int *order = xcalloc((size_t)b->n_measurements, sizeof(int));
    bool ok = true;
    shuffle(order, b->n_measurements, round);
    for (int k = 0; k < b->n_measurements && ok; k++)
        ok = measure(b, &b->measurement[order[k]], &b->measurement[order[k]].ns[round], err);
    free(order);
    return ok;
}

// Other processes do not change the times of a device that queues.
static void classify_round(const struct bench *b, struct round *r)
{
    r->placement = b->prober != NULL ? placement_between(&r->before, &r->after) : PLACED_UNPROBED;
    r->counts = r->placement != PLACED_UNSTABLE && (b->target->backend->queues || !(r->foreign > MAX_FOREIGN_LOAD));
}

static void show_progress(const struct bench *b, int counted)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rround %d, %d of %d count\033[K", b->n_rounds + 1, counted, b->plan.repeats);
}

// Runs rounds until plan.repeats of them count in one placement, at most twice as many.
static bool run_rounds(struct bench *b, struct error *err)
{
    int counted = 0; // number of rounds in the placement with most
    struct machine_state now = { 0 };
    if (b->prober != NULL)
        now = machine_state_probe(b->prober, b->plan.threads);
    while (counted < b->plan.repeats && b->n_rounds < b->capacity) {
        struct round *r = &b->round[b->n_rounds];
        show_progress(b, counted);
        r->before = now;
        double others;
        if (!turns_next(b, &others, err, "round"))
            return false;
        const struct load load = load_begin(others);
        if (!measure_round(b, b->n_rounds, err) || !turns_next(b, &others, err, "end"))
            return false;
        r->foreign = load_foreign(&load, others);
        if (b->prober != NULL)
            now = machine_state_probe(b->prober, b->plan.threads);
        r->after = now;
        classify_round(b, r);
        b->n_rounds++;
        if (r->counts && ++b->counted[r->placement] > counted)
            counted = b->counted[r->placement];
    }
    b->none_counts = counted == 0;
    for (int i = 0; i < b->n_rounds && b->none_counts; i++)
        b->counted[b->round[i].placement]++;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
    return true;
}

// Computes medians for passes of one slot, draft steps or prompts.
static int medians(const struct bench *b, enum bench_kind kind, enum placement p, struct cost_point *to)
{
    int n = 0;
    for (int i = 0; i < b->n_measurements && b->counted[p] > 0; i++) {
        const struct measurement *m = &b->measurement[i];
        if (m->kind == kind && m->slots == 1)
            to[n++] = (struct cost_point){ m->n, m->context, bench_ns(b, m, p).median, (double)m->experts };
    }
    return n;
}

static void fit_costs(struct bench *b)
{
    struct cost_point *p = xcalloc((size_t)b->n_measurements, sizeof(*p));
    for (int placement = 0; placement < PLACEMENTS; placement++) {
        cost_fit(&b->cost[placement], p, medians(b, BENCH_PASS, (enum placement)placement, p));
        cost_fit_step(&b->cost[placement], p, medians(b, BENCH_DRAFT_STEP, (enum placement)placement, p));
    }
    free(p);
}

// An idle GPU has low clocks.
static bool warm_up(struct bench *b, struct error *err)
{
    enum { WARM_UP_NS = 300 * 1000 * 1000 };
    const int64_t from = clock_ns();
    bool ok = true;
    for (int64_t ns; ok && b->target->backend->queues && clock_ns() - from < WARM_UP_NS;)
        ok = bench_model_run(&b->model, BENCH_PASS, 1, b->plan.rows[0], 0, &ns, err);
    return ok;
}

bool bench_run(struct bench *b, struct error *err)
{
    add_measurements(b);
    if (!warm_up(b, err))
        return false;
    if (b->plan.probe)
        b->n_peaks = probe_peaks(b->plan.threads, b->peak);
    if (!run_rounds(b, err) || !bench_overhead(b, err))
        return false;
    fit_costs(b);
    return true;
}

// ---- results

static bool in_placement(const struct bench *b, int round, enum placement p)
{
    return b->round[round].placement == p && (b->round[round].counts || b->none_counts);
}

struct spread bench_ns(const struct bench *b, const struct measurement *m, enum placement p)
{
    double *x = xcalloc((size_t)b->n_rounds + 1, sizeof(*x));
    int n = 0;
    for (int r = 0; r < b->n_rounds; r++)
        if (in_placement(b, r, p))
            x[n++] = m->ns[r];
    struct spread s = spread_of(x, n);
    free(x);
    return s;
}

struct spread bench_memory(const struct bench *b, enum placement p)
{
    double *x = xcalloc((size_t)(2 * b->n_rounds) + 1, sizeof(*x));
    int n = 0;
    for (int r = 0; r < b->n_rounds && b->prober != NULL; r++)
        if (in_placement(b, r, p)) {
            x[n++] = b->round[r].before.all;
            x[n++] = b->round[r].after.all;
        }
    struct spread s = spread_of(x, n);
    free(x);
    return s;
}

const struct measurement *bench_find(const struct bench *b, enum bench_kind kind, int slots, int n, int context)
{
    for (int i = 0; i < b->n_measurements; i++) {
        const struct measurement *m = &b->measurement[i];
        if (m->kind == kind && m->slots == slots && m->n == n && m->context == context)
            return m;
    }
    return NULL;
}

// Returns the operations of n rows after `context` cached tokens, with the logits of `logits` rows: two for each weight
// of a product, and in attention four for each element of the keys that a row reads.
static double flops(const struct bench *b, int n, int context, int logits)
{
    const struct model_config *c = model_config(b->target->model);
    double attended = 0; // each row attends to itself and to those before it
    for (int i = 0; i < n; i++)
        attended += config_positions_seen(c, context + i + 1);
    return 2 * (n * config_products(c) + (double)logits * c->width * c->vocab) +
           4 * (double)c->heads * c->head_dim * attended;
}

double bench_flops(const struct bench *b, int slots, int n, int context)
{
    return slots * flops(b, n, context, n);
}

double bench_prompt_flops(const struct bench *b)
{
    return flops(b, b->plan.prompt, 0, 1);
}

double bench_bytes(const struct bench *b, int slots, int n, int context)
{
    struct kv_shape one = model_kv_shape(b->target->model, 1, 1, 1);
    one.type = b->target->cache;
    const struct model_config *c = model_config(b->target->model);
    const struct measurement *m = bench_find(b, BENCH_PASS, slots, n, context);
    const double weights = m != NULL && m->experts > 0 ? model_bytes_read(b->target->model, (double)m->experts)
                                                       : model_pass_bytes(b->target->model, slots * n);
    return weights + (double)kv_bytes(&one) / c->layers * slots * config_positions_seen(c, context + n);
}

bool bench_of_mixture(const struct bench *b)
{
    return config_mixed_layers(model_config(b->target->model)) > 0;
}

// Returns whether a device may use the instructions of a probed peak. The device `cpu` may use all.
static bool may_use(const char *device, const struct peak *p)
{
    static const struct {
        const char *device, *isa, *kind; // least device with these instructions; kind NULL: of any kind
    } least[] = {
        { "cpu:plain", "plain", NULL },
        { "cpu:avx2", "avx2", NULL },
        { "cpu:avx2_vnni", "avx2 vnni", NULL },
        { "cpu:avx512", "avx512", "f32" },
        { "cpu:avx512_vnni", "avx512", "int8" },
        { "cpu:avx512_bf16", "avx512", "bf16" },
        { "cpu:neon", "neon", NULL },
        { "cpu:neon_dotprod", "neon dotprod", NULL },
    };
    bool within = true;
    for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++) {
        if (strcmp(p->isa, least[i].isa) == 0 && (least[i].kind == NULL || strcmp(p->kind, least[i].kind) == 0))
            return within;
        within = within && strcmp(device, least[i].device) != 0;
    }
    return true;
}

// Returns the fastest probed kind of product for the model's activations.
double bench_peak(const struct bench *b)
{
    const enum activations a = model_activations(b->target->model);
    const char *device = devices_name(b->target->devices, b->target->backend);
    double peak = 0;
    for (int i = 0; i < b->n_peaks; i++) // bfloat16 is multiplied as float if that is faster
        if (may_use(device, &b->peak[i]) &&
            (strcmp(b->peak[i].kind, activations_names[a]) == 0 ||
             (a == ACTIVATIONS_BF16 && strcmp(b->peak[i].kind, activations_names[ACTIVATIONS_F32]) == 0)))
            peak = fmax(peak, b->peak[i].per_second);
    return peak;
}
