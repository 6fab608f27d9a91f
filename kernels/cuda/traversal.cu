// traversal.cu - the body of `traversal`, a whole tree from its leaves up, and of `block`, which is the same on a
// chain: verifier/rules/traversal.c specifies it and proves it.
//
// The recursion's stack is the path from the root: the return address is a node's parent, and `a` is kept by node. A
// node's row is copied only when a child of it was given up, so the way down reads rows only, and a residual has to be
// kept beneath another only where the path goes through a child other than the first. On a chain there is one.
#include "kernels/cuda/residual.h"

namespace DEVICE_SPACE
{

// What the nodes above the current one had when the path went down.
struct traversal_shared {
    struct verify_shared v; // first
    double a[MAX_NODES];
    struct normalizer n[MAX_NODES];
};

// The current node, its a, and what remains of its row. The same in all threads.
struct position {
    int node;
    double a;
    struct remaining p;
    struct proposal q;
};

// A child of the node was given up: computes the residual without it and returns the new a. At a = 1 mass is always
// left: rows add up to 1, and the child was given up since p is smaller than q at its token.
__device__ static double without(const struct verify_call &c, struct traversal_shared &s, struct position &at,
                                 int child)
{
    double left;
    if (s.v.tree.proposal[child] == DETERMINISTIC)
        left = at.a * remove_token(c, s.v, at.p, s.v.tree.token[child]);
    else
        left = take_residual(c, s.v, at.p, at.a, at.q, child);
    const double a = share_left(left, at.a);
    if (a >= 0)
        return a;
    if (is_writer())
        c.out.decision->empty++;
    return 1;
}

// The part of a that goes down to the child.
__device__ static double handed_down(const struct verify_call &c, struct traversal_shared &s, struct position &at,
                                     int child)
{
    const double through = at.a * remaining_at(at.p, s.v.tree.token[child]);
    const double m = proposal_probability(c, s.v, at.q, child);
    record_trial(c, child, through, m);
    return share_handed_down(through, m);
}

// Arrives at a node with its share a. work: for its residual.
__device__ static void arrive(const struct verify_call &c, struct traversal_shared &s, struct position &at, int node,
                              double a, double *work)
{
    const float *row = row_of(c, node);
    at.node = node;
    at.a = a;
    at.q = proposal_of(node);
    at.p.certain = certain_of(c, node);
    at.p.row = row;
    at.p.work = work;
    at.p.n = identity();
    if (s.v.tree.child[node] >= 0 && at.p.certain < 0) // else the row is not normalized
        at.p.n = row_normalizer(c.vocab, s.v, row, row_sum(c.vocab, s.v, row, sums_of(c.p_sums, node), NULL));
}

// The path to node `last`, and the token after it.
__device__ static void write_path(const struct verify_call &c, const struct tree &t, int last, int token)
{
    if (!is_writer())
        return;
    int depth = 0;
    for (int node = last; node > 0; node = t.parent[node])
        depth++;
    c.out.decision->n = depth + 1;
    for (int node = last; node >= 0; node = t.parent[node], depth--) {
        c.out.node[depth] = node;
        c.out.token[depth] = token;
        token = t.token[node];
    }
}

static __global__ void __launch_bounds__(CLUSTER_THREADS, 1)
    traversal_kernel(const __grid_constant__ struct verify_calls calls)
{
    DYNAMIC_SHARED(struct traversal_shared, s);
    kernel_prologue();
    const struct verify_call c = call_of_block(calls);
    const struct tree &t = s->v.tree;
    struct position at = {};
    begin(c, s->v);
    arrive(c, *s, at, 0, 1, c.residual);
    for (int child = t.child[0];;) {
        int rejected = child;
        if (child >= 0 && at.a > 0) {
            const double down = handed_down(c, *s, at, child);
            if (down > 0) {
                if (threadIdx.x == 0) {
                    s->a[at.node] = at.a;
                    s->n[at.node] = at.p.n;
                }
                __syncthreads();
                arrive(c, *s, at, child, down, at.p.work + (child != t.child[at.node] ? c.vocab : 0));
                child = t.child[child];
                continue;
            }
        } else {
            if (accept(at.a, 1, c.rng, FOR_ACCEPT, at.node))
                break;
            rejected = at.node;
            const int node = t.parent[rejected];
            const bool first = rejected == t.child[node];
            at.node = node;
            at.a = s->a[node];
            at.q = proposal_of(node);
            at.p.certain = certain_of(c, node);
            at.p.row = first ? row_of(c, node) : NULL; // written when its first child is given up
            at.p.work -= first ? 0 : c.vocab;
            at.p.n = s->n[node];
        }
        at.a = without(c, *s, at, rejected);
        child = t.next[rejected];
    }
    const int token = t.child[at.node] < 0 ? pick_bonus(c, s->v, at.node) : pick_remaining(c, s->v, at.p, at.node);
    write_path(c, t, at.node, token);
}

// A node's residual is kept while the path goes down through a child that is not its first; the last one is that of the
// current node, if it has children. Of a draft on the device only the maximum numbers of nodes and levels are known:
// each residual then takes two nodes and a level.
static int residual_rows(const struct verify_request *r)
{
    if (r->n == 1) // no child
        return 0;
    if (r->on_device != NULL && !r->on_device->branches)
        return 1;
    if (r->on_device != NULL)
        return r->n / 2 < r->on_device->max_depth ? r->n / 2 : r->on_device->max_depth;
    int16_t kept[MAX_NODES] = { 0 }, most = 0;
    bool has_child[MAX_NODES] = { false };
    for (int i = 1; i < r->n; i++) {
        const int parent = r->parent[i];
        kept[i] = (int16_t)(kept[parent] + has_child[parent]);
        has_child[parent] = true;
        most = kept[parent] > most ? kept[parent] : most;
    }
    return 1 + most;
}

const struct rule_body traversal_body = { "traversal", traversal_kernel, sizeof(struct traversal_shared), residual_rows,
                                          false };

} // namespace DEVICE_SPACE
