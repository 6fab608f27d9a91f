// rng.h - the only two ways in which this program lets chance decide.
//
// Drafters and rules never see a random number; they toss a weighted coin or pick by weight.
// That is all they need, and it lets a test put a source here that walks through every outcome
// instead of drawing one: sampling/outcomes.h computes a rule's output law, it does not estimate it.
//
// Each toss carries its address: what it is for, at which root, for which node. The
// Philox source turns (seed, sequence, address) into bits and keeps no state, so a draw depends on
// nothing else: not on batch, tree, history or device; and a log of addresses proves that none is
// used twice.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/grid.h" // enum purpose
#include "core/workers.h"

// position is the root's place in the sequence, so that no address comes twice however trees follow one another
// (node 3 may stand at position 12 in two successive steps); for FOR_TOKEN it is the token's own place, and node is 0.
struct address {
    enum purpose purpose;
    int32_t position, node;
};

struct rng {
    bool (*accept)(struct rng *self, double num, double den,
                   struct address at); // true with probability min(1, num/den)
    int (*pick)(struct rng *self, const double *weight, int n, struct address at); // i with probability weight[i] / sum
    int32_t root; // place of the step's root in its sequence, set by whoever runs the loop: what the
                  // addresses of this step's drafter and rule give as position
    // pick from a row as models give it: the same answer, without writing it out in double. May be NULL.
    int (*pick_row)(struct rng *self, const float *weight, int n, struct address at);
};

int rng_pick_row(struct rng *r, const float *weight, int n, struct address at, double *work); // work: (n)

// coin answers false when num <= 0 (what is impossible never happens) and true when num >= den before it looks at a
// uniform; otherwise u * den < num. pick at a FOR_TOKEN address is an exponential race: the i with the smallest
// -log(1 - u_i) / weight[i], u_i from (address, i), so that two weightings that agree mostly pick the same i (Daliri,
// Musco, Suresh 2024). Every other pick inverts the cumulative sum, which is exact where weights are probabilities on
// their grid (core/grid.h). An index of zero weight is never returned.
//
// Philox4x32-10 (Salmon et al. 2011) from Random123. The key is the seed, the counter says what the draw is for:
//
//     word 0    purpose (3 bits) | node (10 bits) | block (19 bits)
//     word 1    position
//     word 2, 3 sequence, low half and high half
//
// Every field has bits of its own, so two draws share a counter only if they are the same draw. A block is 128 bits,
// two uniforms of 53: number 2 * block from words 0 and 1, number 2 * block + 1 from words 2 and 3. u = k * 2^-53 with
// k in [0, 2^53); a race's u is (k + 1/2) * 2^-53, never 0.
enum { PHILOX_NODES = 1 << 10, PHILOX_INDICES = 1 << 20 }; // node and index are below these

struct philox {
    struct rng rng; // first: a struct philox is a struct rng
    uint64_t seed, sequence;
    struct workers workers; // who works on a long row; { 0 } at first. No draw depends on it
};
const struct philox *philox_of(const struct rng *r); // NULL: it is another source
struct philox philox_source(uint64_t seed, uint64_t sequence);

// The bits themselves, for known-answer tests and for devices that must agree: 53-bit uniform number `index` of an
// address.
double philox_uniform(uint64_t seed, uint64_t sequence, struct address at, uint32_t index);

// Which draw that is: the words of its counter, as drawn above, and which half of their block: what a log of
// draws compares.
struct counter {
    uint32_t word[4], half;
};
struct counter philox_counter(uint64_t sequence, struct address at, uint32_t index);

// What coin and pick make of given uniforms, multiples of 2^-53 in [0, 1): the map that every source has in common.
// u: one; at a FOR_TOKEN address (n), to which a race's half step is yet to be added.
bool rng_accept_of(double u, double num, double den);
int rng_pick_of(const double *u, const double *weight, int n, struct address at);
