// plan.c - computes what is due from what is stored. plan.h lists the properties of plans.
#include "experiments/pairs/plan.h"

int history_answers(const struct history *h)
{
    int n = 0;
    while (n < h->n_turns && h->turn[n].pair != 0 && (n == 0 || h->turn[n].pair >= h->turn[n - 1].pair))
        n++;
    return n;
}

static bool history_is_over(const struct history *h)
{
    return h->full || history_answers(h) == h->n_turns;
}

static const struct history *history_of(const struct stored *s, int cell, int i)
{
    return &s->history[cell * s->n + i];
}

static int first_missing(const struct stored *s, int cell, int i)
{
    const struct history *h = history_of(s, cell, i), *none = history_of(s, s->none[cell], i);
    int answers = history_answers(h), partners = history_is_over(none) ? history_answers(none) : none->n_turns;
    for (int turn = 0; turn < answers && turn < partners; turn++)
        if (!h->turn[turn].paired)
            return turn;
    return history_is_over(h) ? PLAN_NOTHING : answers;
}

// `none` decodes from the first turn that a cell lacks, if none's conversation has that turn.
static void add_none(const struct stored *s, struct due *due)
{
    for (int cell = 0; cell < s->cells; cell++)
        for (int i = 0; i < s->n; i++) {
            const struct due *d = &due[cell * s->n + i];
            struct due *none = &due[s->none[cell] * s->n + i];
            bool earlier = none->from == PLAN_NOTHING || d->from < none->from;
            if (d->missing && earlier && d->from < history_answers(history_of(s, s->none[cell], i)))
                none->from = d->from;
        }
}

void plan_turns(const struct stored *s, struct due *due)
{
    for (int cell = 0; cell < s->cells; cell++)
        for (int i = 0; i < s->n; i++) {
            int from = first_missing(s, cell, i);
            due[cell * s->n + i] = (struct due){ from, from != PLAN_NOTHING };
        }
    add_none(s, due);
}
