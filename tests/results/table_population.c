#include "tests/results/table_population.h"

#include <math.h>
#include <string.h>

#include <stdlib.h>

#include "core/memory.h"
#include "results/statistics/distributions.h"
#include "tests/exact/table_model.h"

enum { CELLS = 2, CONTEXTS = TABLE_VOCAB * TABLE_VOCAB };
static const double step_ns[CELLS] = { 1.2e6, 1.5e6 }, token_ns = 1e6;

struct rows {
    double p[TABLE_VOCAB], q[TABLE_VOCAB];
};

struct kind { // a prompt
    int length;
    double pace, prefill;
    struct rows rows[CELLS][CONTEXTS];
};

struct population {
    struct kind kind[POPULATION];
    double mean[COLUMNS];
};

static int then(int context, int token)
{
    return context % TABLE_VOCAB * TABLE_VOCAB + token;
}

static double unit(uint64_t seed, uint64_t of)
{
    return ((double)(table_hash(seed, of) >> 11) + 0.5) * 0x1p-53;
}

static void make_kind(struct kind *k, uint64_t seed)
{
    const struct table p = { table_hash(seed, 1), TABLE_VOCAB }, r = { table_hash(seed, 2), TABLE_VOCAB };
    const double close = unit(seed, 3);
    k->length = 16 + (int)(unit(seed, 4) * (LONGEST_TEXT - 15));
    k->pace = exp(0.1 * quantile_normal(unit(seed, 5)));
    k->prefill = 3e6 * exp(0.4 * quantile_normal(unit(seed, 6))); // lengths of prompts
    for (int c = 0; c < CONTEXTS; c++) {
        const int32_t last[2] = { c / TABLE_VOCAB, c % TABLE_VOCAB };
        double far[TABLE_VOCAB];
        table_weights(&r, text_number(TABLE_VOCAB, last, 2), far);
        for (int cell = 0; cell < CELLS; cell++) {
            const double share = cell == 0 ? close : 0.3 + 0.5 * close;
            struct rows *to = &k->rows[cell][c];
            table_weights(&p, text_number(TABLE_VOCAB, last, 2), to->p);
            for (int x = 0; x < TABLE_VOCAB; x++)
                to->q[x] = share * to->p[x] + (1 - share) * far[x];
        }
    }
}

// ---- means by enumeration

struct enumeration {
    const struct rows *rows;                            // (CONTEXTS)
    double mean[LONGEST_TEXT + 1][CONTEXTS][Y_COLUMNS]; // what follows, by tokens left and the last two
};

// A step with j accepted tokens, when `left` were missing, adds to the sums of a cell from `to` on.
static void add_step(double *to, double weight, int j, int left)
{
    const int accepted = j < left ? j : left;
    to[X_STEPS - X_TOKENS] += weight;
    to[X_DRAFTED - X_TOKENS] += weight * CHAIN;
    to[X_ACCEPTED - X_TOKENS] += weight * accepted;
    for (int d = 1; d <= CHAIN; d++) {
        to[X_AT - X_TOKENS + d - 1] += weight * (accepted >= d);
        to[X_TRIED - X_TOKENS + d - 1] += weight * (accepted >= d || (accepted == d - 1 && j < left));
    }
}

// All that can follow j accepted tokens of a draft that began with `left` missing; probability: of getting there.
static void enumerate(struct enumeration *e, double *to, double probability, int j, int context, int left)
{
    const struct rows *r = &e->rows[context];
    for (int x = 0; x < TABLE_VOCAB; x++) {
        const double accept = j < CHAIN ? fmin(r->p[x], r->q[x]) : 0,
                     last = probability * (r->p[x] - accept); // rejected, or after the chain
        if (accept > 0)
            enumerate(e, to, probability * accept, j + 1, then(context, x), left);
        add_step(to, last, j, left);
        to[X_EXPECTED - X_TOKENS] += last * j;
        for (int k = 0; k < Y_COLUMNS && left > j + 1; k++)
            to[k] += last * e->mean[left - j - 1][then(context, x)][k];
    }
}

