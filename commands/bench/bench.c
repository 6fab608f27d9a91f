#include "commands/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/memory.h"
#include "commands/bench/bench_parts.h"
#include "commands/bench/bench_peer.h"
#include "kernels/backend.h"
#include "models/model.h"

// How long the other side is left alone after it was at work: its threads may look for more for some milliseconds
// before they sleep (libgomp's wait about 15).
enum { QUIET_NS = 25 * 1000 * 1000 };

// ---- what is measured

static void add_item(struct bench *b, enum measured what, int n, int which)
{
    b->item = xrealloc(b->item, (size_t)(b->n_items + 1) * sizeof(*b->item));
    struct item *i = &b->item[b->n_items++];
    *i = (struct item){ .what = what, .n = n, .which = which };
    i->context = what == A_PROMPT ? 0 : b->plan.context[which];
    i->ours = xcalloc((size_t)b->capacity, sizeof(double));
    for (int e = 0; e < b->n_peers && what != A_STEP; e++)
        i->theirs[e] = xcalloc((size_t)b->capacity, sizeof(double));
}

static void add_items(struct bench *b)
{
    const struct bench_plan *p = &b->plan;
    b->capacity = 2 * p->repeats; // disturbed rounds are made up for, but not for ever
    b->round = xcalloc((size_t)b->capacity, sizeof(*b->round));
    for (int c = 0; c < p->n_contexts; c++) {
        for (int i = 0; i < p->n_rows; i++)
            add_item(b, A_PASS, p->rows[i], c);
        if (b->draft.model != NULL)
            add_item(b, A_STEP, 1, c);
    }
    if (p->prompt > 0)
        add_item(b, A_PROMPT, p->prompt, 0);
}

static void be_quiet(const struct bench *b)
{
    if (b->n_peers > 0)
        nanosleep(&(struct timespec){ .tv_nsec = QUIET_NS }, NULL);
}

// The same first without the clock, as the peer does it: the weights are where a pass before this one left them, and
// threads are awake. Of a prompt, which is long, there is no need.
static bool measure_ours(struct bench *b, struct item *i, double *to, struct error *err)
{
    int64_t ns = 0;
    bool ok = true;
    be_quiet(b);
    for (int warm = i->what != A_PROMPT; warm >= 0 && ok; warm--)
        ok = i->what == A_PASS   ? subject_pass(&b->subject, i->n, i->which, &ns, err)
             : i->what == A_STEP ? subject_step(&b->drafter, i->which, &ns, err)
                                 : subject_prompt(&b->subject, &ns, err);
    *to = (double)ns;
    return ok;
}

static bool measure_theirs(struct bench *b, struct item *i, struct peer *peer, double *to, struct error *err)
{
    int64_t ns;
    be_quiet(b);
    bool ok = i->what == A_PASS ? peer_pass(peer, i->n, i->context, &ns, err) : peer_prompt(peer, &ns, err);
    *to = (double)ns;
    return ok;
}

// ---- rounds

