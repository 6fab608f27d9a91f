// mass.h - what one token is compared with: how much of its row lies before it in an order, and what the row makes one
// expect of a function.
//
// All of it comes from a single look at each entry. Nothing is sorted: F(x) of an order is the mass of the entries that
// come before x, and that is a sum over the row whatever the order is.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct mass {     // sums of p as it stands in the row, in double
    double all;   // the row's own sum
    double by_id; // of the tokens before x by id
    double by_p;  // before x in ascending order of p, ties by id
    double surprise, surprise_square;
    int p_best; // the likeliest token, the first of equals
    // With q only; else 0.
    double by_ratio; // before x in ascending order of q / p (mass_ratio), ties by id
    double above;    // where q > p
    double log_ratio, log_ratio_square;
    int q_best;
};

// What brings the rows to sums of 1.
struct mass_scale {
    float p, ratio; // multiplies p; multiplies q / p
};

struct mass mass_of(const float *p, const float *q, int vocab, struct mass_scale s, int32_t token); // q may be NULL

// The functions that the sums are about, for a token itself. They are rounded as a float's arithmetic rounds, in the
// sums as here: what is tested is these very functions.
float mass_ratio(float p, float q);                          // q / p
bool mass_above(float p, float q, struct mass_scale s);      // q > p
float mass_surprise(float p, struct mass_scale s);           // min(-log p, 8)
float mass_log_ratio(float p, float q, struct mass_scale s); // log q / p within 3 of 0
