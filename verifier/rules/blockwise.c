// blockwise.c - LOSSY: the relaxed criteria of blockwise parallel decoding (Stern, Shazeer, Uszkoreit 2018, arXiv
// 1811.03115, section 5).
//
//     accept: top_k      accepts a draft token if at most k - 1 tokens are more probable under the target (section 5.1)
//             distance   accepts it if its id differs from the argmax's by at most epsilon (5.2), for ids that are
//                        ordered, such as intensities
//
// The first `minimum_block` - 1 draft tokens of a step are accepted in any case (5.3: with the token that follows, the
// block has that many). In a tree the path goes on at the first accepted child. The token that follows the path is the
// argmax: the paper decodes greedily, and so does this rule at any temperature. Neither randomness nor q is involved.
//
// The paper's own criterion, the exact match, is what every lossless rule does at temperature 0. There the target's row
// has one token, so top_k needs temperature 1, whose order of tokens is that of the logits; tokens of probability 0 are
// not accepted.
#include <stddef.h>
#include <stdlib.h>

#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

enum accept { TOP_K, DISTANCE };

struct blockwise {
    int accept, k, epsilon, minimum_block;
};

static const struct option options[] = {
    { "accept", OPTION_CHOICE, offsetof(struct blockwise, accept), "top_k", "criterion of acceptance", 0, 0,
      "top_k|distance" },
    { "k", OPTION_INT, offsetof(struct blockwise, k), "2", "of top_k: the target's most probable tokens", 1, 1 << 20,
      NULL },
    { "epsilon", OPTION_INT, offsetof(struct blockwise, epsilon), "2", "of distance: largest difference of ids", 0,
      1 << 20, NULL },
    { "minimum_block", OPTION_INT, offsetof(struct blockwise, minimum_block), "1",
      "smallest number of tokens of a step, where the draft has them", 1, MAX_NODES, NULL },
    { 0 },
};

// Returns whether fewer than k tokens come before x in order of probability, equal ones in order of ids.
static bool in_top_k(const float *p, int vocab, int x, int k)
{
    int before = 0;
    for (int y = 0; y < vocab && before < k; y++)
        before += p[y] > p[x] || (p[y] == p[x] && y < x);
    return before < k && p[x] > 0;
}

static bool is_accepted(const struct blockwise *o, const float *p, int vocab, int x)
{
    return o->accept == TOP_K ? in_top_k(p, vocab, x, o->k) : abs(x - dist_row_argmax(p, vocab)) <= o->epsilon;
}

// Returns the node at which the path ends. out may be NULL.
static int end_node(const struct draft *d, struct rows *rows, const struct blockwise *o, struct verification *out)
{
    int node = 0, next = 0;
    for (int n = 1; next >= 0; n++) { // n: tokens of the step, if it ended here
        const float *p = rows->row(rows, node);
        next = -1;
        for (int c = draft_next_child(d, node, node); c >= 0 && next < 0; c = draft_next_child(d, node, c)) {
            const bool accepted = n < o->minimum_block || is_accepted(o, p, rows->vocab, d->token[c]);
            if (out != NULL) {
                out->trial_p[c] = accepted;
                out->trial_q[c] = 1;
            }
            next = accepted ? c : -1;
        }
        node = next >= 0 ? next : node;
    }
    return node;
}

static void blockwise_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *o,
                             struct rng *rng, struct verification *out)
{
    (void)rule;
    (void)rng;
    verification_clear(out, d->n);
    const int last = end_node(d, rows, o, out);
    verification_path(out, d, last, dist_row_argmax(rows->row(rows, last), rows->vocab));
}

static void blockwise_end_probabilities(const struct rule *rule, const struct draft *d, struct rows *rows,
                                        const void *o, double *end)
{
    (void)rule;
    for (int node = 0; node < d->n; node++)
        end[node] = 0;
    end[end_node(d, rows, o, NULL)] = 1;
}

const struct rule blockwise_rule = {
    .name = "blockwise",
    .summary = "LOSSY: blockwise parallel decoding's relaxed criteria, top-k or distance; greedy at any temperature",
    .exact = false,
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT,
    .end_probabilities = blockwise_end_probabilities,
    .options = options,
    .options_size = sizeof(struct blockwise),
    .verify = blockwise_verify,
};
