// rng.c - the Philox source: the only file that makes random numbers. The uniforms of a race, one per token of the
// vocabulary, are made in bulk by race_loops.c with the same bits.
#include "sampling/rng.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "core/acceptance.h"
#include "core/philox.h"
#include "sampling/loops.h"

enum { CHUNK = 4096, PART = 512 }; // elements of a row: per job of the workers; processed at once

static int length(int n, int chunk, int number)
{
    int left = n - number * chunk;
    return left < chunk ? left : chunk;
}

static uint32_t word0_of(struct address at, uint32_t block)
{
    assert((uint32_t)at.purpose < 1u << (32 - GRID_PURPOSE_SHIFT));
    assert(at.node >= 0 && at.node < PHILOX_NODES);
    assert(block < PHILOX_INDICES / 2);
    return grid_word0(at.purpose, at.node, block);
}

// Sets word to the counter of a block of an address.
static void counter_of(uint64_t sequence, struct address at, uint32_t block, uint32_t word[4])
{
    word[0] = word0_of(at, block);
    word[1] = (uint32_t)at.position;
    word[2] = (uint32_t)sequence;
    word[3] = (uint32_t)(sequence >> 32);
}

double philox_uniform(uint64_t seed, uint64_t sequence, struct address at, uint32_t index)
{
    const uint32_t word0 = word0_of(at, index / 2);
    return uniform_of_bits(philox_bits53(philox_block(seed, word0, at.position, sequence), (int)(index % 2)));
}

struct counter philox_counter(uint64_t sequence, struct address at, uint32_t index)
{
    struct counter c = { .half = index % 2 };
    counter_of(sequence, at, index / 2, c.word);
    return c;
}

static bool philox_accept(struct rng *self, double num, double den, struct address at)
{
    const struct philox *p = (const struct philox *)self;
    return acceptance_of(acceptance_is_certain(num, den) ? 0 : philox_uniform(p->seed, p->sequence, at, 0), num, den);
}

// Weights are doubles, or a row of floats that is converted part by part.
struct weights {
    const double *as_double; // NULL: use as_float
    const float *as_float;
    int n;
};

// Returns the n weights from index `from` on, and their sum. scratch: (n)
static const double *weights_from(const struct weights *w, int from, int n, double *scratch, double *sum)
{
    if (w->as_double == NULL) {
        *sum = loops()->probabilities->copy(scratch, w->as_float + from, n);
        return scratch;
    }
    *sum = loops()->probabilities->sum(w->as_double + from, n);
    return w->as_double + from;
}

struct sums {
    const struct weights *weights;
    double part[PHILOX_INDICES / PART];
};

static void sum_up(void *of, int chunk)
{
    struct sums *s = of;
    double scratch[PART];
    int n = s->weights->n;
    for (int k = chunk * (CHUNK / PART); k * PART < n && k < (chunk + 1) * (CHUNK / PART); k++)
        weights_from(s->weights, k * PART, length(n, PART, k), scratch, &s->part[k]);
}

// Inverts the cumulative sum: finds the part that reaches u * sum by the sums of parts, then searches within that part.
static int pick_by_inversion(struct workers workers, const struct weights *w, double u)
{
    struct sums s;
    double scratch[PART], sum = 0, below = 0;
    int parts = (w->n + PART - 1) / PART;
    assert(w->n <= PHILOX_INDICES);
    s.weights = w;
    workers_run(workers, (w->n + CHUNK - 1) / CHUNK, sum_up, &s);
    for (int k = 0; k < parts; k++)
        sum += s.part[k];
    double target = u * sum;
    int at = pick_cumulative(s.part, parts, target, &below);
    assert(at >= 0); // the sum must be positive
    int n = length(w->n, PART, at);
    const double *weight = weights_from(w, at * PART, n, scratch, &sum);
    return at * PART + pick_cumulative(weight, n, target, &below);
}

struct race {
    const struct weights *weights;
    struct block block;     // the block of index 0
    _Atomic uint64_t bound; // bits of an upper bound of the winner's time; used for rows of floats
    int winner[PHILOX_INDICES / CHUNK];
    double time[PHILOX_INDICES / CHUNK]; // the time of each chunk's winner
};

static struct block block_of(const struct race *r, int index)
{
    struct block b = r->block;
    b.counter[0] += (uint32_t)index / 2;
    return b;
}

// Finds the smallest time of one chunk.
static void race_chunk(void *of, int chunk)
{
    struct race *r = of;
    int winner = -1, end = chunk * CHUNK + length(r->weights->n, CHUNK, chunk);
    double best = INFINITY;
    for (int from = chunk * CHUNK; from < end; from += PART) {
        double u[PART], scratch[PART], sum;
        int n = end - from < PART ? end - from : PART;
        const double *w = weights_from(r->weights, from, n, scratch, &sum);
        if (!(sum > 0))
            continue;
        loops()->race->uniforms(u, n, block_of(r, from)); // the capacity of u is n rounded up to LOOP_STEP
        // Since -log(1 - u) >= u, most elements are ruled out without a logarithm.
        for (int i = loops()->race->first_below(u, w, best, 0, n); i < n;
             i = loops()->race->first_below(u, w, best, i + 1, n)) {
            double time = race_time(u[i], w[i]);
            if (winner < 0 || time < best) {
                best = time;
                winner = from + i;
            }
        }
    }
    r->winner[chunk] = winner;
    r->time[chunk] = best;
}

// ---- a race over a row of floats, where 24 bits of the uniform rule out most elements

// Adds a margin to a time, so that rounding does not rule out an equal time.
static double time_bound(double time)
{
    return time * (1 + 0x1p-40);
}

