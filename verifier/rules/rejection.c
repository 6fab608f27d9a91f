// rejection.c - accept a guess as often as the target would have said it; otherwise say what the guess would not have.
//
// Leviathan et al. 2023 and Chen et al. 2023 for chains; for trees SpecInfer (Miao et al. 2024), Sequoia (Chen et al.
// 2024) and EAGLE's trees, which differ only in how siblings were drawn. At a node, let p be the target's row. Its
// children are tried in turn. Child c, whose token x was drawn from the row q, stands with probability min(1, p[x] /
// q[x]). If it falls, p becomes the residual (p - q)+, renormalised, and the next one is tried against that; if none
// stands, the target's own token is drawn from the p that is left.
//
// Why the text has the target's distribution: of the probability p(x), the child gives q(x) min(1, p(x) / q(x)) =
// min(p, q)(x); what is missing is (p - q)+(x), which is what everything after its fall is drawn from. The argument
// does not ask where q came from, only that x was drawn from it given the earlier siblings. So
//
//     DETERMINISTIC          is a draw from the row that is 1 at x: it stands with probability p[x], and (p - q)+ is p without x
//     SAMPLED           from the row q as it is
//     SAMPLED_WITHOUT_REPLACEMENT  from q without the earlier siblings' tokens, renormalised
//
// and one node may mix them. A leaf has no children and draws from p itself: the bonus token.
#include "verifier/rules/rejection.h"

#include <stdlib.h>

#include "core/grid.h"
#include "core/memory.h"
#include "sampling/dist.h"
#include "sampling/rng.h"
#include "verifier/rules/proposal.h"

// The target's row at a node, or what is left of it. As long as nothing but chosen tokens fell, and most often nothing else
// did, it stays as it came: those tokens are as if struck out, and the sum is that of the others. From the first fall of one
// that was drawn on it is p.
struct left {
    const struct draft *draft;
    int node, vocab;
    const float *row; // (vocab) NULL: p
    double sum;       // of row, without what fell; exact
    int rejected;     // the last child that did; the node itself: none
    int last;         // a token that fell and stays: there is no other left; -1
    double *p;        // (vocab)
};

static struct left left_of(const struct draft *d, int node, const float *row, double *p, int vocab)
{
    bool leaf = draft_next_child(d, node, node) < 0; // nobody asks for its sum
    return (struct left){ d, node, vocab, row, leaf ? 0 : dist_row_sum(row, vocab), node, -1, p };
}

static bool is_struck(const struct left *l, int x)
{
    for (int s = draft_next_child(l->draft, l->node, l->node); s >= 0 && s <= l->rejected && x != l->last;
         s = draft_next_child(l->draft, l->node, s))
        if (l->draft->token[s] == x)
            return true;
    return false;
}

static double left_at(const struct left *l, int x)
{
    if (l->row == NULL)
        return l->p[x];
    return is_struck(l, x) ? 0 : dist_share(l->row[x], l->sum);
}

// The row without what fell, as p; its sum is as it is.
static void write_out(struct left *l)
{
    dist_copy(l->p, l->row, l->vocab);
    for (int s = l->node; s < l->rejected;) {
        s = draft_next_child(l->draft, l->node, s);
        if (l->draft->token[s] != l->last)
            l->p[l->draft->token[s]] = 0;
    }
    l->row = NULL;
}

// A chosen token has fallen: out of the sum, if anything is left then.
static bool chosen_fell(struct left *l, int c)
{
    const int x = l->draft->token[c];
    if (l->row == NULL)
        return dist_strike(l->p, l->vocab, x) > 0;
    const double mass = is_struck(l, x) ? 0 : grid_of((double)l->row[x]);
    const bool others = l->sum > mass;
    if (others)
        l->sum -= mass;
    else
        l->last = x;
    l->rejected = c;
    return others;
}

