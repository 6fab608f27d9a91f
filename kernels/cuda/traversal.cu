// traversal.cu - a whole tree judged from its leaves up, and a chain as `block` judges it: verifier/rules/traversal.c, which
// says what is done and why it is right.
//
// The recursion's stack is the path from the root: where it came from is a node's parent, and how much there was is
// kept by node. A row is worked on no sooner than a child has fallen, so the way down only reads, and a row has to be
// kept beneath another only where the way down goes through a later child. On a chain that is nowhere.
#include "kernels/cuda/judge.h"

namespace DEVICE_SPACE
{

struct visit {
    struct tree tree;
    double a[MAX_NODES]; // of the nodes above, as the way went down
    verify_scratch capacity;
};

// Where it is: at a node, which has a of its row left; a child that fell has left that in `left`.
struct here {
    int node;
    double a;
    double *left; // (vocab)
};

// Child of the node was given up: what is left without it.
__device__ static double without(const struct call &c, const struct here &at, int child, struct visit &v)
{
    const struct tree &t = v.tree;
    if (child == t.child[at.node])
        from_row(at.left, row_of(c, at.node), c.vocab, v.capacity);
    double left;
    if (t.proposal[child] == DETERMINISTIC)
        left = at.a * strike(at.left, c.vocab, t.token[child], v.capacity);
    else {
        proposal_row(c, t, at.node, child, v.capacity);
        left = scaled_residual(at.left, at.a, c.q_work, c.vocab, v.capacity);
    }
    if (left > 0)
        return left / (left + (1 - at.a));
    if (at.a != 1)
        return 0;
    if (threadIdx.x == 0)
        c.out.decided->empty++;
    return 1;
}

// How much of a goes down to the child.
__device__ static double handed_down(const struct call &c, const struct here &at, int child, struct visit &v)
{
    const struct tree &t = v.tree;
    const int x = t.token[child];
    const double p = child == t.child[at.node] ? from_row_at(row_of(c, at.node), c.vocab, x, v.capacity) : at.left[x];
    const double through = at.a * p, m = proposal_probability(c, t, at.node, child, v.capacity);
    note(c, child, through, m);
    return through >= m ? 1 : through / m;
}

// The path to node `last`, and the token after it.
__device__ static void answer_path(const struct call &c, const struct tree &t, int last, int token)
{
    if (threadIdx.x != 0)
        return;
    int depth = 0;
    for (int node = last; node > 0; node = t.parent[node])
        depth++;
    c.out.decided->n = depth + 1;
    for (int node = last; node >= 0; node = t.parent[node], depth--) {
        c.out.node[depth] = node;
        c.out.token[depth] = token;
        token = t.token[node];
    }
}

static __global__ void __launch_bounds__(VERIFIES, 1) traversal_kernel(const struct call *calls)
{
    __shared__ struct visit v;
    in_turn();
    const struct call c = call_of_block(calls);
    const struct tree &t = v.tree;
    begin(c, v.tree);
    struct here at = { 0, 1, c.left };
    for (int child = t.child[0];;) {
        int rejected = child;
        if (child >= 0 && at.a > 0) {
            const double down = handed_down(c, at, child, v);
            if (down > 0) {
                if (threadIdx.x == 0)
                    v.a[at.node] = at.a;
                __syncthreads();
                at = { child, down, at.left + (child != t.child[at.node] ? c.vocab : 0) };
                child = t.child[child];
                continue;
            }
        } else {
            if (accept(at.a, 1, c.chance, FOR_ACCEPT, at.node))
                break;
            rejected = at.node;
            const int node = t.parent[rejected];
            at = { node, v.a[node], at.left - (rejected != t.child[node] ? c.vocab : 0) };
        }
        at.a = without(c, at, rejected, v);
        child = t.next[rejected];
    }
    const int token = t.child[at.node] < 0 ? pick(row_of(c, at.node), c.vocab, c.chance, FOR_BONUS, at.node, v.capacity)
                                           : pick(at.left, c.vocab, c.chance, FOR_RESIDUAL, at.node, v.capacity);
    answer_path(c, t, at.node, token);
}

void queue_traversal(struct cuda *c, int n, const struct call *calls)
{
    QUEUE(c, traversal_kernel, n, VERIFIES, 0, calls);
}

} // namespace DEVICE_SPACE
