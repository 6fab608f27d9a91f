// match.c - the target samples its own token at each place; a draft token is accepted if it is that token.
//
// Every emitted token is a plain sample from the target's row, so exactness is immediate, whatever the draft tokens
// depend on. A draft token x is accepted with probability p[x], as if it were DETERMINISTIC, even if it was sampled and
// rejection would accept more.
//
// Use: sampling at a place of the text is an exponential race (sampling/rng.h) whose uniforms are a function of the
// seed and that place alone. So the text is a function of the seed and the target: the same for every drafter, tree and
// batch, and the same as plain decoding. A fault in a cache, a mask or a stop condition shows at temperature 1 without
// statistics. A drafter that runs the race over its own row at the same address (`pick: coupled`) proposes the target's
// token with probability at least (1 - TV) / (1 + TV), although neither sees the other's row (Daliri, Musco, Suresh
// 2024).
#include "core/acceptance.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

// One sample decides between all siblings at once. As sequential trials, child c's probability is that of its token
// given that the sample is none of the earlier siblings' tokens (core/acceptance.h).
static double trial_probability(const struct draft *d, int node, int c, const float *row, double *left)
{
    bool repeats = false;
    for (int s = draft_next_child(d, node, node); s < c; s = draft_next_child(d, node, s))
        repeats = repeats || d->token[s] == d->token[c];
    return match_probability((double)row[d->token[c]], repeats, left);
}

static void match_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                         struct rng *rng, struct verification *out)
{
    (void)rule;
    (void)options;
    int vocab = rows->vocab, depth = 0;

    verification_clear(out, d->n);
    for (int node = 0; node >= 0; depth++) {
        const float *row = rows->row(rows, node);
        int token = rng_pick_row(rng, row, vocab, (struct address){ FOR_TOKEN, rng->root + depth + 1, 0 }, out->work);
        verification_add(out, node, token);

        int c = draft_next_child(d, node, node);
        double left = c >= 0 ? dist_row_sum(row, vocab) : 0;
        for (; c >= 0; c = draft_next_child(d, node, c)) {
            out->trial_p[c] = trial_probability(d, node, c, row, &left);
            out->trial_q[c] = 1;
            if (d->token[c] == token)
                break;
        }
        node = c;
    }
}

// end[node] holds the probability of reaching node until node itself is processed, as in rejection.c.
static void match_end_probabilities(const struct rule *rule, const struct draft *d, struct rows *rows,
                                    const void *options, double *end)
{
    (void)rule;
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
            end[c] = end[node] * trial_probability(d, node, c, row, &left);
            end[node] -= end[c];
        }
    }
}

const struct rule match_rule = {
    .name = "match",
    .summary = "accepts a draft token equal to the target's own seeded sample: same text for every drafter",
    .exact = true,
    .drafter_invariant = true,
    .optimal = "drafts of deterministic tokens only",
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT | TAKES_TREES,
    .end_probabilities = match_end_probabilities,
    .device_body = "match",
    .verify = match_verify,
};
