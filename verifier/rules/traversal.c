// traversal.c - verifies a tree from its leaves to its root: later tokens count for the acceptance of earlier ones.
//
// Rejection decides about a token before it looks at the tokens below it. Here a node hands down to its child the share
// a of the target's mass that may still pass through it, and a child is given up only after its whole subtree has found
// no place to stop. With p the target's row at node v, or what remains of it:
//
//     visit(v, a, p):
//         for each child c of v, with token x sampled from q, in order:
//             r = visit(c, min(1, a p[x] / q[x]), the target's row at c);   if r stopped somewhere: return r
//             w = (a p - q)+,  S = sum w
//             a = S / (S + (1 - a)),  p = w / S          S = 0: no mass remains, v is given up as well
//         with probability a: stop at v and sample the next token from p;   otherwise v is given up
//
// starting with visit(root, 1, the target's row at the root).
//
// Why the output has the target's distribution. Lemma: visit(v, a, p) emits the text s with measure
// a p(s_1) p(s_2 | s_1) ..., so it stops somewhere with probability a. Proof by induction over the subtree. Without
// children it holds by the last line. With one child, the child's subtree emits texts that begin with x with measure
// sum_x q(x) min(1, a p(x) / q(x)) = min(a p, q)(x), and the child is given up with probability
// 1 - sum min(a p, q) = (1 - a) + S, whatever is below it. Then v stops with a share S / (S + 1 - a) of that, which is
// S, and samples from w / S: together min(a p, q) + (a p - q)+ = a p. Giving up the child is independent of its
// siblings, because by the lemma its probability depends on the child's own token alone, not on the nodes below it; so
// the step repeats with the new (a, p). At the root a is 1 and stays 1.
//
// On a chain this is block verification (Sun et al. 2024, arXiv 2403.10444): h = S / (S + 1 - b) is the last line for a
// node whose child was given up. No rule that sees a single chain accepts more (their theorem 2). On trees Weng et al.
// 2025 (arXiv 2505.12398) call it traversal verification; the derivation above is our own, and optimality is stated for
// chains only. DETERMINISTIC children are the case q = 1 at x: on drafts of deterministic tokens only, it accepts as
// much as rejection.

#include <stdlib.h>

#include "core/acceptance.h"
#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/rule.h"

struct visit {
    const struct draft *draft;
    struct rows *rows;
    struct rng *rng;          // random source of verify
    struct verification *out; // result of verify; NULL otherwise
    double *end;              // result of end_probabilities
    double *q, *p;            // (vocab) a child's row of q; (depth, vocab) what remains of p at each level
};

// Updates the node's (a, p) after child c was given up. Returns the new a.
static double without(const struct visit *v, int node, int c, double a, double *p)
{
    const int vocab = v->rows->vocab;
    double left;
    if (v->draft->proposal[c] == DETERMINISTIC)
        left = a * dist_remove(p, vocab, v->draft->token[c]);
    else {
        proposal_row(v->draft, node, c, v->q, vocab);
        left = dist_scaled_residual(p, a, v->q, vocab);
    }
    const double new_a = share_left(left, a);
    if (new_a >= 0)
        return new_a;
    if (v->out != NULL)
        v->out->empty++;
    return 1; // p is unchanged
}

// Returns the share a that is handed down to child c.
static double handed_down(const struct visit *v, int node, int c, double a, const double *p)
{
    double through = a * p[v->draft->token[c]], m = proposal_probability(v->draft, node, c, v->q, v->rows->vocab);
    if (v->out != NULL) {
        v->out->trial_p[c] = through;
        v->out->trial_q[c] = m;
    }
    return share_handed_down(through, m);
}

