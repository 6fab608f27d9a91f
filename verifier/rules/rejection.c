// rejection.c - rejection sampling, token by token, on chains and trees.
//
// Leviathan et al. 2023 and Chen et al. 2023 for chains; for trees SpecInfer (Miao et al. 2023), Sequoia (Chen et al.
// 2024) and EAGLE, which differ only in how siblings are sampled. At a node, let p be the target's row. Its children
// are tried in order. Child c, whose token x was sampled from the row q, is accepted with probability
// min(1, p[x] / q[x]). If it is rejected, p becomes the residual (p - q)+, renormalised, and the next child is tried
// against that; if all are rejected, the target's own token is sampled from the remaining p.
//
// Why the output has the target's distribution: of the probability p(x), the child contributes
// q(x) min(1, p(x) / q(x)) = min(p, q)(x). What is missing is (p - q)+(x), and everything after the child's rejection
// is sampled from just that. The argument does not use where q comes from, only that x was sampled from it given the
// earlier siblings. So
//
//     DETERMINISTIC                is a sample from the row that is 1 at x: it is accepted with probability p[x], and
//                                  (p - q)+ is p without x
//     SAMPLED                      is a sample from the row q itself
//     SAMPLED_WITHOUT_REPLACEMENT  is a sample from q without the earlier siblings' tokens, renormalised
//
// and one node may mix them. A leaf has no children: its next token is sampled from p itself, the bonus token.
#include "verifier/rules/rejection.h"

#include <stddef.h>
#include <stdlib.h>

#include "core/acceptance.h"
#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/rng.h"

_Static_assert((int)MAX_STRIKES >= (int)MAX_NODES, "a strike per node");

// The target's row at a node, or what remains of it. In the common case only deterministic tokens were rejected, and
// `row` is used without the tokens that are struck out. After the first rejection of a sampled token p holds the
// residual and row is NULL.
struct remainder {
    const struct draft *draft;
    int node, vocab;
    const float *row; // (vocab) NULL: p is used
    double *p;        // (vocab)
    struct strikes struck;
};

static void remainder_init(struct remainder *l, const struct draft *d, int node, const float *row, double *p, int vocab)
{
    bool leaf = draft_next_child(d, node, node) < 0; // the sum of the row is not used
    l->draft = d;
    l->node = node;
    l->vocab = vocab;
    l->row = row;
    l->p = p;
    strikes_clear(&l->struck, leaf ? 0 : dist_row_sum(row, vocab));
}

static double remainder_at(const struct remainder *l, int x)
{
    return l->row == NULL ? l->p[x] : strikes_share(&l->struck, x, grid_round((double)l->row[x]));
}

// Copies the row without rejected tokens to p, not renormalised.
static void write_remainder(struct remainder *l)
{
    dist_copy(l->p, l->row, l->vocab);
    for (int i = 0; i < l->struck.n; i++)
        l->p[l->struck.token[i]] = 0;
    l->row = NULL;
}

// Updates the remainder after the rejection of child c. Returns false and leaves it unchanged if no mass remains.
static bool reject_child(struct remainder *l, int c, double *q)
{
    const int x = l->draft->token[c];
    if (l->draft->proposal[c] == DETERMINISTIC)
        return l->row == NULL ? dist_remove(l->p, l->vocab, x) > 0
                              : strike(&l->struck, x, grid_round((double)l->row[x]));
    if (l->row != NULL) {
        write_remainder(l);
        dist_normalize(l->p, l->vocab);
    }
    proposal_row(l->draft, l->node, c, q, l->vocab);
    return dist_residual(l->p, q, l->vocab) > 0;
}

// Returns the accepted child of node, or -1: then the next token is sampled from l.
static int accepted_child(const struct draft *d, int node, struct remainder *l, double *q,
                          const struct acceptance_test *t, struct rng *rng, struct verification *out)
{
    for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c)) {
        const double m = proposal_probability(d, node, c, q, l->vocab);
        out->trial_p[c] = lenient_numerator(t->lenience, t->rate, remainder_at(l, d->token[c]), m);
        out->trial_q[c] = m;
        if (rng->accept(rng, out->trial_p[c], out->trial_q[c], (struct address){ FOR_ACCEPT, rng->root, c }))
            return c;
        out->empty += !reject_child(l, c, q);
    }
    return -1;
}

void rejection_walk(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                    struct rng *rng, struct verification *out)
{
    (void)rule;
    int vocab = rows->vocab, node = 0;
    double *p = out->work, *q = p + vocab; // (vocab) each
    struct remainder l;

    verification_clear(out, d->n);
    for (;;) {
        remainder_init(&l, d, node, rows->row(rows, node), p, vocab);
        int child = accepted_child(d, node, &l, q, options, rng, out);
        if (child < 0)
            break;
        verification_add(out, node, d->token[child]);
        node = child;
    }
    bool leaf = draft_next_child(d, node, node) < 0;
    struct address at = { leaf ? FOR_BONUS : FOR_RESIDUAL, rng->root, node };
    if (!leaf && l.row != NULL)
        write_remainder(&l);
    verification_add(out, node, leaf ? rng_pick_row(rng, l.row, vocab, at, p) : rng->pick(rng, p, vocab, at));
}

