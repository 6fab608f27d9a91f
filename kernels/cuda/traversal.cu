// traversal.cu - the body of `traversal`, a whole tree from its leaves up, and of `block`, which is the same on a chain:
// verifier/rules/traversal.c specifies it and proves it.
//
// The recursion's stack is the path from the root: the return address is a node's parent, and `a` is kept by node. A node's row is
// copied only when a child of it was given up, so the way down reads rows only, and a residual has to be kept beneath another only
// where the path goes through a child other than the first. On a chain there is one.
#include "kernels/cuda/verify.h"

namespace DEVICE_SPACE
{

struct visit {
    struct tree tree;
    double a[MAX_NODES]; // of the nodes above, when the path went down
    verify_scratch scratch;
};

// The current node, its a, and, once a child was given up, its residual.
struct position {
    int node;
    double a;
    double *residual; // (vocab)
};

// A child of the node was given up: computes the residual without it and returns the new a.
__device__ static double without(const struct verify_call &c, const struct position &at, int child, struct visit &v)
{
    const struct tree &t = v.tree;
    if (child == t.child[at.node])
        from_row(at.residual, row_of(c, at.node), c.vocab, v.scratch);
    double left;
    if (t.proposal[child] == DETERMINISTIC)
        left = at.a * row_remove(at.residual, c.vocab, t.token[child], v.scratch);
    else {
        proposal_row(c, t, at.node, child, v.scratch);
        left = scaled_residual(at.residual, at.a, c.q_work, c.vocab, v.scratch);
    }
    if (left > 0)
        return left / (left + (1 - at.a));
    if (at.a != 1)
        return 0;
    if (threadIdx.x == 0)
        c.out.decision->empty++;
    return 1;
}

// The part of a that goes down to the child.
__device__ static double handed_down(const struct verify_call &c, const struct position &at, int child, struct visit &v)
{
    const struct tree &t = v.tree;
    const int x = t.token[child];
    const double p =
        child == t.child[at.node] ? from_row_at(row_of(c, at.node), c.vocab, x, v.scratch) : at.residual[x];
    const double through = at.a * p, m = proposal_probability(c, t, at.node, child, v.scratch);
    record_trial(c, child, through, m);
    return through >= m ? 1 : through / m;
}

// The path to node `last`, and the token after it.
__device__ static void write_path(const struct verify_call &c, const struct tree &t, int last, int token)
{
    if (threadIdx.x != 0)
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

static __global__ void __launch_bounds__(VERIFY_THREADS, 1) traversal_kernel(const struct verify_call *calls)
{
    __shared__ struct visit v;
    kernel_prologue();
    const struct verify_call c = call_of_block(calls);
    const struct tree &t = v.tree;
    begin(c, v.tree);
    struct position at = { 0, 1, c.residual };
    for (int child = t.child[0];;) {
        int rejected = child;
        if (child >= 0 && at.a > 0) {
            const double down = handed_down(c, at, child, v);
            if (down > 0) {
                if (threadIdx.x == 0)
                    v.a[at.node] = at.a;
                __syncthreads();
                at = { child, down, at.residual + (child != t.child[at.node] ? c.vocab : 0) };
                child = t.child[child];
                continue;
            }
        } else {
            if (accept(at.a, 1, c.rng, FOR_ACCEPT, at.node))
                break;
            rejected = at.node;
            const int node = t.parent[rejected];
            at = { node, v.a[node], at.residual - (rejected != t.child[node] ? c.vocab : 0) };
        }
        at.a = without(c, at, rejected, v);
        child = t.next[rejected];
    }
    const int token = t.child[at.node] < 0 ? pick(row_of(c, at.node), c.vocab, c.rng, FOR_BONUS, at.node, v.scratch)
                                           : pick(at.residual, c.vocab, c.rng, FOR_RESIDUAL, at.node, v.scratch);
    write_path(c, t, at.node, token);
}

static void queue(struct cuda *c, int n, const struct verify_call *calls)
{
    QUEUE(c, traversal_kernel, n, VERIFY_THREADS, 0, calls);
}

// A node's residual is kept while the path goes down through a child that is not its first; the last one is that of the current node,
// if it has children. Of a draft on the device only the maximum numbers of nodes and levels are known: each residual then takes two
// nodes and a level.
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

const struct rule_body traversal_body = { "traversal", queue, residual_rows, false };

} // namespace DEVICE_SPACE