// A shuffle of the items that depends on the round alone (Fisher and Yates; a congruential generator will do).
static void shuffle(int *order, int n, int round)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(round + 1);
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int k = (int)((x >> 33) % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

// Of one item, back to back; who begins is another engine each time.
static bool measure_item(struct bench *b, struct item *i, int round, int first, struct error *err)
{
    const int engines = 1 + b->n_peers;
    bool ok = true;
    for (int k = 0; k < engines && ok; k++) {
        int e = (first + k) % engines - 1; // -1: we
        if (e < 0)
            ok = measure_ours(b, i, &i->ours[round], err);
        else if (i->theirs[e] != NULL)
            ok = measure_theirs(b, i, b->peer[e], &i->theirs[e][round], err);
    }
    return ok;
}

static bool measure_round(struct bench *b, int round, struct error *err)
{
    int *order = xcalloc((size_t)b->n_items, sizeof(int));
    bool ok = true;
    shuffle(order, b->n_items, round);
    for (int k = 0; k < b->n_items && ok; k++)
        ok = measure_item(b, &b->item[order[k]], round, k + round, err);
    free(order);
    return ok;
}

static void judge_round(struct round *r, bool probed)
{
    r->placement = probed ? placement_between(&r->before, &r->after) : UNPROBED;
    r->counts = r->placement != UNSETTLED && !(r->foreign > FOREIGN_MOST);
}

static void show_progress(const struct bench *b, int counted)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rround %d, %d of %d count\033[K", b->n_rounds + 1, counted, b->plan.repeats);
}

// Until enough rounds count in one placement, or there were twice as many as were wanted.
static bool run_rounds(struct bench *b, struct error *err)
{
    int most = 0;
    pid_t group[MAX_PEERS];
    for (int e = 0; e < b->n_peers; e++)
        group[e] = peer_group(b->peer[e]);
    struct surroundings now = { 0 };
    if (b->prober != NULL)
        now = surroundings_probe(b->prober, b->plan.threads);
    while (most < b->plan.repeats && b->n_rounds < b->capacity) {
        struct round *r = &b->round[b->n_rounds];
        show_progress(b, most);
        r->before = now;
        struct load load = load_begin(group, b->n_peers);
        if (!measure_round(b, b->n_rounds, err))
            return false;
        r->foreign = load_foreign(&load);
        if (b->prober != NULL)
            now = surroundings_probe(b->prober, b->plan.threads);
        r->after = now;
        judge_round(r, b->prober != NULL);
        b->n_rounds++;
        if (r->counts && ++b->counted[r->placement] > most)
            most = b->counted[r->placement];
    }
    b->none_counts = most == 0;
    for (int i = 0; i < b->n_rounds && b->none_counts; i++)
        b->counted[b->round[i].placement]++;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
    return true;
}

static int medians(const struct bench *b, enum measured what, enum placement p, struct cost_point *to)
{
    int n = 0;
    for (int i = 0; i < b->n_items && b->counted[p] > 0; i++)
        if (b->item[i].what == what)
            to[n++] = (struct cost_point){ b->item[i].n, b->item[i].context, bench_ours(b, &b->item[i], p).median };
    return n;
}

static void fit_costs(struct bench *b)
{
    struct cost_point *p = xcalloc((size_t)b->n_items, sizeof(*p));
    for (int placement = 0; placement < PLACEMENTS; placement++) {
        cost_fit(&b->cost[placement], p, medians(b, A_PASS, (enum placement)placement, p));
        cost_fit_step(&b->cost[placement], p, medians(b, A_STEP, (enum placement)placement, p));
    }
    free(p);
}

bool bench_run(struct bench *b, struct error *err)
{
    add_items(b);
    if (b->plan.probe)
        b->n_peaks = probe_peaks(b->plan.threads, b->peak);
    if (!run_rounds(b, err) || !bench_operations(b, err) || !bench_overhead(b, err))
        return false;
    fit_costs(b);
    return true;
}

// ---- what came out

static bool in(const struct bench *b, int round, enum placement p)
{
    return b->round[round].placement == p && (b->round[round].counts || b->none_counts);
}

static struct spread over_rounds(const struct bench *b, const double *above, const double *below, enum placement p)
{
    double *x = xcalloc((size_t)b->n_rounds + 1, sizeof(*x));
    int n = 0;
    for (int r = 0; r < b->n_rounds && above != NULL; r++)
        if (in(b, r, p))
            x[n++] = below != NULL ? above[r] / below[r] : above[r];
    struct spread s = spread_of(x, n);
    free(x);
    return s;
}

struct spread bench_ours(const struct bench *b, const struct item *i, enum placement p)
{
    return over_rounds(b, i->ours, NULL, p);
}

struct spread bench_theirs(const struct bench *b, const struct item *i, int peer, enum placement p)
{
    return over_rounds(b, i->theirs[peer], NULL, p);
}

struct spread bench_ratio(const struct bench *b, const struct item *i, int peer, enum placement p)
{
    return over_rounds(b, i->theirs[peer], i->ours, p);
}

struct spread bench_memory(const struct bench *b, enum placement p)
{
    double *x = xcalloc((size_t)(2 * b->n_rounds) + 1, sizeof(*x));
    int n = 0;
    for (int r = 0; r < b->n_rounds && b->prober != NULL; r++)
        if (in(b, r, p)) {
            x[n++] = b->round[r].before.all;
            x[n++] = b->round[r].after.all;
        }
    struct spread s = spread_of(x, n);
    free(x);
    return s;
}

const struct item *bench_item(const struct bench *b, enum measured what, int n, int context)
{
    for (int i = 0; i < b->n_items; i++)
        if (b->item[i].what == what && b->item[i].n == n && b->item[i].context == context)
            return &b->item[i];
    return NULL;
}

// Two for every weight that a row is multiplied by, and in attention four for every key and value that it looks at: of n
// rows behind so many tokens, `logits` of which have them.
static double flops(const struct bench *b, double n, double context, double logits)
{
    const struct model_shape *s = model_shape(b->target.model);
    double heads = (double)s->heads * s->head_dim, kv = (double)s->kv_heads * s->head_dim, width = s->width;
    double layer = width * (heads + 2 * kv) + heads * width + 3 * width * s->hidden;
    double seen = n * context + n * (n + 1) / 2; // each row itself and those before it
    return 2 * (n * s->layers * layer + logits * width * s->vocab) + 4 * s->layers * heads * seen;
}

double bench_flops(const struct bench *b, int n, int context)
{
    return flops(b, n, context, n);
}

double bench_prompt_flops(const struct bench *b)
{
    return flops(b, b->plan.prompt, 0, 1);
}

double bench_bytes(const struct bench *b, int n, int context)
{
    struct kv_shape one = model_kv_shape(b->target.model, 1, 1, 1);
    one.type = b->target.cache;
    return (double)model_bytes(b->target.model) + (double)kv_bytes(&one) * (context + n);
}

// The fastest way there is for what the products round their input to.
double bench_peak(const struct bench *b)
{
    const enum activations a = model_activations(b->target.model);
    double most = 0;
    for (int i = 0; i < b->n_peaks; i++) // bfloat16 can be multiplied as floats, and is where that is faster
        if (strcmp(b->peak[i].kind, activations_names[a]) == 0 ||
            (a == ACTIVATIONS_BF16 && strcmp(b->peak[i].kind, activations_names[ACTIVATIONS_F32]) == 0))
            most = fmax(most, b->peak[i].per_second);
    return most;
}
