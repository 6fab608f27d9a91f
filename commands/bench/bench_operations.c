// bench_operations.c - the time of each operation of a pass, and the time of a decoding step outside its pass.
//
// Timing each operation has a cost, so these passes do not enter the rounds. The overhead of the decoding loop is the time
// of a step outside operations, minus the time of a bare pass outside operations: the large and noisy times of the
// operations themselves cancel out of both.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/memory.h"
#include "core/settings.h"
#include "decode/decode.h"
#include "commands/bench/bench.h"
#include "commands/bench/bench_parts.h"
#include "models/model.h"
#include "verifier/verifier.h"

enum { ROLES = 24, TOKENS = 48, MAX_PASSES = 9 };

// ---- by operation

static const char *role_of(const struct timed_entry *e, const struct model_shape *s)
{
    static const struct {
        const char *operation, *role;
    } others[] = {
        { "gated", "gate, up" }, { "attend", "attention" }, { "take", "embedding" },
        { "rmsnorm", "norms" },  { "angles", "angles" },
    };
    if (strcmp(e->operation, "grouped") == 0)
        return e->products == 2 ? "experts up" : "experts down";
    if (strcmp(e->operation, "matmul") == 0 && s->experts > 0 && e->rows == s->experts && e->products == 1)
        return "router";
    if (strcmp(e->operation, "matmul") == 0)
        return e->products == 3 ? "q, k, v" : e->rows == s->vocab ? "head" : e->width == s->hidden ? "down" : "o";
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(e->operation, others[i].operation) == 0)
            return others[i].role;
    return e->operation;
}

struct account { // of some passes: time by role, and time outside all operations
    int n, passes;
    struct operation role[ROLES];
    double ns[ROLES][MAX_PASSES], between[MAX_PASSES];
};

static int role_number(struct account *a, const char *name)
{
    int i = 0;
    while (i < a->n && strcmp(a->role[i].name, name) != 0)
        i++;
    if (i == a->n && a->n < ROLES)
        a->role[a->n++] = (struct operation){ .name = name };
    return i < ROLES ? i : ROLES - 1;
}

static void add_pass(struct account *a, const struct bench *b, double wall)
{
    const struct backend *t = b->target.backend;
    a->between[a->passes] = wall;
    for (int i = 0; i < timed_entries(t); i++) {
        const struct timed_entry *e = timed_entry_at(t, i);
        int k = role_number(a, role_of(e, model_shape(b->target.model)));
        struct operation *o = &a->role[k];
        a->ns[k][a->passes] += (double)e->ns;
        o->calls += a->passes == 0 ? e->calls : 0;
        o->bytes += a->passes == 0 ? e->bytes : 0;
        o->flops += a->passes == 0 ? e->flops : 0;
        a->between[a->passes] -= (double)e->ns;
    }
    a->passes++;
}

static bool account_passes(struct account *a, struct bench *b, int slots, int n, int context_index, struct error *err)
{
    int64_t ns;
    *a = (struct account){ 0 };
    if (!bench_model_pass(&b->model, slots, n, context_index, &ns, err))
        return false;
    while (a->passes < MAX_PASSES && a->passes < b->plan.repeats) {
        timed_begin(b->target.backend);
        bool ok = bench_model_pass(&b->model, slots, n, context_index, &ns, err);
        timed_end(b->target.backend);
        if (!ok)
            return false;
        add_pass(a, b, (double)ns);
    }
    return true;
}

static void add_operations(struct bench *b, const struct account *a, int slots, int n, int context)
{
    b->operation = xrealloc(b->operation, (size_t)(b->n_operations + a->n + 1) * sizeof(*b->operation));
    for (int i = 0; i <= a->n; i++) {
        struct operation *o = &b->operation[b->n_operations++];
        *o = i < a->n ? a->role[i] : (struct operation){ .name = "between" };
        o->slots = slots;
        o->n = n;
        o->context = context;
        o->ns = spread_of(i < a->n ? a->ns[i] : a->between, a->passes).median;
    }
}

