// match.c - the target says its own token at every place; a guess stands if it said just that.
//
// Every token of the text is a plain draw from the target's row, so there is nothing to prove, and it does not matter
// how the guesses came about. A guess x stands with probability p[x], as if it had been CHOSEN, also where it was drawn
// and
// rejection could have done better.
//
// What it is good for: the draw at a place of the text is a race (sampling/rng.h) whose chances are a function of the
// seed and that place alone. So the text is a function of the seed and the target, the same for every drafter, tree and
// batch, and the same as plain decoding; whatever breaks that, in a cache, a mask or a stop condition, shows at
// temperature 1 without any statistics. And a drafter that races with its own row at the same address guesses the
// target's token with probability (1 - TV) / (1 + TV) or more, though neither knows the other's row (Daliri, Musco,
// Suresh 2024).
#include <stdlib.h>
#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rule.h"

// The draw decides between all siblings at one stroke. Put in words of one after another: how likely it is x given that
// it is none of the siblings before. Takes x out of the row, so that a sibling that repeats it has no chance left.
static double chance_of_next(double *p, double *left, int x)
{
    double chance = p[x] <= 0 ? 0 : p[x] >= *left ? 1 : p[x] / *left;
    *left -= p[x];
    p[x] = 0;
    return chance;
}

static void match_judge(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                        struct judgement *out)
{
    (void)options;
    int vocab = rows->vocab, depth = 0;
    double *p = out->work;

    judgement_clear(out, d->n);
    for (int node = 0; node >= 0; depth++) {
        dist_from_row(p, rows->row(rows, node), vocab);
        int said = rng->pick(rng, p, vocab, (struct address){ FOR_TOKEN, rng->root + depth + 1, 0 });
        judgement_add(out, node, said);

        double left = 1;
        int c = draft_next_child(d, node, node);
        for (; c >= 0; c = draft_next_child(d, node, c)) {
            out->trial_p[c] = chance_of_next(p, &left, d->token[c]);
            out->trial_q[c] = 1;
            if (d->token[c] == said)
                break;
        }
        node = c;
    }
}

// end[node] holds how often the path comes to node until node's turn comes, as in rejection.c.
static void match_law(const struct draft *d, struct rows *rows, const void *options, double *end)
{
    (void)options;
    double *p = xcalloc((size_t)rows->vocab, sizeof(*p));

    end[0] = 1;
    for (int node = 1; node < d->n; node++)
        end[node] = 0;
    for (int node = 0; node < d->n; node++) {
        int c = draft_next_child(d, node, node);
        if (c < 0 || end[node] == 0)
            continue;
        dist_from_row(p, rows->row(rows, node), rows->vocab);
        for (double left = 1; c >= 0; c = draft_next_child(d, node, c)) {
            end[c] = end[node] * chance_of_next(p, &left, d->token[c]);
            end[node] -= end[c];
        }
    }
    free(p);
}

const struct rule match_rule = {
    .name = "match",
    .summary = "a guess stands if the target's own seeded draw says the same: one text for every drafter",
    .exact = true,
    .takes = TAKES_TREES | TAKES_DRAWN | TAKES_DISTINCT,
    .law = match_law,
    .judge = match_judge,
};
