#include "tests/results/table_machine.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/memory.h"
#include "results/statistics/distributions.h"
#include "tests/support/numbers.h"

enum { CLASSES = 3, MOST_STEPS = TURNS * LONGEST_TEXT }; // none, X and Y

struct decoded {
    int steps;
    uint8_t tokens[MOST_STEPS];
};

struct texts {
    size_t n;
    struct decoded *of[CLASSES]; // (n)
};

struct texts *texts_create(const struct population *p, size_t n, uint64_t *state)
{
    struct texts *t = xcalloc(1, sizeof(*t));
    t->n = n;
    for (int c = 0; c < CLASSES; c++)
        t->of[c] = xcalloc(n, sizeof(*t->of[c]));
    for (size_t i = 0; i < n; i++) {
        const int prompt = population_pick(state);
        for (int c = 0; c < CLASSES; c++)
            for (int turn = 0; turn < TURNS; turn++) {
                struct decoded *to = &t->of[c][i];
                to->steps += population_decode(p, prompt, c - 1, state, to->tokens + to->steps);
            }
    }
    return t;
}

void texts_destroy(struct texts *t)
{
    for (int c = 0; c < CLASSES; c++)
        free(t->of[c]);
    free(t);
}

// ---- the clock: by how much a pass is slower than it should be

struct clock {
    enum clock_kind kind;
    uint64_t *state;
    double now, ticked, next_jump, slope, wander, level, noise, factor; // factor: of a slice
};

static double normal(uint64_t *state)
{
    return quantile_normal(1 - (uniform(state) * 0.999999 + 5e-7));
}

static struct clock clock_of(enum clock_kind kind, uint64_t *state)
{
    return (struct clock){ .kind = kind,
                           .state = state,
                           .slope = kind == CLOCK_DRIFTS ? 0.04 / 60 * normal(state) : 0,
                           .noise = 0.01 + 0.02 * uniform(state),
                           .factor = 1 };
}

static void clock_tick(struct clock *c)
{
    const double tick = 0.25;
    static const double levels[] = { 1, 1.3, 2 };
    for (; c->ticked < c->now; c->ticked += tick) {
        if (c->kind == CLOCK_WANDERS)
            c->wander += 0.03 * sqrt(tick / 60) * normal(c->state);
        if (c->kind == CLOCK_JUMPS && c->ticked >= c->next_jump) {
            const double u = uniform(c->state);
            c->level = log(levels[u < 0.6 ? 0 : u < 0.85 ? 1 : 2]);
            c->next_jump = c->ticked - (c->level > 0 ? 4 : 12) * log(1 - uniform(c->state));
        }
    }
}

static double clock_pass(struct clock *c, double s)
{
    clock_tick(c);
    const double took = s * c->factor * exp(fmax(-0.3, fmin(c->slope * c->now, 0.3)) + c->wander + c->level);
    c->now += took;
    return took;
}

// ---- the cells

struct slot {
    size_t prompt, row; // prompt: from n on a filler; row: where its steps of this slice are recorded
    int64_t slice;      // the row's, -1: none yet
    int step;
};

struct cell {
    const struct decoded *text; // (n)
    size_t n, next, ended;
    int batch, column;   // column: of units, -1: not recorded
    double pass, tokens; // tokens: in all
    struct slot slot[MAX_BATCH];
};

static size_t row_of(struct units *u, struct slot *s, int64_t slice)
{
    if (s->slice == slice)
        return s->row;
    if (u->n == u->capacity) {
        u->capacity = next_capacity(u->capacity, u->n + 1);
        u->prompt = xrealloc(u->prompt, u->capacity * sizeof(*u->prompt));
        u->slice = xrealloc(u->slice, u->capacity * sizeof(*u->slice));
        for (int k = 0; k < UNIT_COLUMNS; k++)
            u->x[k] = xrealloc(u->x[k], u->capacity * sizeof(*u->x[k]));
    }
    s->slice = slice;
    s->row = u->n++;
    u->prompt[s->row] = (int64_t)s->prompt;
    u->slice[s->row] = slice;
    for (int k = 0; k < UNIT_COLUMNS; k++)
        u->x[k][s->row] = 0;
    return s->row;
}

static void cell_pass(struct cell *c, struct clock *clock, int64_t slice, struct units *u)
{
    const double each = clock_pass(clock, c->pass) / c->batch;
    for (int s = 0; s < c->batch; s++) {
        struct slot *to = &c->slot[s];
        const struct decoded *text = &c->text[to->prompt % c->n];
        const int tokens = text->tokens[to->step++];
        c->tokens += tokens;
        if (to->prompt < c->n && c->column >= 0) {
            const size_t row = row_of(u, to, slice);
            u->x[c->column][row] += tokens;
            u->x[c->column + 1][row] += each;
            u->x[UNIT_STEPS][row] += c->column == 0;
        }
        if (to->step == text->steps) {
            c->ended += to->prompt < c->n;
            *to = (struct slot){ .prompt = c->next++, .slice = -1 };
        }
    }
}

static void decode_alone(struct cell *c, struct clock *clock, struct units *u)
{
    while (c->ended < c->n)
        cell_pass(c, clock, 0, u);
}

static void run_round(struct cell *cells, int n, bool backward, struct clock *clock, int64_t slice, struct units *u)
{
    double until = 0;
    for (int k = 0; k < n; k++) {
        struct cell *c = &cells[backward ? n - 1 - k : k];
        const double begun = clock->now;
        clock->factor = exp(clock->noise * normal(clock->state));
        while (k > 0 ? c->tokens < until : clock->now - begun < slice_s)
            cell_pass(c, clock, slice, u);
        until = k == 0 ? c->tokens : until;
    }
}

static bool all_ended(const struct cell *cells, int n)
{
    bool all = true;
    for (int k = 0; k < n; k++)
        all = all && cells[k].ended == cells[k].n;
    return all;
}

struct units units_of(const struct texts *t, const struct experiment *e, int64_t first_slice, uint64_t *state)
{
    struct clock clock = clock_of(e->clock, state);
    struct cell cells[MAX_CELLS];
    struct units u = { 0 };
    for (int k = 0; k < e->cells; k++) {
        const int class = k == 0 ? 0 : 1 + (k - 1) % 2;
        cells[k] = (struct cell){ .text = t->of[class],
                                  .n = t->n,
                                  .next = (size_t)e->batch,
                                  .batch = e->batch,
                                  .column = k == 0   ? 2
                                            : k == 1 ? 0
                                                     : -1,
                                  .pass = class == 0 ? none_s : cell_s[class - 1] * e->slower };
        for (int s = 0; s < e->batch; s++)
            cells[k].slot[s] = (struct slot){ .prompt = (size_t)s, .slice = -1 };
    }
    if (e->rounds == 0)
        for (int k = 0; k < e->cells; k++)
            decode_alone(&cells[k], &clock, &u);
    else
        for (int64_t r = 0; !all_ended(cells, e->cells); r++)
            run_round(cells, e->cells, r % 2 == 1, &clock, first_slice + r / e->rounds, &u);
    return u;
}

void units_free(struct units *u)
{
    free(u->prompt);
    free(u->slice);
    for (int k = 0; k < UNIT_COLUMNS; k++)
        free(u->x[k]);
}
