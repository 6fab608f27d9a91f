// match.cu - the body of `match`: verifier/rules/match.c specifies it.
#include "kernels/cuda/verify.h"

namespace DEVICE_SPACE
{

// The probability of child's token given that it is none of the earlier siblings'. *left: the row's sum without those.
__device__ static double conditional(const struct tree &t, int node, int child, const float *row, double *left)
{
    const double p = (double)row[t.token[child]];
    for (int s = t.child[node]; s < child; s = t.next[s])
        if (t.token[s] == t.token[child])
            return 0;
    const double conditional = p <= 0 ? 0 : p >= *left ? 1 : p / *left;
    *left -= p;
    return conditional;
}

static __global__ void __launch_bounds__(VERIFY_THREADS, 1) match_kernel(const struct verify_call *calls)
{
    __shared__ verify_scratch scratch;
    __shared__ struct tree t;
    kernel_prologue();
    const struct verify_call c = call_of_block(calls);
    begin(c, t);
    for (int node = 0, position = c.rng.root + 1; node >= 0; position++) {
        const float *row = row_of(c, node);
        const int token = race(row, c.vocab, c.rng, position, scratch);
        emit(c, node, token);
        int child = t.child[node];
        double left = child >= 0 ? row_sum(row, c.vocab, scratch) : 0;
        for (; child >= 0; child = t.next[child]) {
            record_trial(c, child, conditional(t, node, child, row, &left), 1);
            if (t.token[child] == token)
                break;
        }
        node = child;
    }
}

static void queue(struct cuda *c, int n, const struct verify_call *calls)
{
    QUEUE(c, match_kernel, n, VERIFY_THREADS, 0, calls);
}

static int residual_rows(const struct verify_request *r)
{
    (void)r;
    return 0;
}

const struct rule_body match_body = { "match", queue, residual_rows, true };

} // namespace DEVICE_SPACE
