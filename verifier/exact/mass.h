// mass.h - statistics of a row against which one token is compared: the mass before it in several orders, and
// expectations of functions under the row.
//
// One pass over the row computes all of them. Nothing is sorted: F(x) in an order is the mass of the entries that
// precede x, a sum over the row for any order.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct mass {     // sums of p as given in the row, in double
    double all;   // the row's own sum
    double by_id; // mass of the tokens before x by id
    double by_p;  // mass before x in ascending order of p, ties by id
    double surprisal, surprisal_square;
    int p_argmax; // ties: the lowest id
    // The following are set if there is a row q, and are 0 otherwise.
    double by_ratio; // mass before x in ascending order of q / p (mass_ratio), ties by id
    double above;    // mass where q > p
    double log_ratio, log_ratio_square;
    int q_argmax;
};

// Factors that normalise the rows.
struct mass_scale {
    float p, ratio; // factors of p and of q / p
};

struct mass mass_of(const float *p, const float *q, int vocab, struct mass_scale s, int32_t token); // q may be NULL

// These compute the functions for a single token, with the float rounding of the sums: the tests are about exactly
// these functions.
float mass_ratio(float p, float q);                          // q / p
bool mass_above(float p, float q, struct mass_scale s);      // q > p
float mass_surprisal(float p, struct mass_scale s);          // min(-log p, 8)
float mass_log_ratio(float p, float q, struct mass_scale s); // log q / p, clamped to [-3, 3]
