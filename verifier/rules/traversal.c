// traversal.c - judge a whole tree from its leaves up: a guess that would have fallen can be saved by what comes after
// it.
//
// Rejection decides about a token before it looks at the ones behind it. Here a node hands down to its child how much
// of the target's mass may still go through it, a, and only when the child's whole subtree has found no place to stop
// is that child given up. With p the target's row at node v, or what is left of it:
//
//     visit(v, a, p):
//         for each child c of v, with token x drawn from q, in turn:
//             r = visit(c, min(1, a p[x] / q[x]), the target's row at c);   if r stopped somewhere: return r
//             w = (a p - q)+,  S = sum w
//             a = S / (S + (1 - a)),  p = w / S          S = 0: nothing is left to say here, v is given up as well
//         with probability a: stop at v and draw the next token from p;   otherwise v is given up
//
// beginning with visit(root, 1, the target's row at the root).
//
// Why the text has the target's distribution. Claim: visit(v, a, p) says the text s with measure a p(s_1) p(s_2 | s_1)
// ..., so it stops somewhere with probability a. By induction over the subtree: without children it is true by the last
// line. With one child, the child's subtree says what begins with x with measure sum_x q(x) min(1, a p(x) / q(x)) =
// min(a p, q)(x), and is given up with probability 1 - sum min(a p, q) = (1 - a) + S, whatever is in it. Then v has S /
// (S + 1 - a) of that, which is S, to say w / S: together min(a p, q) + (a p - q)+ = a p. That the child was given up
// says nothing about its siblings, because by the claim its chance depends on its own token alone, not on what hangs
// below it; so the step repeats with the (a, p) that are left. At the root a is 1 and stays 1.
//
// On a chain this is block verification (Sun et al. 2024, arXiv 2403.10444): h = S / (S + 1 - b) is the last line for a
// node whose child was given up. No rule that looks at one chain accepts more (their theorem 2). On trees it is what
// Weng et al. 2025 (arXiv 2505.12398) call traversal verification; the derivation above is our own, and optimality is
// claimed for chains only. DETERMINISTIC children are the case q = 1 at x: for drafts of nothing else, it accepts as much as
// rejection does.
#include "verifier/rules/traversal.h"

#include <stdlib.h>

#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/proposal.h"
#include "verifier/rules/rule.h"

struct visit {
    const struct draft *draft;
    struct rows *rows;
    struct rng *rng;          // of judging
    struct verification *out; // of judging
    double *end;              // of the law
    double *q, *p;            // (vocab) of a child; (depth, vocab) what is left at each node on the way down
};

// Child c of node was given up: what is left of the node's (a, p) without it. Answers the new a.
static double without(const struct visit *v, int node, int c, double a, double *p)
{
    const int vocab = v->rows->vocab;
    double left;
    if (v->draft->proposal[c] == DETERMINISTIC)
        left = a * dist_strike(p, vocab, v->draft->token[c]);
    else {
        proposal_row(v->draft, node, c, v->q, vocab);
        left = dist_scaled_residual(p, a, v->q, vocab);
    }
    if (left > 0)
        return left / (left + (1 - a)); // the brackets matter: at a = 1 this is 1 to the last bit
    if (a != 1)
        return 0;
    if (v->out != NULL)
        v->out->empty++;
    return 1; // p stays as it was
}

// How much of a goes down to child c.
static double handed_down(const struct visit *v, int node, int c, double a, const double *p)
{
    double through = a * p[v->draft->token[c]], m = proposal_probability(v->draft, node, c, v->q, v->rows->vocab);
    if (v->out != NULL) {
        v->out->trial_p[c] = through;
        v->out->trial_q[c] = m;
    }
    return through >= m ? 1 : through / m;
}

// Where it stopped, at node or below; -1: nowhere, node is given up. p: (deeper levels, vocab)
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

void traversal_verify(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                      struct verification *out)
{
    (void)options;
    const struct visit v = { d, rows, rng, out, NULL, out->work, out->work + rows->vocab };
    verification_clear(out, d->n);
    const int last = visit(&v, 0, 1, v.p);
    verification_path(out, d, last, out->token[0]);
}

// The same with its coins as probabilities. reach: how often judging comes to node at all; answers how often it gives
// it up.
static double law(const struct visit *v, int node, double a, double reach, double *p)
{
    int c = draft_next_child(v->draft, node, node);
    if (c >= 0)
        dist_from_row(p, v->rows->row(v->rows, node), v->rows->vocab);
    for (; c >= 0 && a > 0 && reach > 0; c = draft_next_child(v->draft, node, c)) {
        double down = handed_down(v, node, c, a, p);
        if (down > 0)
            reach = law(v, c, down, reach, p + v->rows->vocab);
        a = without(v, node, c, a, p);
    }
    v->end[node] = reach * a;
    return reach - v->end[node];
}

void traversal_law(const struct draft *d, struct rows *rows, const void *options, double *end)
{
    (void)options;
    double *work = xcalloc((size_t)(draft_max_depth(d) + 2) * (size_t)rows->vocab, sizeof(*work));
    const struct visit v = { .draft = d, .rows = rows, .end = end, .q = work, .p = work + rows->vocab };
    for (int node = 0; node < d->n; node++)
        end[node] = 0;
    law(&v, 0, 1, 1, v.p);
    free(work);
}

const struct rule traversal_rule = {
    .name = "traversal",
    .summary = "a whole tree from its leaves up: what comes after a token can save it",
    .exact = true,
    .optimal = "single chains (as `block`), and any draft of chosen tokens alone",
    .takes = TAKES_DETERMINISTIC | TAKES_TREES | TAKES_SAMPLED | TAKES_DISTINCT,
    .law = traversal_law,
    .device_rule = DEVICE_TRAVERSAL,
    .verify = traversal_verify,
};
