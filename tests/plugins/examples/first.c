// first.c - an example of a rule: rejection sampling along the first child of each node (Leviathan et al. 2023), at most `longest`
// draft tokens deep. Other siblings are not tried.
//
// Why it is exact: the first child's token x, sampled from q, is accepted with probability min(1, p[x] / q[x]); otherwise the token is
// sampled from (p - q)+. Together that is min(p, q) + (p - q)+ = p. Where nothing is tried, the token is sampled from p itself. A
// DETERMINISTIC token is the case q = 1 at x.
#include <stdlib.h>

#include "core/memory.h"
#include "engine/plugin.h"
#include "sampling/dist.h"
#include "sampling/rng.h"

struct first_options {
    int longest;
};

static int tried_child(const struct draft *d, int node, int depth, const struct first_options *o)
{
    return depth < o->longest ? draft_next_child(d, node, node) : -1;
}

// p becomes the distribution of the token after a rejection of child c. Returns false and leaves p if no mass remains.
static bool reject(const struct draft *d, int node, int c, double *p, double *q, int vocab)
{
    if (d->proposal[c] == DETERMINISTIC)
        return dist_remove(p, vocab, d->token[c]) > 0;
    proposal_row(d, node, c, q, vocab);
    return dist_residual(p, q, vocab) > 0;
}

static void first_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                         struct rng *rng, struct verification *out)
{
    (void)rule;
    const int vocab = rows->vocab;
    double *p = out->work, *q = p + vocab; // (vocab) each
    int node = 0;
    verification_clear(out, d->n);
    for (int depth = 0;; depth++) {
        const int c = tried_child(d, node, depth, options);
        dist_from_row(p, rows->row(rows, node), vocab);
        if (c < 0)
            break;
        out->trial_p[c] = p[d->token[c]];
        out->trial_q[c] = proposal_probability(d, node, c, q, vocab);
        if (!rng->accept(rng, out->trial_p[c], out->trial_q[c], (struct address){ FOR_ACCEPT, rng->root, c })) {
            out->empty += !reject(d, node, c, p, q, vocab);
            break;
        }
        verification_add(out, node, d->token[c]);
        node = c;
    }
    const bool leaf = draft_next_child(d, node, node) < 0;
    const struct address at = { leaf ? FOR_BONUS : FOR_RESIDUAL, rng->root, node };
    verification_add(out, node, rng->pick(rng, p, vocab, at));
}

static void first_end_probabilities(const struct rule *rule, const struct draft *d, struct rows *rows,
                                    const void *options, double *end)
{
    (void)rule;
    const int vocab = rows->vocab;
    double *p = xcalloc(2 * (size_t)vocab, sizeof(*p)), *q = p + vocab, reached = 1;
    for (int i = 0; i < d->n; i++)
        end[i] = 0;
    for (int node = 0, depth = 0; node >= 0; depth++) {
        const int c = tried_child(d, node, depth, options);
        double accepted = 0;
        if (c >= 0 && reached > 0) {
            dist_from_row(p, rows->row(rows, node), vocab);
            const double m = proposal_probability(d, node, c, q, vocab);
            accepted = p[d->token[c]] >= m ? reached : reached * (p[d->token[c]] / m);
        }
        end[node] = reached - accepted;
        reached = accepted;
        node = c;
    }
    free(p);
}

static const struct option first_options[] = {
    { "longest", OPTION_INT, offsetof(struct first_options, longest), "512", "most draft tokens that are accepted", 1,
      512, NULL },
    { 0 },
};

static const struct rule first_rule = {
    .name = "first",
    .summary = "an example: rejection along the first child of each node",
    .exact = true,
    .bonus_alone = true,
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT | TAKES_TREES,
    .options = first_options,
    .options_size = sizeof(struct first_options),
    .verify = first_verify,
    .end_probabilities = first_end_probabilities,
};

SPECLAB_PLUGIN(err)
{
    return speclab_register_rule(&first_rule, err);
}
