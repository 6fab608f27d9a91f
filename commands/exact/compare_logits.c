#include "commands/exact/compare_logits.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

const char *const same_names[] = { "the same bits", "differ, but at ties only", "differ: a bug" };

double rounding_limit(enum activations a, enum type cache)
{
    static const double of_products[] = { [ACTIVATIONS_F32] = 1e-3, [ACTIVATIONS_BF16] = 0.3, [ACTIVATIONS_INT8] = 1 };
    assert(a != ACTIVATIONS_DEFAULT);
    const double of_cache = cache == F32 ? 0 : cache == BF16 ? 0.1 : 0.3;
    return fmax(of_products[a], of_cache);
}

struct compared compared_nothing(double limit)
{
    return (struct compared){ .limit = limit, .first = { .sequence = -1 } };
}

static int argmax(const float *x, int n, float *next)
{
    int best = 0;
    *next = -INFINITY;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) {
            *next = x[best];
            best = i;
        } else if (x[i] > *next)
            *next = x[i];
    return best;
}

// INFINITY where either is no number and they are not the same: rounding makes none.
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

void compared_add(struct compared *c, const float *one, const float *verified, int vocab, int64_t sequence, int place)
{
    c->rows++;
    if (memcmp(one, verified, (size_t)vocab * sizeof(*one)) == 0)
        return;
    float next, ignored;
    const int likely = argmax(one, vocab, &next);
    const double moved = largest_difference(one, verified, vocab), spread = spread_of(one, vocab);
    const double apart = (double)one[likely] - (double)next, share = moved > 0 ? moved / spread : 0;
    const bool bug = !(share <= c->limit), turned = argmax(verified, vocab, &ignored) != likely;
    c->different++;
    c->largest = fmax(c->largest, moved);
    c->share = fmax(c->share, share);
    c->ties += apart <= 2 * moved;
    c->turned += turned;
    c->bugs += bug;
    if ((bug || turned) && c->first.sequence < 0) {
        c->first.sequence = sequence;
        c->first.place = place;
        c->first.apart = apart;
        c->first.moved = moved;
        c->first.bug = bug;
    }
}

enum same compared_same(const struct compared *c)
{
    return c->different == 0 ? SAME_BITS : c->bugs == 0 ? NEAR_TIES : OTHERWISE;
}