// Returns the node where it stopped: `node` or one below it; -1: node is given up. p: (deeper levels, vocab)
static int visit(const struct visit *v, int node, double a, double *p)
{
    const int vocab = v->rows->vocab;
    int c = draft_next_child(v->draft, node, node);
    if (c >= 0)
        dist_from_row(p, v->rows->row(v->rows, node), vocab);
    const bool leaf = c < 0;
    for (; c >= 0 && a > 0; c = draft_next_child(v->draft, node, c)) {
        double down = handed_down(v, node, c, a, p);
        int stopped = down > 0 ? visit(v, c, down, p + vocab) : -1;
        if (stopped >= 0)
            return stopped;
        a = without(v, node, c, a, p);
    }
    if (!v->rng->accept(v->rng, a, 1, (struct address){ FOR_ACCEPT, v->rng->root, node }))
        return -1;
    struct address at = { leaf ? FOR_BONUS : FOR_RESIDUAL, v->rng->root, node };
    v->out->token[0] =
        leaf ? rng_pick_row(v->rng, v->rows->row(v->rows, node), vocab, at, v->q) : v->rng->pick(v->rng, p, vocab, at);
    return node;
}

static void traversal_verify(const struct rule *rule, const struct draft *d, struct rows *rows, const void *options,
                             struct rng *rng, struct verification *out)
{
    (void)rule;
    (void)options;
    const struct visit v = { d, rows, rng, out, NULL, out->work, out->work + rows->vocab };
    verification_clear(out, d->n);
    const int last = visit(&v, 0, 1, v.p);
    verification_path(out, d, last, out->token[0]);
}

// Computes the recursion over probabilities. reach: the probability of reaching node. Returns the probability of giving
// it up.
static double visit_probabilities(const struct visit *v, int node, double a, double reach, double *p)
{
    int c = draft_next_child(v->draft, node, node);
    if (c >= 0)
        dist_from_row(p, v->rows->row(v->rows, node), v->rows->vocab);
    for (; c >= 0 && a > 0 && reach > 0; c = draft_next_child(v->draft, node, c)) {
        double down = handed_down(v, node, c, a, p);
        if (down > 0)
            reach = visit_probabilities(v, c, down, reach, p + v->rows->vocab);
        a = without(v, node, c, a, p);
    }
    v->end[node] = reach * a;
    return reach - v->end[node];
}

static void traversal_end_probabilities(const struct rule *rule, const struct draft *d, struct rows *rows,
                                        const void *options, double *end)
{
    (void)rule;
    (void)options;
    double *work = xcalloc((size_t)(draft_max_depth(d) + 2) * (size_t)rows->vocab, sizeof(*work));
    const struct visit v = { .draft = d, .rows = rows, .end = end, .q = work, .p = work + rows->vocab };
    for (int node = 0; node < d->n; node++)
        end[node] = 0;
    visit_probabilities(&v, 0, 1, 1, v.p);
    free(work);
}

const struct rule traversal_rule = {
    .name = "traversal",
    .summary = "verifies a tree from its leaves to its root; equals `block` on chains",
    .exact = true,
    .optimal = "single chains (as `block`); drafts of deterministic tokens only",
    .bonus_alone = true,
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_WITHOUT_REPLACEMENT,
    .end_probabilities = traversal_end_probabilities,
    .device_body = "traversal",
    .verify = traversal_verify,
};

// ---- block
//
// block verification (Sun et al. 2024, arXiv 2403.10444): a chain is verified as a whole.
//
// In the paper's notation, for a chain x_1 .. x_k with rows p_i, q_i after x_1 .. x_i:
//
//     b_0 = 1,  b_i = min(1, b_{i-1} p_{i-1}[x_i] / q_{i-1}[x_i])
//     S_i = sum (b_i p_i - q_i)+,  h_i = S_i / (S_i + 1 - b_i) for 0 < i < k,  h_k = b_k
//     the path ends at the largest i whose acceptance test, of probability h_i, succeeds, else at 0
//     the next token is sampled from (b_i p_i - q_i)+, or from p_k if the whole chain is accepted
//
// The recursion above computes this on a chain: b is the share that a node hands down to its child, h the probability
// that a node stops after its child was given up. The last token is tested first, and the first success ends the walk.
//
// E[accepted] is the sum over i of E[b_i]; for rejection it is that of the product of the min(1, p / q), which is at
// most b_i. No rule that sees a single chain accepts more (theorem 2 of the paper).

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