static void add_means(struct population *p, const struct kind *k)
{
    static struct enumeration e;
    p->mean[NONE_TOKENS] += k->length / (double)POPULATION;
    p->mean[NONE_NS] += k->length * token_ns * k->pace / POPULATION;
    p->mean[NONE_ALL_NS] += (k->length * token_ns * k->pace + k->prefill) / POPULATION;
    for (int cell = 0; cell < CELLS; cell++) {
        e.rows = k->rows[cell];
        memset(e.mean, 0, sizeof(e.mean));
        for (int left = 1; left <= k->length; left++)
            for (int c = 0; c < CONTEXTS; c++)
                enumerate(&e, e.mean[left][c], 1, 0, c, left);
        double *one = e.mean[k->length][0];
        one[0] = k->length;
        one[X_NS - X_TOKENS] = one[X_STEPS - X_TOKENS] * step_ns[cell] * k->pace;
        one[X_ALL_NS - X_TOKENS] = one[X_NS - X_TOKENS] + k->prefill;
        one[X_TTFT - X_TOKENS] = k->prefill + step_ns[cell] * k->pace;
        one[X_TEXTS - X_TOKENS] = 1;
        for (int i = 0; i < Y_COLUMNS; i++)
            p->mean[X_TOKENS + cell * Y_COLUMNS + i] += one[i] / POPULATION;
    }
}

struct population *population_create(uint64_t seed)
{
    struct population *p = xcalloc(1, sizeof(*p));
    for (int i = 0; i < POPULATION; i++) {
        make_kind(&p->kind[i], table_hash(seed, (uint64_t)i));
        add_means(p, &p->kind[i]);
    }
    return p;
}

void population_destroy(struct population *p)
{
    free(p);
}

double population_mean(const struct population *p, enum column c)
{
    return p->mean[c];
}

// ---- sampling

static double uniform(uint64_t *state)
{
    return unit(0, ++*state);
}

static double noise(uint64_t *state) // mean 1
{
    return 0.95 + 0.1 * uniform(state);
}

static int pick(const double *weight, double u)
{
    for (int x = 0; x < TABLE_VOCAB - 1; x++)
        if ((u -= weight[x]) < 0)
            return x;
    return TABLE_VOCAB - 1;
}

// One step: a draft, its acceptance tests, and the token after them. Returns the accepted tokens.
static int decode_step(const struct rows *rows, int *context, double *expected, uint64_t *state)
{
    double reached = 1, rest[TABLE_VOCAB];
    int accepted = 0, at = *context;
    for (int j = 0; j < CHAIN; j++) {
        const struct rows *r = &rows[at];
        const int x = pick(r->q, uniform(state));
        const double accept = fmin(1, r->p[x] / r->q[x]);
        reached *= accept;
        *expected += reached;
        if (accepted == j && uniform(state) < accept) {
            accepted++;
            *context = then(at, x);
        }
        at = then(at, x);
    }
    const struct rows *r = &rows[*context];
    double sum = 0;
    for (int x = 0; x < TABLE_VOCAB; x++)
        sum += rest[x] = accepted < CHAIN ? fmax(0, r->p[x] - r->q[x]) : r->p[x];
    *context = then(*context, pick(rest, sum * uniform(state)));
    return accepted;
}

static void decode(const struct kind *k, int cell, double *to, uint64_t *state)
{
    int context = 0;
    for (int left = k->length; left > 0;) {
        const int j = decode_step(k->rows[cell], &context, &to[X_EXPECTED - X_TOKENS], state);
        add_step(to, 1, j, left);
        left -= j + 1;
    }
    const double prefill = k->prefill * noise(state), pace = k->pace * noise(state);
    to[0] = k->length;
    to[X_NS - X_TOKENS] = to[X_STEPS - X_TOKENS] * step_ns[cell] * pace;
    to[X_ALL_NS - X_TOKENS] = to[X_NS - X_TOKENS] + prefill;
    to[X_TTFT - X_TOKENS] = prefill + step_ns[cell] * pace;
    to[X_TEXTS - X_TOKENS] = 1;
}

int population_pick(uint64_t *state)
{
    return (int)(uniform(state) * POPULATION);
}

int population_decode(const struct population *p, int prompt, int cell, uint64_t *state, uint8_t *tokens)
{
    const struct kind *k = &p->kind[prompt];
    double expected = 0;
    int context = 0, steps = 0;
    for (int left = k->length, made; left > 0; left -= made) {
        made = cell < 0 ? 1 : decode_step(k->rows[cell], &context, &expected, state) + 1;
        tokens[steps++] = (uint8_t)(made < left ? made : left);
    }
    return steps;
}

void population_sample(const struct population *p, uint64_t *state, int n, double *sum)
{
    for (int i = 0; i < n; i++) {
        const struct kind *k = &p->kind[population_pick(state)];
        double one[COLUMNS] = { 0 };
        one[NONE_TOKENS] = k->length;
        one[NONE_NS] = k->length * token_ns * k->pace * noise(state);
        one[NONE_ALL_NS] = one[NONE_NS] + k->prefill * noise(state);
        for (int cell = 0; cell < CELLS; cell++)
            decode(k, cell, &one[X_TOKENS + cell * Y_COLUMNS], state);
        for (int c = 0; c < COLUMNS; c++)
            sum[c * n + i] = one[c];
    }
}
