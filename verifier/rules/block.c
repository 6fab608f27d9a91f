// block.c - block verification (Sun et al. 2024, arXiv 2403.10444): a chain is verified as a whole.
//
// In the paper's notation, for a chain x_1 .. x_k with rows p_i, q_i after x_1 .. x_i:
//
//     b_0 = 1,  b_i = min(1, b_{i-1} p_{i-1}[x_i] / q_{i-1}[x_i])
//     S_i = sum (b_i p_i - q_i)+,  h_i = S_i / (S_i + 1 - b_i) for 0 < i < k,  h_k = b_k
//     the path ends at the largest i whose acceptance test, of probability h_i, succeeds, else at 0
//     the next token is sampled from (b_i p_i - q_i)+, or from p_k if the whole chain is accepted
//
// traversal.c computes this on a chain: b is the share that a node hands down to its child, h the probability that a
// node stops after its child was given up. The last token is tested first, and the first success ends the walk.
//
// E[accepted] is the sum over i of E[b_i]; for rejection it is that of the product of the min(1, p / q), which is at
// most b_i. No rule that sees a single chain accepts more (theorem 2 of the paper).
#include "verifier/rules/traversal.h"

const struct rule block_rule = {
    .name = "block",
    .summary = "verifies a chain as a whole; no exact rule accepts more of a single chain",
    .exact = true,
    .optimal = "single chains (Sun et al. 2024, theorem 2)",
    .bonus_alone = true,
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT,
    .end_probabilities = traversal_end_probabilities,
    .device_body = "traversal",
    .verify = traversal_verify,
};
