// bench_overhead.c - the time of a decoding step outside its pass.
//
// It is the time of a step outside operations, minus the time of a bare pass outside operations: the large and noisy
// times of the operations themselves cancel out of both. Timing each operation has a cost, so these passes do not enter
// the rounds. On a device that queues nothing waits for single operations: there it is the time from one step to the
// next, minus the device's time of a pass (bench_model_run).
#include <string.h>

#include "core/clock.h"
#include "commands/bench/bench.h"
#include "models/model.h"
#include "verifier/target_cache.h"

enum { TOKENS = 48, MAX_PASSES = 9, MOST_PROMPT = 2048 };

// Time of the operations that a bare pass has as well; downloading and processing logits belongs to the loop.
static double pass_ns(const struct timed *t)
{
    static const char loops[] =
        "download upload move probabilities verify"; // no name of an operation is a part of another
    double sum = 0;
    for (int i = 0; i < t->n; i++)
        sum += strstr(loops, t->entry[i].operation) == NULL ? (double)t->entry[i].ns : 0;
    return sum;
}

// Without operations where the device queues.
static void begin(struct timed *t, struct backend *b)
{
    t->n = 0;
    if (!b->queues)
        timed_begin(t, b);
}

static bool end(struct timed *t, const struct backend *b, struct error *err)
{
    return b->queues || timed_end(t, err);
}

// Median time of a pass of one row outside its operations.
static bool bare_pass(struct bench *b, double *to, struct error *err)
{
    double outside[MAX_PASSES];
    int n = 0;
    for (int warm_up = 1; n < MAX_PASSES && n < b->plan.repeats; warm_up = 0) {
        struct timed t;
        int64_t ns;
        begin(&t, b->target->backend);
        const bool ok = bench_model_run(&b->model, BENCH_PASS, 1, 1, 0, &ns, err);
        if (!end(&t, b->target->backend, err) || !ok)
            return false;
        outside[n] = (double)ns;
        for (int i = 0; i < t.n; i++)
            outside[n] -= (double)t.entry[i].ns;
        n += !warm_up;
    }
    *to = spread_of(outside, n).median;
    return true;
}

static bool decode_steps(struct bench *b, struct speclab_decoder *d, double *outside, double *all, int *n,
                         struct error *err)
{
    for (*n = 0; speclab_decoder_active(d) > 0 && *n < TOKENS; (*n)++) {
        struct timed t;
        begin(&t, b->target->backend);
        const double from = (double)clock_ns();
        const bool ok = speclab_decoder_step(d, err);
        all[*n] = (double)clock_ns() - from;
        if (!end(&t, b->target->backend, err) || !ok)
            return false;
        outside[*n] = all[*n] - pass_ns(&t);
    }
    return true;
}

// Measures steps with this sampling and rule. bare: time of a pass outside its operations.
static bool measure(struct bench *b, const char *sampling, const char *rule, double bare, int prompt,
                    struct overhead *to, struct error *err)
{
    double outside[TOKENS], all[TOKENS];
    int n = 0;
    const struct speclab_decoder_options options = { .rule = rule, .sampling = sampling, .length = prompt + TOKENS };
    const struct speclab_request text = {
        .prompt = b->model.token, .n = prompt, .max_tokens = TOKENS, .ignore_end = true
    };
    struct speclab_decoder *d = speclab_decoder_create(b->target, &options, err);
    const bool ok = d != NULL && speclab_decoder_start(d, &text, err) && decode_steps(b, d, outside, all, &n, err);
    for (int i = 0; i < n; i++)
        outside[i] -= bare;
    if (ok) {
        to->outside = spread_of(outside, n);
        to->all = spread_of(all, n);
    }
    speclab_decoder_destroy(d);
    return ok;
}

bool bench_overhead(struct bench *b, struct error *err)
{
    static const struct {
        const char *mode, *sampling, *rule;
    } steps[OVERHEADS] = {
        { "greedy", "temperature=0", "rejection" },
        { "sampled, rejection", "temperature=1", "rejection" },
        { "sampled, match", "temperature=1", "match" },
    };
    // A pass behind as many tokens is subtracted: on a GPU the keys and values that it reads count.
    const bool queues = b->target->backend->queues;
    const int context = b->plan.context[0] > 0 ? b->plan.context[0] : 1,
              prompt = queues || context < TARGET_CHUNK ? context : TARGET_CHUNK;
    double bare;
    if (prompt + TOKENS > model_shape(b->target->model)->context || prompt > MOST_PROMPT)
        return true;
    bool ok = bare_pass(b, &bare, err);
    for (int i = 0; i < OVERHEADS && ok; i++) {
        b->overhead[i].mode = steps[i].mode;
        ok = measure(b, steps[i].sampling, steps[i].rule, bare, prompt, &b->overhead[i], err);
    }
    return ok;
}
