#include "commands/exact/compare_logits.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

const char *const agreement_names[] = { "bitwise equal", "differ at ties only", "differ: a bug" };

double rounding_limit(enum activations a, enum type cache)
{
    static const double of_products[] = { [ACTIVATIONS_F32] = 1e-3, [ACTIVATIONS_BF16] = 0.3, [ACTIVATIONS_INT8] = 1 };
    assert(a != ACTIVATIONS_DEFAULT);
    const double of_cache = cache == F32 ? 0 : cache == BF16 ? 0.1 : 0.3;
    return fmax(of_products[a], of_cache);
}

struct logit_comparison comparison_start(double limit)
{
    return (struct logit_comparison){ .limit = limit, .first = { .sequence = -1 } };
}

static int argmax(const float *x, int n, float *second)
{
    int best = 0;
    *second = -INFINITY;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) {
            *second = x[best];
            best = i;
        } else if (x[i] > *second)
            *second = x[i];
    return best;
}

// Returns INFINITY if one logit is not a number and the other differs: rounding cannot cause that.
static double largest_difference(const float *a, const float *b, int n)
{
    double largest = 0;
    for (int i = 0; i < n; i++) {
        const double d = a[i] == b[i] ? 0 : fabs((double)a[i] - (double)b[i]);
        if (isnan(d))
            return INFINITY;
        largest = fmax(largest, d);
    }
    return largest;
}

static double spread_of(const float *x, int n)
{
    double mean = 0, squares = 0;
    for (int i = 0; i < n; i++)
        mean += (double)x[i] / n;
    for (int i = 0; i < n; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
    return sqrt(squares);
}

void comparison_add(struct logit_comparison *c, const float *single, const float *verified, int vocab, int64_t sequence,
                    int position)
{
    c->rows++;
    if (memcmp(single, verified, (size_t)vocab * sizeof(*single)) == 0)
        return;
    float second, unused;
    const int top = argmax(single, vocab, &second);
    const double moved = largest_difference(single, verified, vocab), spread = spread_of(single, vocab);
    const double apart = (double)single[top] - (double)second, share = moved > 0 ? moved / spread : 0;
    const bool bug = !(share <= c->limit), turned = argmax(verified, vocab, &unused) != top;
    c->different++;
    c->largest = fmax(c->largest, moved);
    c->share = fmax(c->share, share);
    c->ties += apart <= 2 * moved;
    c->turned += turned;
    c->bugs += bug;
    if ((bug || turned) && c->first.sequence < 0) {
        c->first.sequence = sequence;
        c->first.position = position;
        c->first.apart = apart;
        c->first.moved = moved;
        c->first.bug = bug;
    }
}

enum agreement comparison_result(const struct logit_comparison *c)
{
    return c->different == 0 ? BITWISE_EQUAL : c->bugs == 0 ? DIFFER_AT_TIES : DIFFER_BEYOND_ROUNDING;
}
