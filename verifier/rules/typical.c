// typical.c - LOSSY: Medusa's typical acceptance (Cai et al. 2024, arXiv 2401.10774, section 2.3.1).
//
// A guess x stands if the target finds it likely enough for a row of that entropy: p[x] > min(epsilon, delta
// e^(-H(p))). No chance is in it, nor any q. Of a tree the deepest node whose whole path stands is taken; of several,
// the one whose path the target finds likeliest. What follows is drawn from the target's row there. The text's law is
// not the target's: likely tokens come more often than they should, unlikely ones less.
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
      "a guess of more than this probability always stands", 0, 1, NULL },
    { "delta", OPTION_REAL, offsetof(struct typical, delta), "0.3", "and one of delta e^-entropy, where that is less",
      0, 1, NULL },
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

// The node at which it ends. p: (vocab) to work in. out may be NULL.
static int ends_at(const struct draft *d, struct rows *rows, const struct typical *o, double *p,
                   struct verification *out)
{
    double likely[MAX_NODES] = { 0 }; // log of the path's probability; 1: the path does not stand
    int depth[MAX_NODES] = { 0 }, best = 0;
    for (int node = 0; node < d->n; node++) { // parents before their children
        int c = draft_next_child(d, node, node);
        double least = 0;
        if (c >= 0 && likely[node] <= 0) {
            dist_from_row(p, rows->row(rows, node), rows->vocab);
            least = threshold(o, p, rows->vocab);
        }
        for (; c >= 0; c = draft_next_child(d, node, c)) {
            double chance = likely[node] <= 0 ? p[d->token[c]] : 0;
            depth[c] = depth[node] + 1;
            likely[c] = likely[node] <= 0 && chance > least ? likely[node] + log(chance) : 1;
            if (out != NULL && likely[node] <= 0) {
                out->trial_p[c] = chance;
                out->trial_q[c] = least;
            }
            if (likely[c] <= 0 && (depth[c] > depth[best] || (depth[c] == depth[best] && likely[c] > likely[best])))
                best = c;
        }
    }
    return best;
}

static void typical_verify(const struct draft *d, struct rows *rows, const void *o, struct rng *rng,
                           struct verification *out)
{
    verification_clear(out, d->n);
    const int last = ends_at(d, rows, o, out->work, out);
    const bool leaf = draft_next_child(d, last, last) < 0;
    struct address at = { leaf ? FOR_BONUS : FOR_RESIDUAL, rng->root, last };
    verification_path(out, d, last, rng_pick_row(rng, rows->row(rows, last), rows->vocab, at, out->work));
}

static void typical_law(const struct draft *d, struct rows *rows, const void *o, double *end)
{
    double *p = xcalloc((size_t)rows->vocab, sizeof(*p));
    for (int node = 0; node < d->n; node++)
        end[node] = 0;
    end[ends_at(d, rows, o, p, NULL)] = 1;
    free(p);
}

const struct rule typical_rule = {
    .name = "typical",
    .summary = "LOSSY: Medusa's; a guess stands if the target finds it likely enough",
    .exact = false,
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_DISTINCT,
    .law = typical_law,
    .options = options,
    .options_size = sizeof(struct typical),
    .verify = typical_verify,
};