static double bound_of(struct race *r)
{
    const uint64_t bits = atomic_load_explicit(&r->bound, memory_order_relaxed);
    double bound;
    memcpy(&bound, &bits, sizeof(bound));
    return bound;
}

// Times are not negative, so their bits compare as the numbers do.
static void lower_bound(struct race *r, double to)
{
    uint64_t bits, was = atomic_load_explicit(&r->bound, memory_order_relaxed);
    memcpy(&bits, &to, sizeof(bits));
    while (bits < was &&
           !atomic_compare_exchange_weak_explicit(&r->bound, &was, bits, memory_order_relaxed, memory_order_relaxed))
        ;
}

// Computes the time of element i. Returns false if it is certainly above the bound.
static bool within_bound(const struct race *r, int i, double bound, double *time)
{
    const struct block b = block_of(r, i);
    const uint64_t key = (uint64_t)b.key[1] << 32 | b.key[0], sequence = (uint64_t)b.counter[3] << 32 | b.counter[2];
    const philox4x32_ctr_t bits = philox_block(key, b.counter[0], (int32_t)b.counter[1], sequence);
    const double u = race_uniform_of_bits(philox_bits53(bits, i % 2));
    const double w = grid_round((double)r->weights->as_float[i]);
    *time = race_time(u, w);
    return race_may_win(u, w, bound);
}

// Initializes the bound with the time of the largest weight among the n elements from `from` on.
static void init_bound(struct race *r, int from, int n)
{
    const float *w = r->weights->as_float + from, max = loops()->logits->largest(w, n);
    double time;
    int i = 0;
    while (w[i] != max)
        i++;
    if (within_bound(r, from + i, INFINITY, &time))
        lower_bound(r, time_bound(time));
}

// Writes to index (n) the elements from `from` on whose time may be within the bound; returns how many. The bound is
// INFINITY if no element so far had a positive weight, or if u was 1 for the one that should have set it (once in
// 2^53).
static int race_candidates(const struct race *r, int from, int n, double bound, int32_t *index)
{
    if (bound < INFINITY)
        return loops()->race->candidates(r->weights->as_float + from, n, block_of(r, from), bound, index);
    int found = 0;
    for (int i = 0; i < n; i++)
        if (r->weights->as_float[from + i] > 0)
            index[found++] = i;
    return found;
}

// Finds the smallest time of one chunk, if it may be the smallest of all.
static void race_row_chunk(void *of, int chunk)
{
    struct race *r = of;
    int winner = -1, end = chunk * CHUNK + length(r->weights->n, CHUNK, chunk);
    double best = INFINITY;
    for (int from = chunk * CHUNK; from < end; from += PART) {
        int32_t index[PART];
        const int n = end - from < PART ? end - from : PART;
        if (bound_of(r) == INFINITY)
            init_bound(r, from, n);
        const double bound = bound_of(r);
        const int found = race_candidates(r, from, n, bound, index);
        for (int k = 0; k < found; k++) {
            double time;
            if (within_bound(r, from + index[k], bound, &time) && (winner < 0 || time < best)) {
                best = time;
                winner = from + index[k];
            }
        }
        if (time_bound(best) < bound)
            lower_bound(r, time_bound(best));
    }
    r->winner[chunk] = winner;
    r->time[chunk] = best;
}

// ---- the winner of a race

// The winner is the index with the smallest time -log(1 - u_i) / weight[i]. u_i does not depend on the weights, which
// couples two races. 1 - u is never rounded: winners have u near 0, where a double has more bits than 1 - u.
static int pick_by_race(struct workers workers, struct race *r)
{
    int first = -1, n = r->weights->n, chunks = (n + CHUNK - 1) / CHUNK;
    assert(n <= PHILOX_INDICES);
    atomic_init(&r->bound, 0x7FF0000000000000); // INFINITY
    workers_run(workers, chunks, r->weights->as_float != NULL ? race_row_chunk : race_chunk, r);
    for (int s = 0; s < chunks; s++)
        if (r->winner[s] >= 0 && (first < 0 || r->time[s] < r->time[first]))
            first = s;
    assert(first >= 0); // the sum must be positive
    return r->winner[first];
}

static int pick(struct rng *self, const struct weights *w, struct address at)
{
    const struct philox *p = (const struct philox *)self;
    if (at.purpose != FOR_TOKEN)
        return pick_by_inversion(p->workers, w, philox_uniform(p->seed, p->sequence, at, 0));
    struct race r;
    r.weights = w;
    r.block = (struct block){ { (uint32_t)p->seed, (uint32_t)(p->seed >> 32) }, { 0 } };
    counter_of(p->sequence, at, 0, r.block.counter);
    return pick_by_race(p->workers, &r);
}

int rng_invert(double u, const double *weight, int n)
{
    return pick_by_inversion((struct workers){ 0 }, &(struct weights){ .as_double = weight, .n = n }, u);
}

static int philox_pick(struct rng *self, const double *weight, int n, struct address at)
{
    return pick(self, &(struct weights){ .as_double = weight, .n = n }, at);
}

static int philox_pick_row(struct rng *self, const float *weight, int n, struct address at)
{
    return pick(self, &(struct weights){ .as_float = weight, .n = n }, at);
}

int rng_pick_row(struct rng *r, const float *weight, int n, struct address at, double *work)
{
    if (r->pick_row != NULL)
        return r->pick_row(r, weight, n, at);
    for (int i = 0; i < n; i++)
        work[i] = (double)weight[i];
    return r->pick(r, work, n, at);
}

struct philox philox_source(uint64_t seed, uint64_t sequence)
{
    return (struct philox){ { philox_accept, philox_pick, 0, philox_pick_row }, seed, sequence, { 0 } };
}

const struct philox *philox_of(const struct rng *r)
{
    return r->accept == philox_accept ? (const struct philox *)r : NULL;
}
