// typical.c - LOSSY: Medusa's typical acceptance (Cai et al. 2024, arXiv 2401.10774, section 2.3.1).
//
// A draft token x is accepted if p[x] > min(epsilon, delta e^(-H(p))): the threshold depends on the entropy H of the
// target's row. Neither randomness nor q is involved. In a tree the path ends at the deepest node whose whole path is
// accepted; among equally deep ones, at the one whose path is most probable under the target. The next token is sampled
// from the target's row there. The output distribution is not the target's: probable tokens come too often, improbable
// ones too rarely.
//
// Defaults are those of Medusa's code: epsilon 0.09 (posterior_threshold), delta 0.3 (posterior_alpha).
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "core/memory.h"

#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

struct typical {
    double epsilon, delta;
};

static const struct option options[] = {
    { "epsilon", OPTION_REAL, offsetof(struct typical, epsilon), "0.09",
      "a draft token above this probability is always accepted", 0, 1, NULL },
    { "delta", OPTION_REAL, offsetof(struct typical, delta), "0.3",
      "so is one above delta e^-entropy, where that is lower", 0, 1, NULL },
    { 0 },
};

static double threshold(const struct typical *o, const double *p, int vocab)
{
    double entropy = 0;
    for (int i = 0; i < vocab; i++)
        if (p[i] > 0)
            entropy -= p[i] * log(p[i]);
    return fmin(o->epsilon, o->delta * exp(-entropy));
}

// Returns the node at which the path ends. p: (vocab) scratch. out may be NULL.
static int end_node(const struct draft *d, struct rows *rows, const struct typical *o, double *p,
                    struct verification *out)
{
    double log_p[MAX_NODES] = { 0 }; // log of the path's probability; 1: the path is not accepted
    int depth[MAX_NODES] = { 0 }, best = 0;
    for (int node = 0; node < d->n; node++) { // parents come before their children
        int c = draft_next_child(d, node, node);
        double min_p = 0;
        if (c >= 0 && log_p[node] <= 0) {
            dist_from_row(p, rows->row(rows, node), rows->vocab);
            min_p = threshold(o, p, rows->vocab);
        }
        for (; c >= 0; c = draft_next_child(d, node, c)) {
            double px = log_p[node] <= 0 ? p[d->token[c]] : 0;
            depth[c] = depth[node] + 1;
            log_p[c] = log_p[node] <= 0 && px > min_p ? log_p[node] + log(px) : 1;
            if (out != NULL && log_p[node] <= 0) {
                out->trial_p[c] = px;
                out->trial_q[c] = min_p;
            }
            if (log_p[c] <= 0 && (depth[c] > depth[best] || (depth[c] == depth[best] && log_p[c] > log_p[best])))
                best = c;
        }
    }
    return best;
}

static void typical_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *o,
                           struct rng *rng, struct verification *out)
{
    (void)rule;
    verification_clear(out, d->n);
    const int last = end_node(d, rows, o, out->work, out);
    const bool leaf = draft_next_child(d, last, last) < 0;
    struct address at = { leaf ? FOR_BONUS : FOR_RESIDUAL, rng->root, last };
    verification_path(out, d, last, rng_pick_row(rng, rows->row(rows, last), rows->vocab, at, out->work));
}

static void typical_end_probabilities(const struct rule *rule, const struct draft *d, struct rows *rows, const void *o,
                                      double *end)
{
    (void)rule;
    double *p = xcalloc((size_t)rows->vocab, sizeof(*p));
    for (int node = 0; node < d->n; node++)
        end[node] = 0;
    end[end_node(d, rows, o, p, NULL)] = 1;
    free(p);
}

const struct rule typical_rule = {
    .name = "typical",
    .summary = "LOSSY: Medusa's typical acceptance: p above a threshold that depends on entropy",
    .exact = false,
    .bonus_alone = true,
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT,
    .end_probabilities = typical_end_probabilities,
    .options = options,
    .options_size = sizeof(struct typical),
    .verify = typical_verify,
};
