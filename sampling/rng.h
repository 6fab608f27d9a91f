// rng.h - the random source. All random decisions of drafters and rules are one of two operations.
//
//     accept   an acceptance test: true with probability min(1, num / den)
//     pick     a draw: index i with probability weight[i] / sum
//
// Drafters and rules never see a random number. A test can therefore replace the source by one that enumerates every
// outcome: sampling/outcomes.h computes the output distribution of a rule instead of estimating it.
//
// Each operation has an address: its purpose, the position of the root, the node. The Philox source maps (seed,
// sequence, address) to bits and keeps no state, so a result depends on nothing else: not on the batch, the tree, the
// history or the device. A log of addresses proves that none is used twice.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/grid.h" // enum purpose
#include "core/workers.h"

// position is the position of the root in its sequence, which differs in every step, so no address occurs twice (node 3
// itself can be at position 12 in two successive steps). For FOR_TOKEN it is the position of the token, and node is 0.
struct address {
    enum purpose purpose;
    int32_t position, node;
};

struct rng {
    bool (*accept)(struct rng *self, double num, double den,
                   struct address at); // true with probability min(1, num/den)
    int (*pick)(struct rng *self, const double *weight, int n, struct address at); // i with probability weight[i] / sum
    int32_t root; // position of this step's root in its sequence, for the addresses of drafter and rule; set by the
                  // decode loop
    // Picks from a row of floats, with the result of pick and without a copy in double. May be NULL.
    int (*pick_row)(struct rng *self, const float *weight, int n, struct address at);
};

int rng_pick_row(struct rng *r, const float *weight, int n, struct address at, double *work); // work: (n) scratch

// accept returns false if num <= 0 and true if num >= den, without using a uniform; otherwise it returns u * den < num.
// pick at a FOR_TOKEN address is an exponential race: it returns the i with the smallest -log(1 - u_i) / weight[i],
// with u_i from (address, i), so that similar weights usually give the same i (Daliri, Musco, Suresh 2024). Every other
// pick inverts the cumulative sum, which is exact if the weights are probabilities on the grid (core/grid.h). An index
// of weight zero is never returned.
//
// Philox4x32-10 (Salmon et al. 2011) from Random123. The key is the seed, the counter holds the address:
//
//     word 0    purpose (3 bits) | node (10 bits) | block (19 bits)
//     word 1    position
//     word 2, 3 sequence, low half and high half
//
// The fields do not overlap, so two draws share a counter only if they are the same draw. A block is 128 bits, which
// give two uniforms of 53 bits: number 2 * block from words 0 and 1, number 2 * block + 1 from words 2 and 3. u = k *
// 2^-53 with k in [0, 2^53). In a race u = (k + 1/2) * 2^-53, which is never 0.
enum { PHILOX_NODES = 1 << 10, PHILOX_INDICES = 1 << 20 }; // upper bounds of node and index, exclusive

struct philox {
    struct rng rng; // must be first
    uint64_t seed, sequence;
    struct workers workers; // workers for long rows; { 0 } initially. No result depends on it
};
const struct philox *philox_of(const struct rng *r); // NULL: r is another source
struct philox philox_source(uint64_t seed, uint64_t sequence);

// Returns the uniform number `index` of an address, for known-answer tests and
// for devices, which must give the same bits.
double philox_uniform(uint64_t seed, uint64_t sequence, struct address at, uint32_t index);

// Identifies a uniform: the words of its counter, as above, and the half of the block. Logs of draws compare these.
struct counter {
    uint32_t word[4], half;
};
struct counter philox_counter(uint64_t sequence, struct address at, uint32_t index);

// Computes a pick from a uniform, a multiple of 2^-53 in [0, 1), as acceptance_of (core/acceptance.h) computes accept.
// All sources share both functions, except for races, at FOR_TOKEN addresses.
int rng_invert(double u, const double *weight, int n);