// Child c has fallen: what is left without it. false: nothing is, and p stays as it was.
static bool rejected(struct left *l, int c, double *q)
{
    if (l->draft->proposal[c] == DETERMINISTIC)
        return chosen_fell(l, c);
    if (l->row != NULL) {
        write_out(l);
        dist_normalize(l->p, l->vocab);
    }
    proposal_row(l->draft, l->node, c, q, l->vocab);
    return dist_residual(l->p, q, l->vocab) > 0;
}

// The child of node that stands, or -1 with what remains to sample from.
static int accepted_child(const struct draft *d, int node, struct left *l, double *q, struct standing s,
                          struct rng *rng, struct verification *out)
{
    for (int c = draft_next_child(d, node, node); c >= 0; c = draft_next_child(d, node, c)) {
        const double m = proposal_probability(d, node, c, q, l->vocab);
        out->trial_p[c] = s.lenience * left_at(l, d->token[c]) + s.rate * m;
        out->trial_q[c] = m;
        if (rng->accept(rng, out->trial_p[c], out->trial_q[c], (struct address){ FOR_ACCEPT, rng->root, c }))
            return c;
        out->empty += !rejected(l, c, q);
    }
    return -1;
}

void rejection_walk(const struct draft *d, struct rows *rows, struct standing s, struct rng *rng,
                    struct verification *out)
{
    int vocab = rows->vocab, node = 0;
    double *p = out->work, *q = p + vocab; // (vocab) each
    struct left l;

    verification_clear(out, d->n);
    for (;;) {
        l = left_of(d, node, rows->row(rows, node), p, vocab);
        int child = accepted_child(d, node, &l, q, s, rng, out);
        if (child < 0)
            break;
        verification_add(out, node, d->token[child]);
        node = child;
    }
    bool leaf = draft_next_child(d, node, node) < 0;
    struct address at = { leaf ? FOR_BONUS : FOR_RESIDUAL, rng->root, node };
    if (!leaf && l.row != NULL)
        write_out(&l);
    verification_add(out, node, leaf ? rng_pick_row(rng, l.row, vocab, at, p) : rng->pick(rng, p, vocab, at));
}

// The same walk with its coins as probabilities. end[node] first holds how often the path comes to node, and gives each
// child its part as the child is tried; parents stand before their children, so one pass is enough.
void rejection_ends(const struct draft *d, struct rows *rows, struct standing s, double *end)
{
    int vocab = rows->vocab;
    double *p = xcalloc(2 * (size_t)vocab, sizeof(*p)), *q = p + vocab;

    end[0] = 1;
    for (int node = 1; node < d->n; node++)
        end[node] = 0;
    for (int node = 0; node < d->n; node++) {
        int c = draft_next_child(d, node, node);
        if (c < 0 || end[node] == 0)
            continue;
        struct left l = left_of(d, node, rows->row(rows, node), p, vocab);
        for (; c >= 0 && end[node] > 0; c = draft_next_child(d, node, c)) {
            const double m = proposal_probability(d, node, c, q, vocab);
            const double x = s.lenience * left_at(&l, d->token[c]) + s.rate * m;
            end[c] = x >= m ? end[node] : end[node] * (x / m);
            end[node] -= end[c];
            rejected(&l, c, q);
        }
    }
    free(p);
}

static void rejection_verify(const struct draft *d, struct rows *rows, const void *options, struct rng *rng,
                             struct verification *out)
{
    (void)options;
    rejection_walk(d, rows, (struct standing){ 1, 0 }, rng, out);
}

static void rejection_law(const struct draft *d, struct rows *rows, const void *options, double *end)
{
    (void)options;
    rejection_ends(d, rows, (struct standing){ 1, 0 }, end);
}

const struct rule rejection_rule = {
    .name = "rejection",
    .summary = "token by token, siblings in turn: Leviathan's rule on chains, SpecInfer's and Sequoia's on trees",
    .exact = true,
    .optimal = "a single token (Leviathan et al. 2023), and any draft of chosen tokens alone",
    .takes = TAKES_DETERMINISTIC | TAKES_SAMPLED | TAKES_DISTINCT | TAKES_TREES,
    .law = rejection_law,
    .device_rule = DEVICE_REJECTION,
    .verify = rejection_verify,
};