bool bench_operations(struct bench *b, struct error *err)
{
    struct account *a = xcalloc(1, sizeof(*a));
    bool ok = true;
    for (int c = 0; c < b->plan.n_contexts; c++)
        for (int i = 0; i < b->plan.n_slots * b->plan.n_rows && ok; i++) {
            const int slots = b->plan.slots[i / b->plan.n_rows], rows = b->plan.rows[i % b->plan.n_rows];
            ok = account_passes(a, b, slots, rows, c, err);
            if (ok)
                add_operations(b, a, slots, rows, b->plan.context[c]);
        }
    free(a);
    return ok;
}

// ---- the loop around the passes

static void done(void *self, const struct ending *e)
{
    (void)self, (void)e;
}

// Time of the operations that a bare pass has as well; downloading and processing logits belongs to the loop.
static double pass_ns(const struct backend *t)
{
    static const char *const loops[] = { "download", "upload", "move", "probabilities", "verify" };
    double sum = 0;
    for (int i = 0; i < timed_entries(t); i++) {
        const struct timed_entry *e = timed_entry_at(t, i);
        bool passes = true;
        for (size_t k = 0; k < sizeof(loops) / sizeof(loops[0]); k++)
            passes = passes && strcmp(e->operation, loops[k]) != 0;
        sum += passes ? (double)e->ns : 0;
    }
    return sum;
}

static bool decode_steps(struct bench *b, struct decoder *d, double *outside, double *all, int *n, struct error *err)
{
    for (*n = 0; decoder_active(d) > 0 && *n < TOKENS; (*n)++) {
        double from = (double)clock_ns();
        timed_begin(b->target.backend);
        bool ok = decoder_step(d, err);
        timed_end(b->target.backend);
        if (!ok)
            return false;
        all[*n] = (double)clock_ns() - from;
        outside[*n] = all[*n] - pass_ns(b->target.backend);
    }
    return true;
}

static bool decode(struct bench *b, struct pairing *p, int prompt, double *outside, double *all, int *n,
                   struct error *err)
{
    struct decoder *d = decoder_create(p->verifier, p->drafter, 1, 0, (struct listener){ .done = done }, err);
    const struct assignment text = { .prompt = b->model.token, .n = prompt, .limit = TOKENS };
    bool ok = d != NULL && decoder_start(d, &text, err) && decode_steps(b, d, outside, all, n, err);
    decoder_destroy(d);
    return ok;
}

// Measures steps with this temperature and rule. bare: time of a pass outside its operations.
static bool measure(struct bench *b, const char *temperature, const char *rule, double bare, int prompt,
                    struct overhead *to, struct error *err)
{
    double outside[TOKENS], all[TOKENS];
    int n = 0;
    struct pairing pairing = { 0 };
    struct settings *sampling = settings_map(), *verify = settings_map();
    settings_put(sampling, "temperature", settings_scalar(temperature));
    settings_put(verify, "kind", settings_scalar(rule));
    const bool ok = pairing_read(&pairing, NULL, verify, sampling, err) &&
                    pairing_open(&pairing, &b->target, NULL, 1, prompt + TOKENS, err) &&
                    decode(b, &pairing, prompt, outside, all, &n, err);
    for (int i = 0; i < n; i++)
        outside[i] -= bare;
    if (ok) {
        to->outside = spread_of(outside, n);
        to->all = spread_of(all, n);
    }
    pairing_close(&pairing);
    settings_free(sampling);
    settings_free(verify);
    return ok;
}

bool bench_overhead(struct bench *b, struct error *err)
{
    static const struct {
        const char *mode, *temperature, *rule;
    } steps[OVERHEADS] = {
        { "greedy", "0", "rejection" },
        { "sampled, rejection", "1", "rejection" },
        { "sampled, match", "1", "match" },
    };
    const int prompt = b->plan.context[0] < 1                ? 1
                       : b->plan.context[0] < VERIFIER_CHUNK ? b->plan.context[0]
                                                             : VERIFIER_CHUNK;
    if (prompt + TOKENS > model_shape(b->target.model)->context)
        return true;
    struct account *bare = xcalloc(1, sizeof(*bare));
    bool ok = account_passes(bare, b, 1, 1, 0, err);
    const double pass = ok ? spread_of(bare->between, bare->passes).median : 0;
    for (int i = 0; i < OVERHEADS && ok; i++) {
        b->overhead[i].mode = steps[i].mode;
        ok = measure(b, steps[i].temperature, steps[i].rule, pass, prompt, &b->overhead[i], err);
    }
    free(bare);
    return ok;
}
