// rng.c - Philox behind coin and pick: the one file that makes random numbers.
#include "sampling/rng.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <Random123/philox.h>

enum { NODE_SHIFT = 19, PURPOSE_SHIFT = 29 }; // of word 0, as rng.h draws it

static philox4x32_ctr_t philox_block(uint64_t seed, uint64_t sequence, struct address at, uint32_t block)
{
    assert((uint32_t)at.purpose < 1u << (32 - PURPOSE_SHIFT));
    assert(at.node >= 0 && at.node < PHILOX_NODES);
    assert(block < PHILOX_INDICES / 2);
    philox4x32_key_t key = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    philox4x32_ctr_t counter = { {
        (uint32_t)at.purpose << PURPOSE_SHIFT | (uint32_t)at.node << NODE_SHIFT | block,
        (uint32_t)at.position,
        (uint32_t)sequence,
        (uint32_t)(sequence >> 32),
    } };
    return philox4x32_R(10, counter, key);
}

// The 53 bits of one half of a block, as an integer: exact in a double.
static double bits53(philox4x32_ctr_t block, uint32_t half)
{
    uint64_t word = (uint64_t)block.v[2 * half + 1] << 32 | block.v[2 * half];
    return (double)(word >> 11);
}

double philox_uniform(uint64_t seed, uint64_t sequence, struct address at, uint32_t index)
{
    return bits53(philox_block(seed, sequence, at, index / 2), index % 2) * 0x1p-53;
}

static bool philox_coin(struct rng *self, double num, double den, struct address at)
{
    const struct philox *p = (const struct philox *)self;
    if (num <= 0)
        return false;
    if (num >= den) // before the uniform: with num == den, u * den < num may fail in the last bit
        return true;
    return philox_uniform(p->seed, p->sequence, at, 0) * den < num;
}

// The sum is taken in the order of the walk below, so the walk ends at exactly that sum, and u < 1 lands inside it.
static int pick_by_inversion(const struct philox *p, const double *weight, int n, struct address at)
{
    double sum = 0, below = 0;
    for (int i = 0; i < n; i++)
        sum += weight[i];
    double target = philox_uniform(p->seed, p->sequence, at, 0) * sum;
    int last = -1;
    for (int i = 0; i < n; i++) {
        if (!(weight[i] > 0))
            continue;
        last = i;
        below += weight[i];
        if (below > target)
            break;
    }
    assert(last >= 0); // a row with no mass is nothing to pick from
    return last;
}

// Everyone runs at the speed of its weight, the first at the line wins. The uniform of index i is the same whatever the
// weights, which is what makes two races alike. 1 - u is never formed: winners have u near 0, where a double has bits
// to spare.
static int pick_by_race(const struct philox *p, const double *weight, int n, struct address at)
{
    int winner = -1;
    double best = INFINITY;
    for (int i = 0; i < n; i += 2) {
        bool runs[2] = { weight[i] > 0, i + 1 < n && weight[i + 1] > 0 };
        if (!runs[0] && !runs[1])
            continue;
        philox4x32_ctr_t block = philox_block(p->seed, p->sequence, at, (uint32_t)i / 2);
        for (int half = 0; half < 2; half++) {
            if (!runs[half])
                continue;
            double w = weight[i + half];
            double u = (bits53(block, (uint32_t)half) + 0.5) * 0x1p-53;
            if (winner >= 0 && u >= best * w) // -log(1 - u) >= u: too late, and most need no logarithm to see it
                continue;
            double time = -log1p(-u) / w;
            if (winner < 0 || time < best) {
                best = time;
                winner = i + half;
            }
        }
    }
    assert(winner >= 0);
    return winner;
}

static int philox_pick(struct rng *self, const double *weight, int n, struct address at)
{
    const struct philox *p = (const struct philox *)self;
    return at.purpose == FOR_TOKEN ? pick_by_race(p, weight, n, at) : pick_by_inversion(p, weight, n, at);
}

struct philox philox_source(uint64_t seed, uint64_t sequence)
{
    return (struct philox){ { philox_coin, philox_pick, 0 }, seed, sequence };
}
