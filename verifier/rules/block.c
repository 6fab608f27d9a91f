// block.c - block verification (Sun et al. 2024, arXiv 2403.10444): a chain is judged as a whole.
//
// In the paper's words, for a chain x_1 .. x_k with rows p_i, q_i behind x_1 .. x_i:
//
//     b_0 = 1,  b_i = min(1, b_{i-1} p_{i-1}[x_i] / q_{i-1}[x_i])
//     S_i = sum (b_i p_i - q_i)+,  h_i = S_i / (S_i + 1 - b_i) for 0 < i < k,  h_k = b_k
//     the text ends at the largest i whose coin of chance h_i comes up, else at 0
//     what follows is drawn from (b_i p_i - q_i)+, and from p_k if all of it stood
//
// which is what traversal.c does on a chain: b is what it hands down, h what is left when the child was given up. It
// looks at the last token first and stops at the first coin that comes up, so rows of tokens before it are not asked
// for in vain.
//
// E[accepted] is the sum over i of E[b_i]; rejection's is that of the product of the min(1, p / q), each of which is at
// most b_i. No rule that looks at one chain accepts more (theorem 2 of the paper).
#include "verifier/rules/traversal.h"

const struct rule block_rule = {
    .name = "block",
    .summary = "a chain as a whole: the most that can be accepted of one chain",
    .exact = true,
    .optimal = "single chains (Sun et al. 2024, theorem 2)",
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_DISTINCT,
    .law = traversal_law,
    .device_rule = DEVICE_TRAVERSAL,
    .verify = traversal_verify,
};
