// match.cu - the body of `match`: verifier/rules/match.c specifies it.
#include "kernels/cuda/verify.h"

namespace DEVICE_SPACE
{

static __global__ void __launch_bounds__(CLUSTER_THREADS, 1)
    match_kernel(const __grid_constant__ struct verify_calls calls)
{
    DYNAMIC_SHARED(struct verify_shared, v);
    kernel_prologue();
    const struct verify_call c = call_of_block(calls);
    const struct tree &t = v->tree;
    begin(c, *v);
    for (int node = 0, position = c.rng.root + 1; node >= 0; position++) {
        const float *row = row_of(c, node);
        const int certain = certain_of(c, node);
        double left = 1;
        const int token = certain >= 0 ? certain : race(row, c.vocab, c.rng, position, v->scratch, &left);
        emit(c, node, token);
        int child = t.child[node];
        for (; child >= 0; child = t.next[child]) {
            const int x = t.token[child];
            const bool repeats = is_earlier_sibling(t, node, child, x);
            const double p = certain >= 0 ? x == certain : (double)row[x];
            record_trial(c, child, match_probability(p, repeats, &left), 1);
            if (x == token)
                break;
        }
        node = child;
    }
}

static int residual_rows(const struct verify_request *)
{
    return 0;
}

const struct rule_body match_body = { "match", match_kernel, sizeof(struct verify_shared), residual_rows, true };

} // namespace DEVICE_SPACE
