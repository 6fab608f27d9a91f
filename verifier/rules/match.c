// match.c - the target says its own token at every place; a guess stands if it said just that.
//
// Every token of the text is a plain draw from the target's row, so there is nothing to prove, and it does not matter
// how the guesses came about. A guess x stands with probability p[x], as if it had been DETERMINISTIC, also where it was drawn
// and
// rejection could have done better.
//
// What it is good for: the draw at a place of the text is a race (sampling/rng.h) whose chances are a function of the
// seed and that place alone. So the text is a function of the seed and the target, the same for every drafter, tree and
// batch, and the same as plain decoding; whatever breaks that, in a cache, a mask or a stop condition, shows at
// temperature 1 without any statistics. And a drafter that races with its own row at the same address guesses the
// target's token with probability (1 - TV) / (1 + TV) or more, though neither knows the other's row (Daliri, Musco,
// Suresh 2024).
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

// The draw decides between all siblings at one stroke. Put in words of one after another: how likely it is child c's
// token given that it is none of the siblings before. *left: of the row's sum, without those; a sibling that repeats
// one of them has no chance.
static double chance_of(const struct draft *d, int node, int c, const float *row, double *left)
{
    double p = (double)row[d->token[c]];
    for (int s = draft_next_child(d, node, node); s < c; s = draft_next_child(d, node, s))
        if (d->token[s] == d->token[c])
            return 0;
    double chance = p <= 0 ? 0 : p >= *left ? 1 : p / *left;
    *left -= p;
    return chance;
}

static void match_verify(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                         struct verification *out)
{
    (void)options;
    int vocab = rows->vocab, depth = 0;

    verification_clear(out, d->n);
    for (int node = 0; node >= 0; depth++) {
        const float *row = rows->row(rows, node);
        int said = rng_pick_row(rng, row, vocab, (struct address){ FOR_TOKEN, rng->root + depth + 1, 0 }, out->work);
        verification_add(out, node, said);

        int c = draft_next_child(d, node, node);
        double left = c >= 0 ? dist_row_sum(row, vocab) : 0;
        for (; c >= 0; c = draft_next_child(d, node, c)) {
            out->trial_p[c] = chance_of(d, node, c, row, &left);
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
    end[0] = 1;
    for (int node = 1; node < d->n; node++)
        end[node] = 0;
    for (int node = 0; node < d->n; node++) {
        int c = draft_next_child(d, node, node);
        if (c < 0 || end[node] == 0)
            continue;
        const float *row = rows->row(rows, node);
        for (double left = dist_row_sum(row, rows->vocab); c >= 0; c = draft_next_child(d, node, c)) {
            end[c] = end[node] * chance_of(d, node, c, row, &left);
            end[node] -= end[c];
        }
    }
}

const struct rule match_rule = {
    .name = "match",
    .summary = "a guess stands if the target's own seeded draw says the same: one text for every drafter",
    .exact = true,
    .optimal = "drafts of chosen tokens alone",
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_DISTINCT | TAKES_TREES,
    .law = match_law,
    .device_rule = DEVICE_MATCH,
    .verify = match_verify,
};