// Computes the walk over probabilities. end[node] first holds the probability of reaching node and passes each child
// its share when the child is tried. Parents precede their children, so one pass is enough.
void rejection_end_probabilities(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                                 double *end)
{
    (void)rule;
    const struct acceptance_test *t = options;
    int vocab = rows->vocab;
    double *p = xcalloc(2 * (size_t)vocab, sizeof(*p)), *q = p + vocab;

    end[0] = 1;
    for (int node = 1; node < d->n; node++)
        end[node] = 0;
    for (int node = 0; node < d->n; node++) {
        int c = draft_next_child(d, node, node);
        if (c < 0 || end[node] == 0)
            continue;
        struct remainder l;
        remainder_init(&l, d, node, rows->row(rows, node), p, vocab);
        for (; c >= 0 && end[node] > 0; c = draft_next_child(d, node, c)) {
            const double m = proposal_probability(d, node, c, q, vocab);
            const double x = lenient_numerator(t->lenience, t->rate, remainder_at(&l, d->token[c]), m);
            end[c] = x >= m ? end[node] : end[node] * (x / m);
            end[node] -= end[c];
            reject_child(&l, c, q);
        }
    }
    free(p);
}

void rejection_parameters(const void *options, double parameter[RULE_PARAMETERS])
{
    const struct acceptance_test *t = options;
    parameter[0] = t->lenience;
    parameter[1] = t->rate;
}

static const struct acceptance_test lossless = { 1, 0 };

static void rejection_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                             struct rng *rng, struct verification *out)
{
    (void)options;
    rejection_walk(rule, d, rows, &lossless, rng, out);
}

static void end_probabilities(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                              double *end)
{
    (void)options;
    rejection_end_probabilities(rule, d, rows, &lossless, end);
}

static void device_parameters(const void *options, double parameter[RULE_PARAMETERS])
{
    (void)options;
    rejection_parameters(&lossless, parameter);
}

const struct rule rejection_rule = {
    .name = "rejection",
    .summary = "token by token, siblings in order: Leviathan et al. on chains, SpecInfer and Sequoia on trees",
    .exact = true,
    .replaces_by_residual = true,
    .optimal = "a single token (Leviathan et al. 2023); drafts of deterministic tokens only",
    .bonus_alone = true,
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT | TAKES_TREES,
    .end_probabilities = end_probabilities,
    .device_body = "rejection",
    .device_parameters = device_parameters,
    .verify = rejection_verify,
};

// ---- lenient
//
// LOSSY: rejection with a more lenient acceptance test (Leviathan et al. 2023, appendix on lenience).
//
// A sampled draft token x is accepted with probability min(1, l p[x] / q[x]), l > 1, a deterministic one with
// min(1, l p[x]); after a rejection the next token is sampled from the residual of `rejection`. The output distribution
// is not the target's: at a single node with one sampled child it is
//
//     min(q, l p) + (1 - sum min(q, l p)) (p - q)+ / sum (p - q)+

// The options are read into a struct acceptance_test, whose other field is 0.
static const struct option lenient_options[] = {
    { "lenience", OPTION_REAL, offsetof(struct acceptance_test, lenience), "1.1",
      "a draft token is accepted with probability min(1, lenience p / q)", 1, 1000, NULL },
    { 0 },
};

const struct rule lenient_rule = {
    .name = "lenient",
    .summary = "LOSSY: rejection with its acceptance ratio multiplied by `lenience`",
    .exact = false,
    .bonus_alone = true,
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT,
    .end_probabilities = rejection_end_probabilities,
    .options = lenient_options,
    .options_size = sizeof(struct acceptance_test),
    .device_body = "rejection",
    .device_parameters = rejection_parameters,
    .verify = rejection_walk,
};

// ---- synthetic
//
// LOSSY, for timing only: synthetic acceptance at a given rate.
//
// Each draft token that is tried is accepted with probability `rate`, whatever it is. After a rejection the next token
// is sampled from the residual of `rejection`, so all of its work is done. A loop can thus be timed at a given number
// of tokens per step without a pair of models that accepts as many: with random weights, or with a head of the right
// shape. The text is meaningless. The i-th sibling, counted from 0, is accepted with probability rate (1 - rate)^i: the
// tokens per step of a tree follow from its shape alone.

// The options are read into a struct acceptance_test, whose other field is 0: the target's row is ignored.
static const struct option synthetic_options[] = {
    { "rate", OPTION_REAL, offsetof(struct acceptance_test, rate), "0.7", "acceptance probability of a draft token", 0,
      1, NULL },
    { 0 },
};

const struct rule synthetic_rule = {
    .name = "synthetic",
    .summary = "LOSSY, for timing: accepts each draft token with probability `rate`, at the cost of rejection",
    .exact = false,
    .bonus_alone = true,
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT,
    .end_probabilities = rejection_end_probabilities,
    .options = synthetic_options,
    .options_size = sizeof(struct acceptance_test),
    .device_body = "rejection",
    .device_parameters = rejection_parameters,
    .verify = rejection_walk,
};
